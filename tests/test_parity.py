"""Random programs give the same on this engine as on LangGraph, and parts of a long sweep add up."""

from __future__ import annotations

import importlib.util
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from parity import summed

from minigraph.testing import compare, draw_program
from minigraph.testing.oracle import Table, smaller, static_reason, sweep
from minigraph.testing.programs import Fork, Input, Join, NodeSpec, Program, Put, RouterSpec, SendTo
from minigraph.testing.traces import first_difference, plain
from minigraph.types import START

needs_langgraph = pytest.mark.skipif(importlib.util.find_spec("langgraph") is None, reason="LangGraph is not installed")
LOG = (Put("log"), Put("total"))


def two_writers() -> Program:
    """Two nodes of one step append to the same list."""
    return Program((NodeSpec("z", "write", LOG), NodeSpec("a", "write", LOG)), ((START, "z"), (START, "a")))


def joined() -> Program:
    """A join whose sources finish in different steps."""
    nodes = tuple(NodeSpec(name, "write", LOG) for name in "abcd")
    return Program(nodes, ((START, "a"), (START, "b"), ("b", "c")), joins=(Join(("a", "c"), "d"),))


@needs_langgraph
@pytest.mark.parametrize("start", range(0, 150, 50))
def test_programs_give_the_same(start: int) -> None:
    table = sweep(range(start, start + 50))
    assert table.different == []
    assert table.compared >= 35
    assert table.calls > 100


@needs_langgraph
@pytest.mark.slow
@pytest.mark.parametrize("start", range(10_000, 12_000, 100))
def test_more_programs_give_the_same(start: int, request: pytest.FixtureRequest) -> None:
    if "slow" not in str(request.config.getoption("markexpr")):
        pytest.skip("a long sweep: -m slow runs it")
    assert sweep(range(start, start + 100)).different == []


@needs_langgraph
@pytest.mark.parametrize("program", [two_writers(), joined()], ids=["two writers", "joined"])
def test_programs_written_by_hand_give_the_same(program: Program) -> None:
    assert compare(program).outcome == "same"


@needs_langgraph
def test_a_different_program_is_made_small() -> None:
    big = draw_program(Random(4), size=8)
    small = smaller(big, lambda program: len(program.nodes) >= 2)
    assert len(small.nodes) == 2
    assert (small.edges, small.routers, small.joins) == ((), (), ())


def test_what_langgraph_cannot_speak_for_is_said_before_running() -> None:
    program = joined()
    assert static_reason(program) == ""
    assert static_reason(replace(program, joins=(Join(("a", "d"), "d"),))) == "a join leads to one of its own sources"
    assert "fork" in static_reason(replace(program, turns=(Input(0), Fork(1, "a", LOG))))
    failing = RouterSpec("a", "r0", (("b",),), fails_once=True)
    assert static_reason(replace(program, routers=(failing,))) == "a router fails"


def test_programs_come_back_from_their_numbers_and_their_text() -> None:
    programs = [draw_program(Random(seed)) for seed in range(30)]
    assert programs == [draw_program(Random(seed)) for seed in range(30)]
    assert len({repr(program) for program in programs}) == 30
    kinds = {node.kind for seed in range(200) for node in draw_program(Random(seed)).nodes}
    assert len(kinds) == 11


def test_a_difference_is_found_with_its_place() -> None:
    assert first_difference((1, (2, 3)), (1, (2, 3))) == ""
    assert first_difference((1, (2, 3)), (1, (2, 4))) == "trace[1][1]: 3 against 4"
    assert plain({"s": {"b", "a"}, "t": (1,), "l": [1]}) == (
        "dict", ("s", ("set", "a", "b")), ("t", ("tuple", 1)), ("l", ("list", 1)),
    )  # fmt: skip


@needs_langgraph
def test_a_conflict_in_a_waiting_step_is_outside_even_where_its_end_is_never_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("minigraph.testing.traces.ROUNDS", 1)
    twice = (NodeSpec("z", "write", (Put("plain"),)), NodeSpec("a", "write", (Put("plain"),)))
    asks = NodeSpec("m", "ask_twice", LOG)
    program = Program((*twice, asks), ((START, "z"), (START, "a"), (START, "m")))
    assert compare(program).detail == "writes conflict in a step that waits or failed"
    assert compare(Program((*twice[:1], asks), ((START, "z"), (START, "m")))).outcome == "same"


def printed(first: int, last: int, hash_seed: str = "") -> str:
    table = Table(last - first, 20, 30, Counter({"ok": 18, "failed": 2}), Counter({"a router fails": 1}))
    return "\n".join(
        [*table.lines(), "", f"seeds {first} to {last}, 7 s{hash_seed and f', PYTHONHASHSEED {hash_seed}'}"]
    )


def test_parts_of_a_sweep_are_added_up() -> None:
    assert summed([printed(10, 19, "1"), printed(0, 9, "0")]) == [
        "| what | count |",
        "|---|---:|",
        "| programs compared | 18 |",
        "| calls compared | 40 |",
        "| checkpoints compared | 60 |",
        "| calls that ended: failed | 4 |",
        "| calls that ended: ok | 36 |",
        "| outside the contract: a router fails | 2 |",
        "| differences | 0 |",
        "",
        "20 programs, seeds 0 to 19 in 2 parts, PYTHONHASHSEED 0, 1.",
    ]
    assert summed([printed(0, 9)])[-1].endswith("PYTHONHASHSEED not noted.")


def test_parts_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="seed 9 is in two"):
        summed([printed(0, 9), printed(9, 19)])
    with pytest.raises(ValueError, match="names its seeds"):
        summed(["\n".join(Table().lines())])
    with pytest.raises(ValueError, match="it is 0"):
        summed(["\n".join(Table(different=[(1, "x")]).lines()) + "\n\nseeds 0 to 1, 1 s"])


def test_a_program_whose_tasks_multiply_without_end_is_given_up() -> None:
    twice = (SendTo("a", 0), SendTo("a", 1))
    nodes = (NodeSpec("a", "nothing"),)
    program = Program(nodes, ((START, "a"),), routers=(RouterSpec("a", "r0", (twice,)),), budget=1000)
    assert compare(program).detail == "tasks multiply without end"
