"""A page that shows how far a model's probabilities can be relied on: `decider report MODEL CASES --out FILE`."""

from decider.report.command import add_report
from decider.report.families import Answered, Family, ask, families
from decider.report.page import report_page
from decider.report.robustness import Shift, Wordings, measure_robustness, read_wordings

__all__ = [
    "Answered",
    "Family",
    "Shift",
    "Wordings",
    "add_report",
    "ask",
    "families",
    "measure_robustness",
    "read_wordings",
    "report_page",
]
