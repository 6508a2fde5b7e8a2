"""The rules of the machine that `thread_machine` makes: what a program can do to a thread, and what must hold then."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from minigraph.calls import JoinNeverFiredWarning
from minigraph.checkpoint.base import Saver
from minigraph.compiled import CompiledGraph
from minigraph.errors import GraphRecursionError, InvalidUpdateError, UnknownCheckpointError, UnknownInterruptError
from minigraph.identifiers import looks_like_answers
from minigraph.records import Paused, Stored
from minigraph.testing.crash import GraphBuilder
from minigraph.testing.crashing import Crash, CrashingSaver
from minigraph.testing.instrument import Seen, watched
from minigraph.testing.laws import LawError
from minigraph.testing.past import Past, check_thread
from minigraph.testing.traces import first_difference, plain_state
from minigraph.types import END, START, Command, Interrupt, StateSnapshot

try:
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
    from hypothesis.strategies import DataObject, SearchStrategy
except ImportError as error:
    raise ImportError(
        "the strategies of minigraph.testing need Hypothesis: pip install 'minigraph[testing]'", name="hypothesis"
    ) from error

Inputs = SearchStrategy[Any] | Callable[[CompiledGraph], SearchStrategy[Any]]
Answers = SearchStrategy[Any] | Callable[[Interrupt], SearchStrategy[Any]]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a machine works on; the fields are the parameters of `thread_machine`."""

    graphs: SearchStrategy[GraphBuilder]
    inputs: Inputs
    updates: Inputs
    edit_as: Sequence[str | None] | None
    answers: Answers
    make_saver: Callable[[], Saver]
    reopen: Callable[[Saver], Saver]
    invariants: Sequence[Callable[[StateSnapshot], None]]
    failures: tuple[type[Exception], ...]
    mode: Literal["sync", "async"]
    recursion_limit: int


Call = Callable[[CompiledGraph, dict[str, Any]], Any]
"""A call of a graph on a thread's config."""


class ThreadMachine(RuleBasedStateMachine):
    """The machine that `thread_machine` makes; `given` says what it works on."""

    given: ClassVar[Settings]

    def __init__(self) -> None:
        super().__init__()
        self.past = Past()
        self.states: dict[str, StateSnapshot] = {}
        self.touched: tuple[str, ...] = ()
        self.failed = False
        self.pruned: set[str] = set()
        self.opened: list[Saver] = []
        self.again: list[str] = []
        """The calls of nodes whose task had finished."""

    @initialize(data=st.data())
    def begin(self, data: DataObject) -> None:
        """A graph on an empty storage."""
        self.make_graph = data.draw(self.given.graphs, label="graph")
        self.store = self.given.make_saver()
        self.opened.append(self.store)
        self.saver = CrashingSaver(self.store)
        self.graph = self._compiled()
        self.inputs = _strategy(self.given.inputs, self.graph)
        self.updates = _strategy(self.given.updates, self.graph)

    def teardown(self) -> None:
        """Closes every saver that was opened."""
        for saver in self.opened:
            saver.close()

    def _compiled(self) -> CompiledGraph:
        saver = self.saver

        def watch(seen: Seen) -> Callable[[], None]:
            if (seen.thread_id, seen.task.id) in saver.finished:
                self.again.append(f"{seen.what} ran again, though the end of its task {seen.task.id} was stored")
            return lambda: None

        return watched(self.make_graph(saver), watch)

    # ----------------------------------------------------------------------- rules

    @rule(data=st.data(), thread=st.sampled_from(("one", "two")))
    def run(self, data: DataObject, thread: str) -> None:
        """New input, whatever the thread waits for."""
        self._work(thread, self._run(data))

    @precondition(lambda self: self._asking())
    @rule(data=st.data())
    def answer(self, data: DataObject) -> None:
        """An answer to one open question, or to all."""
        thread = data.draw(st.sampled_from(self._asking()), label="thread")
        questions = self.states[thread].interrupts
        answered, call = self._answer(data, questions)
        if self._work(thread, call):
            still = {question.id for question in self.graph.get_state(self._config(thread)).interrupts}
            if not still.isdisjoint(answered):
                raise LawError(
                    "an answered question is closed", f"thread {thread!r} asks {still & set(answered)} again"
                )

    @precondition(lambda self: self._closed())
    @rule(data=st.data())
    def answer_again(self, data: DataObject) -> None:
        """An answer, at the head, to a question that is not open any more: it is refused, and nothing is written."""
        thread, question = data.draw(st.sampled_from(self._closed()), label="thread, question")
        given: Command[Any] = Command(resume={question: self._value(data, Interrupt(None, question))})
        self._refused(thread, lambda graph, config: self._invoke(graph, given, config), UnknownInterruptError)

    @precondition(lambda self: self.past.asked_before())
    @rule(data=st.data())
    def answer_old(self, data: DataObject) -> None:
        """Another answer to a question of an older checkpoint: a branch."""
        thread, old = self._draw_checkpoint(data, self.past.asked_before())
        config = self._config(thread, old)
        question = data.draw(st.sampled_from(self.graph.get_state(config).interrupts), label="question")
        given: Command[Any] = Command(resume={question.id: self._value(data, question)})
        lost = (UnknownInterruptError,) if thread in self.pruned else ()
        if self._work(thread, lambda graph, _: self._invoke(graph, given, config), expected=lost):
            self._demand_branch(thread, old, "fork")

    @precondition(lambda self: self.past.threads)
    @rule(data=st.data())
    def go_on(self, data: DataObject) -> None:
        """On from the head, without input. Where nothing can run, nothing is written."""
        thread = data.draw(st.sampled_from(self.past.threads), label="thread")
        before = self.past.head(thread)
        assert before is not None
        paused = {result.task_id for result in before.results if isinstance(result, Paused) and result.open}
        idle = all(task.id in paused for task in before.checkpoint.due)
        self._work(thread, _go_on(self))
        after = self.store.get(thread, "")
        if idle and (after is None or after.revision != before.revision):
            raise LawError("what cannot go on stays as it is", f"thread {thread!r} was changed by invoke(None)")

    @precondition(lambda self: self.past.threads)
    @rule(data=st.data())
    def replay(self, data: DataObject) -> None:
        """Any checkpoint, run again as a branch; one with nothing due stays as it is."""
        thread, old = self._draw_checkpoint(data, self.past.everywhere())
        before = self.past.head(thread)
        assert before is not None
        config = self._config(thread, old)
        if not self._work(thread, lambda graph, _: self._replay(graph, config)):
            return
        if old.checkpoint.due:
            self._demand_branch(thread, old, "fork")
        elif (after := self.store.get(thread, "")) is None or after.revision != before.revision:
            raise LawError("a replay of the end does nothing", f"thread {thread!r} was changed")

    @precondition(lambda self: self.past.threads)
    @rule(data=st.data())
    def fork(self, data: DataObject) -> None:
        """A branch at any checkpoint, as it was."""
        thread, old = self._draw_checkpoint(data, self.past.everywhere())
        config = self._config(thread, old)
        if self._work(thread, lambda graph, _: graph.fork(config)):
            self._demand_branch(thread, old, "fork")

    @precondition(lambda self: self._to_edit())
    @rule(data=st.data())
    def edit_old(self, data: DataObject) -> None:
        """An edit at any checkpoint, as any node."""
        thread, old = self._draw_checkpoint(data, self._to_edit())
        values, node = self._edit(data)
        config = self._config(thread, old)
        if self._work(thread, lambda graph, _: graph.update_state(config, values, node)):
            self._demand_branch(thread, old, "update")

    @rule(data=st.data(), thread=st.sampled_from(("one", "two")))
    def edit(self, data: DataObject, thread: str) -> None:
        """An edit at the head; a thread that never ran begins with it, where edits may stand for any node."""
        old = self.past.head(thread)
        if not self._may_edit(old):
            return
        if self._work(thread, self._update(data)) and old is not None:
            self._demand_branch(thread, old, "update")

    @precondition(lambda self: self.past.threads and (self.given.edit_as is None or END in self.given.edit_as))
    @rule(data=st.data())
    def end_step(self, data: DataObject) -> None:
        """The step at the head ends with what has finished."""
        thread = data.draw(st.sampled_from(self.past.threads), label="thread")
        if self._work(thread, lambda graph, config: graph.update_state(config, None, END)):
            state = self.graph.get_state(self._config(thread))
            if state.interrupts:
                raise LawError("an ended step asks nothing", f"thread {thread!r} asks {state.interrupts}")

    @rule(
        data=st.data(),
        thread=st.sampled_from(("one", "two")),
        number=st.integers(1, 8),
        side=st.sampled_from(("before", "after")),
    )
    def crash(self, data: DataObject, thread: str, number: int, side: Literal["before", "after"]) -> None:
        """Any call, stopped before or after one of its writes; then a new graph and saver on the same storage."""
        calls: dict[str, Callable[[], Call]] = {"run": lambda: self._run(data)}
        if self._may_edit(self.past.head(thread)):
            calls["edit"] = lambda: self._update(data)
        if self.past.head(thread) is not None:
            calls["go on"] = lambda: _go_on(self)
            calls["replay"] = lambda: self._replayed(data, thread)
        if thread in self._asking():
            calls["answer"] = lambda: self._answer(data, self.states[thread].interrupts)[1]
        call = calls[data.draw(st.sampled_from(sorted(calls)), label="call")]()
        self.saver.writes, self.saver.at, self.saver.side = 0, number, side
        self._work(thread, call)
        self.saver.at = None

    @precondition(lambda self: self._to_copy())
    @rule(data=st.data())
    def copy_thread(self, data: DataObject) -> None:
        """A copy of a thread: a thread of its own."""
        source = data.draw(st.sampled_from(self._to_copy()), label="thread")
        target = f"copy of {source}"
        self.saver.copy_thread(source, target)
        self.past.copied(source, target)
        if source in self.pruned:
            self.pruned.add(target)
        self.touched, self.failed = (), False
        self.states[target] = self.graph.get_state(self._config(target))

    @precondition(lambda self: self.past.threads)
    @rule(data=st.data(), keep=st.integers(0, 4))
    def prune(self, data: DataObject, keep: int) -> None:
        """All but the newest checkpoints of a thread are forgotten."""
        thread = data.draw(st.sampled_from(self.past.threads), label="thread")
        self.saver.prune(thread, keep=keep)
        self.past.pruned(thread, keep)
        self.pruned.add(thread)
        self.touched, self.failed = (), False

    @precondition(lambda self: len(self.past.threads) > 1)
    @rule(data=st.data())
    def delete(self, data: DataObject) -> None:
        """A thread is forgotten, and the others stay."""
        thread = data.draw(st.sampled_from(self.past.threads), label="thread")
        self.saver.delete_thread(thread)
        self.past.deleted(thread)
        self.states.pop(thread, None)
        self.pruned.discard(thread)
        self.touched, self.failed = (), False
        if self.store.namespaces(thread) or self.store.get(thread, "") is not None:
            raise LawError("a deleted thread is gone", f"thread {thread!r} is still there")

    @rule(thread=st.sampled_from(("one", "two", "three")))
    def ask_for_what_is_not_there(self, thread: str) -> None:
        """A checkpoint that never was: an error, and nothing is written."""
        config = {"configurable": {"thread_id": thread, "checkpoint_id": "never"}}
        self._refused(thread, lambda graph, _: self._invoke(graph, None, config), UnknownCheckpointError)

    @invariant()
    def everything_holds(self) -> None:
        """The past is unchanged, and each thread that was worked on is as its history says."""
        self.past.look(self.store, touched=self.touched, failed=self.failed)
        for thread in self.touched:
            state = check_thread(self.graph, self.store, self._config(thread))
            if state.metadata is not None:
                self.states[thread] = state
                for own in self.given.invariants:
                    own(state)
        self.touched = ()

    # ----------------------------------------------------------------------- calls

    def _work(self, thread: str, call: Call, expected: tuple[type[Exception], ...] = ()) -> bool:
        """Makes a call on a thread; whether it ended without an error."""
        self.touched, self.failed = (thread,), True
        allowed: tuple[type[Exception], ...] = (
            InvalidUpdateError,
            GraphRecursionError,
            *expected,
            *self.given.failures,
        )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", JoinNeverFiredWarning)
                call(self.graph, self._config(thread))
            self.failed = False
        except allowed:
            pass
        except Crash:
            self._start_again()
        if self.again:
            raise LawError("a finished task never runs twice", self.again[0])
        return not self.failed

    def _start_again(self) -> None:
        """What a new process does: it opens the storage and compiles the graph."""
        before = self.saver
        self.store = self.given.reopen(self.store)
        if self.store not in self.opened:
            self.opened.append(self.store)
        self.saver = CrashingSaver(self.store)
        self.saver.finished, self.saver.began = before.finished, before.began
        self.graph = self._compiled()

    def _refused(self, thread: str, call: Call, error: type[Exception]) -> None:
        """Makes a call that must be refused with an error, and must write nothing."""
        before = self.store.get(thread, "")
        try:
            call(self.graph, self._config(thread))
        except error:
            after = self.store.get(thread, "")
            if (before is None) != (after is None) or (before and after and before.revision != after.revision):
                raise LawError("what is refused writes nothing", f"thread {thread!r} was changed") from None
            return
        raise LawError("what is refused writes nothing", f"thread {thread!r}: {error.__name__} was expected")

    def _invoke(self, graph: CompiledGraph, given: Any, config: Mapping[str, Any]) -> Any:
        if self.given.mode == "async":
            return asyncio.run(graph.ainvoke(given, config))
        return graph.invoke(given, config)

    def _replay(self, graph: CompiledGraph, config: Mapping[str, Any]) -> Any:
        return asyncio.run(graph.areplay(config)) if self.given.mode == "async" else graph.replay(config)

    def _run(self, data: DataObject) -> Call:
        given = data.draw(self.inputs, label="input")
        return lambda graph, config: self._demand_end(graph, config, self._invoke(graph, given, config))

    def _update(self, data: DataObject) -> Call:
        values, node = self._edit(data)
        return lambda graph, config: graph.update_state(config, values, node)

    def _replayed(self, data: DataObject, thread: str) -> Call:
        old = data.draw(st.sampled_from(self.past.checkpoints(thread)), label="checkpoint")
        return lambda graph, _: self._replay(graph, self._config(thread, old))

    def _answer(self, data: DataObject, questions: Sequence[Interrupt]) -> tuple[tuple[str, ...], Call]:
        some = st.sampled_from(questions).map(lambda question: [question])
        chosen = data.draw(st.one_of(some, st.just(list(questions))), label="questions")
        answers = {question.id: self._value(data, question) for question in chosen}
        value = answers[chosen[0].id]
        plain = len(questions) == 1 and not looks_like_answers(value) and data.draw(st.booleans(), label="plain")
        given: Command[Any] = Command(resume=value if plain else answers)
        call: Call = lambda graph, config: self._demand_end(graph, config, self._invoke(graph, given, config))  # noqa: E731
        return tuple(answers), call

    def _value(self, data: DataObject, question: Interrupt) -> Any:
        answers = self.given.answers
        strategy = answers if isinstance(answers, SearchStrategy) else answers(question)
        return data.draw(strategy, label=f"answer to {question.value!r}")

    def _edit(self, data: DataObject) -> tuple[Any, str | None]:
        values = data.draw(self.updates, label="values")
        every = [None, *(name for name in self.graph.graph.nodes if name != START)]
        names = every if self.given.edit_as is None else [name for name in self.given.edit_as if name != END]
        return values, data.draw(st.sampled_from(names), label="as node")

    def _config(self, thread: str, at: Stored | None = None) -> dict[str, Any]:
        place: dict[str, Any] = {"thread_id": thread}
        if at is not None:
            place["checkpoint_id"] = at.checkpoint.id
        return {"configurable": place, "recursion_limit": self.given.recursion_limit}

    # ----------------------------------------------------------- what there is to do

    def _may_edit(self, old: Stored | None) -> bool:
        """Whether there may be an edit at a checkpoint: chosen nodes expect a thread whose input has been applied."""
        names = self.given.edit_as
        applied = old is not None and all(task.node != START for task in old.checkpoint.due)
        return names is None or (applied and any(name != END for name in names))

    def _to_edit(self) -> list[tuple[str, Stored]]:
        return [(thread, old) for thread, old in self.past.everywhere() if self._may_edit(old)]

    def _asking(self) -> list[str]:
        return [thread for thread in self.past.threads if self.states[thread].interrupts]

    def _closed(self) -> list[tuple[str, str]]:
        """The questions that were asked and are not open, with their threads."""
        return [
            (thread, question)
            for thread in self.past.threads
            for question in self.past.questions(thread)
            if question not in {known.id for known in self.states[thread].interrupts}
        ]

    def _to_copy(self) -> list[str]:
        known = self.past.threads
        return [thread for thread in ("one", "two") if thread in known and f"copy of {thread}" not in known]

    def _draw_checkpoint(self, data: DataObject, choices: Sequence[tuple[str, Stored]]) -> tuple[str, Stored]:
        place = data.draw(st.integers(0, len(choices) - 1), label=f"checkpoint (of {len(choices)})")
        return choices[place]

    # ------------------------------------------------------------------------- laws

    def _demand_end(self, graph: CompiledGraph, config: Mapping[str, Any], result: Any) -> Any:
        """A call that ended without an error leaves nothing that could go on by itself."""
        state = graph.get_state(config)
        if state.next and not state.interrupts and not graph.before and not graph.after:
            raise LawError("a run goes on until nothing is due", f"{state.next} are due, and no question is open")
        return result

    def _demand_branch(self, thread: str, parent: Stored, source: str) -> None:
        """The first checkpoint that a call made is the child of the one it went on from."""
        known = {stored.checkpoint.id for stored in self.past.checkpoints(thread)}
        new = next(_new(self.store, thread, known), None)
        what = f"thread {thread!r}, checkpoint {parent.checkpoint.id}"
        if new is None or (new.checkpoint.parent_id, new.checkpoint.source) != (parent.checkpoint.id, source):
            raise LawError("a branch is the child of its checkpoint", f"{what}: {new and new.checkpoint}")
        if source == "fork":
            found = first_difference(plain_state(parent.checkpoint.values), plain_state(new.checkpoint.values), "state")
            due = [[(task.node, task.index) for task in s.checkpoint.due] for s in (parent, new)]
            if found or due[0] != due[1]:
                raise LawError("a branch begins as its checkpoint", f"{what}: {found or due}")


def _go_on(machine: ThreadMachine) -> Call:
    return lambda graph, config: machine._demand_end(graph, config, machine._invoke(graph, None, config))


def _new(saver: Saver, thread: str, known: set[str]) -> Iterator[Stored]:
    """The checkpoints of a thread that are not known, oldest first."""
    yield from (s for s in reversed(list(saver.history(thread, ""))) if s.checkpoint.id not in known)


def _strategy(given: Inputs, graph: CompiledGraph) -> SearchStrategy[Any]:
    return given if isinstance(given, SearchStrategy) else given(graph)
