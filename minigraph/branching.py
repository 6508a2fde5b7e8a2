"""Branches from older checkpoints: replays, new answers to old questions, and what they mean for child graphs."""

from __future__ import annotations

from collections.abc import Generator, Set
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import msgspec

from minigraph.context import Scope
from minigraph.effects import Effect, History, Load, Namespaces, Save
from minigraph.errors import UnknownCheckpointError, UnknownInterruptError
from minigraph.identifiers import child_namespace, interrupt_id, questions_before, task_id
from minigraph.position import Position, stamp
from minigraph.records import Carried, Checkpoint, Failed, Finished, NewCheckpoint, Paused, Result, Stored, Task, Write
from minigraph.types import Interrupt


@dataclass(frozen=True, slots=True)
class Place:
    """Where a child graph asked: the task whose child it is, the child's checkpoint, and the way further down."""

    task: Task
    stored: Stored
    inner: Place | None = None


def forked(scope: Scope, stored: Stored, answers: dict[str, Any] | None = None) -> Position:
    """A branch from an older checkpoint: the same state and tasks under new ids.

    A plain replay runs every task again. With `answers` only the tasks whose questions are answered run again.
    """
    old = stored.checkpoint
    checkpoint = branch(scope, old, stored.revision + 1)
    renamed = dict(zip((task.id for task in old.due), checkpoint.due, strict=True))
    position = Position(checkpoint, {}, stored.revision, [NewCheckpoint(checkpoint, old)], stored=old)
    if answers:
        for result in stored.results:
            kept = _reanswered(scope, result, renamed[result.task_id].id, answers)
            position.results[kept.task_id] = kept
            position.unsaved_results.append((checkpoint.id, kept))
    return position


def branch(scope: Scope, old: Checkpoint, revision: int) -> Checkpoint:
    """A copy of a checkpoint as its child, to be stored as this revision: the same state and tasks under new ids."""
    new = stamp(scope, revision)
    return msgspec.structs.replace(
        old,
        id=new.id,
        parent_id=old.id,
        step=old.step + 1,
        source="fork",
        created=new.created,
        due=tuple(msgspec.structs.replace(t, id=task_id(new.id, i)) for i, t in enumerate(old.due)),
    )


def _reanswered(scope: Scope, result: Result, new_task: str, answers: dict[str, Any]) -> Result:
    asked = _renamed(scope.namespace, new_task, result.asked)
    index = _reopened(result, answers)
    if index is not None:
        given = (*result.answers[:index], *(answers[key] for key in _answered_again(result, answers)))
        return Paused(new_task, result.node, asked[: len(given)], given)
    if isinstance(result, Failed) and result.kept is not None:  # its routers alone run again
        kept = msgspec.structs.replace(result.kept, task_id=new_task)
        result = msgspec.structs.replace(result, kept=kept)
    return msgspec.structs.replace(result, task_id=new_task, asked=asked)


def _renamed(namespace: str, task: str, asked: tuple[Interrupt, ...]) -> tuple[Interrupt, ...]:
    """The questions of a task, as another task asks them."""
    return tuple(Interrupt(q.value, interrupt_id(namespace, task, i)) for i, q in enumerate(asked))


def _reopened(result: Result | None, answers: dict[str, Any]) -> int | None:
    """The index of the first question of a task that gets a new answer; None if there is none."""
    asked = () if result is None else result.asked
    return next((index for index, question in enumerate(asked) if question.id in answers), None)


def _answered_again(result: Result, answers: dict[str, Any]) -> list[str]:
    """The ids of the questions of a task that get new answers: the first one, and those right after it."""
    index = _reopened(result, answers)
    asked = () if index is None else result.asked[index:]
    return [question.id for question in takewhile(lambda question: question.id in answers, asked)]


def check_together(scope: Scope, stored: Stored, places: list[Place], answers: dict[str, Any]) -> None:
    """Raises UnknownInterruptError where new answers cannot be given in one call.

    After a new answer a task asks its later questions again, and runs child graphs that it called later anew.
    """
    below = {place.task.id for place in places}
    answered = [result for result in stored.results if result.task_id not in below]
    for place in places:
        while place.inner is not None:
            place = place.inner
        answered += place.stored.results
    taken = [key for result in answered for key in _answered_again(result, answers)]
    left = tuple(key for key in answers if key not in taken)
    if not left:
        return
    reason = "the child graph that asked has nothing stored there to go on from; use replay(config)"
    if taken:
        reason = (
            f"not in the same call as {', '.join(taken)}: several answers to one task are for questions that it asked"
            " one after another, itself or in one child graph. Answer the earlier question first, then what the branch"
            " asks"
        )
    raise UnknownInterruptError(
        f"thread {scope.thread_id!r}, checkpoint {stored.checkpoint.id!r}: {', '.join(left)} cannot be answered:"
        f" {reason}. Nothing was written",
        ids=left,
    )


def asked_below(
    scope: Scope, namespace: str, due: tuple[Task, ...], ids: Set[str]
) -> Generator[Effect, Any, list[Place]]:
    """The places below some tasks where child graphs asked any of the questions."""
    places: list[Place] = []
    for task in due:
        inside = child_namespace(namespace, task.node, task.id)
        history: list[Stored] = yield History(scope.thread_id, inside)
        for stored in history:
            if any(question.id in ids for result in stored.results for question in result.asked):
                places.append(Place(task, stored))
                break
            deeper = yield from asked_below(scope, inside, stored.checkpoint.due, ids)
            if deeper:
                places.append(Place(task, stored, deeper[0]))
                break
    return places


def questions_at(place: Place) -> set[str]:
    """The ids of the questions asked there."""
    if place.inner is not None:
        return questions_at(place.inner)
    return {question.id for result in place.stored.results for question in result.asked}


def first_asked_below(scope: Scope, namespace: str, due: tuple[Task, ...]) -> Generator[Effect, Any, list[Interrupt]]:
    """The first question of each task below some tasks, in the child graphs that these ran."""
    questions: list[Interrupt] = []
    for task in due:
        inside = child_namespace(namespace, task.node, task.id)
        history: list[Stored] = yield History(scope.thread_id, inside)
        for stored in reversed(history):
            found = [result.asked[0] for result in stored.results if result.asked]
            found += yield from first_asked_below(scope, inside, stored.checkpoint.due)
            if found:
                questions += found
                break
    return questions


def move_children(
    scope: Scope, position: Position, stored: Stored, places: list[Place], answers: dict[str, Any]
) -> Generator[Effect, Any, None]:
    """Gives the tasks of a branch copies of the child graphs that they called before the new answers.

    A child graph that asked one of the questions goes on from there with the new answer, any other one as it stands.
    """
    if not answers:
        return
    names: list[str] = yield Namespaces(scope.thread_id)
    renamed = dict(zip((task.id for task in stored.checkpoint.due), position.checkpoint.due, strict=True))
    move = _Move(scope, names, answers, {})
    yield from move.below(scope.namespace, scope.namespace, stored, renamed, position.results, places)
    position.unsaved_results = [(position.checkpoint.id, result) for result in position.results.values()]
    position.carried = move.carried(scope.namespace, stored, renamed, places)


@dataclass(frozen=True, slots=True)
class _Move:
    """Copies child graphs to the tasks of a branch. `ids` are their questions' new ids by the old ones."""

    scope: Scope
    names: list[str]
    answers: dict[str, Any]
    ids: dict[str, str]

    def below(
        self,
        namespace: str,
        new_namespace: str,
        stored: Stored,
        renamed: dict[str, Task],
        results: dict[str, Result],
        places: list[Place],
    ) -> Generator[Effect, Any, None]:
        """Copies the child graphs of the tasks of one checkpoint; `results` are those of the new tasks."""
        before = {result.task_id: result for result in stored.results}
        asked_in = {place.task.id: place for place in places}
        for task in stored.checkpoint.due:
            new, result, place = renamed[task.id], before.get(task.id), asked_in.get(task.id)
            limit = _reopened(result, self.answers)
            if place is None and limit is None and isinstance(result, Finished):
                continue  # it does not run again
            inside = child_namespace(namespace, task.node, task.id)
            new_inside = child_namespace(new_namespace, task.node, new.id)
            if place is not None:
                call = place.stored.checkpoint.owner
                yield from self._child(inside, new_inside, _called_by(new, call), place.stored, place.inner)
                results.pop(new.id, None)
                if result is not None and (own := questions_before(call)):
                    asked = _renamed(new_namespace, new.id, result.asked[:own])
                    results[new.id] = Paused(new.id, new.node, asked, result.answers[:own])
                continue
            for name in self.names:
                number = name.removeprefix(inside)
                if name == inside or (number.startswith(":#") and name != number and "|" not in number):
                    head: Stored | None = yield Load(self.scope.thread_id, name, None)
                    if head is not None and (limit is None or questions_before(head.checkpoint.owner) <= limit):
                        call = _called_by(new, head.checkpoint.owner)
                        yield from self._child(name, new_inside + number, call, head, None)
            kept = results.get(new.id)
            if isinstance(kept, Paused | Failed):
                inner = tuple(Interrupt(q.value, self.ids.get(q.id, q.id)) for q in kept.inner)
                given = tuple((self.ids.get(key, key), value) for key, value in kept.given)
                results[new.id] = msgspec.structs.replace(kept, inner=inner, given=given)

    def _child(
        self, namespace: str, new_namespace: str, owner: str, stored: Stored, inner: Place | None
    ) -> Generator[Effect, Any, None]:
        scope = msgspec.structs.replace(self.scope, namespace=new_namespace)
        old = stored.checkpoint
        checkpoint = msgspec.structs.replace(branch(scope, old, 1), parent_id=None, owner=owner)
        renamed = dict(zip((task.id for task in old.due), checkpoint.due, strict=True))
        results: dict[str, Result] = {}
        for result in stored.results:
            kept = _reanswered(scope, result, renamed[result.task_id].id, self.answers)
            results[kept.task_id] = kept
            self.ids.update((q.id, new.id) for q, new in zip(result.asked, kept.asked, strict=False))
        places = [] if inner is None else [inner]
        yield from self.below(namespace, new_namespace, stored, renamed, results, places)
        new_results = tuple((checkpoint.id, result) for result in results.values())
        carried = tuple(self.carried(namespace, stored, renamed, places))
        new = (NewCheckpoint(checkpoint, None),)
        place = (self.scope.thread_id, new_namespace, 0)
        yield Save(Write(*place, new, new_results, carried=carried, graph=stored.graph))

    def carried(self, namespace: str, stored: Stored, renamed: dict[str, Task], places: list[Place]) -> list[Carried]:
        """What the new tasks take over of the old ones' records: what began before a new answer."""
        results = {result.task_id: result for result in stored.results}
        below = {place.task.id for place in places}
        return [
            Carried(namespace, old, new.id, _reopened(results.get(old), self.answers), 0 if old in below else None)
            for old, new in renamed.items()
        ]


def _called_by(task: Task, call: str) -> str:
    """The same call of a child graph, by another task."""
    return f"{task.id}#{call.partition('#')[2]}"


def reopen_child(scope: Scope, namespace: str, checkpoint_id: str | None) -> Generator[Effect, Any, None]:
    """Makes a child graph go on from one of its own checkpoints: a branch there, and its parents' tasks due again.

    Raises UnknownCheckpointError for an unknown checkpoint, and where a parent has moved on from the child's task.
    """
    if checkpoint_id is not None:
        stored: Stored | None = yield Load(scope.thread_id, namespace, checkpoint_id)
        if stored is None:
            raise UnknownCheckpointError(
                f"thread {scope.thread_id!r}, namespace {namespace!r}: there is no checkpoint {checkpoint_id!r}"
            )
        position = forked(msgspec.structs.replace(scope, namespace=namespace), stored)
        yield Save(Write(scope.thread_id, namespace, position.revision, tuple(position.unsaved), graph=stored.graph))
    yield from reopen_parents(scope, namespace)


def reopen_parents(scope: Scope, namespace: str) -> Generator[Effect, Any, None]:
    """Makes the tasks that wait for a child graph's namespace run again, in every graph above it.

    Raises UnknownCheckpointError where a parent has moved on from the child's task.
    """
    while namespace:
        namespace, _, part = namespace.rpartition("|")
        node, _, task = part.partition(":")
        head: Stored | None = yield Load(scope.thread_id, namespace, None)
        due = () if head is None else tuple(t for t in head.checkpoint.due if t.node == node and task in (t.id, ""))
        if head is None or not due:
            raise UnknownCheckpointError(
                f"thread {scope.thread_id!r}: the parent of {part!r} has moved on and no longer waits for it;"
                " replay a checkpoint of the parent instead"
            )
        removed = tuple((head.checkpoint.id, t.id) for t in due)
        yield Save(Write(scope.thread_id, namespace, head.revision, removed=removed))
