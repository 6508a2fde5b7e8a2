"""Branches from older checkpoints: replays, new answers to old questions, and what they mean for child graphs."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Set
from dataclasses import dataclass
from typing import Any

import msgspec

from minigraph.context import Scope
from minigraph.effects import Effect, History, Load, Save
from minigraph.errors import UnknownCheckpointError
from minigraph.identifiers import child_namespace, interrupt_id, task_id
from minigraph.records import Carried, Checkpoint, NewCheckpoint, Paused, Result, Stored, Task, Write
from minigraph.run import Position, stamp
from minigraph.types import Interrupt


@dataclass(frozen=True, slots=True)
class Place:
    """Where a child graph asked: the task whose child it is, the child's checkpoint, and the way further down."""

    task: Task
    stored: Stored
    inner: Place | None = None


def forked(scope: Scope, stored: Stored, answers: dict[str, Any] | None = None) -> Position:
    """A branch from an older checkpoint: the same state and tasks under new ids.

    A plain replay runs every task again. With `answers` only the tasks whose questions are answered run again; what
    they recorded with once() before they asked goes with them.
    """
    old = stored.checkpoint
    checkpoint = branch(old)
    renamed = dict(zip((task.id for task in old.due), checkpoint.due, strict=True))
    position = Position(checkpoint, {}, stored.revision, [NewCheckpoint(checkpoint, old)], stored=old)
    if answers:
        for result in stored.results:
            kept = _reanswered(scope, result, renamed[result.task_id].id, answers)
            position.results[kept.task_id] = kept
            position.unsaved_results.append((checkpoint.id, kept))
        position.carried = _carried(scope.namespace, stored, renamed, answers)
    return position


def branch(old: Checkpoint) -> Checkpoint:
    """A copy of a checkpoint as its child: the same state and tasks under new ids."""
    new = stamp(old)
    return msgspec.structs.replace(
        old,
        id=new.id,
        parent_id=old.id,
        step=old.step + 1,
        source="fork",
        created_at=new.created_at,
        due=tuple(msgspec.structs.replace(t, id=task_id(new.id, t.node, t.index, t.is_send)) for t in old.due),
    )


def _reanswered(scope: Scope, result: Result, new_task: str, answers: dict[str, Any]) -> Result:
    asked = tuple(Interrupt(q.value, interrupt_id(scope.namespace, new_task, i)) for i, q in enumerate(result.asked))
    index = _reopened(result, answers)
    if index is not None:
        given = (*result.answers[:index], answers[result.asked[index].id])
        return Paused(new_task, result.node, asked[: index + 1], given)
    return msgspec.structs.replace(result, task_id=new_task, asked=asked)


def _carried(namespace: str, stored: Stored, renamed: dict[str, Task], answers: dict[str, Any]) -> list[Carried]:
    """What the tasks of a branch take over of the records of the old ones: what began before a new answer."""
    results = {result.task_id: result for result in stored.results}
    return [
        Carried(namespace, old, new.id, questions=_reopened(results.get(old), answers)) for old, new in renamed.items()
    ]


def _reopened(result: Result | None, answers: dict[str, Any]) -> int | None:
    """The index of the first question of a task that gets a new answer; None if there is none."""
    asked = () if result is None else result.asked
    return next((index for index, question in enumerate(asked) if question.id in answers), None)


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


def move_children(
    scope: Scope, position: Position, old: Checkpoint, places: list[Place], answers: dict[str, Any]
) -> Generator[Effect, Any, None]:
    """Gives the tasks of a branch copies of their child graphs as they were when they asked, with the new answers."""
    renamed = dict(zip((task.id for task in old.due), position.checkpoint.due, strict=True))
    for place in places:
        new_task = renamed[place.task.id]
        yield from _transplant(scope, scope.namespace, scope.namespace, new_task, place, answers)
        position.results.pop(new_task.id, None)
        position.unsaved_results = [r for r in position.unsaved_results if r[1].task_id != new_task.id]
        position.carried = [_before_child(c) if c.new_task_id == new_task.id else c for c in position.carried]


def _before_child(carried: Carried) -> Carried:
    """Only what a task recorded before it called its child graph."""
    return msgspec.structs.replace(carried, children=0)


def _transplant(
    scope: Scope, namespace: str, old_namespace: str, task: Task, place: Place, answers: dict[str, Any]
) -> Generator[Effect, Any, None]:
    inside = dataclasses.replace(scope, namespace=child_namespace(namespace, task.node, task.id))
    before = child_namespace(old_namespace, task.node, place.task.id)
    old = place.stored.checkpoint
    checkpoint = msgspec.structs.replace(branch(old), parent_id=None, owner=f"{task.id}#0")
    renamed = dict(zip((t.id for t in old.due), checkpoint.due, strict=True))
    skipped = place.inner.task.id if place.inner is not None else ""
    if place.inner is not None:
        yield from _transplant(scope, inside.namespace, before, renamed[skipped], place.inner, answers)
    results = tuple(
        (checkpoint.id, _reanswered(inside, result, renamed[result.task_id].id, answers))
        for result in place.stored.results
        if result.task_id != skipped
    )
    carried = tuple(
        _before_child(c) if c.task_id == skipped else c for c in _carried(before, place.stored, renamed, answers)
    )
    new = (NewCheckpoint(checkpoint, None),)
    yield Save(Write(scope.thread_id, inside.namespace, 0, new, results, carried=carried))


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
        position = forked(dataclasses.replace(scope, namespace=namespace), stored)
        yield Save(Write(scope.thread_id, namespace, position.revision, tuple(position.unsaved)))
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
