"""Graphs inside graphs: what they hand back and store, their questions, failures and Commands to parents."""

from __future__ import annotations

import asyncio
import operator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest
from conftest import Log, Sync, ask, build, chain, checkpoint_before, fan, odd, open_ids, say, thread, words

from minigraph import (
    END,
    START,
    Command,
    CompiledGraph,
    Overwrite,
    Runtime,
    Send,
    StateGraph,
    get_stream_writer,
    interrupt,
)
from minigraph.checkpoint import InMemorySaver, Saver
from minigraph.errors import (
    GraphRecursionError,
    InvalidUpdateError,
    ThreadConflictError,
    UnknownInterruptError,
    UnknownTargetError,
)

T = thread()


@dataclass(frozen=True)
class Amount:
    n: int


class Priced(TypedDict, total=False):
    money: Amount
    log: Annotated[list[Any], operator.add]


def nest(graph: CompiledGraph, levels: int) -> CompiledGraph:
    """A graph inside that many graphs."""
    for level in range(levels):
        graph = build({f"level{level}": graph}, chain(f"level{level}"))
    return graph


def calls(child: CompiledGraph, given: Any = None) -> Any:
    """A node that calls a graph from code; works in both worlds."""

    def node(s: Any) -> dict[str, Any]:
        return {"log": child.invoke(given if given is not None else {})["log"]}

    return node


# ------------------------------------------------------------------ what a child hands back


def test_a_child_hands_back_only_what_it_wrote(run: Sync, saver: Saver) -> None:
    graph = build(
        {"a": say("a"), "child": build(words("c d"), chain("c", "d")), "z": say("z")}, chain("a", "child", "z"), saver
    )
    assert run.invoke(graph, {"log": ["i"], "value": 5}, T) == {"log": ["i", "a", "c", "d", "z"], "value": 5}


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_nesting_does_not_repeat_anything(run: Sync, levels: int) -> None:
    graph = nest(build(words("c d"), chain("c", "d")), levels)
    assert run.invoke(build({"in": graph}, chain("in"), InMemorySaver()), {"log": ["i"]}, T)["log"] == ["i", "c", "d"]


def test_a_child_reads_the_keys_it_declares(run: Sync) -> None:
    class Small(TypedDict, total=False):
        value: Any

    seen: list[Any] = []
    child = build({"c": lambda s: seen.append(dict(s))}, chain("c"), state=Small)
    assert run.invoke(build({"child": child}, chain("child")), {"log": ["i"], "value": 1}) == {"log": ["i"], "value": 1}
    assert seen == [{"value": 1}]


def test_a_child_without_shared_keys_changes_nothing(run: Sync) -> None:
    class Other(TypedDict, total=False):
        other: int

    child = build({"c": lambda s: {"other": 1}}, chain("c"), state=Other)
    assert run.invoke(build({"child": child}, chain("child")), {"value": 1}) == {"log": [], "value": 1}


def test_a_childs_output_schema_and_private_keys_stay_inside(run: Sync) -> None:
    class Out(TypedDict):
        value: Any

    builder = (
        StateGraph(Log, output_schema=Out).add_node("c", lambda s: {"log": ["inner"], "value": 2}).add_edge(START, "c")
    )
    assert run.invoke(build({"child": builder.compile()}, chain("child")), {"log": ["i"]}) == {"log": ["i"], "value": 2}


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ({"c": lambda s: {"log": Overwrite(["new"])}, "d": say("d")}, ["new", "d"]),
        ({"c": say("c"), "d": lambda s: {"log": Overwrite(["new"])}}, ["new"]),
        ({"c": lambda s: {"log": Overwrite([])}, "d": lambda s: None}, []),
    ],
)
def test_an_overwrite_in_a_child_overwrites_in_the_parent(run: Sync, nodes: Any, expected: Any) -> None:
    graph = build({"child": build(nodes, chain("c", "d"))}, chain("child"))
    assert run.invoke(graph, {"log": ["old"]})["log"] == expected


def test_plain_and_reduced_in_one_graph_and_not_in_the_other(run: Sync) -> None:
    class Plain(TypedDict, total=False):
        log: list[Any]

    class Total(TypedDict, total=False):
        log: Annotated[list[Any], operator.add]

    inner = build({"c": lambda s: {"log": [*s["log"], "c"]}}, chain("c"), state=Plain)
    assert run.invoke(build({"child": inner}, chain("child"), state=Total), {"log": ["i"]})["log"] == ["i", "i", "c"]
    outer = build({"child": build(words("c d"), chain("c", "d"), state=Total)}, chain("child"), state=Plain)
    assert run.invoke(outer, {"log": ["i"]})["log"] == ["i", "c", "d"]


def test_a_plain_key_written_twice_in_a_child_is_one_write_outside(run: Sync) -> None:
    child = build({"c": lambda s: {"value": 1}, "d": lambda s: {"value": s["value"] + 1}}, chain("c", "d"))
    assert run.invoke(build({"child": child}, chain("child")), {})["value"] == 2


def test_one_child_in_two_nodes_and_on_two_passes_runs_each_time(run: Sync) -> None:
    runs: list[Any] = []
    child = build({"c": say("c", runs)}, chain("c"))
    graph = build({"one": child, "two": child}, chain("one", "two"), InMemorySaver())
    run.invoke(graph, {}, T)
    assert run.invoke(graph, {}, T)["log"] == ["c"] * 4
    assert len(runs) == 4


def test_children_in_parallel_merge_by_node_name(run: Sync) -> None:
    graph = build({name: build({"c": say(name)}, chain("c")) for name in "zam"}, fan(*"zam"))
    assert run.invoke(graph, {})["log"] == ["a", "m", "z"]


def test_sends_to_a_child_are_runs_of_their_own(run: Sync, saver: Saver) -> None:
    child = build({"c": lambda s: {"log": [s["value"]]}}, chain("c"))
    graph = build(
        {"child": child}, [], saver, routers=[(START, lambda s: [Send("child", {"value": i}) for i in range(3)])]
    )
    assert run.invoke(graph, {}, T)["log"] == [0, 1, 2]


def test_a_child_of_objects_gets_and_gives_fields(run: Sync) -> None:
    @dataclass
    class Inner:
        value: int = 0

    child = build({"c": lambda s: {"value": s.value + 1}}, chain("c"), state=Inner)
    assert run.invoke(build({"child": child}, chain("child")), {"value": 1})["value"] == 2


# ------------------------------------------------------------------ calling from inside a node


def test_a_child_called_from_code_is_part_of_the_run(run: Sync, saver: Saver) -> None:
    child = build({"c": say("c"), "q": ask("q")}, chain("c", "q"))
    graph = build({"n": calls(child)}, chain("n"), saver)
    assert run.invoke(graph, {}, T)["__interrupt__"][0].value == "q"
    assert run.invoke(graph, Command(resume="R"), T)["log"] == ["c", ("q", "R")]


def test_an_async_child_called_from_an_async_node() -> None:
    child = build({"q": ask("q")}, chain("q"))

    async def node(s: Any) -> dict[str, Any]:
        return {"log": (await child.ainvoke({}))["log"]}

    graph = build({"n": node}, chain("n"), InMemorySaver())
    assert asyncio.run(graph.ainvoke({}, T))["__interrupt__"][0].value == "q"
    assert asyncio.run(graph.ainvoke(Command(resume="R"), T))["log"] == [("q", "R")]


def test_two_calls_in_one_node_are_told_apart(run: Sync) -> None:
    runs: list[Any] = []
    one, two = build({"c": ask("one", runs)}, chain("c")), build({"c": ask("two", runs)}, chain("c"))
    graph = build({"n": lambda s: {"log": one.invoke({})["log"] + two.invoke({})["log"]}}, chain("n"), InMemorySaver())
    assert run.invoke(graph, {}, T)["__interrupt__"][0].value == "one"
    assert run.invoke(graph, Command(resume=1), T)["__interrupt__"][0].value == "two"
    assert run.invoke(graph, Command(resume=2), T)["log"] == [("one", 1), ("two", 2)]
    assert runs == ["one", "one", "two", "two"]


def test_a_question_before_and_after_a_call(run: Sync) -> None:
    child = build({"c": ask("inner")}, chain("c"))

    def node(s: Any) -> dict[str, Any]:
        first = interrupt("first")
        middle = child.invoke({})["log"]
        return {"log": [first, *middle, interrupt("last")]}

    graph = build({"n": node}, chain("n"), InMemorySaver())
    inputs: list[Any] = [{}, Command(resume=1), Command(resume=2)]
    shown = [run.invoke(graph, given, T)["__interrupt__"][0].value for given in inputs]
    assert shown == ["first", "inner", "last"]
    assert run.invoke(graph, Command(resume=3), T)["log"] == [1, ("inner", 2), 3]


def test_a_call_with_a_thread_of_its_own_is_independent(run: Sync) -> None:
    child = build(words("c"), chain("c"), InMemorySaver())
    graph = build({"n": lambda s: {"log": [len(child.invoke({}, thread("own"))["log"])]}}, chain("n"), InMemorySaver())
    assert [run.invoke(graph, {}, T)["log"] for _ in range(2)] == [[1], [1, 2]]


# ------------------------------------------------------------------ memory of a child


@pytest.mark.parametrize(("checkpointer", "expected"), [(None, [1, 1]), (False, [1, 1]), (True, [1, 2])])
def test_how_long_a_child_remembers(run: Sync, saver: Saver, checkpointer: Any, expected: list[int]) -> None:
    child = build(words("c"), chain("c"), checkpointer)
    graph = build({"n": lambda s: {"value": len(child.invoke({})["log"])}}, chain("n"), saver)
    assert [run.invoke(graph, {}, T)["value"] for _ in range(2)] == expected


def test_a_child_with_memory_as_a_node(run: Sync) -> None:
    class Counted(TypedDict, total=False):
        n: Annotated[int, operator.add]
        value: Any

    child = build({"c": lambda s: {"n": 1}, "d": lambda s: {"value": s["n"]}}, chain("c", "d"), True, state=Counted)
    graph = build({"child": child}, chain("child"), InMemorySaver())
    assert [run.invoke(graph, {}, T)["value"] for _ in range(3)] == [1, 2, 3]
    assert run.invoke(graph, {}, thread("other"))["value"] == 1


def test_a_child_that_stores_nothing_starts_over_on_a_resume(run: Sync) -> None:
    runs: list[Any] = []
    child = build({"c": say("c", runs), "q": ask("q", runs)}, chain("c", "q"), False)
    graph = build({"child": child}, chain("child"), InMemorySaver())
    run.invoke(graph, {}, T)
    assert run.invoke(graph, Command(resume="R"), T)["log"] == ["c", ("q", "R")]
    assert runs == ["c", "q", "c", "q"]


def test_a_childs_own_saver_gives_way_to_its_parents(run: Sync) -> None:
    own, outer = InMemorySaver(), InMemorySaver()
    graph = build({"child": build(words("c"), chain("c"), own)}, chain("child"), outer)
    run.invoke(graph, {}, T)
    assert list(own.list(None)) == []
    assert any(name.startswith("child:") for name in outer.namespaces("t"))


def test_delete_thread_forgets_the_children_too(run: Sync, saver: Saver) -> None:
    graph = build({"child": build({"q": ask("q")}, chain("q"))}, chain("child"), saver)
    run.invoke(graph, {}, T)
    assert len(saver.namespaces("t")) == 2
    saver.delete_thread("t")
    assert saver.namespaces("t") == []


@pytest.mark.parametrize("levels", [0, 1])
@pytest.mark.parametrize("checkpointer", [None, True])
def test_a_child_of_a_thread_deleted_meanwhile_stores_and_runs_nothing(
    run: Sync, saver: Saver, levels: int, checkpointer: bool | None
) -> None:
    runs: list[Any] = []
    child = build(words("c", runs), chain("c"), checkpointer)

    def delete(s: Any) -> dict[str, Any]:
        saver.delete_thread("t")
        return calls(child)(s)  # type: ignore[no-any-return]

    inner = build({"n": delete}, chain("n"))
    graph = build({"a": inner if levels else delete}, chain("a"), saver)
    with pytest.raises(ThreadConflictError):
        run.invoke(graph, {}, T)
    assert saver.namespaces("t") == []
    assert runs == []


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_childs_log_begins_with_every_durability(run: Sync, saver: Saver, durability: Any) -> None:
    graph = build({"child": nest(build({"q": ask("q")}, chain("q")), 2)}, chain("child"), saver)
    assert "__interrupt__" in run.invoke(graph, {}, T, durability=durability)
    assert len(saver.namespaces("t")) == 4
    assert run.invoke(graph, Command(resume="R"), T, durability=durability)["log"] == [("q", "R")]


# ------------------------------------------------------------------ questions in children


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_a_question_deep_inside_reaches_the_caller_and_its_answer_the_question(
    run: Sync, saver: Saver, levels: int
) -> None:
    runs: list[Any] = []
    inner = build({"c": say("c", runs), "q": ask("q", runs), "d": say("d", runs)}, chain("c", "q", "d"))
    graph = build({"a": say("a", runs), "child": nest(inner, levels - 1)}, chain("a", "child"), saver)
    (question,) = run.invoke(graph, {}, T)["__interrupt__"]
    assert question.value == "q"
    assert run.state(graph, T).next == ("child",)
    state = run.state(graph, T, subgraphs=True).tasks[0].state
    for _ in range(levels - 1):
        state = state.tasks[0].state
    assert (state.next, state.interrupts) == (("q",), (question,))
    assert run.invoke(graph, Command(resume={question.id: "R"}), T)["log"] == ["a", "c", ("q", "R"), "d"]
    assert runs == ["a", "c", "q", "q", "d"]


def test_two_questions_in_one_child_in_turn(run: Sync) -> None:
    child = build({"q": lambda s: {"log": [interrupt("x"), interrupt("y")]}, "p": ask("z")}, chain("q", "p"))
    graph = build({"child": child}, chain("child"), InMemorySaver())
    inputs: list[Any] = [{}, Command(resume=1), Command(resume=2)]
    shown = [run.invoke(graph, given, T)["__interrupt__"][0].value for given in inputs]
    assert shown == ["x", "y", "z"]
    assert run.invoke(graph, Command(resume=3), T)["log"] == [1, 2, ("z", 3)]


def test_parallel_children_each_ask_and_are_answered_one_by_one(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    children = {name: build({"c": say(name, runs), "q": ask(name.upper(), runs)}, chain("c", "q")) for name in "ab"}
    graph = build(children, fan("a", "b"), saver)
    ids = {q.value: q.id for q in run.invoke(graph, {}, T)["__interrupt__"]}
    runs.clear()
    out = run.invoke(graph, Command(resume={ids["B"]: 2}), T)
    assert [(q.value, q.id) for q in out["__interrupt__"]] == [("A", ids["A"])]
    assert runs == ["B"]
    assert run.invoke(graph, Command(resume=1), T)["log"] == ["a", ("A", 1), "b", ("B", 2)]
    assert runs == ["B", "A"]


def test_parallel_questions_in_one_child_two_levels_deep(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    inner = build({"q": ask("Q", runs), "r": ask("R", runs)}, fan("q", "r"))
    graph = build({"child": nest(inner, 1), "s": ask("S", runs)}, fan("child", "s"), saver)
    ids = {q.value: q.id for q in run.invoke(graph, {}, T)["__interrupt__"]}
    assert list(ids) == ["Q", "R", "S"]
    runs.clear()
    out = run.invoke(graph, Command(resume={ids["R"]: 2, ids["S"]: 3}), T)
    assert [q.value for q in out["__interrupt__"]] == ["Q"]
    assert out["log"] == [("S", 3)]
    assert sorted(runs) == ["R", "S"]
    runs.clear()
    assert run.invoke(graph, Command(resume={ids["Q"]: 1}), T)["log"] == [("Q", 1), ("R", 2), ("S", 3)]
    assert runs == ["Q"]


def test_answers_for_children_are_accepted_once(run: Sync) -> None:
    graph = build({"child": build({"q": ask("q"), "r": ask("r")}, fan("q", "r"))}, chain("child"), InMemorySaver())
    ids = {q.value: q.id for q in run.invoke(graph, {}, T)["__interrupt__"]}
    run.invoke(graph, Command(resume={ids["q"]: 1}), T)
    with pytest.raises(UnknownInterruptError):
        run.invoke(graph, Command(resume={ids["q"]: 9}), T)
    assert open_ids(graph, T) == {"r": ids["r"]}
    assert run.invoke(graph, Command(resume=2), T)["log"] == [("q", 1), ("r", 2)]


@pytest.mark.parametrize("answer", [None, False, {}, 0, ""])
def test_a_falsy_answer_for_a_child(run: Sync, answer: Any) -> None:
    graph = build({"child": nest(build({"q": ask("q")}, chain("q")), 1)}, chain("child"), InMemorySaver())
    run.invoke(graph, {}, T)
    assert run.invoke(graph, Command(resume=answer), T)["log"] == [("q", answer)]


def test_each_send_to_a_child_asks_for_itself(run: Sync) -> None:
    child = build({"q": lambda s: {"log": [(s["value"], interrupt(s["value"]))]}}, chain("q"))
    graph = build(
        {"child": child},
        [],
        InMemorySaver(),
        routers=[(START, lambda s: [Send("child", {"value": i}) for i in range(3)])],
    )
    ids = {q.value: q.id for q in run.invoke(graph, {}, T)["__interrupt__"]}
    assert len(set(ids.values())) == 3
    run.invoke(graph, Command(resume={ids[1]: "b"}), T)
    assert run.invoke(graph, Command(resume={ids[0]: "a", ids[2]: "c"}), T)["log"] == [(0, "a"), (1, "b"), (2, "c")]


def test_none_shows_a_childs_question_again_without_running_anything(run: Sync) -> None:
    runs: list[Any] = []
    graph = build({"child": build({"q": ask("q", runs)}, chain("q"))}, chain("child"), InMemorySaver())
    first = run.invoke(graph, {}, T)["__interrupt__"]
    assert run.invoke(graph, None, T)["__interrupt__"] == first
    assert runs == ["q"]


def test_new_input_gives_a_child_a_fresh_start(run: Sync) -> None:
    runs: list[Any] = []
    graph = build(
        {"child": build({"c": say("c", runs), "q": ask("q", runs)}, chain("c", "q"))}, chain("child"), InMemorySaver()
    )
    run.invoke(graph, {"log": ["1"]}, T)
    run.invoke(graph, {"log": ["2"]}, T)
    assert runs == ["c", "q", "c", "q"]
    assert run.invoke(graph, Command(resume="R"), T)["log"] == ["1", "2", "c", ("q", "R")]


def test_a_router_in_a_child_may_ask(run: Sync) -> None:
    child = build(words("c d"), [(START, "c")], routers=[("c", lambda s: interrupt("where?"))])
    graph = build({"child": child}, chain("child"), InMemorySaver())
    assert run.invoke(graph, {}, T)["__interrupt__"][0].value == "where?"
    assert run.invoke(graph, Command(resume="d"), T)["log"] == ["c", "d"]


def test_a_child_with_memory_may_ask_on_every_pass(run: Sync) -> None:
    child = build({"q": ask("q")}, chain("q"), True)
    graph = build({"child": child}, chain("child"), InMemorySaver())
    for number in (1, 2):
        assert run.invoke(graph, {}, T)["__interrupt__"][0].value == "q"
        assert run.invoke(graph, Command(resume=number), T)["log"][-1] == ("q", number)
    assert run.state(graph, T).values["log"] == [("q", 1), ("q", 2)]


@pytest.mark.parametrize("durability", ["async", "exit"])
def test_a_child_can_be_answered_under_every_durability(run: Sync, saver: Saver, durability: str) -> None:
    runs: list[Any] = []
    child = build({"c": say("c", runs), "q": ask("q"), "p": ask("p")}, chain("c", "q", "p"))
    graph = build({"child": nest(child, 1)}, chain("child"), saver)
    inputs: list[Any] = [{}, Command(resume=1)]
    shown = [run.invoke(graph, given, T, durability=durability)["__interrupt__"][0].value for given in inputs]
    assert shown == ["q", "p"]
    assert run.invoke(graph, Command(resume=2), T, durability=durability)["log"] == ["c", ("q", 1), ("p", 2)]
    assert runs == ["c"]


# ------------------------------------------------------------------ breakpoints, failures and limits in children


def test_a_breakpoint_in_a_child_pauses_the_parent_and_none_goes_on_inside(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    child = build(words("c d", runs), chain("c", "d"), interrupt_before=["d"])
    graph = build({"a": say("a", runs), "child": nest(child, 1)}, chain("a", "child"), saver)
    assert run.invoke(graph, {}, T)["log"] == ["a"]
    assert run.state(graph, T).next == ("child",)
    assert run.invoke(graph, None, T)["log"] == ["a", "c", "d"]
    assert runs == ["a", "c", "d"]


def test_a_breakpoint_after_a_node_of_a_child(run: Sync) -> None:
    runs: list[Any] = []
    child = build(words("c d", runs), chain("c", "d"), interrupt_after=["c"])
    graph = build({"child": child}, chain("child"), InMemorySaver())
    run.invoke(graph, {}, T)
    assert runs == ["c"]
    assert run.invoke(graph, None, T)["log"] == ["c", "d"]
    assert runs == ["c", "d"]


def test_a_breakpoint_beside_a_question(run: Sync) -> None:
    child = build(words("c d"), chain("c", "d"), interrupt_before=["d"])
    graph = build({"child": child, "q": ask("q")}, fan("child", "q"), InMemorySaver())
    (question,) = run.invoke(graph, {}, T)["__interrupt__"]
    assert question.value == "q"
    out = run.invoke(graph, Command(resume="R"), T)
    if "__interrupt__" not in out and len(out["log"]) < 3:
        out = run.invoke(graph, None, T)
    assert out["log"] == ["c", "d", ("q", "R")]


def test_a_failure_in_a_child_goes_on_at_the_failed_node(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []

    def flaky(s: Any) -> dict[str, Any]:
        runs.append("f")
        if runs.count("f") == 1:
            raise ValueError("x")
        return {"log": ["f"]}

    graph = build({"child": build({"c": say("c", runs), "f": flaky}, chain("c", "f"))}, chain("child"), saver)
    with pytest.raises(ValueError, match="x"):
        run.invoke(graph, {}, T)
    assert run.invoke(graph, None, T)["log"] == ["c", "f"]
    assert runs == ["c", "f", "f"]


def test_a_retry_of_a_child_goes_on_at_the_failed_node(run: Sync) -> None:
    from minigraph import RetryPolicy

    runs: list[Any] = []

    def flaky(s: Any) -> dict[str, Any]:
        runs.append("f")
        if runs.count("f") < 3:
            raise ConnectionError
        return {"log": ["f"]}

    options = {"child": {"retry_policy": RetryPolicy(initial_interval=0, jitter=False)}}
    child = build({"c": say("c", runs), "f": flaky}, chain("c", "f"))
    assert run.invoke(build({"child": child}, chain("child"), InMemorySaver(), options=options), {}, T)["log"] == [
        "c",
        "f",
    ]
    assert runs == ["c", "f", "f", "f"]


@odd("endless-loop")
def test_a_limit_counts_each_graphs_own_steps(run: Sync) -> None:
    graph = build({"child": build(words("c d"), chain("c", "d")), "z": say("z")}, chain("child", "z"))
    assert run.invoke(graph, {}, {"recursion_limit": 2})["log"] == ["c", "d", "z"]
    looping = build({"child": build(words("c"), [(START, "c"), ("c", "c")])}, chain("child"))
    with pytest.raises(GraphRecursionError):
        run.invoke(looping, {}, {"recursion_limit": 5})


@odd("undeclared-key", "unknown-target")
def test_unknown_keys_and_targets_in_a_child_are_errors_of_the_child(run: Sync) -> None:
    for node, error in (
        (lambda s: {"nope": 1}, InvalidUpdateError),
        (lambda s: Command(goto="nope"), UnknownTargetError),
    ):
        with pytest.raises(error, match="'c'"):
            run.invoke(build({"child": build({"c": node}, chain("c"))}, chain("child")), {})


# ------------------------------------------------------------------ Commands to the parent


def up(**command: Any) -> Any:
    return lambda s: Command(graph=Command.PARENT, **command)


def test_a_command_to_the_parent_updates_and_routes_there(run: Sync, saver: Saver) -> None:
    child = build({"c": say("lost"), "up": up(goto="q", update={"log": ["U"]})}, chain("c", "up"))
    graph = build({"child": child, "q": say("q"), "z": say("z")}, [(START, "child"), ("child", "z")], saver)
    assert run.invoke(graph, {"log": ["i"]}, T)["log"] == ["i", "U", "q", "z"]  # the static edge fires as well


def test_a_command_to_the_parent_of_a_child_called_from_code(run: Sync) -> None:
    child = build({"up": up(goto="q", update={"log": ["U"]})}, chain("up"))
    graph = build({"n": calls(child), "q": say("q")}, chain("n"))
    assert run.invoke(graph, {})["log"] == ["U", "q"]


def test_a_command_reaches_the_closest_parent_only(run: Sync) -> None:
    inner = build({"up": up(goto="here", update={"log": ["U"]})}, chain("up"))
    middle = build({"in": inner, "here": say("middle")}, chain("in"))
    graph = build({"mid": middle, "here": say("outer")}, chain("mid"))
    assert run.invoke(graph, {})["log"] == ["U", "middle"]


def test_a_command_to_the_parent_with_a_send(run: Sync) -> None:
    child = build({"up": up(goto=[Send("w", 1), Send("w", 2)])}, chain("up"))
    graph = build({"child": child, "w": lambda x: {"log": [x]}}, chain("child"))
    assert run.invoke(graph, {})["log"] == [1, 2]


def test_a_command_to_the_parent_that_names_nobody(run: Sync) -> None:
    graph = build({"child": build({"up": up(goto="nobody")}, chain("up"))}, chain("child"))
    with pytest.raises(UnknownTargetError, match=r"'child'.*'nobody'"):
        run.invoke(graph, {})
    graph = build({"child": build({"up": up(update={"nope": 1})}, chain("up"))}, chain("child"))
    with pytest.raises(InvalidUpdateError, match=r"'child'.*'nope'"):
        run.invoke(graph, {})


def test_a_command_to_the_parent_after_a_question(run: Sync, saver: Saver) -> None:
    child = build(
        {"q": lambda s: Command(graph=Command.PARENT, goto="z", update={"log": [interrupt("q")]})}, chain("q")
    )
    graph = build({"child": child, "z": say("z")}, chain("child"), saver)
    run.invoke(graph, {}, T)
    assert run.invoke(graph, Command(resume="R"), T)["log"] == ["R", "z"]


def test_a_command_to_the_parent_in_parallel_with_siblings(run: Sync) -> None:
    child = build({"up": up(goto="z", update={"log": ["U"]})}, chain("up"))
    graph = build({"child": child, "a": say("a"), "z": say("z")}, fan("child", "a"), InMemorySaver())
    assert run.invoke(graph, {}, T)["log"] == ["a", "U", "z"]


# ------------------------------------------------------------------ reading, editing and replaying children


def child_place(run: Sync, graph: CompiledGraph) -> dict[str, Any]:
    """The config of the one child graph that is paused."""
    config: dict[str, Any] = run.state(graph, T, subgraphs=True).tasks[0].state.config
    place = config["configurable"]
    return {"configurable": {"thread_id": place["thread_id"], "checkpoint_ns": place["checkpoint_ns"]}}


def asking_child(runs: list[Any], saver: Saver | None = None) -> CompiledGraph:
    child = build({"a": say("a", runs), "b": say("b", runs), "q": ask("q", runs)}, chain("a", "b", "q"))
    return build({"child": child, "z": say("z", runs)}, chain("child", "z"), saver or InMemorySaver())


def test_a_childs_state_and_history_can_be_read(run: Sync, saver: Saver) -> None:
    graph = asking_child([], saver)
    run.invoke(graph, {"log": ["i"]}, T)
    place = child_place(run, graph)
    assert place["configurable"]["checkpoint_ns"].startswith("child:")
    assert run.state(graph, place).next == ("q",)
    assert [shot.next for shot in run.history(graph, place)] == [("q",), ("b",), ("a",), ("__start__",)]
    without = run.state(graph, T).tasks[0].state
    assert without["configurable"]["checkpoint_ns"] == place["configurable"]["checkpoint_ns"]


def test_a_childs_state_can_be_edited_and_the_parent_goes_on_from_there(run: Sync, saver: Saver) -> None:
    graph = asking_child([], saver)
    run.invoke(graph, {}, T)
    run.update(graph, child_place(run, graph), {"log": ["edit"]}, as_node="q")
    assert run.invoke(graph, None, T)["log"] == ["a", "b", "edit", "z"]


def test_a_replay_before_a_child_starts_it_over(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    graph = asking_child(runs, saver)
    run.invoke(graph, {}, T)
    run.invoke(graph, Command(resume="old"), T)
    runs.clear()
    assert run.invoke(graph, None, checkpoint_before(graph, T, "child"))["__interrupt__"][0].value == "q"
    assert runs == ["a", "b", "q"]
    assert run.invoke(graph, Command(resume="new"), T)["log"] == ["a", "b", ("q", "new"), "z"]


def test_a_replay_inside_a_child_goes_on_there(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    graph = asking_child(runs, saver)
    run.invoke(graph, {}, T)
    place = child_place(run, graph)
    at = checkpoint_before(graph, place, "b")
    runs.clear()
    assert run.invoke(graph, None, at)["__interrupt__"][0].value == "q"
    assert runs == ["b", "q"]
    assert run.invoke(graph, Command(resume="R"), T)["log"] == ["a", "b", ("q", "R"), "z"]


def test_an_unknown_namespace_is_refused(run: Sync) -> None:
    graph = asking_child([])
    run.invoke(graph, {}, T)
    wrong = {"configurable": {"thread_id": "t", "checkpoint_ns": "nobody:123"}}
    with pytest.raises(ValueError, match="nobody"):
        run.update(graph, wrong, {"log": []})


def test_an_older_answer_given_anew_reaches_a_childs_question(run: Sync) -> None:
    """D8 for a question of a child: the parent's older checkpoint, the child's question id."""
    graph = asking_child([])
    question = run.invoke(graph, {}, T)["__interrupt__"][0]
    at = run.state(graph, T).config
    run.invoke(graph, Command(resume="old"), T)
    assert run.invoke(graph, Command(resume={question.id: "new"}), at)["log"] == ["a", "b", ("q", "new"), "z"]
    assert run.state(graph, T).values["log"] == ["a", "b", ("q", "new"), "z"]


# ------------------------------------------------------------------ what children share with their parents


def test_context_config_and_stream_reach_a_child(run: Sync) -> None:
    def node(s: Any, runtime: Runtime[str], config: Any) -> dict[str, Any]:
        get_stream_writer()("from the child")
        return {"log": [runtime.context, config["configurable"]["thread_id"], runtime.execution_info.checkpoint_ns[:6]]}

    graph = build({"child": build({"c": node}, chain("c"))}, chain("child"), InMemorySaver())
    chunks = run.stream(graph, {}, T, context="shared", stream_mode=["custom", "values"])
    assert ("custom", "from the child") in chunks
    assert chunks[-1][1]["log"] == ["shared", "t", "child:"]


def test_max_concurrency_and_drain_reach_a_child(run: Sync) -> None:
    from minigraph.errors import GraphDrained

    def stop(s: Any, runtime: Runtime[Any]) -> dict[str, Any]:
        runtime.control.request_drain("child")
        return {"log": ["c"]}

    runs: list[Any] = []
    graph = build(
        {"child": build({"c": stop, "d": say("d", runs)}, chain("c", "d")), "z": say("z", runs)},
        chain("child", "z"),
        InMemorySaver(),
    )
    with pytest.raises(GraphDrained):
        run.invoke(graph, {}, T)
    assert runs == []
    assert run.invoke(graph, None, T)["log"] == ["c", "d", "z"]


def test_a_childs_types_are_known_to_the_parents_saver(run: Sync, saver: Saver) -> None:
    child = build(
        {"c": lambda s: {"money": Amount(3)}, "q": lambda s: {"log": [s["money"], interrupt("q")]}},
        chain("c", "q"),
        state=Priced,
    )
    graph = build({"child": child}, chain("child"), saver)
    run.invoke(graph, {}, T)
    assert run.invoke(graph, Command(resume="R"), T)["log"] == [Amount(3), "R"]


@odd("unreachable-node")
def test_end_in_a_child_ends_the_child_only(run: Sync) -> None:
    child = build(words("c d"), [(START, "c")], routers=[("c", lambda s: END)])
    assert run.invoke(build({"child": child, "z": say("z")}, chain("child", "z")), {})["log"] == ["c", "z"]


# ------------------------------------------------------------------ streaming a child from inside a node


def test_a_child_streamed_from_code_yields_its_chunks(run: Sync, saver: Saver) -> None:
    child = build(words("c d"), chain("c", "d"))

    def node(s: Any) -> dict[str, Any]:
        both = list(child.stream({}, stream_mode=["updates", "custom"]))
        return {"log": [list(child.stream({})), list(child.stream({"log": ["i"]}, stream_mode="values")), both]}

    updates, values, both = run.invoke(build({"n": node}, chain("n"), saver), {}, T)["log"]
    assert updates == [{"c": {"log": ["c"]}}, {"d": {"log": ["d"]}}]
    assert values == [{"log": ["i"]}, {"log": ["i", "c"]}, {"log": ["i", "c", "d"]}]
    assert both == [("updates", chunk) for chunk in updates]


def test_a_child_invoked_from_code_with_a_stream_mode_returns_its_chunks(run: Sync) -> None:
    child = build(words("c"), chain("c"))
    graph = build({"n": lambda s: {"log": child.invoke({}, stream_mode="updates")}}, chain("n"))
    assert run.invoke(graph, {})["log"] == [{"c": {"log": ["c"]}}]


def test_an_async_child_streamed_from_code_yields_its_chunks() -> None:
    child = build(words("c"), chain("c"))

    async def node(s: Any) -> dict[str, Any]:
        return {"log": [chunk async for chunk in child.astream({})]}

    assert asyncio.run(build({"n": node}, chain("n")).ainvoke({}))["log"] == [{"c": {"log": ["c"]}}]


def test_a_question_of_a_streamed_child_pauses_the_parent(run: Sync, saver: Saver) -> None:
    runs: list[Any] = []
    child = build({"c": say("c", runs), "q": ask("q", runs)}, chain("c", "q"))

    def node(s: Any) -> dict[str, Any]:
        *_, last = child.stream({}, stream_mode="values")
        return {"log": last["log"]}

    graph = build({"n": node}, chain("n"), saver)
    assert run.invoke(graph, {}, T)["__interrupt__"][0].value == "q"
    assert run.invoke(graph, Command(resume="R"), T)["log"] == ["c", ("q", "R")]
    assert runs == ["c", "q", "q"]


def test_history_says_where_a_finished_childs_state_is(run: Sync, saver: Saver) -> None:
    graph = asking_child([], saver)
    run.invoke(graph, {}, T)
    run.invoke(graph, Command(resume="R"), T)
    shot = next(shot for shot in run.history(graph, T) if shot.next == ("child",))
    place = shot.tasks[0].state
    assert place["configurable"]["checkpoint_ns"].startswith("child:")
    assert run.state(graph, place).values["log"] == ["a", "b", ("q", "R")]


def test_a_child_that_is_read_as_chunks_is_one_call_of_its_node() -> None:
    child = build({"c": say("c")}, chain("c"))
    saver = InMemorySaver()
    chunks: list[Any] = []

    def calls(state: Any) -> None:
        chunks.extend(child.invoke({"log": ["given"]}, stream_mode="updates"))

    build({"n": calls}, chain("n"), saver).invoke({"log": []}, thread("t"))
    assert chunks == [{"c": {"log": ["c"]}}]
    root, inside = saver.namespaces("t")
    assert (root, inside.count(":")) == ("", 1)
