"""The command that measures the decider on the CPU, and the page that shows what it wrote."""

from __future__ import annotations

import re
import time
from pathlib import Path

import decider_cpu
import pytest
from decider_cpu import Figure, line, ratio
from pages import table_of

from decider import Choice, Decider, Noul, Question
from decider.model import SHIPPED_MODEL

TINY = Path(__file__).parent / "data" / "tiny_decider"
PAGE = Path(__file__).parent.parent / "docs" / "decider-runtime.md"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """States and questions that the tiny model has room for."""
    choice = Choice({"a": None, "b": None}, "Which?")
    noul = Noul("Is it?")
    for name, value in {"STATE": "seats", "MORE": " free", "DESCRIBED": choice, "NAMED": choice, "NOUL": noul}.items():
        monkeypatch.setattr(decider_cpu, name, value)


def busy(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_ratio_is_how_many_times_slower_the_first_is() -> None:
    assert 2.5 < ratio(lambda: busy(0.03), lambda: busy(0.01), 3) < 3.5


@pytest.mark.parametrize(
    ("figure", "missed", "shown"),
    [
        (Figure("a", 3.0, "times", 4.0, "at least"), True, "| a | 3 times | at least 4 |"),
        (Figure("a", 4.256, "times", 4.0, "at least"), False, "| a | 4.26 times | at least 4 |"),
        (Figure("a", 26.0, "MB", 25), True, "| a | 26 MB | at most 25 |"),
        (Figure("a", 0.0000012, "", 1e-5), False, "| a | 1.2e-06 | at most 1e-05 |"),
        (Figure("a", 0.0, ""), False, "| a | 0 | |"),
        (Figure("a", float("nan"), "times", 4.0, "at least"), True, "| a | nan times | at least 4 |"),
    ],
)
def test_a_figure_is_held_against_its_goal(figure: Figure, missed: bool, shown: str) -> None:
    assert (figure.missed, line(figure)) == (missed, shown)


@pytest.mark.usefixtures("small")
def test_fresh_processes_answer_and_tell_their_time_and_memory() -> None:
    load, peak = decider_cpu.fresh_processes(TINY, 1)
    assert (load.unit, peak.unit) == ("CPU s", "MB")
    assert 0.01 < load.value < 20
    assert 20 < peak.value < 400


@pytest.mark.usefixtures("small")
def test_every_part_measures() -> None:
    pytest.importorskip("onnx")
    decider = Decider.load(TINY, "cpu", threads=1)
    parts = (decider_cpu.one_call_for_all, decider_cpu.against_the_session, decider_cpu.passes, decider_cpu.quick_copy)
    figures = [figure for part in parts for figure in part(decider, 1)]
    assert len(figures) == 6 + 2 + 1 + 1
    assert all(figure.value > 0 for figure in figures)
    assert max(figure.value for figure in decider_cpu.exactness(decider)) < 1e-5


def test_eight_names_are_eight_questions() -> None:
    asked: dict[str, Question] = decider_cpu.eight(decider_cpu.NOUL)
    assert len(asked) == 8


def test_the_page_shows_every_figure_and_no_goal_is_missed() -> None:
    model, empty, *rows = table_of(PAGE.read_text(encoding="utf-8"), "decider-cpu").splitlines()
    assert (model, empty) == (decider_cpu.which_model(SHIPPED_MODEL), ""), "measure anew: make figures"
    assert "\n".join(rows[:2]) == decider_cpu.HEAD
    found = [
        re.fullmatch(r"\| (.+) \| ([\d.e+-]+)[^|]* \| (?:(at most|at least) ([\d.e+-]+) )?\|", row) for row in rows[2:]
    ]
    assert len(found) == 5 + 6 + 2 + 1 + 1
    for match in found:
        assert match is not None
        name, value, kind, goal = match.groups()
        if kind:
            reached = float(value) <= float(goal) if kind == "at most" else float(value) >= float(goal)
            assert reached, name
