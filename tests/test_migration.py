"""A graph that changed under stored threads: what fits goes on, what was renamed is found, the rest is an error."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from conftest import Sync, ask, build, chain, fan, open_ids, say, thread, words

from minigraph import END, START, Command, Migration, Send, StateGraph, interrupt, once
from minigraph.checkpoint import InMemorySaver, Saver, SqliteSaver
from minigraph.checkpoint.saver import TableSaver
from minigraph.errors import GraphChangedError, GraphDefinitionError, UnknownInterruptError, UnknownNodeError
from minigraph.records import Checkpoint

T = thread()


class Old(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    total: int
    name: str


class New(TypedDict, total=False):
    lines: Annotated[list[Any], operator.add]
    sum: int
    name: str


class Item(TypedDict):
    name: str


KEYS = Migration(keys={"log": "lines", "total": "sum"})


def line(word: str) -> Any:
    """`say` for the new state."""
    return lambda state: {"lines": [word]}


def raw(saver: Saver, namespace: str = "") -> list[Checkpoint]:
    """What is stored, in its own names, the oldest first."""
    return [stored.checkpoint for stored in saver.history("t", namespace)][::-1]


# -------------------------------------------------------------------------- fingerprint

FINGERPRINT = """
from typing import Annotated, TypedDict
from minigraph import StateGraph
class S(TypedDict):
    b: int
    a: Annotated[list[int], list.__add__]
g = StateGraph(S).add_node("z", lambda s: {}).add_node("y", lambda s: {}).add_node("x", lambda s: {})
g.add_edge("__start__", "x").add_edge("__start__", "y").add_edge(["x", "y"], "z")
print(g.compile().fingerprint)
"""


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(found) == 1
    assert len(found.pop().strip()) == 16


def test_a_fingerprint_is_of_names_and_kinds_alone() -> None:
    def of(nodes: str = "a b", state: Any = Old, edges: Any = None) -> str:
        return build(words(nodes), edges or chain(*nodes.split()), state=state).fingerprint

    class Renamed(TypedDict, total=False):
        log: Annotated[list[Any], operator.add]
        total: int
        nom: str

    class Reduced(TypedDict, total=False):
        log: Annotated[list[Any], operator.add]
        total: Annotated[int, operator.add]
        name: str

    class OtherReducer(TypedDict, total=False):
        log: Annotated[list[Any], lambda a, b: [*a, *b]]
        total: int
        name: str

    joined = [*fan("a", "b"), (["a", "b"], "c")]
    different = [of(), of("a c"), of("a b c"), of("a b c", edges=joined), of(state=Renamed), of(state=Reduced)]
    assert len(set(different)) == len(different)
    assert of() == of("b a") == of(state=OtherReducer)
    assert of() == build({"a": ask("?"), "b": say("other")}, chain("b", "a"), state=Old).fingerprint


def test_each_checkpoint_knows_the_graph_that_stored_it(run: Sync, saver: Saver) -> None:
    first = build(words("a"), chain("a"), saver, state=Old)
    run.invoke(first, {}, T)
    second = build(words("a b"), chain("a", "b"), saver, state=Old)
    run.invoke(second, {}, T)
    run.invoke(second, {}, T)
    found = [shot.fingerprint for shot in run.history(second, T)]
    assert found == [second.fingerprint] * 8 + [first.fingerprint] * 3
    assert run.state(second, T).fingerprint == second.fingerprint
    run.invoke(first, {}, T)
    assert run.state(second, T).fingerprint == first.fingerprint
    assert run.state(second, thread("never ran")).fingerprint == ""


def test_a_fingerprint_costs_a_step_nothing(tmp_path: Path) -> None:
    def stored(note: bool) -> tuple[int, int]:
        with SqliteSaver(tmp_path / f"{note}.db") as saver:
            graph = build(words("a b"), [*chain("a", "b"), ("b", "a")], saver, state=Old, ignore=["endless-loop"])
            if not note:
                object.__setattr__(graph.graph, "fingerprint", "")
            with pytest.raises(RecursionError):
                graph.invoke({}, {**T, "recursion_limit": 50})
            with saver._reading() as tables:
                (log,) = tables.logs("t")
                rows = tables.rows(log.number, 1, 1000)
                return len(rows), sum(len(row.body) for row in rows)

    assert stored(True) == stored(False)


# -------------------------------------------------------------------------------- keys


def test_renamed_keys_are_read_everywhere(run: Sync, saver: Saver) -> None:
    old = build({"a": lambda s: {"log": ["a"], "total": 1}, "b": say("b")}, chain("a", "b"), saver, state=Old)
    run.invoke(old, {"name": "x"}, T)
    before = raw(saver)
    new = build(
        {"a": lambda s: {"lines": ["A"], "sum": s["sum"] + 1}, "b": line("B")},
        chain("a", "b"),
        saver,
        state=New,
        migrations=[KEYS],
    )
    assert run.state(new, T).values == {"lines": ["a", "b"], "sum": 1, "name": "x"}
    assert [shot.values for shot in run.history(new, T)][1] == {"lines": ["a"], "sum": 1, "name": "x"}
    assert run.invoke(new, {"name": "y"}, T) == {"lines": ["a", "b", "A", "B"], "sum": 2, "name": "y"}
    assert raw(saver)[: len(before)] == before, "what was stored stays as it was"
    assert raw(saver)[-1].values == {"lines": ["a", "b", "A", "B"], "sum": 2, "name": "y"}
    plain = build({"a": line("A"), "b": line("B")}, chain("a", "b"), saver, state=New)
    assert run.state(plain, T).values["lines"] == ["a", "b", "A", "B"], "the new checkpoints need no migration"
    first = next(shot for shot in run.history(new, T) if shot.values.get("lines") == ["a"])
    assert run.invoke(new, None, first.config) == {"lines": ["a", "B"], "sum": 1, "name": "x"}
    fork = new.fork(first.config, {"lines": ["forked"]}, as_node="a")
    assert run.state(new, fork).values["lines"] == ["a", "forked"]
    assert raw(saver)[: len(before)] == before


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_long_state_is_stored_whole_once_and_then_as_what_changed(run: Sync, saver: Saver, durability: str) -> None:
    old = build(words("a"), chain("a"), saver, state=Old)
    run.invoke(old, {"log": [f"{n:0100}" for n in range(100)], "name": "n" * 1000}, T)
    new = build({"a": line("A"), "b": line("B")}, chain("a", "b"), saver, state=New, migrations=[KEYS])
    for turn in range(3):
        found = run.invoke(new, {}, T, durability=durability)
        assert found["lines"][100:] == ["a", *["A", "B"] * (turn + 1)]
        assert found["name"] == "n" * 1000
        assert run.state(new, T).values == found


def test_writes_of_finished_siblings_have_new_names_too(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    old = build({"a": say("a", runs), "q": ask("?")}, fan("a", "q"), saver, state=Old)
    run.invoke(old, {}, T)
    new = build(
        {"a": line("never again"), "question": lambda s: {"lines": [interrupt("?")]}},
        fan("a", "question"),
        saver,
        state=New,
        migrations=[Migration(keys={"log": "lines", "total": "sum"}, nodes={"q": "question"})],
    )
    assert run.state(new, T).values == {"lines": ["a"]}
    assert run.invoke(new, Command(resume="yes"), T)["lines"] == ["a", "yes"]
    assert runs == ["a"]


# ------------------------------------------------------------------------------- nodes


PAID: list[str] = []


def pay() -> str:
    PAID.append("paid")
    return "paid"


def approve(state: Any) -> dict[str, Any]:
    return {"log": [once("pay", pay), interrupt("ok?")]}


def approve_only(state: Any) -> dict[str, Any]:
    PAID[:] = ["paid"]
    return {"log": ["paid", interrupt("ok?")]}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_question_that_was_open_is_answered_by_its_id(run: Sync, saver: Saver, durability: str) -> None:
    PAID.clear()
    node = approve if durability == "sync" else approve_only  # what is recorded needs durability "sync"
    old = build({"a": say("a"), "approve": node, "z": say("z")}, chain("a", "approve", "z"), saver, state=Old)
    run.invoke(old, {}, T)
    (asked,) = open_ids(old, T).values()
    before = raw(saver)
    new = build(
        {"a": say("a"), "confirm": node, "z": say("z")},
        chain("a", "confirm", "z"),
        saver,
        state=Old,
        migrations=[Migration(nodes={"approve": "confirm"})],
    )
    shot = run.state(new, T)
    assert (shot.next, [task.name for task in shot.tasks], open_ids(new, T)) == (
        ("confirm",),
        ["confirm"],
        {"ok?": asked},
    )
    with pytest.raises(UnknownInterruptError):
        run.invoke(new, Command(resume={"0" * 32: "yes"}), T)
    assert raw(saver) == before, "looking, and a refused answer, write nothing"
    assert run.invoke(new, Command(resume={asked: "yes"}), T, durability=durability)["log"] == ["a", "paid", "yes", "z"]
    assert PAID == ["paid"]
    assert raw(saver)[: len(before)] == before
    with pytest.raises(UnknownInterruptError):
        run.invoke(new, Command(resume={asked: "late"}), T)
    older = [shot for shot in run.history(new, T) if shot.next == ("confirm",)][-1]
    assert new.answer(older.config, "no")["log"] == ["a", "paid", "no", "z"]
    assert PAID == ["paid"]


def test_a_failed_node_runs_again_under_its_new_name(run: Sync, saver: Saver) -> None:
    def fails(state: Any) -> Any:
        raise ValueError("no")

    old = build({"a": fails}, chain("a"), saver, state=Old)
    with pytest.raises(ValueError, match="no"):
        run.invoke(old, {"name": "x"}, T)
    new = build({"b": say("b")}, chain("b"), saver, state=Old, migrations=[Migration(nodes={"a": "b"})])
    assert run.state(new, T).tasks[0].error == "ValueError('no')"
    assert run.invoke(new, None, T) == {"log": ["b"], "name": "x"}


def test_sends_targets_joins_and_deferred_nodes_move_on(run: Sync, saver: Saver) -> None:
    def graph(names: dict[str, str], migrations: list[Migration]) -> Any:
        def n(name: str) -> str:
            return names.get(name, name)

        builder = StateGraph(Old)
        builder.add_node(
            n("a"), lambda s: Command(goto=[Send(n("work"), {"name": "1"}), Send(n("work"), {"name": "2"})])
        )
        builder.add_node(n("work"), lambda s: {"log": [s["name"]]}, input_schema=Item)
        builder.add_node(n("left"), say("left")).add_node(n("right"), say("right"))
        builder.add_node(n("both"), say("both")).add_node(n("last"), say("last"), defer=True)
        builder.add_edge(START, n("a")).add_edge(START, n("left")).add_edge(n("work"), n("right"))
        builder.add_edge([n("left"), n("right")], n("both")).add_edge(n("left"), n("last"))
        return builder.compile(saver, migrations=migrations, ignore=["unwritten-key"])

    names = {"a": "start it", "work": "do+it", "left": "l", "right": "r", "both": "b", "last": "end it"}
    plain = graph({}, [])
    wanted = run.invoke(plain, {}, T)["log"]
    assert sorted(wanted) == ["1", "2", "both", "last", "left", "right"]
    for stop in range(4):
        config = thread(f"stop {stop}", recursion_limit=100)
        if stop:
            with pytest.raises(RecursionError):
                run.invoke(plain, {}, {**config, "recursion_limit": stop})
            renamed = graph(names, [Migration(nodes=names)])
            assert sorted(run.invoke(renamed, None, config)["log"]) == sorted(wanted)
        else:
            run.invoke(plain, {}, config, interrupt_before=["a", "left"])
            renamed = graph(names, [Migration(nodes=names)])
            assert sorted(run.invoke(renamed, None, config)["log"]) == sorted(wanted)


def test_the_lineage_has_the_new_names(run: Sync, saver: Saver) -> None:
    run.invoke(build(words("a b"), chain("a", "b"), saver, state=Old), {}, T)
    new = build(words("a c"), chain("a", "c"), saver, state=Old, migrations=[Migration(nodes={"b": "c"})])
    run.invoke(new, {}, T)
    first, last = run.history(new, T)[-1].config, T
    assert [step.ran for step in new.diff(first, last).paths[1]] == [
        ("__start__",),
        ("a",),
        ("c",),
        (),
        ("__start__",),
        ("a",),
        ("c",),
    ]
    turned = new.bisect(T, lambda shot: len(shot.values.get("log", [])) > 1)
    assert turned.values["log"] == ["a", "b"]
    run.update(new, run.history(new, T)[3].config, {"log": ["edited"]})
    assert run.state(new, T).next == (), "the node that ran last stands for the edit under its new name"


# ------------------------------------------------------------------------------- child graphs


def child(names: dict[str, str], **options: Any) -> Any:
    first, asks, end = (names.get(name, name) for name in ("first", "asks", "end"))
    nodes = {first: lambda state: {"log": [once("call", pay)]}, asks: ask("inner?"), end: say("end")}
    return build(nodes, chain(first, asks, end), options.pop("checkpointer", None), state=Old, **options)


@pytest.mark.parametrize("checkpointer", [None, True])
def test_a_child_graph_is_found_under_the_old_name_of_its_node(run: Sync, saver: Saver, checkpointer: Any) -> None:
    PAID.clear()
    old = build({"sub": child({}, checkpointer=checkpointer)}, chain("sub"), saver, state=Old)
    run.invoke(old, {}, T)
    (asked,) = open_ids(old, T).values()
    before = {space: raw(saver, space) for space in saver.namespaces("t")}
    renamed = {"asks": "questions", "first": "one"}
    new = build(
        {"nested": child(renamed, checkpointer=checkpointer, migrations=[Migration(nodes=renamed)])},
        chain("nested"),
        saver,
        state=Old,
        migrations=[Migration(nodes={"sub": "nested"})],
    )
    assert open_ids(new, T) == {"inner?": asked}
    inner = run.state(new, T, subgraphs=True).tasks[0].state
    assert (inner.next, inner.values["log"]) == (("questions",), ["paid"])
    assert run.state(new, inner.config).next == ("questions",)
    assert run.invoke(new, Command(resume={asked: "yes"}), T)["log"] == ["paid", ("inner?", "yes"), "end"]
    assert PAID == ["paid"]
    for space, points in before.items():
        assert raw(saver, space)[: len(points)] == points
    assert saver.namespaces("t") == list(before)


def test_a_child_graph_begins_inside_of_one_whose_node_was_renamed(run: Sync, saver: Saver) -> None:
    def middle() -> Any:
        inner = build({"word": say("word")}, chain("word"), state=Old)
        return build({"asks": ask("inner?"), "inner": inner}, chain("asks", "inner"), state=Old)

    run.invoke(build({"sub": middle()}, chain("sub"), saver, state=Old), {}, T)
    new = build(
        {"nested": middle()}, chain("nested"), saver, state=Old, migrations=[Migration(nodes={"sub": "nested"})]
    )
    assert run.invoke(new, Command(resume="yes"), T)["log"] == [("inner?", "yes"), "word"]
    assert len(saver.namespaces("t")) == 3


def test_a_renamed_key_of_a_child_graph_is_handed_back(run: Sync, saver: Saver) -> None:
    old = build({"sub": child({})}, chain("sub"), saver, state=Old)
    run.invoke(old, {}, T)
    inner = build(
        {"first": line("1"), "asks": lambda s: {"lines": [interrupt("inner?")]}, "end": line("end")},
        chain("first", "asks", "end"),
        state=New,
        migrations=[KEYS],
    )
    new = build({"sub": inner}, chain("sub"), saver, state=New, migrations=[KEYS])
    assert run.invoke(new, Command(resume="yes"), T)["lines"] == ["paid", "yes", "end"]


def test_a_child_graph_that_only_code_knows_is_found(run: Sync, saver: Saver) -> None:
    def graph(name: str, inner: Any, **options: Any) -> Any:
        def node(state: Any) -> dict[str, Any]:
            return {"log": inner.invoke({})["log"]}

        return build({name: node}, chain(name), saver, state=Old, **options)

    run_sync = Sync()
    old = graph("sub", child({}))
    run_sync.invoke(old, {}, T)
    (asked,) = open_ids(old, T).values()
    renamed = {"asks": "questions"}
    new = graph(
        "nested", child(renamed, migrations=[Migration(nodes=renamed)]), migrations=[Migration(nodes={"sub": "nested"})]
    )
    assert run_sync.invoke(new, Command(resume={asked: "yes"}), T)["log"] == ["paid", ("inner?", "yes"), "end"]
    inner_alone = graph("nested", child({}), migrations=[Migration(nodes={"sub": "nested"})])
    assert run_sync.state(inner_alone, T).values["log"] == ["paid", ("inner?", "yes"), "end"]


def test_a_child_graph_that_stores_nothing_asks_anew_in_a_renamed_node(run: Sync, saver: Saver) -> None:
    PAID.clear()
    old = build({"sub": child({}, checkpointer=False)}, chain("sub"), saver, state=Old)
    run.invoke(old, {}, T)
    (asked,) = open_ids(old, T).values()
    renamed = {"asks": "questions", "first": "one"}
    same_node = build(
        {"sub": child(renamed, checkpointer=False, migrations=[Migration(nodes=renamed)])},
        chain("sub"),
        saver,
        state=Old,
    )
    saver.copy_thread("t", "same node")
    assert run.invoke(same_node, Command(resume={asked: "yes"}), thread("same node"))["log"][0] == "paid"
    assert PAID == ["paid"], "the record is found under the old name of the child graph's node"
    new = build(
        {"nested": child({}, checkpointer=False)},
        chain("nested"),
        saver,
        state=Old,
        migrations=[Migration(nodes={"sub": "nested"})],
    )
    with pytest.raises(UnknownInterruptError, match="no open question has id"):
        run.invoke(new, Command(resume={asked: "lost?"}), T)
    again = run.invoke(new, None, T)["__interrupt__"][0].id
    assert again != asked
    assert run.invoke(new, Command(resume={again: "yes"}), T)["log"] == ["paid", ("inner?", "yes"), "end"]
    assert PAID == ["paid"]


# --------------------------------------------------------------------- several versions


def test_threads_of_every_version_reach_the_newest(run: Sync, saver: Saver) -> None:
    class Middle(TypedDict, total=False):
        lines: Annotated[list[Any], operator.add]
        total: int
        name: str

    one = build(words("a"), chain("a"), saver, state=Old)
    two = build({"b": line("b")}, chain("b"), saver, state=Middle, migrations=[Migration({"log": "lines"}, {"a": "b"})])
    steps = [Migration({"log": "lines"}, {"a": "b"}), Migration({"total": "sum"}, {"b": "c"})]
    three = build({"c": line("c")}, chain("c"), saver, state=New, migrations=steps)
    for name, graphs in (("1", [one]), ("2", [two]), ("12", [one, two]), ("123", [one, two, three])):
        for graph in graphs:
            run.invoke(graph, {"total": 1} if graph is not three else {"sum": 1}, thread(name))
        done = run.invoke(three, {}, thread(name))
        assert done == {
            "lines": [{id(one): "a", id(two): "b", id(three): "c"}[id(g)] for g in graphs] + ["c"],
            "sum": 1,
        }
        ran = [shot.tasks[0].name for shot in run.history(three, thread(name)) if shot.next]
        assert set(ran) <= {"__start__", "c"}


def test_states_are_converted_once(run: Sync, saver: Saver) -> None:
    old = build({"a": lambda s: {"total": s.get("total", 0) + 100}}, chain("a"), saver, state=Old)
    run.invoke(old, {}, T)
    run.invoke(old, {}, T)
    calls: list[dict[str, Any]] = []

    def cents(state: dict[str, Any]) -> dict[str, Any]:
        calls.append(state)
        return {**state, **({"sum": state["sum"] / 100} if "sum" in state else {})}

    step = Migration(keys=KEYS.keys, convert=cents, from_fingerprint=old.fingerprint)
    new = build({"a": lambda s: {"sum": s["sum"] + 1}}, chain("a"), saver, state=New, migrations=[step])
    assert run.state(new, T).values == {"lines": [], "sum": 2.0}
    assert [shot.values.get("sum") for shot in run.history(new, T)] == [2.0, 1.0, 1.0, 1.0, None, None]
    assert run.invoke(new, {}, T)["sum"] == 3.0
    assert run.invoke(new, {}, T)["sum"] == 4.0
    larger = build(
        {"a": lambda s: {"sum": s["sum"] + 1}, "b": line("b")}, chain("a", "b"), saver, state=New, migrations=[step]
    )
    assert run.invoke(larger, {}, T)["sum"] == 5.0
    assert all("total" not in state for state in calls)


def test_names_are_swapped_where_a_fingerprint_says_whose_they_were(run: Sync, saver: Saver) -> None:
    class Swapped(TypedDict, total=False):
        log: Annotated[list[Any], operator.add]
        name: int
        total: str
        more: int

    old = build({"a": lambda s: {"total": 1, "name": "x"}}, chain("a"), saver, state=Old)
    run.invoke(old, {}, T)
    swap = {"total": "name", "name": "total"}
    with pytest.raises(GraphDefinitionError, match="only a fingerprint tells"):
        build(words("a"), chain("a"), saver, state=Swapped, migrations=[Migration(keys=swap)])
    new = build(
        {"a": lambda s: {"log": [(s["name"], s["total"])]}},
        chain("a"),
        saver,
        state=Swapped,
        migrations=[Migration(keys=swap, from_fingerprint=old.fingerprint)],
    )
    assert run.invoke(new, {}, T)["log"] == [(1, "x")]
    assert run.invoke(new, {}, T)["log"] == [(1, "x")] * 2


def test_threads_from_before_fingerprints_are_migrated_by_their_names(run: Sync, saver: Saver) -> None:
    old = build({"a": ask("?")}, chain("a"), saver, state=Old)
    object.__setattr__(old.graph, "fingerprint", "")
    run.invoke(old, {"total": 3}, T)
    new = build(
        {"b": lambda s: {"lines": [interrupt("?")]}},
        chain("b"),
        saver,
        state=New,
        migrations=[Migration(KEYS.keys, {"a": "b"}, from_fingerprint="")],
    )
    assert run.state(new, T).fingerprint == ""
    assert run.invoke(new, Command(resume="yes"), T) == {"lines": ["yes"], "sum": 3}
    assert run.state(new, T).fingerprint == new.fingerprint


# ------------------------------------------------------------------------------ errors


def test_a_node_that_is_gone_is_named_with_what_may_be_meant(run: Sync, saver: Saver) -> None:
    old = build({"approve_it": ask("?")}, chain("approve_it"), saver, state=Old)
    run.invoke(old, {}, T)
    new = build({"approved_it": ask("?")}, chain("approved_it"), saver, state=Old)
    before = raw(saver)
    refused: tuple[Any, ...] = (None, Command(resume="yes"), Command(update={"name": "x"}))
    for given in refused:
        with pytest.raises(UnknownNodeError) as caught:
            run.invoke(new, given, T)
        error = caught.value
        assert (error.node, error.thread_id, error.keys) == ("approve_it", "t", ())
        assert (error.stored, error.present) == (old.fingerprint, new.fingerprint)
        for part in (
            "'approve_it'",
            "did you mean 'approved_it'?",
            "Migration(nodes={'approve_it': ...})",
            "thread 't'",
        ):
            assert part in str(error)
    assert raw(saver) == before
    assert run.invoke(new, {}, T)["__interrupt__"], "new input drops what was due"


def test_a_key_that_is_gone_is_an_error_and_the_thread_can_be_repaired(run: Sync, saver: Saver) -> None:
    old = build(words("a"), chain("a"), saver, state=Old)
    run.invoke(old, {"total": 1, "name": "x"}, T)
    new = build({"a": line("A")}, chain("a"), saver, state=New)
    for given in ({}, {"lines": ["more"]}):
        with pytest.raises(GraphChangedError) as caught:
            run.invoke(new, given, T)
        assert caught.value.keys == ("log", "total")
        assert "Migration(keys={'log': ..., 'total': ...})" in str(caught.value)
    assert run.state(new, T).values == {"name": "x", "lines": []}, "it can be looked at"
    run.update(new, T, {"sum": 2}, as_node="a")
    assert run.state(new, T).values == {"name": "x", "lines": [], "sum": 2}, "and edited, and nothing is lost by that"
    assert raw(saver)[-1].values["log"] == ["a"]
    with pytest.raises(GraphChangedError):
        run.invoke(new, {}, T)
    fixed = build(
        {"a": line("A")}, chain("a"), saver, state=New, migrations=[Migration(keys={"log": None, "total": None})]
    )
    assert run.invoke(fixed, {}, T) == {"lines": ["A"], "sum": 2, "name": "x"}
    saver.delete_thread("t")
    assert run.invoke(new, {}, T) == {"lines": ["A"]}


def test_nothing_is_lost_where_both_names_are_stored(run: Sync, saver: Saver) -> None:
    class Both(TypedDict, total=False):
        log: list[Any]
        lines: Annotated[list[Any], operator.add]

    both = build({"a": lambda s: {"log": [1], "lines": [2]}}, chain("a"), saver, state=Both)
    run.invoke(both, {}, T)

    class Lines(TypedDict, total=False):
        lines: Annotated[list[Any], operator.add]

    step = Migration(keys={"log": "lines"})
    new = build({"a": line("A")}, chain("a"), saver, state=Lines, migrations=[step])
    assert run.state(new, T).values == {"lines": [2]}
    with pytest.raises(GraphChangedError, match="'log'"):
        run.invoke(new, {}, T)
    merge = Migration(
        convert=lambda s: {"lines": s.pop("log", []) + s.pop("lines", [])}, from_fingerprint=both.fingerprint
    )
    new = build({"a": line("A")}, chain("a"), saver, state=Lines, migrations=[merge])
    assert run.invoke(new, {}, T) == {"lines": [1, 2, "A"]}


def test_a_join_that_changed_under_way_is_an_error(run: Sync, saver: Saver) -> None:
    nodes = words("a b c d")
    old = build(nodes, [*fan("a"), ("a", "b"), (["a", "b"], "d")], saver, state=Old, ignore=["unreachable-node"])
    run.invoke(old, {}, T, interrupt_after=["a"])
    edges = [*fan("a"), ("a", "b"), ("b", "c"), (["a", "b", "c"], "d")]
    new = build(nodes, edges, saver, state=Old)
    with pytest.raises(GraphChangedError, match=r"list edge 'a\+b:d'") as caught:
        run.invoke(new, None, T)
    assert caught.value.joins == ("a+b:d",)
    assert run.state(new, T).next == ("b",)
    moved = build(nodes, edges, saver, state=Old, migrations=[Migration(joins={"a+b:d": "a+b+c:d"})])
    assert run.invoke(moved, None, T)["log"] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("step", "match"),
    [
        (Migration(keys={"log": "line"}), "the graph has no key 'line'; did you mean 'lines'"),
        (Migration(nodes={"b": "c"}), "the graph has no node 'c'"),
        (Migration(nodes={"a": END}), "the graph has no node '__end__'"),
        (Migration(nodes={"b": None}), "a task cannot be forgotten"),  # type: ignore[dict-item]
        (Migration(keys={"log": "lines", "total": "lines"}), "two names become one"),
        (Migration(keys={"name": "lines"}), "only a fingerprint tells"),
        (Migration(convert=lambda s: s), "convert needs from_fingerprint"),
    ],
)  # fmt: skip
def test_a_migration_must_lead_to_names_that_there_are(step: Migration, match: str) -> None:
    with pytest.raises(GraphDefinitionError, match=match):
        build(words("a"), chain("a"), state=New, migrations=[step])


def test_migrations_are_a_list_of_migrations() -> None:
    wrongs: tuple[Any, ...] = (Migration(), [{"keys": {}}], "x")
    for wrong in wrongs:
        with pytest.raises(TypeError, match="a list of Migration"):
            build(words("a"), chain("a"), state=New, migrations=wrong)
    graph = build(words("a"), chain("a"), state=New)
    with pytest.raises(GraphDefinitionError, match="is this graph itself"):
        build(words("a"), chain("a"), state=New, migrations=[Migration(from_fingerprint=graph.fingerprint)])


class Swapped(TypedDict):
    left: Any
    right: Any


def pausing(saver: Saver, **options: Any) -> Any:
    builder = StateGraph(Swapped)
    builder.add_node("first", lambda state: {"left": 1.5, "right": 2.5})
    builder.add_node("last", lambda state: {"right": [interrupt("?"), state["left"], state["right"]]})
    return builder.add_edge(START, "first").add_edge("first", "last").compile(saver, **options)


def test_a_version_tells_a_graph_from_an_older_one_with_the_same_names(run: Sync, saver: Saver) -> None:
    old = pausing(saver)
    run.invoke(old, {}, T)
    swap = Migration(keys={"left": "right", "right": "left"}, from_fingerprint=old.fingerprint)
    with pytest.raises(GraphDefinitionError, match=r"another version: compile\(\.\.\., version='2'\)"):
        pausing(saver, migrations=[swap])
    second = pausing(saver, migrations=[swap], version="2")
    assert second.fingerprint != old.fingerprint
    assert run.state(second, T).values == {"left": 2.5, "right": 1.5}
    price = Migration(
        convert=lambda state: state | {"left": {"eur": state["left"]}}, from_fingerprint=second.fingerprint
    )
    third = pausing(saver, migrations=[swap, price], version="3")
    assert run.state(third, T).values == {"left": {"eur": 2.5}, "right": 1.5}
    assert run.invoke(third, Command(resume="yes"), T) == {"left": {"eur": 2.5}, "right": ["yes", {"eur": 2.5}, 1.5]}
    assert run.state(third, T).fingerprint == third.fingerprint
    assert run.state(third, T).values["left"] == {"eur": 2.5}, "what is new already is not converted again"


def test_no_version_is_the_fingerprint_that_graphs_had_before_there_were_any() -> None:
    plain = pausing(InMemorySaver())
    assert plain.fingerprint == pausing(InMemorySaver(), version="").fingerprint
    assert len({plain.fingerprint, *(pausing(InMemorySaver(), version=name).fingerprint for name in "123")}) == 4
    with pytest.raises(TypeError, match=r"compile\(version=2\): a str"):
        pausing(InMemorySaver(), version=2)


def test_what_convert_returns_must_be_a_state(run: Sync, saver: Saver) -> None:
    old = build(words("a"), chain("a"), saver, state=Old)
    run.invoke(old, {}, T)
    step = Migration(KEYS.keys, convert=lambda s: None, from_fingerprint=old.fingerprint)  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="returned a NoneType"):
        run.state(build({"a": line("A")}, chain("a"), saver, state=New, migrations=[step]), T)


def test_a_graph_without_migrations_uses_its_saver_itself() -> None:
    saver = InMemorySaver()
    seen: list[Any] = []

    def look(state: Any, config: Any) -> dict[str, Any]:
        from minigraph.context import current

        seen.append(current("test").scope.saver)
        return {}

    build({"a": look}, chain("a"), saver, state=New).invoke({}, T)
    assert seen == [saver]


def test_pruning_forgets_the_fingerprints_of_what_is_gone(saver: TableSaver) -> None:
    graphs = [build(words(nodes), chain(*nodes.split()), saver, state=Old) for nodes in ("a", "b", "c")]
    for graph in graphs:
        graph.invoke({}, T)
    saver.prune("t", keep=4)
    with saver._reading() as tables:
        (log,) = tables.logs("t")
    assert log.graphs == f"4:{graphs[1].fingerprint} 7:{graphs[2].fingerprint}"
    assert [shot.fingerprint for shot in graphs[2].get_state_history(T)] == [graphs[2].fingerprint] * 3 + [
        graphs[1].fingerprint
    ]


def test_what_a_node_gave_whose_router_failed_has_new_names(run: Sync, saver: Saver) -> None:
    def graph(node: Any, router: Any, **options: Any) -> Any:
        return build({"a": node, "b": say("b")}, chain("a"), saver, routers=[("a", router, ["b"])], **options)

    def fails(state: Any) -> str:
        raise ValueError("router")

    def never(state: Any) -> Any:
        raise AssertionError("the node has its result")

    with pytest.raises(ValueError, match="router"):
        run.invoke(graph(say("kept"), fails, state=Old, ignore=["unreachable-node"]), {}, T)
    gone = graph(never, lambda s: "b", state=New, ignore=["undeclared-key", "unreachable-node"])
    with pytest.raises(GraphChangedError, match="holds the key 'log'"):
        run.invoke(gone, None, T)
    new = build(
        {"a": never, "b": line("B")},
        chain("a"),
        saver,
        routers=[("a", lambda s: s["lines"][-1] == "kept" and "b", ["b"])],
        state=New,
        migrations=[KEYS],
        ignore=["unreachable-node"],
    )
    assert run.invoke(new, None, T)["lines"] == ["kept", "B"]
