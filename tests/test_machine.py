"""The machine over a thread's life holds on random and hand-written graphs, and finds what breaks it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
import numpy as np
import pytest
from conftest import odd
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from minigraph import (
    END,
    START,
    CompiledGraph,
    Interrupt,
    Send,
    StateGraph,
    StateSnapshot,
    branching,
    interrupt,
    opening,
)
from minigraph.checkpoint import InMemorySaver, PostgresSaver, Saver, SqliteSaver
from minigraph.errors import UnknownInterruptError
from minigraph.records import Checkpoint, Finished, NewCheckpoint, Stored, Write
from minigraph.testing import (
    LawError,
    LockstepSaver,
    Program,
    build,
    graphs,
    minigraph_engine,
    saver_conformance,
    thread_machine,
)
from minigraph.testing.building import Flaky
from minigraph.testing.crashing import PassingSaver
from minigraph.testing.saver_parts import named_id
from minigraph.testing.strategies import inputs_for


def quick(examples: int, steps: int = 12, **more: Any) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),  # pyright: ignore[reportArgumentType]  # hypothesis leaves its metaclass untyped
        **more,
    )


def builder(program: Program) -> Any:
    def make_graph(saver: Saver) -> CompiledGraph:
        graph: CompiledGraph = build(program, minigraph_engine(), saver)
        return graph

    return make_graph


def program_inputs(graph: CompiledGraph) -> st.SearchStrategy[Any]:
    return inputs_for(graph, total=st.integers(-1, 4))


def random_machine(**more: Any) -> Any:
    return thread_machine(
        graphs(size=4, failing_routers=True).map(builder), inputs=program_inputs, failures=Flaky, **more
    )


@pytest.mark.parametrize(("mode", "examples"), [("sync", 30), ("async", 15)])
def test_random_programs_keep_every_law(mode: Any, examples: int) -> None:
    run_state_machine_as_test(random_machine(mode=mode), settings=quick(examples))


# -------------------------------------------------------------------- by hand


class Trip(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    seats: int


def travel(saver: Saver) -> CompiledGraph:
    """Questions in parallel and in a child graph, Sends, a join, a loop and an async node."""
    inner: StateGraph[Any, Any, Any, Any] = StateGraph(Trip)
    inner.add_node("check", lambda state: {"log": [interrupt("really?")]})
    inner.add_node("note", lambda state: {"log": ["noted"]})
    inner.add_edge(START, "check").add_edge("check", "note")

    async def price(state: Trip) -> dict[str, Any]:
        return {"log": ["priced"]}

    outer: StateGraph[Any, Any, Any, Any] = StateGraph(Trip)
    outer.add_node("ask", lambda state: {"seats": interrupt("how many?"), "log": [interrupt("who?")]})
    outer.add_node("confirm", inner.compile())
    outer.add_node("price", price)
    outer.add_node("seat", lambda number: {"log": [number]})
    outer.add_node("done", lambda state: {"log": ["done"]}, defer=True)
    outer.add_edge(START, "ask").add_edge(START, "confirm").add_edge(["ask", "confirm"], "price")
    outer.add_conditional_edges(
        "price", lambda state: [Send("seat", n) for n in range(state.get("seats", 0))] or "done"
    )
    outer.add_conditional_edges("seat", lambda state: END if len(state["log"]) > 12 else "done", ["done", END])
    return outer.compile(saver)


def trip_answers(question: Interrupt) -> st.SearchStrategy[Any]:
    return st.integers(0, 3) if question.value == "how many?" else st.sampled_from(["yes", None, {}, False])


def test_a_graph_of_many_parts_keeps_every_law() -> None:
    seen: set[str] = set()

    def seats_are_few(state: StateSnapshot) -> None:
        seen.update(state.next)
        assert state.values.get("seats", 0) <= 3

    machine = thread_machine(
        travel,
        inputs=st.fixed_dictionaries({"log": st.lists(st.integers(), max_size=2)}),
        updates=st.fixed_dictionaries({}, optional={"log": st.just(["edit"]), "seats": st.integers(0, 2)}),
        answers=trip_answers,
        invariants=[seats_are_few],
        mode="async",
    )
    run_state_machine_as_test(machine, settings=quick(25))
    assert {"ask", "confirm"} <= seen


def test_an_invariant_of_the_users_own_is_held_to() -> None:
    def never_done(state: StateSnapshot) -> None:
        assert "done" not in state.values.get("log", [])

    def small(saver: Saver) -> CompiledGraph:
        builder: StateGraph[Any, Any, Any, Any] = StateGraph(Trip)
        builder.add_node("done", lambda state: {"log": ["done"]})
        return builder.add_edge(START, "done").compile(saver)

    machine = thread_machine(small, invariants=[never_done])
    with pytest.raises(AssertionError, match="not in"):
        run_state_machine_as_test(machine, settings=quick(10))


def test_an_error_that_nobody_announced_is_shown() -> None:
    def fails(saver: Saver) -> CompiledGraph:
        builder: StateGraph[Any, Any, Any, Any] = StateGraph(Trip)
        builder.add_node("fail", lambda state: [][0])
        return builder.add_edge(START, "fail").compile(saver)

    with pytest.raises(IndexError):
        run_state_machine_as_test(thread_machine(fails), settings=quick(10))
    run_state_machine_as_test(thread_machine(fails, failures=IndexError), settings=quick(5))


def test_two_savers_hold_the_same_and_a_file_is_opened_again_after_each_crash(tmp_path: Path) -> None:
    numbers = iter(range(1_000_000))
    paths: dict[int, Path] = {}

    def make_saver() -> Saver:
        path = tmp_path / f"{next(numbers)}.db"
        saver = LockstepSaver(InMemorySaver(), SqliteSaver(path))
        paths[id(saver)] = path
        return saver

    def reopen(saver: Saver) -> Saver:
        assert isinstance(saver, LockstepSaver)
        again = LockstepSaver(saver.first, SqliteSaver(paths[id(saver)]))
        paths[id(again)] = paths[id(saver)]
        return again

    machine = random_machine(make_saver=make_saver, reopen=reopen)
    run_state_machine_as_test(machine, settings=quick(15, 10))


# Whenever the pool's threads open a connection they draw from `random`, which Hypothesis blames on the test.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
def test_postgres_holds_the_same_as_memory_and_another_worker_goes_on_after_each_crash(
    make_postgres: Callable[[], Saver], postgres_pool: Any, shared_schema: str
) -> None:
    def make_saver() -> Saver:
        return LockstepSaver(InMemorySaver(), make_postgres())

    def reopen(saver: Saver) -> Saver:
        assert isinstance(saver, LockstepSaver)
        return LockstepSaver(saver.first, PostgresSaver(postgres_pool, schema=shared_schema))

    machine = random_machine(make_saver=make_saver, reopen=reopen)
    run_state_machine_as_test(machine, settings=quick(5, 8))


def test_the_desk_keeps_every_law() -> None:
    from desk.graph import build_graph
    from desk.policy import Case, Event, Registration
    from desk.providers import Planner
    from desk.scripted import ScriptedDecider
    from desk.state import new_turn
    from desk.thresholds import default_thresholds
    from tools import AuditedTools, AuditLog, Mailer, send_email_tool

    event = Event("E1", "Typing", "Bergen", date(2026, 4, 1), 10, 5, False, 120)
    person = Registration("Ann Lee", "ann@example.org", "confirmed", 120)
    turns = [
        new_turn(Case(date(2026, 3, 2), event, person, "Please cancel my place."), default_thresholds(), number)
        for number in (1, 2)
    ]
    paused: set[str] = set()

    def calls_have_one_result(state: StateSnapshot) -> None:
        paused.update(state.next)
        if not state.next:
            messages = state.values.get("messages", [])
            asked = [call["id"] for message in messages for call in message.get("tool_calls") or []]
            assert len(set(asked)) <= len([m for m in messages if m["role"] == "tool"])

    with AuditLog(":memory:") as log, Mailer(":memory:") as mailer:
        tools = AuditedTools([send_email_tool(mailer)], log)

        def make_graph(saver: Saver) -> CompiledGraph:
            decider = ScriptedDecider({"cancel": 0.91, "ask_policy": 0.09}, allow=0.8)
            return build_graph(Planner(), decider, tools, saver)

        machine = thread_machine(
            make_graph,
            inputs=st.sampled_from(turns),
            updates=st.fixed_dictionaries({"thresholds": st.just(default_thresholds())}),
            edit_as=["router", "agent"],
            answers=st.sampled_from([{"verdict": "approve", "by": "Ann"}, {"verdict": "reject", "by": "Ann"}, None]),
            invariants=[calls_have_one_result],
        )
        run_state_machine_as_test(machine, settings=quick(8, 10))
    assert "human_review" in paused


# ---------------------------------------------------------------- seeded bugs


class Dropping(PassingSaver):
    """Drops the results of tasks that finished while others still waited."""

    def put(self, write: Write) -> int:
        kept = write.results if write.checkpoints else tuple(r for r in write.results if not isinstance(r[1], Finished))
        return self.inner.put(msgspec.structs.replace(write, results=kept))


class EditingParents(PassingSaver):
    """Writes a mark into the parent of every branch, in place."""

    marked: frozenset[str | None] = frozenset()

    def put(self, write: Write) -> int:
        revision = self.inner.put(write)
        if any(new.checkpoint.source == "fork" for new in write.checkpoints):
            self.marked = frozenset(new.checkpoint.parent_id for new in write.checkpoints)
        return revision

    def history(self, thread_id: str, namespace: str, **options: Any) -> Iterator[Stored]:
        for stored in self.inner.history(thread_id, namespace, **options):
            if stored.checkpoint.id in self.marked:
                stored.checkpoint.values["log"] = ["marked"]
            yield stored


class GoingBack(PassingSaver):
    """Says that the head of a longer thread is the checkpoint before it."""

    def get(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> Stored | None:
        found = self.inner.get(thread_id, namespace, checkpoint_id)
        if found is None or checkpoint_id is not None or found.checkpoint.step < 3:
            return found
        return self.inner.get(thread_id, namespace, found.checkpoint.parent_id)


class Reordering(PassingSaver):
    """Lists a branch before what it was made after."""

    def history(self, thread_id: str, namespace: str, **options: Any) -> Iterator[Stored]:
        found = list(self.inner.history(thread_id, namespace, **options))
        yield from sorted(found, key=lambda stored: (stored.checkpoint.step, stored.checkpoint.id), reverse=True)


def pair(saver: Saver) -> CompiledGraph:
    """A task that ends at once beside one that asks, and a node that edits can stand for."""
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(Trip)
    builder.add_node("quick", lambda state: {"log": ["quick"]})
    builder.add_node("ask", lambda state: {"log": [interrupt("?")]})
    builder.add_node("elsewhere", lambda state: None)
    return builder.add_edge(START, "quick").add_edge(START, "ask").compile(saver)


def found_by(machine: Any, examples: int = 60) -> str:
    """The law that a machine finds broken."""
    with pytest.raises(LawError) as caught:
        run_state_machine_as_test(machine, settings=quick(examples))
    return caught.value.law


def trips(make_saver: Any = InMemorySaver) -> Any:
    return thread_machine(
        travel,
        inputs=st.just({"log": []}),
        answers=trip_answers,
        make_saver=make_saver,
        mode="async",
    )


@pytest.mark.parametrize(
    ("kind", "laws"),
    [
        (Dropping, {"a finished task never runs twice", "a step ends when its tasks have"}),
        (EditingParents, {"a stored checkpoint never changes", "a branch begins as its checkpoint"}),
        (GoingBack, {"a branch is the child of its checkpoint", "the state is that of the head"}),
        (Reordering, {"checkpoints keep their order", "checkpoints are numbered in order"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_saver_is_found(kind: Any, laws: set[str]) -> None:
    assert found_by(trips(lambda: kind(InMemorySaver()))) in laws


def test_an_answer_that_is_accepted_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    match = opening.match_answers

    def lenient(scope: Any, stored: Any, resume: Any, **options: Any) -> Any:
        try:
            return match(scope, stored, resume, **options)
        except UnknownInterruptError:
            return {}

    monkeypatch.setattr(opening, "match_answers", lenient)
    assert found_by(trips()) == "what is refused writes nothing"


def test_a_replay_that_forgets_its_tasks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    forked = branching.forked

    def forgetful(*arguments: Any) -> Any:
        position = forked(*arguments)
        changed = msgspec.structs.replace(position.checkpoint, due=position.checkpoint.due[:1])
        position.checkpoint = changed
        position.unsaved = [msgspec.structs.replace(position.unsaved[0], checkpoint=changed)]
        return position

    monkeypatch.setattr(opening, "forked", forgetful)
    assert found_by(trips()) == "a branch begins as its checkpoint"


@odd("unreachable-node")
def test_an_edit_that_loses_finished_siblings_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(position: Any, new: Any) -> None:
        position.unsaved.append(NewCheckpoint(new, position.checkpoint))
        position.checkpoint, position.results, position.unsaved_results = new, {}, []

    monkeypatch.setattr("minigraph.snapshots.move", forgetful)
    machine = thread_machine(pair, inputs=st.just({"log": []}), edit_as=["elsewhere"])
    assert found_by(machine, 200) == "a finished task never runs twice"


def test_savers_that_differ_are_found() -> None:
    class Late(PassingSaver):
        def history(self, thread_id: str, namespace: str, **options: Any) -> Iterator[Stored]:
            yield from list(self.inner.history(thread_id, namespace, **options))[:4]

    machine = trips(lambda: LockstepSaver(InMemorySaver(), Late(InMemorySaver())))
    assert found_by(machine) == "savers agree"


def numbers(saver: Saver) -> CompiledGraph:
    """Its state is not equal to itself."""
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(Numbers)
    node = lambda state: {"x": float("nan"), "array": np.array([1.0, 2.0]), "log": [float("nan")]}  # noqa: E731
    return builder.add_node("a", node).add_edge(START, "a").compile(saver)


class Numbers(TypedDict, total=False):
    x: float
    array: Any
    log: Annotated[list[float], operator.add]


def test_values_that_are_not_equal_to_themselves_keep_every_law() -> None:
    def pair_of_savers() -> Saver:
        return LockstepSaver(InMemorySaver(), SqliteSaver(":memory:"))

    options: Any = {"inputs": st.just({"log": [float("nan")]}), "make_saver": pair_of_savers}
    run_state_machine_as_test(thread_machine(numbers, **options), settings=quick(8))


def test_other_modes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"thread_machine\(mode='zzz'\): the modes are"):
        thread_machine(pair, mode="zzz")  # type: ignore[arg-type]


def test_lockstep_savers_conform() -> None:
    assert saver_conformance(lambda: LockstepSaver(InMemorySaver(), SqliteSaver(":memory:")))
    first, second = InMemorySaver(), InMemorySaver()
    both = LockstepSaver(first, second)
    both.put(Write("t", "", 0, (NewCheckpoint(Checkpoint(named_id(1, "c"), None, 0, "input", 0, {}), None),)))
    second.delete_thread("t")
    with pytest.raises(LawError, match="savers agree: get"):
        both.get("t", "")
