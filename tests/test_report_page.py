"""The report is one well-formed file that needs nothing else, and its charts show the figures."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np
import pytest

from decider import NoulAnswer
from decider.calibration import reliability, risk_coverage
from decider.manifest import read_manifest
from decider.report.chart import COUNTS, LEFT, POINTS, SIDE, TOP, reliability_chart, risk_chart
from decider.report.command import main
from decider.report.families import Answered, families
from decider.report.page import report_page
from decider.report.robustness import Shift

TINY = Path(__file__).parent / "data" / "tiny_decider"
VOID = {"meta", "br", "hr", "img", "input", "link"}


class Checker(HTMLParser):
    """Follows the tags, and keeps what could load something or run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.loads += [name for name, _ in attrs if name in ("src", "href", "srcset") or name.startswith("on")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert checker.loads == []
    assert not {"script", "link", "iframe", "img", "object"} & set(checker.tags)
    assert not re.search(r"https?:|url\(|@import", page)
    return checker


def test_reliability_is_drawn_where_the_numbers_say() -> None:
    # Two bins: 3 predictions of mean 0.2 with a third true, 1 of 0.9 that is true.
    chart = reliability_chart(reliability([0.1, 0.2, 0.3, 0.9], [0, 0, 1, 1], bins=2), "P(yes)", "share of yes")
    points = [(float(each.get("cx", "")), float(each.get("cy", ""))) for each in chart.iter("circle")]
    expected = [(LEFT + SIDE * 0.2, TOP + SIDE * 2 / 3), (LEFT + SIDE * 0.9, TOP)]
    assert np.array(points) == pytest.approx(np.array(expected), abs=0.01)
    bars = [each for each in chart.iter("rect") if each.get("class") == "count"]
    assert [float(each.get("height", "")) for each in bars] == [COUNTS, COUNTS / 3]
    assert {float(each.get("y", "")) + float(each.get("height", "")) for each in bars} == {TOP + SIDE + 24 + COUNTS}
    lines = [each for each in chart.iter("line") if each.get("class") == "interval"]
    assert float(lines[1].get("y2", "")) == TOP  # 1 of 1: Wilson's interval reaches to 1
    assert float(lines[1].get("y1", "")) == pytest.approx(TOP + SIDE * (1 - 0.2065), abs=0.02)
    assert next(title.text for title in chart.iter("title")) == "3 answers, predicted 0.200, came true 0.333"


def polyline(chart: Element) -> list[tuple[float, float]]:
    (line,) = chart.iter("polyline")
    pairs = (point.split(",") for point in line.get("points", "").split())
    return [(float(x), float(y)) for x, y in pairs]


def test_risk_is_drawn_where_the_numbers_say() -> None:
    drawn = polyline(risk_chart(risk_coverage([0.9, 0.8, 0.7, 0.6], [0, 1, 0, 1])))
    shares = np.array([(0.25, 0), (0.5, 0.5), (0.75, 1 / 3), (1, 0.5)])
    expected = np.column_stack([LEFT + SIDE * shares[:, 0], TOP + SIDE * (1 - shares[:, 1])])
    assert np.array(drawn) == pytest.approx(expected, abs=0.01)


def test_a_long_curve_is_drawn_with_few_points_and_to_its_end() -> None:
    drawn = polyline(risk_chart(risk_coverage(np.linspace(1, 0, 5000), np.zeros(5000))))
    assert len(drawn) == POINTS
    assert drawn[-1] == (LEFT + SIDE, TOP + SIDE)


def page(name: str = "a", shifts: list[Shift] | None = None) -> str:
    answered = [Answered(name, NoulAnswer(p), p > 0.4) for p in (0.1, 0.5, 0.9)]
    answered.append(Answered(name, NoulAnswer(0.7), None, cut=True))
    return report_page(read_manifest(TINY), "cases.jsonl", families(answered), shifts or [], 1, 4)


def test_the_page_is_well_formed_and_says_what_was_measured() -> None:
    text = page()
    assert checked(text).tags.count("svg") == 4
    assert text.startswith("<!DOCTYPE html>")
    assert "a (noul): 3 of 3 right" in text
    assert "Nothing can be certified (at most 10 % wrong" in text
    assert "read in full: 1." in text
    assert "mean confidence 0.400" in text
    assert "prefers-color-scheme: dark" in text
    assert "Robustness" not in text


def test_names_are_text_whatever_they_hold() -> None:
    text = page("<script>alert('&amp;')</script>\"")
    checked(text)
    assert "&lt;script&gt;alert('&amp;amp;')&lt;/script&gt;" in text


def test_what_moved_and_must_not_is_said() -> None:
    broken = Shift("Order and company", "in reverse", 9, 0.1, 0.2, 0.25, 3, 0.1, 0.6, exact=True)
    kept = Shift("Order and company", "alone", 9, 1e-7, 2e-7, 3e-7, 0, 0, 0.3, exact=True)
    text = page(shifts=[broken, kept])
    checked(text)
    assert "in reverse: moved by 0.25, and must not move." in text
    assert "alone: moved" not in text
    assert "<td>3 (0.333)</td>" in text


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = {
        "open": {"type": "noul", "instructions": "Is the door open?"},
        "colour": {"type": "choice", "criteria": {"red": None, "blue": None}},
    }
    lines = [
        {"state": f"door {place}", "questions": questions, "answers": {"open": place % 2 == 0, "colour": "red"}}
        for place in range(6)
    ]
    cases, out = tmp_path / "cases.jsonl", tmp_path / "report.html"
    cases.write_text("\n".join(map(json.dumps, lines)))
    wordings = tmp_path / "w.json"
    wordings.write_text(json.dumps({"open": {"base": questions["open"], "same": [questions["open"]]}}))
    arguments = [str(TINY), str(cases), "--out", str(out), "--provider", "cpu", "--threads", "1", "--robustness", "3"]
    assert main([*arguments, "--wordings", str(wordings)]) == 0
    assert capsys.readouterr().out == f"12 questions, 4 families, written to {out}\n"
    text = out.read_text()
    checked(text)
    assert "questions and options in reverse" in text
    assert "other words, the same question" in text
    assert main([str(TINY), str(tmp_path / "none.jsonl"), "--out", str(out)]) == 2
    assert "none.jsonl" in capsys.readouterr().err
