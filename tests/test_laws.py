"""Laws on random programs, and tests that each law notices what breaks it."""

from __future__ import annotations

import asyncio
import importlib.util
import operator
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Annotated, Any, TypedDict

import numpy as np
import pytest
from conftest import odd
from fingerprint import elsewhere, fingerprint
from hypothesis import HealthCheck, assume, given, settings

from minigraph import END, START, CompiledGraph, RetryPolicy, Send, StateGraph, interrupt
from minigraph.channels import EphemeralValue
from minigraph.checkpoint import InMemorySaver, Saver, SqliteSaver
from minigraph.records import Ancestor, Recorded, Stored, Write
from minigraph.testing import (
    ConformanceError,
    LawError,
    MutationError,
    Program,
    Schedule,
    build,
    check_history,
    detect_mutation,
    draw_program,
    graphs,
    inputs_for,
    laws,
    minigraph_engine,
    reducer_laws,
    run,
    saver_checks,
    saver_conformance,
    schedules,
)
from minigraph.testing.building import CrowdedError, Ledger
from minigraph.testing.crashing import CrashingSaver, PassingSaver
from minigraph.testing.engines import Engine, langgraph_engine
from minigraph.testing.programs import Edit, Input, NodeSpec, Put, RouterSpec, SendTo, larger, shelve, weave
from minigraph.testing.thread_laws import an_edit_stands_for_its_node
from minigraph.testing.traces import async_stream, sync_stream

EXAMPLES = int(os.environ.get("MINIGRAPH_LAW_EXAMPLES", "40"))
"""How many programs each law sees; more with the environment variable or with -m slow."""
QUICK = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES == 40,
    suppress_health_check=list(HealthCheck),  # pyright: ignore[reportArgumentType]  # hypothesis leaves its metaclass untyped
)
LOG = (Put("log"), Put("total"))


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    value: Any


def graph_of(saver: Saver | None = None, **nodes: Any) -> CompiledGraph:
    """A graph whose nodes all run in the first step."""
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    for name, action in nodes.items():
        builder.add_node(name, action).add_edge(START, name)
    return builder.compile(saver)


@contextmanager
def within_reason() -> Iterator[None]:
    """Passes over a program whose tasks multiply without end."""
    try:
        yield
    except CrowdedError:
        assume(False)


# ------------------------------------------------------------------------ programs


@QUICK
@given(graphs(failing_routers=True, deep_children=True), schedules())
def test_any_finishing_order_gives_the_same(program: Program, schedule: Schedule) -> None:
    with within_reason():
        laws.any_finishing_order(program, schedule)


def failing_twice(*puts: Put) -> Program:
    """A node that is due by an edge and by a Send in one step, and whose router fails once for each of the two."""
    by_send = RouterSpec(START, "r0", ((SendTo("n0", 0),),))
    failing = RouterSpec("n0", "r0", ((),), fails_once=True)
    return Program((NodeSpec("n0", "write", puts),), ((START, "n0"),), routers=(by_send, failing), budget=3)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("number", [0, 1])
def test_which_task_asks_a_failing_router_first_does_not_matter(number: int, together: bool) -> None:
    schedule = Schedule((number,), together)
    laws.any_finishing_order(failing_twice(Put("log", overwrite=True), Put("total")), schedule)

    def stream(graph: CompiledGraph, given: Any, config: Any) -> Iterator[Any]:
        return schedule.stream(graph, given, config, stream_mode=["updates", "values"])

    failed, ended = run(failing_twice(*LOG), stream=stream).calls
    assert (failed.ended, dict(failed.values)["log"], failed.next) == ("failed", ("list", "input:0"), ("n0", "n0"))
    assert (ended.ended, dict(ended.values)["log"]) == ("ok", ("list", "input:0", "n0:0/1", "n0:3/1"))


def test_what_fails_once_fails_for_each_task_of_the_first_step_that_calls_it() -> None:
    ledger = Ledger()
    asked = [("a", "1"), ("a", "2"), ("a", "1"), ("b", "3"), ("a", "4"), ("b", "1")]
    assert [ledger.first("/n0->r0", step, task) for step, task in asked] == [1, 1, 0, 0, 1, 0]
    assert ledger.first("/n1->r0", "b", "3")


@pytest.mark.parametrize("number", [0, 1])
def test_each_task_of_a_node_is_tried_again_alike(number: int) -> None:
    """With a failure of the node and one of its router, no task has a try left, whichever of the two ran first."""
    twice = failing_twice(*LOG)
    program = replace(twice, nodes=(NodeSpec("n0", "retry", LOG),))
    laws.any_finishing_order(program, Schedule((number,)))
    failed, ended = run(program).calls
    assert (failed.ended, failed.next, ended.ended) == ("failed", ("n0", "n0"), "ok")


@pytest.mark.skipif(importlib.util.find_spec("langgraph") is None, reason="LangGraph is not installed")
@pytest.mark.parametrize("engine", [minigraph_engine, langgraph_engine], ids=["minigraph", "langgraph"])
def test_a_router_fails_once_for_an_edit_too(engine: Callable[[], Engine]) -> None:
    program = replace(failing_twice(*LOG), turns=(Edit("n0", LOG),))
    assert run(program, engine()).calls[0].ended == "failed"


@pytest.mark.parametrize("law", laws.PROGRAM_LAWS, ids=lambda law: law.__name__)
@QUICK
@given(program=graphs(size=5, deep_children=True))
def test_law(law: Callable[[Program], None], program: Program) -> None:
    with within_reason():
        law(program)


@QUICK
@given(graphs(size=5, failing_routers=True, deep_children=True))
def test_a_failing_router_is_asked_again_in_any_order_and_mode(program: Program) -> None:
    with within_reason():
        laws.sync_equals_async(program)
        laws.history_folds_to_state(program)


@settings(QUICK, max_examples=max(EXAMPLES // 4, 5))
@given(graphs(size=5, failing_routers=True, deep_children=True))
def test_memory_and_file_give_the_same(program: Program) -> None:
    with within_reason(), SqliteSaver(":memory:") as saver:
        laws.savers_agree(program, saver)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 1000, 100))
def test_every_law_on_many_programs(start: int, request: pytest.FixtureRequest) -> None:
    if "slow" not in str(request.config.getoption("markexpr")):
        pytest.skip("a long sweep: -m slow runs it")
    for seed in range(start, start + 100):
        program = draw_program(Random(seed), deep_children=True)
        laws.any_finishing_order(program, Schedule((seed, seed // 7, 3, 1, 4, 1, 5), bool(seed % 2)))
        for law in laws.PROGRAM_LAWS:
            law(program)
        with SqliteSaver(":memory:") as saver:
            laws.savers_agree(program, saver)


@pytest.mark.parametrize("hash_seed", ["0", "1", "2"])
def test_another_hash_seed_gives_the_same(hash_seed: str) -> None:
    assert elsewhere(25, hash_seed) == fingerprint(25)


def test_threads_that_finish_in_another_order_give_the_same() -> None:
    nodes = tuple(NodeSpec(name, "write", (*LOG, Put("text"), Put("table"))) for name in "abcd")
    program = Program(nodes, tuple((START, name) for name in "abcd"))

    def delayed(order: str) -> Callable[[str], float]:
        return lambda name: 0.004 * order.index(name)

    traces = [run(program, delay=delayed(order)) for order in ("abcd", "dcba", "cadb")]
    assert traces[0] == traces[1] == traces[2]
    assert dict(traces[0].end[0])["text"] == "((((" + "a0)b0)c0)d0)"
    assert run(program, stream=async_stream, delay=lambda name: 0.004 * "dbca".index(name)) == traces[0]


def test_a_turn_that_ends_with_its_last_round_is_followed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = Program((NodeSpec("a", "ask"),), ((START, "a"),), turns=(Input(0), Input(1)))
    twice = replace(asking, nodes=(NodeSpec("a", "ask_twice"),))
    monkeypatch.setattr("minigraph.testing.traces.ROUNDS", 1)
    assert [call.given for call in run(asking).calls] == ["input", "answer", "input", "answer"]
    assert [call.given for call in run(twice).calls] == ["input", "answer"]
    laws.answers_known_before(asking)


# --------------------------------------------------------------- the laws notice


def broken_by(law: Callable[..., None], *arguments: Any) -> str:
    """What a law says about a broken engine, looking at up to 60 programs."""
    for seed in range(60):
        try:
            law(draw_program(Random(seed)), *arguments)
        except LawError as error:
            return error.law
    return "nothing"


class Edited(CrashingSaver):
    """Shows a past that changes with the number of writes."""

    def history(self, thread_id: str, namespace: str, **options: Any) -> Any:
        for stored in self.inner.history(thread_id, namespace, **options):
            stored.checkpoint.values["log"] = [self.writes, len(stored.checkpoint.values.get("log", ()))]
            yield stored


def test_a_past_that_changes_and_a_saver_that_differs_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LawError, match="savers agree \\(Edited\\)"):
        laws.savers_agree(Program((NodeSpec("a", "write", LOG),), ((START, "a"),)), Edited(InMemorySaver()))
    monkeypatch.setattr(laws, "InMemorySaver", lambda: Edited(InMemorySaver()))
    assert broken_by(laws.forks_leave_their_parent) == "a fork leaves its parent"


def test_a_driver_that_differs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "async_stream", lambda graph, given, config: list(sync_stream(graph, given, config))[1:])
    assert broken_by(laws.sync_equals_async) == "sync equals async"


def test_threads_that_fail_and_never_end_are_not_compared() -> None:
    for seed in (147, 165):
        program = draw_program(Random(seed), deep_children=True)
        assert run(program).calls[-1].next
        laws.sync_equals_async(program)


def test_an_edit_is_refused_where_the_answer_is(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = (NodeSpec("a", "write", (Put("plain"),)), NodeSpec("b", "write", (Put("plain"),)), NodeSpec("c", "ask"))
    conflict = Program(nodes, tuple((START, name) for name in "abc"))
    an_edit_stands_for_its_node(conflict)  # what a and b wrote cannot be merged, whoever completes the step
    fine = replace(conflict, edges=((START, "a"), (START, "c")))
    an_edit_stands_for_its_node(fine)
    monkeypatch.setattr("minigraph.testing.thread_laws._edit", lambda *_: "refused")
    with pytest.raises(LawError, match="an edit stands for its node"):
        an_edit_stands_for_its_node(fine)


def test_a_history_can_be_checked_for_any_graph() -> None:
    saver = InMemorySaver()
    graph = graph_of(saver, b=lambda state: {"log": ["b"]}, a=lambda state: {"log": ["a"]})
    graph.invoke({"log": ["in"]}, {"configurable": {"thread_id": "t"}})
    check_history(graph, saver, "t")
    with pytest.raises(LawError, match="step"):
        check_history(graph, Edited(saver), "t")


def test_values_that_are_not_equal_to_themselves_keep_the_laws() -> None:
    saver = InMemorySaver()
    numbers = np.array([1.0, float("nan")])
    graph = graph_of(saver, a=lambda state: {"log": [float("nan")]}, b=lambda state: {"value": numbers})
    graph.invoke({"log": []}, {"configurable": {"thread_id": "t"}})
    check_history(graph, saver, "t")
    with pytest.raises(LawError, match="step"):
        check_history(graph, Edited(saver), "t")
    assert reducer_laws(operator.add, [float("nan")]).not_idempotent is None
    assert reducer_laws(operator.add, [np.array([1.0, 2.0])]).not_idempotent is not None
    assert reducer_laws(np.subtract, [np.array([1]), np.array([2])]).not_commutative is not None


# ----------------------------------------------------------------------- schedules


def test_a_schedule_decides_who_finishes_first() -> None:
    graph = graph_of(None, **{name: (lambda state, name=name: {"log": [name]}) for name in "abc"})

    def order(*numbers: int) -> list[str]:
        return [next(iter(chunk)) for chunk in Schedule(numbers).stream(graph, {"log": []})]

    assert order(0) == ["a", "b", "c"]
    assert order(2, 1, 0) == ["c", "b", "a"]
    assert order(1, 0, 0) == ["b", "a", "c"]
    assert Schedule((2, 1, 0)).invoke(graph, {"log": ["in"]}) == {"log": ["in", "a", "b", "c"]}
    with pytest.raises(ValueError, match="at least one number"):
        Schedule(())


# ------------------------------------------------------------------------ strategies


class Wanted(TypedDict, total=False):
    count: int
    ratio: float
    names: Annotated[list[str], operator.add]
    marks: Annotated[set[int], operator.or_]
    table: dict[str, Any]
    choice: str | None
    flash: Annotated[str, EphemeralValue(str)]


def test_inputs_fit_their_graph() -> None:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(Wanted)
    graph = builder.add_node("a", lambda state: None).add_edge(START, "a").compile()
    from hypothesis import strategies as st

    seen: set[str] = set()

    @QUICK
    @given(inputs_for(graph, count=st.integers(5, 6)))
    def check(values: dict[str, Any]) -> None:
        seen.update(values)
        assert values["count"] in (5, 6)
        assert isinstance(values.get("names", []), list)
        assert isinstance(values.get("marks", set()), set)
        assert values.get("choice") is None or isinstance(values["choice"], str)
        found = graph.invoke(values)
        assert {key: value for key, value in found.items() if key in values} == values | (
            {} if "flash" not in values else {"flash": values["flash"]}
        ) or "flash" in values

    check()
    assert seen == set(Wanted.__annotations__)
    with pytest.raises(ValueError, match="no key 'nmes'"):
        inputs_for(graph, nmes=st.none())
    root: StateGraph[Any, Any, Any, Any] = StateGraph(int)
    with pytest.raises(TypeError, match="without keys"):
        inputs_for(root.add_node("a", lambda n: n).add_edge(START, "a").compile())


def test_without_hypothesis_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "import minigraph.testing as t\n"
        "assert t.reducer_laws and t.crash_everywhere\n"
        "try:\n    t.graphs\n"
        "except ImportError as error:\n    print(error)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'minigraph[testing]'" in found.stdout


def test_testing_and_hypothesis_are_imported_only_when_used() -> None:
    code = "import sys, minigraph; assert not {'hypothesis', 'minigraph.testing'} & set(sys.modules)\n"
    code += "import minigraph.testing; assert 'hypothesis' not in sys.modules and 'langgraph' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# -------------------------------------------------------------------------- reducers


def test_what_a_reducer_is_like() -> None:
    report = reducer_laws(operator.add, [[], [1], [1, 2]], start=[])
    assert report.not_commutative == ([1], [1, 2])
    assert report.not_associative is None
    assert report.not_idempotent == ([1],)
    assert reducer_laws(operator.or_, [{1}, {2}, set()]).not_commutative is None
    assert reducer_laws(larger, [3, None, 5]).not_associative is None
    assert reducer_laws(weave, ["a", "b"]).not_associative == ("a", "a", "a")
    assert reducer_laws(shelve, [{"a": 1}, {"a": 2}]).not_commutative == ({"a": 1}, {"a": 2})


def test_reducers_that_break_a_law_are_noticed() -> None:
    count: list[int] = []

    def counting(old: int, new: int) -> int:
        count.append(1)
        return old + new + len(count)

    def eats(old: list[Any], new: list[Any]) -> list[Any]:
        return [*old, *(new.pop() for _ in range(len(new)))]

    def inner(old: list[Any], new: list[Any]) -> list[Any]:
        if old:
            old[0].append(9)
        return old + new

    with pytest.raises(LawError, match="deterministic"):
        reducer_laws(counting, [1, 2])
    with pytest.raises(LawError, match=r"edited \$.* of the write"):
        reducer_laws(eats, [[1]])
    with pytest.raises(LawError, match=r"edited \$\[0\] of the value so far"):
        reducer_laws(inner, [[[]]])
    with pytest.raises(ValueError, match="at least one example"):
        reducer_laws(operator.add, [])


def appends_in_place(old: list[Any], new: list[Any]) -> list[Any]:
    old.extend(new)
    return old


def test_a_reducer_may_extend_the_list_it_is_given() -> None:
    assert reducer_laws(appends_in_place, [[1], [2]]).not_associative is None


# ------------------------------------------------------------------------- mutation


@dataclass
class Box:
    items: list[int]


def deep(state: Any) -> dict[str, Any]:
    state["log"][0]["names"].append("x")
    return {}


def field(state: Any) -> dict[str, Any]:
    state["value"].items = [5]
    return {}


def removes(state: Any) -> dict[str, Any]:
    state["log"].pop()["names"] = "gone"
    return {}


def queue(state: Any) -> dict[str, Any]:
    state["value"].append(1)
    return {}


@pytest.mark.parametrize(
    ("node", "given_input", "path"),
    [
        (deep, {"log": [{"names": ["a"]}]}, "$.log[0].names"),
        (field, {"log": [], "value": Box([1])}, "$.value.items"),
        (removes, {"log": [{"names": []}]}, "$.log[0].names"),
        (queue, {"value": deque([3])}, "$.value"),
    ],
)
def test_edits_in_place_are_named(node: Any, given_input: Any, path: str) -> None:
    graph = detect_mutation(graph_of(edits=node))
    with pytest.raises(MutationError) as caught:
        graph.invoke(given_input)
    assert caught.value.where == "node 'edits'"
    assert caught.value.path == path


def test_edits_of_a_nodes_own_copies_are_fine() -> None:
    def own(state: Any) -> dict[str, Any]:
        state["log"].append(1)
        state["value"] = {}
        return {"value": [*state["log"], {}]}

    assert detect_mutation(graph_of(own=own)).invoke({"log": [0]}) == {"log": [0], "value": [0, 1, {}]}


def keeps(old: list[Any], new: list[Any]) -> list[Any]:
    new[0]["seen"] = True
    return old + new


class Kept(TypedDict):
    log: Annotated[list[Any], keeps]


@odd("unreachable-node")
def test_edits_by_routers_sends_reducers_handlers_and_children_are_named() -> None:
    def bare(**options: Any) -> StateGraph[Any, Any, Any, Any]:
        builder: StateGraph[Any, Any, Any, Any] = StateGraph(options.pop("state", State))
        return builder.add_node("a", lambda state: {}).add_edge(START, "a").add_node("b", options["b"])

    def router(state: Any) -> str:
        state["log"][0].clear()
        return END

    routed = bare(b=deep).add_conditional_edges("a", router).compile()
    with pytest.raises(MutationError, match="router 'router' after node 'a'"):
        detect_mutation(routed).invoke({"log": [[1]]})
    sent = bare(b=lambda item: item.update(x=1)).add_conditional_edges("a", lambda state: Send("b", {"x": 0})).compile()
    with pytest.raises(MutationError, match=r"node 'b' edited \$\.x in place"):
        detect_mutation(sent).invoke({"log": []})

    with pytest.raises(MutationError, match="the reducer of key 'log'"):
        detect_mutation(bare(state=Kept, b=deep).compile()).invoke({"log": [{}]})
    parent = bare(b=graph_of(inner=deep)).add_edge("a", "b").compile()
    with pytest.raises(MutationError, match="node 'inner'"):
        detect_mutation(parent).invoke({"log": [{"names": []}]})


def test_retries_and_handlers_do_not_hide_an_edit() -> None:
    calls: list[int] = []

    def once(state: Any) -> dict[str, Any]:
        calls.append(1)
        return deep(state) if len(calls) == 1 else {}

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    retry = RetryPolicy(initial_interval=0, jitter=False, retry_on=Exception)
    builder.add_node("once", once, retry_policy=retry, error_handler=lambda state: {"value": "handled"})
    graph = detect_mutation(builder.add_edge(START, "once").compile())
    with pytest.raises(MutationError, match="node 'once'"):
        graph.invoke({"log": [{"names": []}]})
    assert calls == [1]


def test_edits_before_an_exception_or_a_question_are_named() -> None:
    trouble = KeyError("later")

    def raises(state: Any) -> dict[str, Any]:
        deep(state)
        raise trouble

    def asks(state: Any) -> dict[str, Any]:
        deep(state)
        return {"value": interrupt("well?")}

    async def asks_later(state: Any) -> dict[str, Any]:
        return asks(state)

    def given() -> dict[str, Any]:
        return {"log": [{"names": []}]}

    with pytest.raises(MutationError, match="node 'raises'") as caught:
        detect_mutation(graph_of(raises=raises)).invoke(given())
    assert caught.value.__notes__[0] == "The call then ended with KeyError: 'later'"
    config: Any = {"configurable": {"thread_id": "t"}}
    with pytest.raises(MutationError, match="node 'asks'"):
        detect_mutation(graph_of(InMemorySaver(), asks=asks)).invoke(given(), config)
    with pytest.raises(MutationError, match="node 'asks'"):
        asyncio.run(detect_mutation(graph_of(InMemorySaver(), asks=asks_later)).ainvoke(given(), config))
    careful = detect_mutation(graph_of(InMemorySaver(), asks=lambda state: {"value": interrupt("well?")}))
    assert [question.value for question in careful.invoke(given(), config)["__interrupt__"]] == ["well?"]


def test_a_number_that_becomes_another_type_is_an_edit() -> None:
    def retypes(state: Any) -> dict[str, Any]:
        state["log"][0]["n"] = True
        return {}

    with pytest.raises(MutationError, match=r"\$\.log\[0\]\.n"):
        detect_mutation(graph_of(retypes=retypes)).invoke({"log": [{"n": 1}]})


def test_graphs_that_are_not_compiled_are_refused() -> None:
    builder: Any = StateGraph(State).add_node("a", deep).add_edge(START, "a")
    with pytest.raises(TypeError, match=r"this is a StateGraph: give builder\.compile"):
        detect_mutation(builder)


def test_edits_inside_of_child_graphs_are_found_wherever_they_are_called() -> None:
    inner = graph_of(inner=deep)
    given: dict[str, Any] = {"log": [{"names": []}]}

    def call(state: Any) -> dict[str, Any]:
        return {"value": inner.invoke(given)}

    with pytest.raises(MutationError, match="node 'inner'"):
        detect_mutation(graph_of(call=call)).invoke({"log": []})
    given = {"log": [{"names": []}]}
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    retry = RetryPolicy(initial_interval=0, jitter=False, retry_on=Exception)
    builder.add_node("child", inner, retry_policy=retry).add_edge(START, "child")
    with pytest.raises(MutationError, match="node 'inner'"):
        detect_mutation(builder.compile()).invoke(given)
    assert given == {"log": [{"names": ["x"]}]}  # one try, no more


# --------------------------------------------------------------------------- savers


@pytest.mark.parametrize("check", saver_checks(), ids=lambda name: name.replace(" ", "_"))
def test_savers_conform(saver: Saver, check: str) -> None:
    saver_checks()[check](saver)


class WithoutRevisions(PassingSaver):
    """Takes every write as if nobody else had written."""

    def put(self, write: Write) -> int:
        head = self.inner.get(write.thread_id, write.namespace)
        revision = 0 if head is None else head.revision
        return self.inner.put(replace_revision(write, revision))


class WithoutResults(PassingSaver):
    """Reads no results."""

    def get(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> Stored | None:
        import msgspec

        found = self.inner.get(thread_id, namespace, checkpoint_id)
        return None if found is None else msgspec.structs.replace(found, results=())


class WithTuplesAsLists(PassingSaver):
    """Reads tuples as lists."""

    def history(self, thread_id: str, namespace: str, **options: Any) -> Any:
        for stored in self.inner.history(thread_id, namespace, **options):
            values = stored.checkpoint.values
            values.update(
                {k: [list(i) if isinstance(i, tuple) else i for i in v] for k, v in values.items() if k == "m"}
            )
            yield stored


class WithoutClasses(PassingSaver):
    """Registers nothing."""

    def register(self, *types: type, name: str | None = None) -> None:
        return


def test_a_register_that_does_nothing_is_noticed() -> None:
    with pytest.raises(ConformanceError, match="a registered class can be stored"):
        saver_conformance(lambda: WithoutClasses(SqliteSaver(":memory:")))


def replace_revision(write: Write, revision: int) -> Write:
    return Write(write.thread_id, write.namespace, revision, write.checkpoints, write.results, write.removed)


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        (WithoutRevisions, "a write on another revision"),
        (WithoutResults, "result comes back"),
        (WithTuplesAsLists, "every state of a long history can be read"),
    ],
)
def test_savers_that_do_not_conform_are_noticed(kind: Any, check: str) -> None:
    with pytest.raises(ConformanceError, match=check):
        saver_conformance(lambda: kind(InMemorySaver()))


class WrongTwins(PassingSaver):
    """Its sync methods are right; one of its own async ones is not."""

    def __init__(self, wrong: str) -> None:
        super().__init__(InMemorySaver())
        self.wrong = wrong
        self.left_alone: list[Callable[[], object]] = []
        """The cancelled writes that are stored later: once somebody has looked."""

    async def store_slowly(self, store: Callable[..., Any], *arguments: Any) -> Any:
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            self.left_alone.append(lambda: store(*arguments))
            raise
        return store(*arguments)

    def recorded(self, thread_id: str, namespace: str, task_id: str) -> tuple[Recorded, ...]:
        found = super().recorded(thread_id, namespace, task_id)
        while self.left_alone:
            self.left_alone.pop()()
        return found

    async def aput(self, write: Write) -> int:
        if self.wrong == "aput, any revision":
            head = self.inner.get(write.thread_id, write.namespace)
            return self.inner.put(replace_revision(write, 0 if head is None else head.revision))
        if self.wrong == "aput, lost":
            return write.revision + 1
        if self.wrong == "aput, left alone":
            revision: int = await self.store_slowly(self.inner.put, write)
            return revision
        return await super().aput(write)

    async def aget(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> Stored | None:
        return await super().aget(thread_id, namespace, None if self.wrong == "aget" else checkpoint_id)

    async def ahistory(self, thread_id: str, namespace: str, **options: Any) -> list[Stored]:
        if self.wrong == "ahistory":
            options.pop("limit", None)
        return await super().ahistory(thread_id, namespace, **options)

    async def alineage(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> list[Ancestor]:
        found = await super().alineage(thread_id, namespace, checkpoint_id)
        return found[::-1] if self.wrong == "alineage" else found

    async def anamespaces(self, thread_id: str) -> list[str]:
        found = await super().anamespaces(thread_id)
        return found[::-1] if self.wrong == "anamespaces" else found

    async def arecord_start(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> Recorded | None:
        found = await super().arecord_start(thread_id, namespace, task_id, recorded)
        return None if self.wrong == "arecord_start" else found

    async def arecord(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> None:
        if self.wrong == "arecord, left alone":
            await self.store_slowly(self.inner.record, thread_id, namespace, task_id, recorded)
        elif self.wrong != "arecord":
            await super().arecord(thread_id, namespace, task_id, recorded)

    async def aremove_record(self, thread_id: str, namespace: str, task_id: str, key: str) -> None:
        if self.wrong != "aremove_record":
            await super().aremove_record(thread_id, namespace, task_id, key)

    async def arecorded(self, thread_id: str, namespace: str, task_id: str) -> tuple[Recorded, ...]:
        found = await super().arecorded(thread_id, namespace, task_id)
        return found[::-1] if self.wrong == "arecorded" else found

    async def adelete_thread(self, thread_id: str) -> None:
        if self.wrong != "adelete_thread":
            await super().adelete_thread(thread_id)

    async def acopy_thread(self, source: str, target: str) -> None:
        if self.wrong != "acopy_thread" or self.inner.namespaces(source):
            await super().acopy_thread(source, target)

    async def aprune(self, thread_id: str, *, keep: int) -> None:
        await super().aprune(thread_id, keep=keep + 1 if self.wrong == "aprune" else keep)


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        ("aput, any revision", "a write on another revision, with the async methods"),
        ("aput, lost", "get.* finds what was stored, with the async methods"),
        ("aget", "a refused write stores nothing, with the async methods"),
        ("ahistory", r"history\(.*limit.*\), with the async methods"),
        ("alineage", "the lineage of the head, with the async methods"),
        ("anamespaces", "namespaces of a thread, with the async methods"),
        ("arecord_start", "a once call that began before, with the async methods"),
        ("arecord", "other threads stay, with the async methods"),
        ("aremove_record", "a removed record is gone, alone, with the async methods"),
        ("arecorded", "once records are replaced by key, with the async methods"),
        ("adelete_thread", "a deleted thread is gone, with the async methods"),
        ("acopy_thread", "copying a thread that is not there, with the async methods"),
        ("aprune", "the lineage of a pruned thread, with the async methods"),
    ],
)
def test_async_methods_that_differ_are_noticed(wrong: str, check: str) -> None:
    with pytest.raises(ConformanceError, match=check):
        saver_conformance(lambda: WrongTwins(wrong))


@pytest.mark.parametrize("method", ["aput", "arecord"])
def test_a_write_that_is_left_alone_when_it_is_cancelled_is_noticed(method: str) -> None:
    with pytest.raises(ConformanceError, match=f"a cancelled {method} has ended"):
        saver_checks()["cancelled writes have ended"](WrongTwins(f"{method}, left alone"))


def test_async_methods_that_are_right_conform() -> None:
    assert saver_conformance(lambda: WrongTwins("nothing")) == tuple(saver_checks())


def test_conformance_names_what_it_checked() -> None:
    assert saver_conformance(InMemorySaver) == tuple(saver_checks())
    assert "of two writers one wins" in saver_checks()
    assert build(Program((NodeSpec("a", "write"),), ((START, "a"),), turns=(Input(1),)), minigraph_engine()) is not None
