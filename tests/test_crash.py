"""A crash before or after any write, then going on, ends like the run without it; no finished task runs twice."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import numpy as np
import pytest

from minigraph import START, CompiledGraph, StateGraph, aonce, interrupt, once
from minigraph.checkpoint import InMemorySaver, Saver, SqliteSaver
from minigraph.errors import UnknownOutcomeError
from minigraph.records import Checkpoint, Finished, NewCheckpoint, Recorded, Write
from minigraph.testing import CrashLawError, CrashReport, build, crash_everywhere, draw_program, minigraph_engine
from minigraph.testing.building import Flaky
from minigraph.testing.crashing import Crash, CrashingSaver, PassingSaver
from minigraph.testing.programs import Input, Program, answer_to, input_of
from minigraph.testing.saver_parts import named_id
from minigraph.testing.traces import run

Mode = Literal["sync", "async"]


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


def sweep(program: Program, limit: int | None = None, saver: Any = InMemorySaver, mode: Mode = "sync") -> int:
    """How many crashes a random program was put through."""
    plain = replace(program, before=(), after=())
    report = crash_everywhere(
        lambda made: build(plain, minigraph_engine(), made),
        first_input(program),
        answers=lambda question: answer_to(plain, question.value),
        make_saver=saver,
        failures=Flaky,
        limit=limit,
        mode=mode,
    )
    return report.crashes


def first_input(program: Program) -> dict[str, Any]:
    """The input of a program's first turn."""
    (turn,) = program.turns
    assert isinstance(turn, Input)
    return input_of(turn)


def terminating(count: int, start: int = 0, **options: Any) -> list[Program]:
    """Random programs whose first turn comes to its end."""
    found: list[Program] = []
    seed = start
    while len(found) < count:
        program = draw_program(Random(seed), **options)
        seed += 1
        first = replace(program, turns=(Input(seed % 3, ("log", "text")),), before=(), after=())
        last = run(first).calls[-1]
        if last.ended == "ok" and not last.next:
            found.append(first)
    return found


def test_random_programs_survive_every_crash() -> None:
    crashes = sum(sweep(program, limit=12) for program in terminating(40, size=5, failing_routers=True))
    assert crashes > 300


@pytest.mark.slow
def test_many_programs_survive_every_crash(request: pytest.FixtureRequest) -> None:
    if "slow" not in str(request.config.getoption("markexpr")):
        pytest.skip("a long sweep: -m slow runs it")
    for program in terminating(200, start=5_000, failing_routers=True):
        sweep(program)


@pytest.fixture
def make_saver(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> Callable[[], Saver]:
    """Makes empty savers of a kind."""
    numbers = iter(range(1_000_000))
    if kind == "sqlite":
        return lambda: SqliteSaver(tmp_path / f"{next(numbers)}.db")
    made: Callable[[], Saver] = request.getfixturevalue("make_postgres") if kind == "postgres" else InMemorySaver
    return made


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_what_is_on_disk_survives_every_crash(make_saver: Callable[[], Saver]) -> None:
    (program,) = terminating(1, start=50)
    assert sweep(program, limit=6, saver=make_saver) >= 5


def asking(saver: Saver) -> CompiledGraph:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    builder.add_node("work", lambda state: {"log": ["work"]})
    builder.add_node("ask", lambda state: {"log": [interrupt("a?"), interrupt("b?")]})
    builder.add_edge(START, "work").add_edge(START, "ask")
    return builder.compile(saver)


@pytest.mark.parametrize("answers", [{"a?": 1, "b?": None}, [1, None], lambda question: question.value], ids=type)
def test_answers_in_every_form(answers: Any) -> None:
    report = crash_everywhere(asking, {"log": []}, answers=answers)
    assert report.writes >= 5
    assert report.crashes >= 2 * report.writes - 2


class Forgetful(PassingSaver):
    """Does not store that a task has finished."""

    def put(self, write: Write) -> int:
        kept = tuple(pair for pair in write.results if not isinstance(pair[1], Finished))
        self.inner.put(Write(write.thread_id, write.namespace, write.revision, write.checkpoints, kept, write.removed))
        return write.end


def test_a_finished_task_that_runs_again_is_noticed() -> None:
    with pytest.raises(CrashLawError, match=r"node 'work' ran again, though the end of its task"):
        crash_everywhere(asking, {"log": []}, answers=[1, None], make_saver=lambda: Forgetful(InMemorySaver()))


def test_a_node_that_depends_on_the_past_is_noticed() -> None:
    calls: list[int] = []

    def graph(saver: Saver) -> CompiledGraph:
        def count(state: Any) -> dict[str, Any]:
            calls.append(1)
            return {"log": [len(calls)]}

        builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
        builder.add_node("count", count)
        builder.add_edge(START, "count")
        return builder.compile(saver)

    with pytest.raises(CrashLawError, match="before write 1 of") as caught:
        crash_everywhere(graph, {"log": []})
    assert "instead of" in str(caught.value)
    assert caught.value.crash.startswith("before write 1")


def test_a_run_without_an_end_is_an_error() -> None:
    def graph(saver: Saver) -> CompiledGraph:
        builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
        builder.add_node("fail", lambda state: [][0])
        builder.add_edge(START, "fail")
        return builder.compile(saver)

    with pytest.raises(CrashLawError, match="not over after 3 calls"):
        crash_everywhere(graph, {"log": []}, failures=IndexError, rounds=3)
    with pytest.raises(IndexError):
        crash_everywhere(graph, {"log": []})


def mailing(calls: list[str], **options: Any) -> Any:
    """A graph whose one node sends a mail and then asks."""

    def send(state: Any) -> dict[str, Any]:
        return {"log": [once("mail", send_mail, **options), interrupt("q")]}

    def send_mail() -> str:
        calls.append("mail")
        return "sent"

    def graph(saver: Saver) -> CompiledGraph:
        builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
        builder.add_node("send", send)
        builder.add_edge(START, "send")
        return builder.compile(saver)

    return graph


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_what_is_done_once_is_done_at_most_once_through_every_crash(make_saver: Callable[[], Saver]) -> None:
    calls: list[str] = []
    report = crash_everywhere(mailing(calls), {"log": []}, answers=[1], make_saver=make_saver)
    # 1: the input, 2: the call begins, 3: its result, 4: the question, 5: the answer, 6: the call found, 7: the end
    assert (report.writes, report.crashes) == (7, 14)
    assert report.unknown == (
        "after write 2 of 7: node 'send', once('mail', ...)",
        "before write 3 of 7: node 'send', once('mail', ...)",
    )
    assert len(calls) == 14  # one for each run, that without a crash too, but for the one that died before the call


def test_with_on_unknown_every_crash_ends_like_the_run_without_it() -> None:
    calls: list[str] = []
    report = crash_everywhere(mailing(calls, on_unknown=lambda: "sent"), {"log": []}, answers=[1])
    assert (report.crashes, report.unknown) == (14, ())
    assert len(calls) == 14


class Repeating(PassingSaver):
    """Forgets once() calls, or never knew of their start."""

    def __init__(self, *, knows: bool) -> None:
        super().__init__(InMemorySaver())
        self.knows = knows

    def record_start(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> Recorded | None:
        return Recorded(recorded.key, False) if self.knows and self.written_off else None

    written_off = False

    def record(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> None:
        self.written_off = True


def test_a_call_that_begins_again_is_noticed() -> None:
    with pytest.raises(CrashLawError, match=r"once\('mail', ...\) of task \w+ began again") as caught:
        crash_everywhere(mailing([]), {"log": []}, answers=[1], make_saver=lambda: Repeating(knows=False))
    assert caught.value.ran_again


def test_an_outcome_that_is_unknown_without_a_crash_is_an_error() -> None:
    with pytest.raises(CrashLawError, match="no call of that key is open, and yet: node 'send'"):
        crash_everywhere(mailing([]), {"log": []}, answers=[1], make_saver=lambda: Repeating(knows=True))

    def graph(saver: Saver) -> CompiledGraph:
        builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
        builder.add_node("fail", lambda state: once("mail", [].pop))
        builder.add_edge(START, "fail")
        return builder.compile(saver)

    with pytest.raises(UnknownOutcomeError, match="IndexError: pop from empty list"):
        crash_everywhere(graph, {"log": []}, failures=IndexError)


# ------------------------------------------------------------------------- async nodes


def travelling(sent: list[str], **options: Any) -> Any:
    """A graph of async nodes: one that mails once and then asks, beside a child graph that asks as well."""

    async def send_mail(address: str) -> str:
        await asyncio.sleep(0)
        sent.append(address)
        return f"sent to {address}"

    async def mail(state: Any) -> dict[str, Any]:
        return {"log": [await aonce("mail", send_mail, "ann", **options), interrupt("How many?")]}

    async def ask(state: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"log": [("child", interrupt("Where?"))]}

    async def tell(state: Any) -> dict[str, Any]:
        return {"log": [len(state["log"])]}

    def graph(saver: Saver) -> CompiledGraph:
        child: StateGraph[Any, Any, Any, Any] = StateGraph(State)
        child.add_node("ask", ask).add_node("tell", tell).add_edge(START, "ask").add_edge("ask", "tell")
        builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
        builder.add_node("mail", mail).add_node("child", child.compile()).add_node("tell", tell)
        builder.add_edge(START, "mail").add_edge(START, "child").add_edge(["mail", "child"], "tell")
        return builder.compile(saver)

    return graph


TRIP = {"How many?": 2, "Where?": "Rome"}


@pytest.mark.parametrize(("kind", "limit"), [("memory", None), ("sqlite", 16), ("postgres", 16)])
def test_async_nodes_children_questions_and_calls_survive_every_crash(
    make_saver: Callable[[], Saver], limit: int | None
) -> None:
    def swept(**options: Any) -> CrashReport:
        graph = travelling(sent, **options)
        return crash_everywhere(graph, {"log": []}, answers=TRIP, make_saver=make_saver, limit=limit, mode="async")

    sent: list[str] = []
    report = swept()
    assert report.writes >= 10
    assert report.crashes >= (limit or 2 * report.writes) - 4  # siblings may share a write by chance
    assert {what.partition(": ")[2] for what in report.unknown} == {"node 'mail', once('mail', ...)"}
    assert sent == ["ann"] * len(sent)
    assert swept(on_unknown=not_sent).unknown == ()


async def not_sent(address: str) -> str:
    return f"sent to {address}"


def test_sync_mode_says_that_a_node_is_async() -> None:
    with pytest.raises(TypeError, match="run the graph with ainvoke or astream"):
        crash_everywhere(travelling([]), {"log": []}, answers=TRIP)


def test_random_programs_survive_every_crash_of_an_async_run() -> None:
    crashes = sum(sweep(program, limit=8, mode="async") for program in terminating(12, start=300, size=5))
    assert crashes > 60


class Twins(PassingSaver):
    """Has an `aput` and an `arecord_start` of its own, which may be wrong while the sync methods are right."""

    def __init__(self, inner: Saver, *, keeps_results: bool = True, keeps_starts: bool = True) -> None:
        super().__init__(inner)
        self.keeps_results, self.keeps_starts = keeps_results, keeps_starts
        self.awaited = 0

    async def aput(self, write: Write) -> int:
        self.awaited += 1
        await asyncio.sleep(0)
        kept = tuple(pair for pair in write.results if self.keeps_results or not isinstance(pair[1], Finished))
        return self.inner.put(msgspec.structs.replace(write, results=kept))

    async def arecord_start(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> Recorded | None:
        if self.keeps_starts:
            return self.inner.record_start(thread_id, namespace, task_id, recorded)
        return None


def three(saver: Saver) -> CompiledGraph:
    """Three nodes at once, of which one asks, and one after them."""

    async def quick(state: Any) -> dict[str, Any]:
        return {"log": ["quick"]}

    async def slow(state: Any) -> dict[str, Any]:
        await asyncio.sleep(0.001)
        return {"log": ["slow"]}

    async def ask(state: Any) -> dict[str, Any]:
        return {"log": [interrupt("?")]}

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    builder.add_node("quick", quick).add_node("slow", slow).add_node("ask", ask).add_node("last", quick)
    for name in ("quick", "slow", "ask"):
        builder.add_edge(START, name)
    return builder.add_edge(["quick", "slow", "ask"], "last").compile(saver)


def test_the_savers_own_async_methods_are_driven_and_their_bugs_noticed() -> None:
    made: list[Twins] = []

    def saver(**wrong: bool) -> Any:
        def make() -> Saver:
            made.append(Twins(InMemorySaver(), **wrong))
            return made[-1]

        return make

    right = crash_everywhere(three, {"log": []}, answers=[1], make_saver=saver(), mode="async")
    assert made[0].awaited == right.writes
    with pytest.raises(CrashLawError, match="ran again, though the end of its task") as caught:
        crash_everywhere(three, {"log": []}, answers=[1], make_saver=saver(keeps_results=False), mode="async")
    assert caught.value.ran_again
    with pytest.raises(CrashLawError, match=r"once\('mail', ...\) of task \w+ began again"):
        crash_everywhere(travelling([]), {"log": []}, answers=TRIP, make_saver=saver(keeps_starts=False), mode="async")
    crash_everywhere(mailing([]), {"log": []}, answers=[1], make_saver=saver(keeps_results=False, keeps_starts=False))


def test_an_async_node_that_depends_on_the_past_is_noticed() -> None:
    calls: list[int] = []

    async def count(state: Any) -> dict[str, Any]:
        calls.append(1)
        return {"log": [len(calls)]}

    def graph(saver: Saver) -> CompiledGraph:
        builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
        return builder.add_node("count", count).add_edge(START, "count").compile(saver)

    with pytest.raises(CrashLawError, match="before write 1 of"):
        crash_everywhere(graph, {"log": []}, mode="async")


def test_writes_under_way_when_the_process_dies_are_noted_and_their_caller_dies() -> None:
    async def both() -> list[Any]:
        saver = CrashingSaver(Twins(InMemorySaver()), 1, "after")
        ids = [named_id(1, "a"), named_id(1, "b")]
        new = [NewCheckpoint(Checkpoint(name, None, 0, "input", 0, {}), None) for name in ids]
        done = [((ids[0], Finished("t1", "n")),), ((ids[1], Finished("t2", "n")),)]
        writes = [Write("t", name, 0, (point,), result) for name, point, result in zip("ab", new, done, strict=True)]
        found = await asyncio.gather(*map(saver.aput, writes), return_exceptions=True)
        assert saver.finished == {("t", "t1"), ("t", "t2")}
        with pytest.raises(Crash):
            await saver.aput(writes[0])
        return [*map(type, found), *saver.namespaces("t")]

    assert asyncio.run(both()) == [Crash, Crash, "a", "b"]


def test_a_write_that_is_cancelled_is_noted() -> None:
    async def cancelled() -> CrashingSaver:
        saver = CrashingSaver(Twins(InMemorySaver()))
        new = NewCheckpoint(Checkpoint(named_id(1), None, 0, "input", 0, {}), None)
        done = (new.checkpoint.id, Finished("t1", "n"))
        task = asyncio.ensure_future(saver.aput(Write("t", "", 0, (new,), (done,))))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return saver

    saver = asyncio.run(cancelled())
    assert saver.finished == {("t", "t1")}
    assert saver.get("t", "") is not None


@pytest.mark.parametrize("value", [float("nan"), np.array([1.0, float("nan")]), np.float64("nan")])
def test_values_that_are_not_equal_to_themselves_end_the_same(value: Any) -> None:
    class Odd(TypedDict, total=False):
        x: Any

    def graph(saver: Saver) -> CompiledGraph:
        builder: StateGraph[Any, Any, Any, Any] = StateGraph(Odd)
        return builder.add_node("a", lambda state: {"x": value}).add_edge(START, "a").compile(saver)

    assert crash_everywhere(graph, {}).crashes > 2


def test_a_sweep_that_stops_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="stored nothing with the saver that graph_builder was given"):
        crash_everywhere(lambda saver: asking(InMemorySaver()), {"log": []}, answers=lambda question: 1)
    for limit in (0, -3):
        with pytest.raises(ValueError, match=rf"crash_everywhere\(limit={limit}\): at least 1"):
            crash_everywhere(asking, {"log": []}, answers=[1], limit=limit)


def test_questions_without_an_answer_are_named() -> None:
    def asking_for(question: Any) -> Any:
        def graph(saver: Saver) -> CompiledGraph:
            builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
            node = lambda state: {"log": [interrupt(question)]}  # noqa: E731
            return builder.add_node("ask", node).add_edge(START, "ask").compile(saver)

        return graph

    for failures in ((), Exception):
        with pytest.raises(
            ValueError, match=r"question \{'seats': 1\} cannot be the key of a dict; give the answers as"
        ):
            crash_everywhere(asking_for({"seats": 1}), {"log": []}, answers={"other": 2}, failures=failures)
        with pytest.raises(ValueError, match=r"no answer to the question 'seats\?', only to \['other'\]"):
            crash_everywhere(asking_for("seats?"), {"log": []}, answers={"other": 2}, failures=failures)
        with pytest.raises(ValueError, match=r"0 answers were given and question 1 is 'seats\?'"):
            crash_everywhere(asking_for("seats?"), {"log": []}, failures=failures)


def test_wrong_modes_and_running_loops_are_refused() -> None:
    with pytest.raises(ValueError, match=r"crash_everywhere\(mode='asynchronous'\): the modes are"):
        crash_everywhere(asking, {"log": []}, mode="asynchronous")  # type: ignore[arg-type]

    async def inside() -> None:
        crash_everywhere(asking, {"log": []}, mode="async")

    with pytest.raises(RuntimeError, match="call it from a plain function"):
        asyncio.run(inside())
