"""Draws the two charts of the report as inline SVG; colours come from the page's style sheet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element, SubElement

import numpy as np

from decider.calibration import Bin, RiskCoverage

SIDE: Final = 220
LEFT: Final = 44
TOP: Final = 12
COUNTS: Final = 48  # height of the strip with the bins' counts, below the diagram
WIDTH: Final = LEFT + SIDE + 12
POINTS: Final = 200  # a curve is drawn with at most so many points


def reliability_chart(bins: Sequence[Bin], predicted: str, outcome: str) -> Element:
    """Draw predicted probability against the share that came true, with 95 % intervals and the counts of the bins."""
    chart = _frame(f"{outcome} against {predicted}", TOP + SIDE + COUNTS + 40, outcome)
    _line(chart, "even", 0, 0, 1, 1)
    for one in bins:
        _line(chart, "interval", one.predicted, one.low, one.predicted, one.high)
        point = SubElement(chart, "circle", {"class": "point", "cx": _x(one.predicted), "cy": _y(one.share), "r": "3"})
        _title(point, f"{one.count} answers, predicted {one.predicted:.3f}, came true {one.share:.3f}")
    largest = max((one.count for one in bins), default=1)
    base = TOP + SIDE + 24 + COUNTS
    for one in bins:
        height = COUNTS * one.count / largest
        place = {"x": f"{LEFT + SIDE * one.predicted - 3:.2f}", "y": f"{base - height:.2f}", "width": "6"}
        bar = SubElement(chart, "rect", {"class": "count", **place, "height": f"{height:.2f}"})
        _title(bar, f"{one.count} answers")
    _text(chart, LEFT + SIDE / 2, base + 14, f"{predicted}; below: answers, at most {largest} a bin", "middle")
    return chart


def risk_chart(curve: RiskCoverage) -> Element:
    """Draw the share of wrong answers against the share of answers used, the most confident first."""
    chart = _frame("wrong among used against share used", TOP + SIDE + 40, "wrong among used")
    places = np.unique(np.linspace(0, len(curve.coverage) - 1, min(POINTS, len(curve.coverage))).round().astype(int))
    points = " ".join(f"{_x(float(curve.coverage[place]))},{_y(float(curve.risk[place]))}" for place in places)
    SubElement(chart, "polyline", {"class": "curve", "points": points})
    _text(chart, LEFT + SIDE / 2, TOP + SIDE + 34, "share of answers used", "middle")
    return chart


def _frame(title: str, height: int, vertical: str) -> Element:
    size = {"viewBox": f"0 0 {WIDTH} {height}", "width": str(WIDTH), "height": str(height)}
    chart = Element("svg", {**size, "role": "img", "aria-label": title})
    SubElement(
        chart,
        "rect",
        {"class": "frame", "x": str(LEFT), "y": str(TOP), "width": str(SIDE), "height": str(SIDE)},
    )
    for share in (0.0, 0.5, 1.0):
        _text(chart, LEFT - 6, TOP + SIDE * (1 - share) + 4, f"{share:g}", "end")
        _text(chart, LEFT + SIDE * share, TOP + SIDE + 14, f"{share:g}", "middle")
    label = _text(chart, 0, 0, vertical, "middle")
    label.set("transform", f"translate(12 {TOP + SIDE // 2}) rotate(-90)")
    return chart


def _line(chart: Element, kind: str, x1: float, y1: float, x2: float, y2: float) -> None:
    SubElement(chart, "line", {"class": kind, "x1": _x(x1), "y1": _y(y1), "x2": _x(x2), "y2": _y(y2)})


def _text(chart: Element, x: float, y: float, text: str, anchor: str) -> Element:
    element = SubElement(chart, "text", {"x": f"{x:g}", "y": f"{y:g}", "text-anchor": anchor})
    element.text = text
    return element


def _title(element: Element, text: str) -> None:
    SubElement(element, "title").text = text


def _x(share: float) -> str:
    return f"{LEFT + SIDE * share:.2f}"


def _y(share: float) -> str:
    return f"{TOP + SIDE * (1 - share):.2f}"
