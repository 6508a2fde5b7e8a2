"""Runs a program on a thread and writes down everything that can be compared: streams, states, questions, history."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from minigraph.calls import JoinNeverFiredWarning
from minigraph.checkpoint.sameness import same
from minigraph.testing.building import Delay, Flaky, Ledger, build, seen
from minigraph.testing.engines import Engine, minigraph_engine
from minigraph.testing.programs import (
    Edit,
    EditPaused,
    Fork,
    Input,
    Program,
    Put,
    Replay,
    Turn,
    answer_to,
    input_of,
    writes,
)

ROUNDS = 16
"""How often a turn goes on (after a pause, a failure, a breakpoint) before it is left as it is."""
LIMIT = 25
"""The recursion limit of every call."""

Stream = Callable[[Any, Any, Mapping[str, Any]], Iterable[tuple[str, Any]]]
"""Streams "updates" and "values" of (graph, input, config) as (mode, chunk) pairs."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call: what was given, how it ended, what it streamed, and how the thread looked afterwards.

    `chunks` holds, between two value chunks, the updates as a sorted tuple; it is empty for a call that failed, whose
    stream depends on timing. `values` leaves out ephemeral keys while something is due, where LangGraph's state and
    its stream contradict each other; `chunks` have them. `ended` is "ok", "failed", "refused" (a merge that the keys
    do not allow) or "limit".
    """

    given: str
    ended: str
    chunks: tuple[Any, ...]
    values: Any
    next: tuple[str, ...]
    questions: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One checkpoint of the history; `parent` is its parent's place in the history, counted from the oldest."""

    source: str
    step: int
    values: Any
    next: tuple[str, ...]
    parent: int | None
    results: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """All calls of a program, and the history at their end, newest first."""

    calls: tuple[Call, ...]
    history: tuple[Entry, ...]

    @property
    def end(self) -> tuple[Any, tuple[str, ...]]:
        """The last state and what is due next."""
        return self.calls[-1].values, self.calls[-1].next


def plain(value: Any) -> Any:
    """A value as nested tuples that can be compared and printed the same in every process; types are kept."""
    if isinstance(value, Mapping):
        return ("dict", *((plain(k), plain(v)) for k, v in value.items()))
    if isinstance(value, set | frozenset):
        return (type(value).__name__, *sorted(map(plain, value), key=repr))
    if isinstance(value, list | tuple):
        return (type(value).__name__, *map(plain, value))
    return value


def plain_state(values: Any) -> Any:
    """A state, its keys sorted."""
    if not isinstance(values, Mapping):
        return plain(values)
    return tuple((key, plain(value)) for key, value in sorted(values.items()) if key != "__interrupt__")


def sync_stream(graph: Any, given: Any, config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The plain driver."""
    yield from graph.stream(given, config, stream_mode=["updates", "values"], durability="sync")


def async_stream(graph: Any, given: Any, config: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The asyncio driver, in a loop of its own."""
    found: list[tuple[str, Any]] = []

    async def collect() -> None:
        async for item in graph.astream(given, config, stream_mode=["updates", "values"], durability="sync"):
            found.append(item)

    asyncio.run(collect())
    return found


def run(
    program: Program,
    engine: Engine | None = None,
    saver: Any = None,
    *,
    stream: Stream = sync_stream,
    knows_answers: bool = False,
    delay: Delay | None = None,
    graph: Any = None,
) -> Trace:
    """The trace of a program. Raises what neither the program nor the engine's contract accounts for."""
    engine = engine or minigraph_engine()
    saver = saver if saver is not None else engine.make_saver()
    graph = graph or build(program, engine, saver, ledger=Ledger(), knows_answers=knows_answers, delay=delay)
    session = _Session(program, engine, graph, stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JoinNeverFiredWarning)
        for turn in program.turns:
            if not session.take(turn):
                break
        return Trace(tuple(session.calls), session.history())


class _Session:
    def __init__(self, program: Program, engine: Engine, graph: Any, stream: Stream) -> None:
        self.program, self.engine, self.graph, self.stream = program, engine, graph, stream
        self.config: dict[str, Any] = {"configurable": {"thread_id": "t"}, "recursion_limit": LIMIT}
        self.calls: list[Call] = []
        self.kept_on_edit = {n.name for n in program.nodes if n.defer} | {j.target for j in program.joins}
        self.hidden = {node.name for node in program.nodes if node.kind == "child"}

    # ------------------------------------------------------------------- turns

    def take(self, turn: Turn) -> bool:
        """Takes a turn and goes on until nothing is due. False: the thread cannot be compared any further."""
        match turn:
            case Input():
                return self.call("input", input_of(turn), self.config) and self.go_on()
            case EditPaused(number, puts):
                fine = self.call("input", {"log": [f"turn {number}"]}, self.config)
                return fine and self.go_on(puts)
            case Replay(back):
                shot = self.older(back)
                return shot is None or (self.call("replay", None, self.at(shot)) and self.go_on())
            case Edit(node, puts):
                return self.edit(self.config, node, puts) and self.go_on()
            case Fork(back, node, puts):
                shot = self.older(back)
                return shot is None or (self.edit(self.at(shot), node, puts) and self.go_on())

    def go_on(self, edit: tuple[Put, ...] = ()) -> bool:
        for _ in range(ROUNDS):
            state = self.graph.get_state(self.config)
            if edit and state.interrupts and len(state.tasks) == 1 and state.next[0] not in self.kept_on_edit:
                fine, edit = self.edit(self.config, state.next[0], edit), ()
            elif state.interrupts:
                fine = self.call("answer", self.answers(state.interrupts), self.config)
            elif state.next:
                fine = self.call("go on", None, self.config)
            else:
                return True
            if not fine:
                return False
        return not self.graph.get_state(self.config).next

    def answers(self, questions: Sequence[Any]) -> Any:
        """The next answers. A single one comes without its id, unless the program has answers that need one.

        LangGraph gives a plain answer to a later question as well, once answers by id are mixed with it.
        """
        by_id = any(answer is None or answer == {} for answer in self.program.answers)
        ordered = sorted(questions, key=lambda q: repr(q.value))
        first = [question for question in ordered if question.value == ordered[0].value]
        chosen = first if self.program.one_by_one else ordered
        found = {question.id: answer_to(self.program, question.value) for question in chosen}
        if len(ordered) == 1 and not by_id:
            return self.engine.command(resume=found[ordered[0].id])
        return self.engine.command(resume=found)

    def older(self, back: int) -> Any:
        """A checkpoint of the past that can be gone on from."""
        shots = list(self.graph.get_state_history(self.config))
        found = [s for s in shots[1:] if s.next and s.metadata["source"] in ("loop", "input")]
        return found[back % len(found)] if found else None

    def at(self, shot: Any) -> dict[str, Any]:
        return {**self.config, "configurable": {**self.config["configurable"], **shot.config["configurable"]}}

    # ------------------------------------------------------------------- calls

    def call(self, what: str, given: Any, config: Mapping[str, Any]) -> bool:
        chunks: list[Any] = []
        updates: list[Any] = []
        ended = "ok"
        try:
            for mode, chunk in self.stream(self.graph, given, config):
                if mode == "updates":
                    updates.append(self.update(chunk))
                elif "__interrupt__" not in chunk:
                    chunks += [tuple(sorted(updates, key=repr)), plain_state(chunk)]
                    updates = []
        except Flaky:
            ended = "failed"
        except self.engine.update_error:
            ended = "refused"
        except self.engine.limit_error:
            ended = "limit"
        shown = (*chunks, tuple(sorted(updates, key=repr))) if ended == "ok" else ()
        return self.note(what, ended, shown)

    def edit(self, config: Mapping[str, Any], node: str, puts: tuple[Put, ...]) -> bool:
        state = self.graph.get_state(config).values
        values = writes(puts, "edit", seen(state), state.get("total", 0), self.engine)
        ended = "ok"
        try:
            self.graph.update_state(config, values, as_node=node)
        except self.engine.update_error:
            ended = "refused"
        except Flaky:
            ended = "failed"
        return self.note("edit", ended, ())

    def note(self, given: str, ended: str, chunks: tuple[Any, ...]) -> bool:
        if ended in ("refused", "limit"):
            self.calls.append(Call(given, ended, chunks, None, (), ()))
            return False
        state = self.graph.get_state(self.config)
        questions = tuple(sorted((plain(q.value) for q in state.interrupts), key=repr))
        due = tuple(sorted(state.next))
        shown = {key: value for key, value in state.values.items() if key != "flash" or not due}
        self.calls.append(Call(given, ended, chunks, plain_state(shown), due, questions))
        return True

    def update(self, chunk: Mapping[str, Any]) -> Any:
        """An update to compare. What a child graph hands back is not compared, nor whether it was shown before."""
        if "__interrupt__" in chunk:
            return ("?", *sorted((plain(question.value) for question in chunk["__interrupt__"]), key=repr))
        (name, value), *_ = ((k, v) for k, v in chunk.items() if k != "__metadata__")
        return (name, "child" if name in self.hidden else _update(value))

    def history(self) -> tuple[Entry, ...]:
        if self.calls and self.calls[-1].ended == "refused":
            return ()
        shots = list(self.graph.get_state_history(self.config))
        places = {s.config["configurable"]["checkpoint_id"]: len(shots) - i for i, s in enumerate(shots)}
        edited = {s.parent_config["configurable"]["checkpoint_id"] for s in shots if _is_edit(s) and s.parent_config}
        return tuple(self.entry(shot, places, edited) for shot in shots)

    def entry(self, shot: Any, places: Mapping[str, int], edited: Collection[str]) -> Entry:
        parent = None if shot.parent_config is None else shot.parent_config["configurable"]["checkpoint_id"]
        tasks = () if shot.config["configurable"]["checkpoint_id"] in edited else shot.tasks
        results = [(t.name, _update(t.result)) for t in tasks if t.result is not None]
        shown = [r for r in results if r[0] not in self.hidden and r[0] != "__start__"]
        return Entry(
            source=shot.metadata["source"],
            step=shot.metadata["step"],
            values=plain_state(shot.values),
            next=tuple(sorted(shot.next)),
            parent=places.get(parent or ""),
            results=tuple(sorted(shown, key=repr)),
        )


def _is_edit(shot: Any) -> bool:
    """Whether a checkpoint was made by update_state; LangGraph shows the edit as a result of the one before, too."""
    return bool(shot.metadata["source"] == "update")


def _update(value: Any) -> Any:
    """An update as it is compared: nothing at all and an empty dict are the same."""
    return None if value is None or value == {} else plain(_bare(value))


def _bare(value: Any) -> Any:
    """A value in which both engines' Overwrite objects look the same."""
    if isinstance(value, Mapping):
        return {key: _bare(item) for key, item in value.items()}
    if type(value).__name__ == "Overwrite":
        return ("Overwrite", value.value)
    return value


def first_difference(left: Any, right: Any, path: str = "trace") -> str:
    """Where two traces differ first, in words; "" where they do not."""
    if same(left, right):
        return ""
    if type(left) is type(right) and isinstance(left, Trace | Call | Entry):
        for name in type(left).__slots__:
            if found := first_difference(getattr(left, name), getattr(right, name), f"{path}.{name}"):
                return found
    if isinstance(left, tuple) and isinstance(right, tuple):
        for index, pair in enumerate(zip(left, right, strict=False)):
            if found := first_difference(*pair, f"{path}[{index}]"):
                return found
        return f"{path}: {len(left)} against {len(right)} items; {left!r} against {right!r}"
    return f"{path}: {left!r} against {right!r}"


def without_streams(trace: Trace) -> Trace:
    """The trace without what was streamed."""
    return Trace(tuple(replace(call, chunks=()) for call in trace.calls), trace.history)
