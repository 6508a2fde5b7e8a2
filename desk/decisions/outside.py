"""Counts how often the router would act on text that is none of the desk's business.

Each text is put before the router as a request, with three sets of records: a confirmed place, an event alone, nothing.
The desk acts when the router's step is any but ``escalate`` at ``tau_route`` or more; a model that fails or has not
read everything hands the case over, as in the desk's own graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Final

import msgspec

from decider.calibration import wilson_interval
from desk import edges
from desk.judgement import judge_route
from desk.policy import Case, Event, Registration
from desk.thresholds import default_thresholds

if TYPE_CHECKING:
    from decider import DecisionModel

SAYS_NOTHING: Final[Mapping[str, str]] = {
    "empty": "",
    "a space": " ",
    "blank lines": "\n\t \n\r\n",
    "no-break spaces": "\u00a0\u2007\u202f",
    "zero width": "\u200b\u200d\ufeff",
}
TOO_LONG: Final[Mapping[str, str]] = {
    "50 kB of one wish": "Please cancel my place. " * 2084,
    "50 kB of prose": "The rain had stopped and the market filled with people who had nothing to buy. " * 633,
    "50 kB of one letter": "a" * 50_000,
    "50 kB of digits": "0123456789" * 5_000,
}
ODD: Final[Mapping[str, str]] = {
    "one letter": "x",
    "one digit": "7",
    "a question mark": "?",
    "a lone surrogate": "\ud83d",
    "control characters": "\x00\x01\x1b[31m",
    "emoji": "\U0001f980\U0001f388\U0001f389",
    "Python": "def area(r):\n    return 3.14159 * r ** 2\n\nprint(area(4))",
    "SQL": "SELECT name, total FROM orders WHERE total > 500 ORDER BY name;",
    "JSON": '{"level": "warn", "code": 17, "tags": ["a", "b"]}',
    "a stack trace": 'Traceback (most recent call last):\n  File "run.py", line 3, in <module>\nKeyError: "seats"',
    "HTML": "<ul><li>one</li><li>two</li></ul>",
    "base64": "aGVsbG8gd29ybGQsIHRoaXMgaXMgYSB0ZXN0",
    "Chinese": "\u4eca\u5929\u7684\u5929\u6c14\u5f88\u597d\u3002",
    "Arabic": "\u0627\u0644\u0637\u0642\u0633 \u062c\u0645\u064a\u0644 \u0627\u0644\u064a\u0648\u0645.",
    "Russian": "\u0421\u0435\u0433\u043e\u0434\u043d\u044f \u0445\u043e\u0440\u043e\u0448\u0430\u044f "
    "\u043f\u043e\u0433\u043e\u0434\u0430.",
    "Hindi": "\u0906\u091c \u092e\u094c\u0938\u092e \u0905\u091a\u094d\u091b\u093e \u0939\u0948\u0964",
    "Japanese": "\u4eca\u65e5\u306f\u3044\u3044\u5929\u6c17\u3067\u3059\u306d\u3002",
    "Greek": "\u03a3\u03ae\u03bc\u03b5\u03c1\u03b1 \u03ad\u03c7\u03b5\u03b9 \u03ae\u03bb\u03b9\u03bf.",
    "one word a hundred times": "tomato " * 100,
    "markers of the model": "[CLS] [SEP] [N] [O] [unused1] [PAD]",
}
BUILT_IN: Final[Mapping[str, Mapping[str, str]]] = {"says nothing": SAYS_NOTHING, "too long": TOO_LONG, "odd": ODD}
"""Texts that come with this module; the first two kinds must never be acted on."""
MUST_ABSTAIN: Final = ("says nothing", "too long")

_EVENT: Final = Event("E7", "knot tying", "Ghent", date(2026, 5, 20), 20, 11, False, 240)
_PLACE: Final = Registration("Noor Peeters", "noor.peeters@example.org", "confirmed", 240)
_TODAY: Final = date(2026, 4, 20)
RECORDS: Final[Sequence[tuple[Event | None, Registration | None]]] = ((_EVENT, _PLACE), (_EVENT, None), (None, None))


class OutsideFigure(msgspec.Struct, frozen=True):
    """How many texts there were, how often they were put before the router, and how often it acted."""

    texts: int
    asked: int
    acted: int


def acts(model: DecisionModel, case: Case) -> bool:
    """Tell whether the desk would go on with a case by itself, or ask its writer, and not hand it over."""
    state: dict[str, object] = {"thresholds": default_thresholds(), "route": None, "p_route": None}
    try:
        judged = judge_route(model, case)
    except Exception:  # as in the desk's router: whatever failed, the case goes to a person
        return False
    return edges.after_router({**state, "route": judged.route, "p_route": judged.p_route}) != "escalate"


def measure_outside(model: DecisionModel, texts: Mapping[str, Sequence[str]]) -> dict[str, OutsideFigure]:
    """Put every text, with each set of records, before the router; the keys are kinds of text."""
    figures: dict[str, OutsideFigure] = {}
    for kind, found in texts.items():
        cases = [Case(_TODAY, event, registration, text) for text in found for event, registration in RECORDS]
        figures[kind] = OutsideFigure(len(found), len(cases), sum(acts(model, case) for case in cases))
    return figures


def outside_table(figures: Mapping[str, OutsideFigure]) -> Iterator[str]:
    """Yield the lines of a Markdown table, a kind of text a line and all of them last."""
    yield "| text | texts | requests | acted on | share (95 % interval) |"
    yield "|---|---|---|---|---|"
    whole = [sum(getattr(one, field) for one in figures.values()) for field in OutsideFigure.__struct_fields__]
    for kind, one in {**figures, "all": OutsideFigure(*whole)}.items():
        low, high = wilson_interval(one.acted, one.asked)
        share = one.acted / one.asked if one.asked else 0.0
        yield f"| {kind} | {one.texts} | {one.asked} | {one.acted} | {share:.3f} ({low:.3f} to {high:.3f}) |"
