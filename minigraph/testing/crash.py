"""Stops a run before and after everything it stores, goes on from what is left, and demands the same end."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from minigraph.calls import JoinNeverFiredWarning
from minigraph.checkpoint.base import Saver
from minigraph.checkpoint.memory import InMemorySaver
from minigraph.checkpoint.sameness import same
from minigraph.compiled import CompiledGraph
from minigraph.errors import UnknownOutcomeError
from minigraph.testing.crashing import Crash, CrashingSaver
from minigraph.testing.instrument import Seen, watched
from minigraph.types import Command, Interrupt, StateSnapshot

Answers = Mapping[Any, Any] | Sequence[Any] | Callable[[Interrupt], Any]
GraphBuilder = Callable[[Saver], CompiledGraph]


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


def crash_everywhere(
    graph_builder: GraphBuilder,
    input: Any,
    *,
    answers: Answers = (),
    make_saver: Callable[[], Saver] = InMemorySaver,
    failures: type[Exception] | tuple[type[Exception], ...] = (),
    rounds: int = 50,
    limit: int | None = None,
    mode: Literal["sync", "async"] = "sync",
) -> CrashReport:
    """Runs a graph to its end, then again with a crash before and after every single write, and compares.

    `graph_builder` makes the graph with the saver it is given (a fresh one after each crash, as a new process
    would). `answers` answers its questions: by question value, in order of asking, or by a function of the
    Interrupt. `failures` are exceptions that nodes raise and that going on is the remedy for. `limit` takes that many
    crash points, spread evenly, where there are more. A crash between the start of a once() call and its record ends
    with UnknownOutcomeError, unless the graph says what to do then; the report names it. `mode="async"` is for graphs
    with async nodes: it runs `ainvoke`, each call in an event loop of its own, and what is stopped are the saver's
    async methods.

    Raises CrashLawError where the end, or the states or results on the way, differ from the run without a crash, where
    a task ran again whose end was stored, and where a once() call began again; ValueError for another mode, a limit
    below 1, a question without an answer, and a graph that does not store with the saver that its builder was given;
    RuntimeError for `mode="async"` inside of a running event loop.
    """
    _check_mode(mode)
    if limit is not None and limit < 1:
        raise ValueError(f"crash_everywhere(limit={limit}): at least 1 crash point, or None for all of them")
    driver = _Driver(graph_builder, input, answers, failures, rounds, mode)
    saver = CrashingSaver(make_saver())
    wanted = driver.to_the_end(saver, saver, "nowhere")
    if isinstance(wanted, UnknownOutcomeError):
        raise wanted
    if saver.writes == 0:
        raise ValueError(
            "crash_everywhere(graph_builder, ...): the graph stored nothing with the saver that graph_builder was"
            " given, so that nothing could be stopped; let it end with `return builder.compile(checkpointer=saver)`"
        )
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
        elif not same(found, wanted):
            raise CrashLawError(where, _difference(wanted, found))
    return CrashReport(saver.writes, crashes, tuple(unknown))


def _check_mode(mode: str) -> None:
    if mode not in ("sync", "async"):
        raise ValueError(f'crash_everywhere(mode={mode!r}): the modes are "sync" and "async"')
    if mode == "sync":
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        'crash_everywhere(mode="async") runs each call in an event loop of its own and was called inside of one; call'
        " it from a plain function (def, not async def)"
    )


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
        mode: Literal["sync", "async"],
    ) -> None:
        self.graph_builder, self.given, self.answers = graph_builder, given, answers
        self.failures, self.rounds, self.mode = failures, rounds, mode
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
                given = self._next_input(self._state(graph), asked)
                if given is _DONE:
                    return self._history(graph)
                try:
                    self._invoke(graph, given)
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

    def _state(self, graph: CompiledGraph) -> StateSnapshot:
        if self.mode == "async":
            return asyncio.run(graph.aget_state(self.config))
        return graph.get_state(self.config)

    def _invoke(self, graph: CompiledGraph, given: Any) -> None:
        if self.mode == "async":
            asyncio.run(graph.ainvoke(given, self.config))
        else:
            graph.invoke(given, self.config)

    def _history(self, graph: CompiledGraph) -> Ending:
        async def shots() -> list[StateSnapshot]:
            return [shot async for shot in graph.aget_state_history(self.config)]

        found = asyncio.run(shots()) if self.mode == "async" else graph.get_state_history(self.config)
        return [
            (shot.metadata["source"], shot.metadata["step"], shot.values, shot.next, _results(shot))
            for shot in found
            if shot.metadata is not None
        ]

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
            return self._answer_by_value(self.answers, question)
        if question.id not in asked:
            asked.append(question.id)
        number = asked.index(question.id)
        if number >= len(self.answers):
            raise ValueError(
                f"crash_everywhere(answers=...): {len(self.answers)} answers were given and question"
                f" {number + 1} is {question.value!r}; give one answer for each question, in order of asking"
            )
        return self.answers[number]

    def _answer_by_value(self, answers: Mapping[Any, Any], question: Interrupt) -> Any:
        try:
            hash(question.value)
        except TypeError as error:
            raise ValueError(
                f"crash_everywhere(answers={{...}}): the question {question.value!r} cannot be the key of a dict; give"
                " the answers as a list, in order of asking, or as a function of the Interrupt"
            ) from error
        if question.value not in answers:
            raise ValueError(
                f"crash_everywhere(answers={{...}}): there is no answer to the question {question.value!r}, only to"
                f" {[*answers]!r}; add one under this very key"
            )
        return answers[question.value]


_DONE = object()


def _results(shot: StateSnapshot) -> list[tuple[str, Any]]:
    return [(task.name, task.result) for task in shot.tasks if task.result is not None]


def _difference(wanted: Ending, found: Ending) -> str:
    if not same(wanted[0], found[0]):
        return f"it ended with {found[0]!r} instead of {wanted[0]!r}"
    return f"it took {len(found)} checkpoints on the way instead of {len(wanted)}, or other ones: {found!r} {wanted!r}"


__all__ = ["Answers", "Crash", "CrashLawError", "CrashReport", "CrashingSaver", "GraphBuilder", "crash_everywhere"]
