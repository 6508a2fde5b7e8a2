"""Writes the report as one HTML file that needs nothing else: no scripts, no fonts, no pictures from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

from decider.calibration import Certificate
from decider.manifest import Manifest
from decider.report.chart import reliability_chart, risk_chart
from decider.report.families import Family
from decider.report.robustness import EXACT, Shift

LARGEST_CONFUSION: Final = 20
STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #fff; --quiet: #6b6b6b; --rule: #d8d8d8; --mark: #1f5fbf;
  --bad: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #161616; --quiet: #a0a0a0; --rule: #3a3a3a; --mark: #7fb0ff; --bad: #ff8a80; } }
body { color: var(--ink); background: var(--paper); font: 15px/1.5 system-ui, sans-serif; max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
.quiet { color: var(--quiet); } .bad { color: var(--bad); font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .75rem 0; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--rule); padding: .2rem .7rem .2rem 0; text-align: right; }
th:first-child, td:first-child { text-align: left; }
details { border-top: 1px solid var(--rule); padding: .4rem 0; } summary { cursor: pointer; font-weight: 600; }
.charts { display: flex; flex-wrap: wrap; gap: 1.5rem; }
svg { max-width: 100%; height: auto; } svg text { fill: var(--quiet); font-size: 11px; }
.frame { fill: none; stroke: var(--rule); } .even { stroke: var(--quiet); stroke-dasharray: 4 4; }
.interval { stroke: var(--mark); opacity: .45; } .point, .count { fill: var(--mark); }
.curve { fill: none; stroke: var(--mark); stroke-width: 1.5; }
"""


def report_page(
    manifest: Manifest, source: str, families: Sequence[Family], shifts: Sequence[Shift], cut: int, asked: int
) -> str:
    """Return the page. `source` names the cases, `asked` counts their questions, `cut` those of states not read whole.

    `shifts` may be empty: then the page says nothing about robustness.
    """
    page = Element("html", {"lang": "en"})
    head = SubElement(page, "head")
    SubElement(head, "meta", {"charset": "utf-8"})
    SubElement(head, "meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"})
    _text(head, "title", f"Report on the decision model {manifest.name}")
    _text(head, "style", STYLE)
    body = SubElement(page, "body")
    _introduction(body, manifest, source, cut, asked)
    _overview(body, families)
    _text(body, "h2", "Families of questions")
    for number, family in enumerate(families):
        _family(body, family, opened=number == 0)
    if shifts:
        _robustness(body, shifts)
    return "<!DOCTYPE html>\n" + tostring(page, encoding="unicode", method="html") + "\n"


def _introduction(body: Element, manifest: Manifest, source: str, cut: int, asked: int) -> None:
    _text(body, "h1", f"Report on the decision model {manifest.name}")
    temperatures = ", ".join(f"{kind} {value:.3f}" for kind, value in sorted(manifest.calibration.temperatures.items()))
    shown = f" ({temperatures})" if temperatures else ""
    _text(
        body,
        "p",
        f"{asked} questions of {source}. Model sha256 {manifest.sha256[:16]}, calibration {manifest.calibration.name}"
        f"{shown}. Questions about states that were not read in full: {cut}.",
    )
    _text(
        body,
        "p",
        "Intervals of shares are Wilson's at 95 %. NLL is the mean of -ln p of what is right, Brier the squared "
        "distance of the probabilities from it, ECE the mean distance between predicted and observed, in 15 bins of "
        "equal width and in 15 of equal mass. They describe these cases; a low ECE is no guarantee for others.",
    ).set("class", "quiet")


def _overview(body: Element, families: Sequence[Family]) -> None:
    _text(body, "h2", "Overview")
    titles = (
        "questions",
        "type",
        "count",
        "accuracy",
        "95 % interval",
        "NLL",
        "Brier",
        "ECE width",
        "ECE mass",
        "AURC",
    )
    rows = []
    for family in families:
        share = family.scores.accuracy
        figures = [
            family.scores.nll,
            family.scores.brier,
            family.scores.ece_width,
            family.scores.ece_mass,
            family.curve.area,
        ]
        interval = f"{share.low:.3f} to {share.high:.3f}"
        rows.append(
            [family.name, family.scores.type, str(share.count), f"{share.share:.3f}", interval, *map(_short, figures)]
        )
    _table(body, titles, rows)


def _family(body: Element, family: Family, *, opened: bool) -> None:
    section = SubElement(body, "details", {"open": "open"} if opened else {})
    share = family.scores.accuracy
    _text(section, "summary", f"{family.name} ({family.scores.type}): {share.correct} of {share.count} right")
    charts = SubElement(section, "div", {"class": "charts"})
    predicted, outcome = "P(yes)", "share of yes"
    if family.scores.type != "noul":
        predicted, outcome = "probability of the best", "share right"
    charts.append(reliability_chart(family.bins, predicted, outcome))
    charts.append(risk_chart(family.curve))
    if family.interval_width is not None:
        _text(section, "p", f"Mean width of the interval of P(yes): {family.interval_width:.3f}.")
    if family.scores.unanswerable_confidence is not None:
        _text(
            section,
            "p",
            f"Asked {family.scores.unanswerable} times about states that do not hold the answer: mean confidence "
            f"{family.scores.unanswerable_confidence:.3f} (0 is an even spread).",
        )
    _certificates(section, family.certificates)
    _confusion(section, family)


def _certificates(section: Element, certificates: Sequence[Certificate]) -> None:
    _text(section, "p", "Thresholds on the probability of the decision that these cases certify:")
    entries = SubElement(section, "ul")
    for one in certificates:
        _text(entries, "li", str(one))


def _confusion(section: Element, family: Family) -> None:
    labels = sorted({label for pair in family.confusion for label in pair})
    if len(labels) > LARGEST_CONFUSION:
        _text(section, "p", f"{len(labels)} different outcomes: too many to count out in a table.")
        return
    rows = [[right, *(str(family.confusion.get((right, said), 0)) for said in labels)] for right in labels]
    _table(section, ("right \\ said", *labels), rows)


def _robustness(body: Element, shifts: Sequence[Shift]) -> None:
    _text(body, "h2", "Robustness")
    _text(
        body,
        "p",
        "The same asked in another way. A move is the largest change of a probability of one answer; for a denial, of "
        "P(A) + P(not A) from 1. The order of questions and options, and which others are asked, must move nothing "
        f"(at most {EXACT:g}).",
    ).set("class", "quiet")
    titles = ("what was changed", "answers", "mean move", "95 % below", "largest", "decisions changed", "95 % interval")
    for section in dict.fromkeys(each.section for each in shifts):
        _text(body, "h3", section)
        rows = []
        for each in (each for each in shifts if each.section == section):
            moves = [each.mean, each.high, each.largest]
            shown = [f"{move:.1e}" if each.exact else _short(move) for move in moves]
            interval = f"{each.low_share:.3f} to {each.high_share:.3f}"
            changed = f"{each.changed} ({each.changed / each.count:.3f})"
            rows.append([each.name, str(each.count), *shown, changed, interval])
        _table(body, titles, rows)
        for broken in (each for each in shifts if each.section == section and not each.holds):
            _text(body, "p", f"{broken.name}: moved by {broken.largest:.2g}, and must not move.").set("class", "bad")


def _table(parent: Element, titles: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    table = SubElement(SubElement(parent, "div", {"class": "wide"}), "table")
    top = SubElement(SubElement(table, "thead"), "tr")
    for title in titles:
        _text(top, "th", title)
    body = SubElement(table, "tbody")
    for row in rows:
        line = SubElement(body, "tr")
        for cell in row:
            _text(line, "td", cell)


def _text(parent: Element, tag: str, text: str) -> Element:
    element = SubElement(parent, tag)
    element.text = text
    return element


def _short(value: float) -> str:
    return f"{value:.3f}"
