"""Answers as branches, the difference of two checkpoints, and the search for the one at which something turned."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import math
import operator
import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Annotated, Any, TypedDict

import numpy as np
import pytest
from conftest import Sync, ask, build, chain, checkpoint_before, fan, open_ids, say, sources, thread, words

from minigraph import (
    END,
    MISSING,
    Command,
    CompiledGraph,
    Difference,
    GraphOutput,
    Overwrite,
    Send,
    StateSnapshot,
    interrupt,
)
from minigraph.checkpoint import InMemorySaver, Saver, SqliteSaver
from minigraph.errors import (
    AmbiguousAnswerError,
    NoTurnError,
    UnknownCheckpointError,
    UnknownInterruptError,
)
from minigraph.records import Ancestor, Checkpoint, Stored
from minigraph.testing import build as build_program
from minigraph.testing import draw_program, minigraph_engine
from minigraph.testing import run as run_program
from minigraph.types import Interrupt

T = thread()


def call(run: Sync, graph: CompiledGraph, method: str, *arguments: Any, **options: Any) -> Any:
    """Calls a method of a graph, or its twin in a loop of its own."""
    if run.is_async:
        return asyncio.run(getattr(graph, "a" + method)(*arguments, **options))
    return getattr(graph, method)(*arguments, **options)


def asking(saver: Saver) -> CompiledGraph:
    """p, then a question, then z."""
    return build({"p": say("p"), "q": ask("q"), "z": say("z")}, chain("p", "q", "z"), saver)


def paused(run: Sync, graph: CompiledGraph) -> dict[str, Any]:
    """Runs to the first question, and gives the config of the checkpoint that asks."""
    run.invoke(graph, {}, T)
    found: dict[str, Any] = run.state(graph, T).config
    return found


def tails(difference: Difference) -> list[list[str]]:
    """The two paths in words."""
    return [[str(step) for step in path] for path in difference.paths]


# ------------------------------------------------------------------------------ answer


def test_two_answers_to_one_question_are_two_branches(run: Sync, saver: Saver) -> None:
    graph = asking(saver)
    at = paused(run, graph)
    assert call(run, graph, "answer", at, "yes")["log"] == ["p", ("q", "yes"), "z"]
    first = run.state(graph, T)
    assert call(run, graph, "answer", at, "no")["log"] == ["p", ("q", "no"), "z"]
    second = run.state(graph, T)
    assert call(run, graph, "answer", at, "perhaps")["log"] == ["p", ("q", "perhaps"), "z"]
    assert run.state(graph, first.config).values["log"] == ["p", ("q", "yes"), "z"]
    assert run.state(graph, second.config).values["log"] == ["p", ("q", "no"), "z"]
    assert [s.next for s in run.history(graph, T)].count(("q",)) == 3


def test_without_a_checkpoint_the_head_is_answered(run: Sync, saver: Saver) -> None:
    graph = asking(saver)
    paused(run, graph)
    assert call(run, graph, "answer", T, "yes")["log"] == ["p", ("q", "yes"), "z"]
    assert sources(graph, T) == [("loop", 3), ("loop", 2), ("loop", 1), ("loop", 0), ("input", -1)]
    with pytest.raises(UnknownInterruptError, match="no question waits"):
        call(run, graph, "answer", T, "again")


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}, {"k": 1}, {"0" * 32: "x"}])
def test_any_value_is_an_answer_at_the_head_and_later(run: Sync, value: Any) -> None:
    graph = asking(InMemorySaver())
    at = paused(run, graph)
    (question,) = run.state(graph, T).interrupts
    for named in (question, question.id):
        assert call(run, graph, "answer", at, value, question=named)["log"][1] == ("q", value)
    if value != {"0" * 32: "x"}:
        assert call(run, graph, "answer", at, value)["log"][1] == ("q", value)


def test_a_dict_of_ids_is_a_dict_of_answers_unless_the_question_is_named(run: Sync) -> None:
    graph = build({"a": ask("a"), "b": ask("b")}, fan("a", "b"), InMemorySaver())
    at = paused(run, graph)
    ids = open_ids(graph, T)
    both = {ids["a"]: 1, ids["b"]: 2}
    assert call(run, graph, "answer", at, both)["log"] == [("a", 1), ("b", 2)]
    assert call(run, graph, "answer", at, {ids["a"]: 3})["log"] == [("a", 3), ("b", 2)]  # b keeps its answer
    assert call(run, graph, "answer", at, both, question=ids["a"])["log"] == [("a", both), ("b", 2)]


def test_of_several_questions_one_is_named(run: Sync, saver: Saver) -> None:
    graph = build({"a": ask("a"), "b": ask("b")}, fan("a", "b"), saver)
    at = paused(run, graph)
    a, b = sorted(run.state(graph, T).interrupts, key=lambda question: str(question.value))
    with pytest.raises(AmbiguousAnswerError, match="question=") as caught:
        call(run, graph, "answer", at, 1)
    assert set(caught.value.ids) == {a.id, b.id}
    assert call(run, graph, "answer", at, 1, question=a)["__interrupt__"] == [b]
    assert call(run, graph, "answer", at, 2)["log"] == [("a", 1), ("b", 2)]
    with pytest.raises(AmbiguousAnswerError):
        call(run, graph, "answer", at, 3)
    assert call(run, graph, "answer", at, 3, question=b.id)["log"] == [("a", 1), ("b", 3)]


def test_a_second_question_of_a_node_and_the_first_again(run: Sync) -> None:
    graph = build({"n": lambda s: {"log": ask("one")(s)["log"] + ask("two")(s)["log"]}}, chain("n"), InMemorySaver())
    at = paused(run, graph)
    (one,) = run.state(graph, T).interrupts
    (two,) = call(run, graph, "answer", at, 1)["__interrupt__"]
    with pytest.raises(UnknownInterruptError) as caught:
        call(run, graph, "answer", at, 5, question=one)  # accepted once as long as the task has not ended
    assert caught.value.ids == (one.id,)
    assert call(run, graph, "answer", at, 2)["log"] == [("one", 1), ("two", 2)]
    assert call(run, graph, "answer", at, 3, question=two)["log"] == [("one", 1), ("two", 3)]
    (again,) = call(run, graph, "answer", at, 4)["__interrupt__"]
    assert again.value == "two"
    assert call(run, graph, "answer", T, 6)["log"] == [("one", 4), ("two", 6)]


def test_a_question_of_a_child_graph_is_answered_twice(run: Sync, saver: Saver) -> None:
    inner = build({"q": ask("inner")}, chain("q"))
    middle = build({"i": inner, "m": say("m")}, chain("i", "m"))
    graph = build({"p": say("p"), "c": middle, "z": say("z")}, chain("p", "c", "z"), saver)
    at = paused(run, graph)
    (question,) = run.state(graph, T).interrupts
    assert call(run, graph, "answer", at, 1)["log"] == ["p", ("inner", 1), "m", "z"]
    assert call(run, graph, "answer", at, 2)["log"] == ["p", ("inner", 2), "m", "z"]
    assert call(run, graph, "answer", at, 3, question=question)["log"] == ["p", ("inner", 3), "m", "z"]


def test_a_child_graph_that_asks_twice_is_answered_from_its_first_question(run: Sync, saver: Saver) -> None:
    child = build({"a": ask("a"), "b": ask("b")}, chain("a", "b"))
    graph = build({"c": child}, chain("c"), saver)
    at = paused(run, graph)
    assert call(run, graph, "answer", at, 1)["__interrupt__"][0].value == "b"
    assert call(run, graph, "answer", at, 2)["log"] == [("a", 1), ("b", 2)]
    (again,) = call(run, graph, "answer", at, 3)["__interrupt__"]
    assert again.value == "b"
    assert call(run, graph, "answer", T, 4)["log"] == [("a", 3), ("b", 4)]


def three_questions(state: Any) -> dict[str, Any]:
    """Asks one, two and three."""
    return {"log": [interrupt("one"), interrupt("two"), interrupt("three")]}


@pytest.mark.parametrize("inside", [False, True])
def test_new_answers_to_questions_in_a_row_are_all_used(run: Sync, saver: Saver, inside: bool) -> None:
    asks: Any = build({"q": three_questions}, chain("q")) if inside else three_questions
    graph = build({"n": asks, "z": say("z")}, chain("n", "z"), saver)
    at = paused(run, graph)
    ids = []
    for number in (1, 2, 3):
        ids.append(run.state(graph, T).interrupts[0].id)
        found = run.invoke(graph, Command(resume=number), T)
    assert found["log"] == [1, 2, 3, "z"]
    one, two, three = ids
    assert call(run, graph, "answer", at, {one: "m1", two: "m2", three: "m3"})["log"] == ["m1", "m2", "m3", "z"]
    assert call(run, graph, "answer", at, {three: "m3", two: None})["log"] == [1, None, "m3", "z"]
    (again,) = call(run, graph, "answer", at, {two: "m2", one: "m1"})["__interrupt__"]
    assert again.value == "three"
    assert call(run, graph, "answer", T, "m3")["log"] == ["m1", "m2", "m3", "z"]
    before = run.history(graph, T)
    with pytest.raises(
        UnknownInterruptError, match=f"{three} cannot be answered: not in the same call as {one}"
    ) as caught:
        call(run, graph, "answer", at, {one: "m1", three: "m3"})
    assert caught.value.ids == (three,)
    assert run.history(graph, T) == before


def test_new_answers_to_a_task_and_to_its_child_graph_are_not_mixed(run: Sync, saver: Saver) -> None:
    child = build({"q": ask("inner")}, chain("q"))

    def node(state: Any) -> dict[str, Any]:
        return {"log": [interrupt("before"), *child.invoke({})["log"], interrupt("after")]}

    graph = build({"n": node}, chain("n"), saver)
    at = paused(run, graph)
    ids = {}
    for number in (1, 2, 3):
        (question,) = run.state(graph, T).interrupts
        ids[question.value] = question.id
        found = run.invoke(graph, Command(resume=number), T)
    assert found["log"] == [1, ("inner", 2), 3]
    before = run.history(graph, T)
    for own in ("before", "after"):
        with pytest.raises(UnknownInterruptError, match="not in the same call") as caught:
            call(run, graph, "answer", at, {ids[own]: "m", ids["inner"]: "m2"})
        assert caught.value.ids == (ids[own],)
    assert run.history(graph, T) == before
    assert call(run, graph, "answer", at, {ids["inner"]: "m2"})["__interrupt__"][0].value == "after"


@pytest.mark.parametrize("named", ["0" * 32, "", "q", "0" * 31, "G" * 32, Interrupt("q", "f" * 32)])
def test_an_unknown_question_is_refused_and_nothing_is_written(run: Sync, named: Any) -> None:
    graph = asking(InMemorySaver())
    at = paused(run, graph)
    for _ in range(2):
        before = run.history(graph, T)
        with pytest.raises(UnknownInterruptError) as caught:
            call(run, graph, "answer", at, 1, question=named)
        assert caught.value.ids == (named.id if isinstance(named, Interrupt) else named,)
        assert run.history(graph, T) == before
        if not before[0].next:
            return
        call(run, graph, "answer", at, "yes")


@pytest.mark.parametrize("named", [0, False, {}, ["0" * 32], b"0" * 32])
def test_a_question_is_an_interrupt_or_an_id(run: Sync, named: Any) -> None:
    graph = asking(InMemorySaver())
    with pytest.raises(TypeError, match="question="):
        call(run, graph, "answer", paused(run, graph), 1, question=named)


def test_where_nothing_was_asked_an_answer_is_refused(run: Sync, saver: Saver) -> None:
    graph = build({"p": say("p"), "z": say("z")}, chain("p", "z"), saver, interrupt_before=["z"])
    run.invoke(graph, {}, T)
    before = run.history(graph, T)
    for shot in before:
        with pytest.raises(UnknownInterruptError, match=r"step -?\d"):
            call(run, graph, "answer", shot.config, 1)
    assert run.history(graph, T) == before


def test_an_answer_needs_a_thread_that_ran_and_a_checkpoint_that_is_there(run: Sync) -> None:
    with pytest.raises(UnknownInterruptError, match="never ran"):
        call(run, asking(InMemorySaver()), "answer", T, 1)
    with pytest.raises(UnknownCheckpointError, match="'none'"):
        call(run, asking(InMemorySaver()), "answer", {"configurable": {"thread_id": "t", "checkpoint_id": "none"}}, 1)
    with pytest.raises(ValueError, match="no checkpointer"):
        call(run, build({"q": ask("q")}, chain("q")), "answer", T, 1)
    with pytest.raises(ValueError, match="thread"):
        call(run, asking(InMemorySaver()), "answer", {}, 1)


def test_the_answer_of_a_child_is_given_to_the_root(run: Sync) -> None:
    child = build({"q": ask("q")}, chain("q"))
    graph = build({"c": child}, chain("c"), InMemorySaver())
    paused(run, graph)
    inside = run.state(graph, T).tasks[0].state
    with pytest.raises(ValueError, match="give input and answers to the root graph"):
        call(run, graph, "answer", inside, 1)


def test_the_options_of_invoke_are_passed_on(run: Sync) -> None:
    graph = asking(InMemorySaver())
    found = call(run, graph, "answer", paused(run, graph), 1, version="v2", interrupt_before=["z"])
    assert found == GraphOutput({"log": ["p", ("q", 1)]})
    assert run.state(graph, T).next == ("z",)


# -------------------------------------------------------------------------------- diff


def test_two_answers_differ_in_the_step_that_took_them(run: Sync, saver: Saver) -> None:
    graph = asking(saver)
    at = paused(run, graph)
    call(run, graph, "answer", at, "yes")
    yes = run.state(graph, T).config
    call(run, graph, "answer", at, "no")
    found = call(run, graph, "diff", yes, T)
    assert found.step == 2
    assert found.common == at
    assert tails(found) == [["2 q", "3 z"], ["2 (fork)", "3 q", "4 z"]]
    assert found.paths[0][-1].config == yes
    assert found.values == {"log": (["p", ("q", "yes"), "z"], ["p", ("q", "no"), "z"])}
    assert found.next is None
    other = call(run, graph, "diff", T, yes)
    assert (other.step, other.common) == (2, at)
    assert other.paths == found.paths[::-1]
    assert other.values == {"log": found.values["log"][::-1]}
    assert str(found).splitlines() == [
        f"first difference at step 2; both come from checkpoint {at['configurable']['checkpoint_id']}",
        "path of a: 2 q, 3 z",
        "path of b: 2 (fork), 3 q, 4 z",
        "key 'log': ['p', ('q', 'yes'), 'z'] -> ['p', ('q', 'no'), 'z']",
    ]


def test_a_checkpoint_does_not_differ_from_itself(run: Sync, saver: Saver) -> None:
    graph = asking(saver)
    at = paused(run, graph)
    for a, b in ((at, at), (T, at), (at, T), (T, T)):
        found = call(run, graph, "diff", a, b)
        assert found == Difference(None, at, ((), ()), {}, None, None)
        assert str(found) == "no difference: the same steps, the same state and the same tasks due next"


def test_what_came_later_differs_by_its_steps(run: Sync, saver: Saver) -> None:
    graph = build(words("a b c"), chain("a", "b", "c"), saver)
    run.invoke(graph, {}, T)
    early = checkpoint_before(graph, T, "b")
    found = call(run, graph, "diff", early, T)
    assert (found.step, found.common, tails(found)) == (2, early, [[], ["2 b", "3 c"]])
    assert found.values == {"log": (["a"], ["a", "b", "c"])}
    assert found.next == (("b",), ())
    assert str(found).splitlines()[1:] == [
        "path of a: no further step",
        "path of b: 2 b, 3 c",
        "key 'log': ['a'] -> ['a', 'b', 'c']",
        "next: b -> nothing",
    ]


def test_a_replay_without_changes_is_no_difference(run: Sync, saver: Saver) -> None:
    graph = build(words("a b c"), chain("a", "b", "c"), saver)
    run.invoke(graph, {}, T)
    end, early = run.state(graph, T).config, checkpoint_before(graph, T, "b")
    graph.replay(early)
    graph.replay(early)
    found = call(run, graph, "diff", end, T)
    assert (found.step, found.common, found.values, found.next) == (None, early, {}, None)
    assert tails(found) == [["2 b", "3 c"], ["2 (fork)", "3 b", "4 c"]]
    half_way = next(s.config for s in run.history(graph, T) if s.next == ("c",))
    assert call(run, graph, "diff", end, half_way).step == 3


def test_an_edit_is_a_step_of_its_own(run: Sync, saver: Saver) -> None:
    graph = build(words("a b"), chain("a", "b"), saver)
    run.invoke(graph, {}, T)
    end, early = run.state(graph, T).config, checkpoint_before(graph, T, "b")
    graph.fork(early, {"value": 5}, as_node="b")
    found = call(run, graph, "diff", end, T)
    assert (found.step, tails(found)) == (2, [["2 b"], ["2 (update)"]])
    assert found.values == {"log": (["a", "b"], ["a"]), "value": (MISSING, 5)}
    assert "key 'value': MISSING -> 5" in str(found)


def test_ways_that_part_and_meet_again_differ_in_the_step_alone(run: Sync) -> None:
    def choose(state: Any) -> Command[str]:
        return Command(goto=interrupt("where?"))

    graph = build({"q": choose, **words("y z"), "end": lambda s: {"log": Overwrite([])}}, chain("q"), InMemorySaver(),
                  routers=[("y", lambda s: "end"), ("z", lambda s: "end")])  # fmt: skip
    at = paused(run, graph)
    call(run, graph, "answer", at, "y")
    left = run.state(graph, T).config
    call(run, graph, "answer", at, "z")
    found = call(run, graph, "diff", left, T)
    assert (found.step, found.values, found.next) == (1, {}, None)
    assert tails(found) == [["1 q", "2 y", "3 end"], ["1 (fork)", "2 q", "3 z", "4 end"]]
    assert str(found).splitlines()[-1] == "state: the same in the end"


def test_threads_are_compared_by_content(run: Sync, saver: Saver) -> None:
    graph = build({"a": say("a"), "b": lambda s: {"value": len(s["log"])}}, chain("a", "b"), saver)
    other = thread("u")
    for config, given in ((T, []), (other, []), (thread("v"), ["x"])):
        run.invoke(graph, {"log": given}, config)
    found = call(run, graph, "diff", T, other)
    assert (found.step, found.common, found.paths) == (None, None, ((), ()))
    found = call(run, graph, "diff", T, thread("v"))
    assert (found.step, found.common) == (-1, None)
    assert tails(found) == [["-1 (input)", "0 __start__", "1 a", "2 b"]] * 2
    assert found.values == {"log": (["a"], ["x", "a"]), "value": (1, 2)}
    assert "they share no checkpoint" in str(found)


def test_threads_that_part_later_show_the_rest_of_their_ways(run: Sync, saver: Saver) -> None:
    graph = asking(saver)
    at = paused(run, graph)
    saver.copy_thread("t", "u")
    call(run, graph, "answer", T, "yes")
    call(run, graph, "answer", thread("u"), "yes")
    call(run, graph, "answer", {"configurable": {**at["configurable"], "thread_id": "u"}}, "no")
    found = call(run, graph, "diff", T, thread("u"))
    assert (found.step, found.common) == (2, None)
    assert tails(found) == [["2 q", "3 z"], ["2 (fork)", "3 q", "4 z"]]
    longer = call(run, graph, "diff", at, thread("u"))
    assert (longer.step, tails(longer)) == (3, [[], ["2 (fork)", "3 q", "4 z"]])


def test_a_pruned_thread_begins_where_its_parents_are_gone(run: Sync, saver: Saver) -> None:
    graph = build(words("a b c"), chain("a", "b", "c"), saver)
    run.invoke(graph, {}, T)
    end, early = run.state(graph, T).config, checkpoint_before(graph, T, "b")
    graph.fork(early, {"value": 1}, as_node="a")
    graph.resume(T)
    saver.prune("t", keep=5)  # b and c of the first run, the edit, b and c of the second
    assert len(run.history(graph, T)) == 5
    found = call(run, graph, "diff", end, T)
    assert (found.common, found.step) == (None, 2)
    assert tails(found) == [["2 b", "3 c"], ["2 (update)", "3 b", "4 c"]]
    assert call(run, graph, "bisect", T, lambda s: "c" in s.values["log"]).metadata["step"] == 4


def test_a_copy_whose_parent_is_gone_counts_as_a_step(run: Sync, saver: Saver) -> None:
    graph = build(words("a b"), chain("a", "b"), saver)
    run.invoke(graph, {}, T)
    early = checkpoint_before(graph, T, "b")
    graph.replay(early)
    run.invoke(graph, {}, thread("u"))
    saver.prune("t", keep=2)  # the copy, and b
    saver.prune("u", keep=2)  # a, and b
    found = call(run, graph, "diff", T, thread("u"))
    assert found.step == 1  # no node ran for the copy
    assert tails(found) == [["2 (fork)", "3 b"], ["1 a", "2 b"]]
    assert found.values == {}
    assert "state: the same in the end" in str(found)


ODD: list[tuple[Any, Any, bool]] = [
    (1, True, False),
    (1, 1.0, False),
    (float("nan"), float("nan"), True),
    ([1], (1,), False),
    (None, 0, False),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
    (np.arange(3), np.arange(3), True),
    (np.arange(3), np.arange(3.0), False),
    ([np.arange(3)], [np.arange(4)], False),
]


@dataclasses.dataclass
class Unanswering:
    """Its == gives no truth value."""

    n: int

    def __eq__(self, other: object) -> Any:
        return np.array([True, False])

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("a", "b", "equal"), [*ODD, (Unanswering(1), Unanswering(1), True), (Unanswering(1), 1, False)]
)
def test_values_are_compared_exactly(run: Sync, a: Any, b: Any, equal: bool) -> None:
    graph = build({"a": lambda s: None}, chain("a"), InMemorySaver())
    for config, value in ((T, a), (thread("u"), b)):
        run.invoke(graph, {"value": value}, config)
    found = call(run, graph, "diff", T, thread("u"))
    assert (found.step is None, "value" not in found.values) == (equal, equal)
    assert str(found)


def test_sends_differ_by_what_they_carry(run: Sync, saver: Saver) -> None:
    graph = build(
        {"q": ask("q"), "w": lambda arg: {"value": None}}, chain("q"), saver,
        routers=[("q", lambda s: [Send("w", s["log"][-1][1])])], interrupt_before=["w"],
    )  # fmt: skip
    at = paused(run, graph)
    call(run, graph, "answer", at, 1)
    one = run.state(graph, T).config
    call(run, graph, "answer", at, 1.0)
    found = call(run, graph, "diff", one, T)
    assert found.next == ((Send("w", 1),), (Send("w", 1.0),))
    assert str(found).splitlines()[-1] == "next: Send(node='w', arg=1) -> Send(node='w', arg=1.0)"


def test_checkpoints_of_a_child_graph_can_be_compared_and_searched(run: Sync, saver: Saver) -> None:
    child = build({"a": say("a"), "q": ask("q")}, chain("a", "q"))
    graph = build({"c": child}, chain("c"), saver)
    paused(run, graph)
    inside = run.state(graph, T).tasks[0].state
    first, *_, last = run.history(graph, inside)
    found = call(run, graph, "diff", last.config, inside)
    assert (found.step, found.common) == (0, last.config)
    assert found.values == {"log": (MISSING, ["a"])} or found.values == {"log": ([], ["a"])}
    turned = call(run, graph, "bisect", inside, lambda s: bool(s.values.get("log")))
    assert turned.config == first.config


def test_a_thread_or_checkpoint_that_is_not_there_is_named(run: Sync, saver: Saver) -> None:
    graph = asking(saver)
    paused(run, graph)
    unknown = {"configurable": {"thread_id": "t", "checkpoint_id": "none"}}
    for a, b, name in ((T, thread("gone"), "'gone'"), (thread("gone"), T, "'gone'"), (T, unknown, "'none'")):
        with pytest.raises(UnknownCheckpointError, match=name):
            call(run, graph, "diff", a, b)
    for config, name in ((thread("gone"), "'gone'"), (unknown, "'none'")):
        with pytest.raises(UnknownCheckpointError, match=name):
            call(run, graph, "bisect", config, lambda s: True)


def test_a_long_difference_is_shown_in_part(run: Sync) -> None:
    graph = build(
        {"n": lambda s: {"log": ["word" * 100]}}, chain("n"), InMemorySaver(),
        routers=[("n", lambda s: END if len(s["log"]) == 40 else "n")],
    )  # fmt: skip
    run.invoke(graph, {}, T)
    found = call(run, graph, "diff", run.history(graph, T)[-1].config, T)
    assert len(found.paths[1]) == 41
    assert "... (41 in all)" in str(found)
    assert max(map(len, str(found).splitlines())) < 500


def test_missing_is_one_and_reads_well() -> None:
    assert (repr(MISSING), str(MISSING), f"{MISSING}") == ("MISSING", "MISSING", "MISSING")
    assert pickle.loads(pickle.dumps(MISSING)) is copy.deepcopy(MISSING) is MISSING


# ------------------------------------------------------------------------------ bisect


def counting(saver: Saver, steps: int) -> CompiledGraph:
    """A thread whose key n counts the steps of a loop."""

    class State(TypedDict):
        n: Annotated[int, operator.add]

    graph = build(
        {"n": lambda s: {"n": 1}}, chain("n"), saver,
        routers=[("n", lambda s: END if s["n"] == steps else "n")], state=State,
    )  # fmt: skip
    graph.invoke({"n": 0}, {**T, "recursion_limit": steps})
    return graph


class Counted:
    """A predicate that notes what it was shown."""

    def __init__(self, predicate: Callable[[StateSnapshot], Any]) -> None:
        self.predicate, self.seen = predicate, list[int]()

    def __call__(self, shot: StateSnapshot) -> bool:
        assert shot.metadata is not None
        self.seen.append(shot.metadata["step"])
        found: bool = self.predicate(shot)
        return found


@pytest.mark.parametrize("turn", [1, 2, 33, 63, 64])
def test_a_turn_is_found_in_few_looks(run: Sync, saver: Saver, turn: int) -> None:
    graph = counting(saver, 64)  # 66 checkpoints: the input, its step, and 64 more
    looks = Counted(lambda s: s.values["n"] >= turn)
    found = call(run, graph, "bisect", T, looks)
    assert found.values == {"n": turn}
    assert found == run.state(graph, found.config)
    assert len(looks.seen) == len(set(looks.seen)) <= 2 + math.ceil(math.log2(66))
    every = Counted(looks.predicate)
    assert call(run, graph, "bisect", T, every, monotone=False) == found
    assert every.seen == list(range(-1, turn + 1))


def test_the_search_ends_at_the_checkpoint_in_the_config(run: Sync) -> None:
    graph = counting(InMemorySaver(), 9)
    at = next(s.config for s in run.history(graph, T) if s.values["n"] == 5)
    assert call(run, graph, "bisect", at, lambda s: s.values["n"] >= 5).config == at
    with pytest.raises(NoTurnError):
        call(run, graph, "bisect", at, lambda s: s.values["n"] >= 6)


@pytest.mark.parametrize("monotone", [True, False])
def test_no_turn_is_an_error_that_says_why(run: Sync, saver: Saver, monotone: bool) -> None:
    graph = counting(saver, 3)
    with pytest.raises(NoTurnError, match="is not true there") as caught:
        call(run, graph, "bisect", T, lambda s: False, monotone=monotone)
    assert isinstance(caught.value, ValueError)
    assert not caught.value.at_oldest
    oldest = run.history(graph, T)[-1]
    with pytest.raises(NoTurnError, match="true already") as caught:
        call(run, graph, "bisect", T, lambda s: True, monotone=monotone)
    assert caught.value.at_oldest
    with pytest.raises(NoTurnError) as caught:
        call(run, graph, "bisect", T, lambda s: s.values["n"] < 2, monotone=monotone)
    assert caught.value.at_oldest
    for said in (True, False):
        with pytest.raises(NoTurnError) as caught:
            call(run, graph, "bisect", oldest.config, lambda s, said=said: said, monotone=monotone)
        assert caught.value.at_oldest is said


def test_the_first_of_several_turns_is_found_by_looking_at_all(run: Sync) -> None:
    graph = counting(InMemorySaver(), 9)
    found = call(run, graph, "bisect", T, lambda s: s.values["n"] in (3, 4, 7, 9), monotone=False)
    assert found.values == {"n": 3}
    found = call(run, graph, "bisect", T, lambda s: s.values["n"] not in (3, 4, 7), monotone=False)
    assert found.values == {"n": 5}  # true from the oldest on, and turned after it had ceased to be


def test_parents_are_followed_and_not_the_order_of_writing(run: Sync, saver: Saver) -> None:
    graph = asking(saver)
    at = paused(run, graph)
    call(run, graph, "answer", at, "yes")
    yes = run.state(graph, T).config
    call(run, graph, "answer", at, "no")
    call(run, graph, "answer", at, "perhaps")
    seen = Counted(lambda s: len(s.values.get("log", ())) > 1)
    found = call(run, graph, "bisect", yes, seen, monotone=False)
    assert seen.seen == [-1, 0, 1, 2]
    assert found.values["log"] == ["p", ("q", "yes")]
    assert call(run, graph, "bisect", T, seen).values["log"] == ["p", ("q", "perhaps")]


def test_an_error_of_the_predicate_goes_through_and_names_the_checkpoint(run: Sync) -> None:
    graph = counting(InMemorySaver(), 5)
    for monotone in (True, False):
        with pytest.raises(ZeroDivisionError) as caught:
            call(run, graph, "bisect", T, lambda s: 1 / 0, monotone=monotone)
        (note,) = caught.value.__notes__
        assert re.search(r"checkpoint '[0-9a-f]{32}' \(step (4|-1)\)", note) or "step 5" in note


def test_a_predicate_is_a_plain_function(run: Sync) -> None:
    graph = counting(InMemorySaver(), 2)

    async def late(shot: StateSnapshot) -> bool:
        return True

    with pytest.raises(TypeError, match="plain function"):
        call(run, graph, "bisect", T, late)
    assert call(run, graph, "bisect", T, lambda s: np.bool_(s.values["n"] == 2)).values == {"n": 2}
    with pytest.raises(ValueError, match="ambiguous"):
        call(run, graph, "bisect", T, lambda s: np.array([True, False]))


def test_few_states_are_read(run: Sync, tmp_path: Path) -> None:
    class Counting(SqliteSaver):
        reads = 0

        def get(self, *place: Any, **options: Any) -> Stored | None:
            self.reads += 1
            return super().get(*place, **options)

    saver = Counting(tmp_path / "t.db")
    with saver:
        graph = counting(saver, 200)
        saver.reads = 0
        looks = Counted(lambda s: s.values["n"] >= 77)
        call(run, graph, "bisect", T, looks)
        assert saver.reads <= 3 * len(looks.seen)  # a state, and whether a due task has a child graph
        saver.reads = 0
        call(run, graph, "diff", run.history(graph, T)[-1].config, T)
        assert saver.reads == 2


# ---------------------------------------------------------------- against brute force


def histories(seeds: Sequence[int]) -> Iterator[tuple[CompiledGraph, list[Checkpoint], Random]]:
    """Threads of random programs with edits, questions and branches, newest checkpoint first."""
    for seed in seeds:
        random, saver = Random(seed), InMemorySaver()
        program = draw_program(random)
        graph: CompiledGraph = build_program(program, minigraph_engine(), saver)
        run_program(program, saver=saver, graph=graph)
        for _ in range(2):
            graph.fork(random.choice(list(graph.get_state_history(T))).config)
        yield graph, [stored.checkpoint for stored in saver.history("t", "")], random


def parents(points: list[Checkpoint], at: Checkpoint) -> list[Checkpoint]:
    """The lineage of a checkpoint, oldest first, read from the whole history."""
    known = {point.id: point for point in points}
    line = [at]
    while line[0].parent_id is not None:
        line.insert(0, known[line[0].parent_id])
    return line


def config_of(point: Checkpoint) -> dict[str, Any]:
    """The config of a checkpoint of the thread."""
    return {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": point.id}}


def content(point: Checkpoint) -> list[Any]:
    """What a checkpoint says, but for its name, number and age."""
    due = sorted(((task.node, task.index, task.is_send, task.payload) for task in point.due), key=lambda t: t[:3])
    ran = point.ran if point.source == "loop" else ()
    return [ran, point.values, due, point.deferred, {name: sorted(seen) for name, seen in point.joins.items() if seen}]


def first_difference(left: list[Checkpoint], right: list[Checkpoint]) -> int | None:
    """The number of the first step that is not on both sides, without the copies that branches begin with."""
    left, right = ([point for point in side if point.source != "fork"] for side in (left, right))
    for a, b in zip(left, right, strict=False):
        if content(a) != content(b):
            return min(a.step, b.step)
    rest = left[len(right) :] or right[len(left) :]
    return rest[0].step if rest else None


def bisected(graph: CompiledGraph, at: Checkpoint, said: Mapping[str, bool], *, monotone: bool) -> str | None:
    """The id of the checkpoint at which a prepared predicate turned, or None."""
    try:
        shot = graph.bisect(config_of(at), lambda s: said[s.config["configurable"]["checkpoint_id"]], monotone=monotone)
    except NoTurnError:
        return None
    return str(shot.config["configurable"]["checkpoint_id"])


def test_bisect_finds_what_a_look_at_everything_finds() -> None:
    turned = 0
    for graph, points, random in histories(range(40)):
        for _ in range(5):
            at = random.choice(points)
            line = [point.id for point in parents(points, at)]
            said = {name: random.random() < 0.5 for name in line}
            turns = [name for before, name in pairwise(line) if said[name] and not said[before]]
            assert bisected(graph, at, said, monotone=False) == (turns[0] if turns else None)
            border = random.randint(0, len(line))
            once = {name: place >= border for place, name in enumerate(line)}
            wanted = line[border] if 0 < border < len(line) else None
            assert bisected(graph, at, once, monotone=True) == bisected(graph, at, once, monotone=False) == wanted
            turned += bool(turns) + (wanted is not None)
    assert turned > 150


def test_diff_finds_what_a_look_at_everything_finds() -> None:
    different = equal = 0
    for graph, points, random in histories(range(60)):
        for _ in range(5):
            a, b = random.choice(points), random.choice(points)
            lines = parents(points, a), parents(points, b)
            shared = [point for point in lines[0] if point in lines[1]]
            rests = [line[len(shared) :] if shared else line for line in lines]
            found = graph.diff(config_of(a), config_of(b))
            assert found.common == (config_of(shared[-1]) if shared else None)
            assert found.step == first_difference(*rests)
            if shared:
                assert [[s.config for s in path] for path in found.paths] == [[*map(config_of, r)] for r in rests]
            pairs = {key: (a.values.get(key, MISSING), b.values.get(key, MISSING)) for key in {**a.values, **b.values}}
            assert found.values == {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
            assert (found.next is None) == (content(a)[2] == content(b)[2])
            assert (found.waiting is None) == (content(a)[3:] == content(b)[3:])
            different += found.step is not None
            equal += found.step is None and a != b
    assert different > 100
    assert equal > 5


def test_lineages_are_read_without_states(saver: Saver) -> None:
    graph = counting(saver, 3)
    line = saver.lineage("t", "")
    assert [(a.step, a.source, a.ran) for a in line] == [
        (3, "loop", ("n",)),
        (2, "loop", ("n",)),
        (1, "loop", ("n",)),
        (0, "loop", ("__start__",)),
        (-1, "input", ()),
    ]
    assert Saver.lineage(saver, "t", "") == line
    assert all(isinstance(ancestor, Ancestor) for ancestor in line)
    assert [a.id for a in line] == [s.config["configurable"]["checkpoint_id"] for s in graph.get_state_history(T)]
