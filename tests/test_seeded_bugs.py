"""Every known bug that is put into the engine turns a law red, and the page that shows which is right."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from pages import marks
from seeded_bugs import BUGS, LANGGRAPH, Bug, broken, caught_by, checks, function_of, lines, read, seeded

from minigraph import step

PAGE = (Path(__file__).parent.parent / "docs" / "how-it-is-tested.md").read_text(encoding="utf-8")
SHOWN = read(PAGE)
HAS_LANGGRAPH = importlib.util.find_spec("langgraph") is not None


def name_of(bug: Bug) -> str:
    return bug.what.replace(" ", "-")


def test_the_page_shows_every_bug() -> None:
    assert list(SHOWN) == [bug.what for bug in BUGS]
    assert "\n".join(lines(SHOWN)) in PAGE


def test_every_law_notices_some_bug() -> None:
    assert {name for found in SHOWN.values() for name in found} == set(checks())


@pytest.mark.parametrize("bug", BUGS, ids=name_of)
def test_what_the_page_says_turns_red_does_so_with_the_bug_and_not_without(bug: Bug) -> None:
    shown = {name: seed for name, seed in SHOWN[bug.what].items() if HAS_LANGGRAPH or name != LANGGRAPH}
    assert shown.keys() - {LANGGRAPH}, "no law but the comparison with LangGraph notices this bug"
    assert [name for name, seed in shown.items() if broken(name, seed)] == []
    with seeded(bug):
        assert [name for name, seed in shown.items() if not broken(name, seed)] == []


def test_a_bug_is_in_the_engine_for_the_time_of_the_block() -> None:
    bug = Bug("", "minigraph.step:merge_order", "task.node, 0)", "task.node[::-1], 0)")
    before = step.merge_order
    from minigraph.records import Task

    task = Task("1", "ab")
    with seeded(bug):
        assert step.merge_order is before
        assert step.merge_order(task) == (False, "ba", 0)
    assert step.merge_order(task) == (False, "ab", 0)
    assert function_of(bug) is step.merge_order


def test_a_bug_whose_place_is_gone_is_an_error() -> None:
    with (
        pytest.raises(ValueError, match=r"replaces 'no such text', which minigraph\.step:merge no longer holds"),
        seeded(Bug("x", "minigraph.step:merge", "no such text", "")),
    ):
        pass


def test_the_command_finds_what_the_page_says() -> None:
    (bug,) = (bug for bug in BUGS if bug.what == "A reducer is applied twice")
    assert caught_by(bug, 1, 1).keys() >= {"steps follow the rules"}


def test_a_table_survives_its_page() -> None:
    table = {"one": {"a law": 3, "another": 0}, "two": {"a law": 1}}
    begin, end = marks("seeded bugs")
    page = f"# x\n{begin}" + "\n".join(lines(table)) + f"\n{end}\nrest"
    assert read(page) == table
    assert lines({"one": {}})[-1] == "| one | **nothing** |"
