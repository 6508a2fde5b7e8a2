"""What threads looked like so far, held against what is stored now: the past must not change."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from minigraph.checkpoint.base import Saver
from minigraph.checkpoint.sameness import same
from minigraph.compiled import CompiledGraph
from minigraph.records import Checkpoint, Failed, Finished, Paused, Result, Stored
from minigraph.testing.laws import LawError, check_history
from minigraph.testing.traces import first_difference, plain
from minigraph.types import StateSnapshot

Namespace = tuple[str, str]
"""A thread and one of its namespaces."""


class Past:
    """Remembers every checkpoint and result that it was shown; `look` raises LawError where one has changed since.

    What may change in a thread: checkpoints are added, and the results at its head go on (an answer is added, a task
    ends) until the head moves on. Everything else is as it was, to the end.
    """

    def __init__(self) -> None:
        self._seen: dict[Namespace, dict[str, Stored]] = {}
        """Oldest first."""

    @property
    def threads(self) -> tuple[str, ...]:
        """The threads that have a checkpoint, in order of their first."""
        return tuple(dict.fromkeys(thread for thread, _ in self._seen))

    def checkpoints(self, thread_id: str, namespace: str = "") -> tuple[Stored, ...]:
        """What is known of a thread, oldest first."""
        return tuple(self._seen.get((thread_id, namespace), {}).values())

    def head(self, thread_id: str) -> Stored | None:
        """The newest checkpoint of a thread, or None."""
        known = self.checkpoints(thread_id)
        return known[-1] if known else None

    def everywhere(self) -> list[tuple[str, Stored]]:
        """Every checkpoint of a root graph, with its thread."""
        return [(thread, stored) for thread in self.threads for stored in self.checkpoints(thread)]

    def asked_before(self) -> list[tuple[str, Stored]]:
        """The checkpoints of root graphs, but for the heads, at which something was asked."""
        return [
            (thread, stored)
            for thread in self.threads
            for stored in self.checkpoints(thread)[:-1]
            if any(result.asked or (isinstance(result, Paused) and result.inner) for result in stored.results)
        ]

    def questions(self, thread_id: str) -> tuple[str, ...]:
        """The ids of all questions that tasks of the root graph asked."""
        asked = (q.id for stored in self.checkpoints(thread_id) for r in stored.results for q in r.asked)
        return tuple(dict.fromkeys(asked))

    # -------------------------------------------------------------------- look

    def look(self, saver: Saver, *, touched: Iterable[str] = (), failed: bool = False) -> None:
        """Compares all threads with the past and remembers what is new.

        `touched` are the threads that were worked on since; `failed`: the work ended with an error, so that a merge
        may have been refused, which makes finished tasks of that step run again.
        """
        worked_on = set(touched)
        for thread in dict.fromkeys((*self.threads, *worked_on)):
            namespaces = saver.namespaces(thread)
            gone = [ns for known, ns in self._seen if known == thread and ns not in namespaces]
            if gone:
                raise LawError("nothing that is stored is lost", f"thread {thread!r} has no namespace {gone[0]!r} now")
            for namespace in namespaces:
                found = tuple(reversed(list(saver.history(thread, namespace))))
                self._look_at((thread, namespace), found, thread in worked_on, failed)

    def _look_at(self, place: Namespace, found: tuple[Stored, ...], touched: bool, failed: bool) -> None:
        known = self._seen.setdefault(place, {})
        where = f"thread {place[0]!r}" + (f", namespace {place[1]!r}" if place[1] else "")
        now = {stored.checkpoint.id: stored for stored in found}
        head = next(reversed(known), None)
        for name, before in known.items():
            if name not in now:
                raise LawError("nothing that is stored is lost", f"{where}: checkpoint {name} is gone")
            law = "a stored checkpoint never changes"
            _demand_same(law, f"{where}, checkpoint {name}", before.checkpoint, now[name].checkpoint)
            if touched and name == head:
                _check_progress(f"{where}, checkpoint {name}", before, now[name], failed)
            else:
                law = "results change at the head alone"
                _demand_same(law, f"{where}, checkpoint {name}", before.results, now[name].results)
        _check_order(where, tuple(known), found)
        changed = len(now) > len(known) or (head is not None and not same(known[head].results, now[head].results))
        if known:
            before_it, revision = next(iter(known.values())).revision, found[-1].revision
            if revision < before_it or (revision != before_it and not touched) or (changed and revision == before_it):
                raise LawError(
                    "the revision counts the writes",
                    f"{where}: it went from {before_it} to {revision}, and what is stored"
                    f" {'changed' if changed else 'did not change'}",
                )
        for stored in found:
            _check_results(where, stored)
        self._seen[place] = {name: copy.deepcopy(stored) for name, stored in now.items()}

    # ------------------------------------------------- copies and what is dropped

    def copied(self, source: str, target: str) -> None:
        """Expects a copy of a thread that is the same as the thread."""
        for thread, namespace in list(self._seen):
            if thread == source:
                self._seen[target, namespace] = dict(self._seen[source, namespace])

    def pruned(self, thread_id: str, keep: int) -> None:
        """Expects the newest `keep` checkpoints of each namespace of a thread and its head, and none besides.

        Those whose parent is dropped have none any more.
        """
        for (thread, namespace), known in list(self._seen.items()):
            if thread == thread_id:
                kept = list(known)[-max(keep, 1) :]
                self._seen[thread, namespace] = {name: _without_lost_parent(known[name], kept) for name in kept}

    def deleted(self, thread_id: str) -> None:
        """Expects nothing of a thread."""
        for thread, namespace in list(self._seen):
            if thread == thread_id:
                del self._seen[thread, namespace]


def _without_lost_parent(stored: Stored, kept: list[str]) -> Stored:
    if stored.checkpoint.parent_id in (None, *kept):
        return stored
    return msgspec.structs.replace(stored, checkpoint=msgspec.structs.replace(stored.checkpoint, parent_id=None))


# --------------------------------------------------------------------------- checks


def _demand_same(law: str, where: str, before: Any, now: Any) -> None:
    if not same(before, now):
        shown = first_difference(_parts(before), _parts(now), "") or f"{before!r}, now {now!r}"
        raise LawError(law, f"{where}: {shown}")


def _parts(value: Any) -> Any:
    if isinstance(value, Checkpoint | Finished | Failed) or hasattr(value, "__struct_fields__"):
        return tuple((name, _parts(getattr(value, name))) for name in value.__struct_fields__)
    return tuple(map(_parts, value)) if isinstance(value, tuple) else plain(value)


def _check_progress(where: str, before: Stored, now: Stored, failed: bool) -> None:
    """What may become of the results at the head: an end stays, an answer stays."""
    results = {result.task_id: result for result in now.results}
    for old in before.results:
        new = results.get(old.task_id)
        who = f"{where}, task {old.task_id} of node {old.node!r}"
        if new is None:
            raise LawError("a result is not forgotten", f"{who} was {_short(old)} and has no result now")
        if isinstance(old, Finished) and not (failed and isinstance(new, Failed)):
            _demand_same("a finished task stays finished", who, old, new)
        if isinstance(new, Finished) and new.cached:
            continue
        pairs = list(zip(old.answers, new.answers, strict=False))
        if len(new.answers) < min(len(old.answers), len(new.asked)) or not all(same(a, b) for a, b in pairs):
            raise LawError("an answer is accepted once", f"{who}: the answers were {old.answers}, now {new.answers}")


def _short(result: Result) -> str:
    return type(result).__name__.lower()


def _check_order(where: str, known: tuple[str, ...], found: tuple[Stored, ...]) -> None:
    """Old checkpoints come first, in their order; a child comes after its parent; the newest is the head."""
    names = [stored.checkpoint.id for stored in found]
    if tuple(names[: len(known)]) != known:
        raise LawError("checkpoints keep their order", f"{where}: {known} are now {tuple(names)}")
    if sorted(set(names)) != names:  # an id begins with the revision that stored it
        raise LawError("checkpoints are numbered in order", f"{where}: {names}")
    for stored in found:
        if (stored.checkpoint.parent_id or "") >= stored.checkpoint.id:
            raise LawError("a parent comes before its child", f"{where}: checkpoint {stored.checkpoint.id}")
        if stored.head_id != names[-1]:
            raise LawError("the head is the newest checkpoint", f"{where}: it is {stored.head_id}, not {names[-1]}")


def _check_results(where: str, stored: Stored) -> None:
    due = {task.id for task in stored.checkpoint.due}
    for result in stored.results:
        if result.task_id not in due:
            raise LawError(
                "only due tasks have results",
                f"{where}, checkpoint {stored.checkpoint.id}: task {result.task_id} of node {result.node!r} is not due",
            )


def check_thread(graph: CompiledGraph, saver: Saver, config: Mapping[str, Any]) -> StateSnapshot:
    """The thread as `get_state` shows it, which agrees with what is stored; raises LawError where it does not.

    Reading twice gives the same and stores nothing; the history shows what is stored; every state is its parent's with
    the results of the step folded in; open questions are those of due tasks, each once.
    """
    thread = config["configurable"]["thread_id"]
    stored = saver.get(thread, "")
    state = graph.get_state(config)
    _demand_same("reading twice gives the same", f"thread {thread!r}", _shown(state), _shown(graph.get_state(config)))
    after = saver.get(thread, "")
    if (stored is None) != (after is None) or (stored and after and stored.revision != after.revision):
        raise LawError("reading stores nothing", f"thread {thread!r} was changed by get_state")
    if stored is None:
        if state.metadata is not None or saver.namespaces(thread):
            raise LawError("reading stores nothing", f"thread {thread!r} was made by get_state")
        return state
    unfinished = [r.task_id for r in stored.results if not isinstance(r, Finished)]
    ended = {r.task_id for r in stored.results if r.task_id not in unfinished}
    due = tuple(task.node for task in stored.checkpoint.due if task.id not in ended)
    if state.next != due or state.config["configurable"]["checkpoint_id"] != stored.head_id:
        raise LawError("the state is that of the head", f"thread {thread!r}: next is {state.next}, due are {due}")
    _check_questions(thread, stored, state)
    check_history(graph, saver, thread)
    shots = [shot.config["configurable"]["checkpoint_id"] for shot in graph.get_state_history(config)]
    if shots != [item.checkpoint.id for item in saver.history(thread, "")]:
        raise LawError("the history shows what is stored", f"thread {thread!r}: {shots}")
    return state


def _check_questions(thread: str, stored: Stored, state: StateSnapshot) -> None:
    names = [question.id for question in state.interrupts]
    asked = [q.id for task in state.tasks for q in task.interrupts]
    waiting = {r.task_id for r in stored.results if not isinstance(r, Finished | Failed)}
    if len(set(names)) != len(names) or names != asked:
        raise LawError("open questions are those of due tasks", f"thread {thread!r}: open {names}, of tasks {asked}")
    wrong = [task.name for task in state.tasks if task.interrupts and task.id not in waiting]
    if wrong:
        raise LawError("open questions are those of due tasks", f"thread {thread!r}: {wrong} wait for no answer")


def _shown(state: StateSnapshot) -> Any:
    tasks = tuple((t.id, t.name, repr(t.error), t.interrupts, t.result) for t in state.tasks)
    return (plain(state.values), state.next, repr(state.config), repr(state.metadata), tasks, state.waiting)
