"""Stops a run before and after everything it stores, goes on from what is left, and demands the same end."""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from minigraph.calls import JoinNeverFiredWarning
from minigraph.checkpoint.base import CheckpointTuple, Saver
from minigraph.checkpoint.memory import InMemorySaver
from minigraph.compiled import CompiledGraph
from minigraph.errors import UnknownOutcomeError
from minigraph.records import Ancestor, Finished, Recorded, Stored, Write
from minigraph.testing.instrument import Seen, watched
from minigraph.types import Command, Interrupt, StateSnapshot

Answers = Mapping[Any, Any] | Sequence[Any] | Callable[[Interrupt], Any]
GraphBuilder = Callable[[Saver], CompiledGraph]


class Crash(BaseException):
    """The process is gone: nothing after this is stored."""


class CrashLawError(AssertionError):
    """A crash changed how a run ended, or a finished task ran twice (`ran_again`).

    `crash` says where the run was stopped.
    """

    def __init__(self, crash: str, what: str, ran_again: bool = False) -> None:
        super().__init__(f"stopped {crash}: {what}")
        self.crash, self.ran_again = crash, ran_again


@dataclass(frozen=True, slots=True)
class CrashReport:
    """How many writes the run without a crash made, and how many crashes it was put through.

    `unknown` are the crashes after which the run cannot go on without a person, since they fell between the start of
    a once() call and its record: where, which node and which key. A graph that gives `on_unknown` has none.
    """

    writes: int
    crashes: int
    unknown: tuple[str, ...] = ()


class CrashingSaver(Saver):
    """A saver that passes everything on to another and dies at write number `at` (from 1): before or after it."""

    def __init__(self, inner: Saver, at: int | None = None, side: Literal["before", "after"] = "before") -> None:
        self.inner, self.at, self.side = inner, at, side
        self.writes = 0
        self.dead = False
        self.finished: set[tuple[str, str]] = set()
        """The tasks whose end is stored, by thread and id; one that failed when its step was merged is none of them."""
        self.began: dict[tuple[str, str, str], bool] = {}
        """The once() calls whose start is stored, by namespace, task and key, and whether their end is."""
        self.began_again: list[str] = []

    def put(self, write: Write) -> int:
        """`put` of the other saver, unless this is where the process dies."""
        revision = cast(int, self._written(lambda: self.inner.put(write)))
        last = {result.task_id: isinstance(result, Finished) for _, result in write.results}
        last |= {task_id: False for _, task_id in write.removed}
        self.finished -= {(write.thread_id, task_id) for task_id in last}
        self.finished |= {(write.thread_id, task_id) for task_id, finished in last.items() if finished}
        self._die("after")
        return revision

    def record_start(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> Recorded | None:
        """`record_start` of the other saver; it counts as a write."""
        found = self._written(lambda: self.inner.record_start(thread_id, namespace, task_id, recorded))
        if found is None:
            place = (namespace, task_id, recorded.key)
            if place in self.began:
                self.began_again.append(f"once({recorded.key!r}, ...) of task {task_id} began again")
            self.began[place] = False
        self._die("after")
        return cast(Recorded | None, found)

    def record(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> None:
        """`record` of the other saver; it counts as a write."""
        self._written(lambda: self.inner.record(thread_id, namespace, task_id, recorded))
        self.began[namespace, task_id, recorded.key] = recorded.done
        self._die("after")

    def remove_record(self, thread_id: str, namespace: str, task_id: str, key: str) -> None:
        """`remove_record` of the other saver; it counts as a write."""
        self._written(lambda: self.inner.remove_record(thread_id, namespace, task_id, key))
        self.began.pop((namespace, task_id, key), None)
        self._die("after")

    def _written(self, store: Callable[[], Any]) -> Any:
        if self.dead:
            raise Crash
        self.writes += 1
        self._die("before")
        return store()

    def _die(self, side: str) -> None:
        if self.writes == self.at and self.side == side:
            self.dead = True
            raise Crash

    def get(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> Stored | None:
        """`get` of the other saver."""
        return self.inner.get(thread_id, namespace, checkpoint_id)

    def history(self, thread_id: str, namespace: str, **options: Any) -> Iterator[Stored]:
        """`history` of the other saver."""
        return self.inner.history(thread_id, namespace, **options)

    def lineage(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> builtins.list[Ancestor]:
        """`lineage` of the other saver."""
        return self.inner.lineage(thread_id, namespace, checkpoint_id)

    def list(self, config: Mapping[str, Any] | None = None, **options: Any) -> Iterator[CheckpointTuple]:
        """`list` of the other saver."""
        return self.inner.list(config, **options)

    def namespaces(self, thread_id: str) -> builtins.list[str]:
        """`namespaces` of the other saver."""
        return self.inner.namespaces(thread_id)

    def delete_thread(self, thread_id: str) -> None:
        """`delete_thread` of the other saver."""
        self.inner.delete_thread(thread_id)
        self.finished = {pair for pair in self.finished if pair[0] != thread_id}

    def copy_thread(self, source: str, target: str) -> None:
        """`copy_thread` of the other saver."""
        self.inner.copy_thread(source, target)
        self.finished |= {(target, task_id) for thread_id, task_id in self.finished if thread_id == source}

    def prune(self, thread_id: str, *, keep: int) -> None:
        """`prune` of the other saver."""
        self.inner.prune(thread_id, keep=keep)

    def recorded(self, thread_id: str, namespace: str, task_id: str) -> tuple[Recorded, ...]:
        """`recorded` of the other saver."""
        return self.inner.recorded(thread_id, namespace, task_id)

    def register(self, *types: type, name: str | None = None) -> None:
        """`register` of the other saver."""
        self.inner.register(*types, name=name)


def crash_everywhere(
    graph_builder: GraphBuilder,
    input: Any,
    *,
    answers: Answers = (),
    make_saver: Callable[[], Saver] = InMemorySaver,
    failures: type[Exception] | tuple[type[Exception], ...] = (),
    rounds: int = 50,
    limit: int | None = None,
) -> CrashReport:
    """Runs a graph to its end, then again with a crash before and after every single write, and compares.

    `graph_builder` makes the graph with the saver it is given (a fresh one after each crash, as a new process
    would). `answers` answers its questions: by question value, in order of asking, or by a function of the
    Interrupt. `failures` are exceptions that nodes raise and that going on is the remedy for. `limit` takes that many
    crash points, spread evenly, where there are more. A crash between the start of a once() call and its record ends
    with UnknownOutcomeError, unless the graph says what to do then; the report names it. Raises CrashLawError where
    the end, or the states or results on the way, differ from the run without a crash, where a task ran again whose end
    was stored, and where a once() call began again.
    """
    driver = _Driver(graph_builder, input, answers, failures, rounds)
    saver = CrashingSaver(make_saver())
    wanted = driver.to_the_end(saver, saver, "nowhere")
    if isinstance(wanted, UnknownOutcomeError):
        raise wanted
    sides: tuple[Literal["before", "after"], ...] = ("before", "after")
    points: list[tuple[int, Literal["before", "after"]]] = [
        (number, side) for number in range(1, saver.writes + 1) for side in sides
    ]
    if limit is not None and len(points) > limit:
        points = [points[i * len(points) // limit] for i in range(limit)]
    crashes, unknown = 0, []
    for number, side in points:
        inner = make_saver()
        dying = CrashingSaver(inner, number, side)
        where = f"{side} write {number} of {saver.writes}"
        found = driver.to_the_end(dying, CrashingSaver(inner), where)
        crashes += dying.dead  # results of siblings may share a write by chance, and the last ones are not reached
        if isinstance(found, UnknownOutcomeError):
            unknown.append(f"{where}: node {found.node!r}, once({found.key!r}, ...)")
        elif found != wanted:
            raise CrashLawError(where, _difference(wanted, found))
    return CrashReport(saver.writes, crashes, tuple(unknown))


Ending = list[tuple[str, int, Any, tuple[str, ...], list[tuple[str, Any]]]]
"""The history: of each checkpoint its source, step, state, what is due, and the results stored for it."""


class _Driver:
    def __init__(
        self,
        graph_builder: GraphBuilder,
        given: Any,
        answers: Answers,
        failures: type[Exception] | tuple[type[Exception], ...],
        rounds: int,
    ) -> None:
        self.graph_builder, self.given, self.answers = graph_builder, given, answers
        self.failures, self.rounds = failures, rounds
        self.config: dict[str, Any] = {"configurable": {"thread_id": "crash"}}
        self.ran_again: list[str] = []

    def to_the_end(self, saver: CrashingSaver, spare: CrashingSaver, where: str) -> Ending | UnknownOutcomeError:
        """Runs until nothing is due; after a crash goes on with `spare`. Returns the history.

        Where the crash left the outcome of a once() call unknown, it returns the error that says so.
        """
        asked: list[str] = []
        graph = self._graph(saver, saver)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", JoinNeverFiredWarning)
            for _ in range(self.rounds):
                try:
                    state = graph.get_state(self.config)
                    given = self._next_input(state, asked)
                    if given is _DONE:
                        return _history(graph, self.config)
                    graph.invoke(given, self.config)
                    if again := [*self.ran_again, *spare.began_again]:
                        raise CrashLawError(where, again[0], ran_again=True)
                except Crash:
                    spare.finished, spare.began = saver.finished, saver.began
                    graph = self._graph(spare, spare)
                except UnknownOutcomeError as error:
                    open_calls = [key for (_, _, key), done in spare.began.items() if not done]
                    if error.key not in open_calls:
                        raise CrashLawError(where, f"no call of that key is open, and yet: {error}") from error
                    return error
                except self.failures:
                    continue  # the next call goes on
        raise CrashLawError(where, f"the run was not over after {self.rounds} calls")

    def _graph(self, saver: Saver, watching: CrashingSaver) -> CompiledGraph:
        def watch(seen: Seen) -> Callable[[], None]:
            if (seen.thread_id, seen.task.id) in watching.finished:
                self.ran_again.append(f"{seen.what} ran again, though the end of its task {seen.task.id} was stored")
            return lambda: None

        return watched(self.graph_builder(saver), watch)

    def _next_input(self, state: StateSnapshot, asked: list[str]) -> Any:
        if state.metadata is None:
            return self.given
        if state.interrupts:
            return Command(resume={q.id: self._answer(q, asked) for q in state.interrupts})
        return None if state.next else _DONE

    def _answer(self, question: Interrupt, asked: list[str]) -> Any:
        if callable(self.answers):
            return self.answers(question)
        if isinstance(self.answers, Mapping):
            return self.answers[question.value]
        if question.id not in asked:
            asked.append(question.id)
        return self.answers[asked.index(question.id)]


_DONE = object()


def _history(graph: CompiledGraph, config: Mapping[str, Any]) -> Ending:
    return [
        (shot.metadata["source"], shot.metadata["step"], shot.values, shot.next, _results(shot))
        for shot in graph.get_state_history(config)
        if shot.metadata is not None
    ]


def _results(shot: StateSnapshot) -> list[tuple[str, Any]]:
    return [(task.name, task.result) for task in shot.tasks if task.result is not None]


def _difference(wanted: Ending, found: Ending) -> str:
    if wanted[0] != found[0]:
        return f"it ended with {found[0]!r} instead of {wanted[0]!r}"
    return f"it took {len(found)} checkpoints on the way instead of {len(wanted)}, or other ones: {found!r} {wanted!r}"
