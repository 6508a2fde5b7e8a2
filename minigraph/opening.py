"""How a run begins: the caller's input and the stored thread become the position the steps go on from."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from minigraph.branching import Place, asked_below, check_together, forked, move_children, questions_at
from minigraph.channels import copied
from minigraph.context import Scope
from minigraph.effects import Effect, Load, Save
from minigraph.errors import (
    AmbiguousAnswerError,
    EmptyInputError,
    InvalidUpdateError,
    UnknownCheckpointError,
    UnknownInterruptError,
)
from minigraph.identifiers import looks_like_answers, same_call, task_id
from minigraph.migration import Migrated, check_fits, settled
from minigraph.position import Position, stamp, write_of
from minigraph.records import Checkpoint, Failed, Finished, NewCheckpoint, Paused, Stored, Task
from minigraph.step import Stamp, merge
from minigraph.structure import Graph
from minigraph.types import START, UNSET, Command, Interrupt
from minigraph.updates import read_update

REPLAY: Final = object()
"""Given as input: run again from the checkpoint in the config, as a branch, even at the head."""


@dataclass(frozen=True, slots=True)
class AtHead:
    """Given as input: go on with `command` (None: without an answer) at the head, and nowhere else."""

    command: Command[Any] | None


Opening = Generator[Effect, Any, tuple[Position, bool]]
"""Ends with the position, and whether it begins with new input (so that breakpoints before the first node hold)."""


def open_run(scope: Scope, given: Any, checkpoint_id: str | None) -> Opening:
    """Turns the input of a run into a position.

    None resumes (an older checkpoint: replays it as a branch), a Command answers, updates or goes somewhere, anything
    else is new input. Raises EmptyInputError, UnknownCheckpointError, UnknownInterruptError or AmbiguousAnswerError.
    """
    if isinstance(given, AtHead):
        stored = yield from check_head(scope, checkpoint_id)
        given = given.command
    else:
        stored = yield from load(scope, checkpoint_id)
    if scope.owner:
        if stored is not None and same_call(stored.checkpoint.owner) == same_call(scope.owner):
            check_fits(scope, stored, goes_on=True)
            position = yield from _answered(scope, resumed(scope, stored), dict(scope.given))
            return position, False
        check_fits(scope, stored, goes_on=False)
        return input_position(scope, stored, given), True
    is_input = given is not None and given is not REPLAY and not isinstance(given, Command)
    check_fits(scope, stored, goes_on=not is_input)
    if isinstance(given, Command):
        return (yield from _command(scope, stored, given))
    if is_input:
        return input_position(scope, stored, given), True
    if stored is None:
        raise EmptyInputError("there is no input, and nothing is stored to go on from; pass the input as a dict")
    at_head = stored.checkpoint.id == stored.head_id and given is not REPLAY
    if at_head or not stored.checkpoint.due:
        return resumed(scope, stored), False
    return forked(scope, stored), False


def check_head(scope: Scope, checkpoint_id: str | None) -> Generator[Effect, Any, Stored | None]:
    """The stored head. Raises ValueError where another checkpoint was named, UnknownCheckpointError for an unknown."""
    stored = yield from load(scope, checkpoint_id)
    if stored is not None and stored.checkpoint.id != stored.head_id:
        raise ValueError(
            f"thread {scope.thread_id!r}: resume() goes on at the head, which is {stored.head_id!r}, and the config"
            f" names the older checkpoint {checkpoint_id!r}. Leave out checkpoint_id to go on at the head; to branch"
            " off the older one, use answer(config, answer) or replay(config)"
        )
    return stored


def load(scope: Scope, checkpoint_id: str | None) -> Generator[Effect, Any, Stored | None]:
    """The stored checkpoint a run starts from, with keys that the state gained since. None for a new thread.

    Raises UnknownCheckpointError where an id was given that is not stored.
    """
    if scope.saver is None:
        return None
    stored: Stored | None = yield Load(scope.thread_id, scope.namespace, checkpoint_id)
    if stored is None:
        if checkpoint_id is not None:
            raise UnknownCheckpointError(
                f"thread {scope.thread_id!r}, namespace {scope.namespace!r}: there is no checkpoint {checkpoint_id!r};"
                " get_state_history(config) lists those there are"
            )
        return None
    return fill(scope.graph, stored)


def fill(graph: Graph, stored: Stored) -> Stored:
    """The stored checkpoint with initial values for keys that were declared after it was written."""
    values = stored.checkpoint.values
    if graph.channels.keys() <= values.keys():
        return stored
    missing = {key: value for key, value in graph.initial_values().items() if key not in values}
    if not missing:
        return stored
    checkpoint = msgspec.structs.replace(stored.checkpoint, values={**values, **missing})
    return msgspec.structs.replace(stored, checkpoint=checkpoint)


def position_of(stored: Stored) -> Position:
    """The position at a stored checkpoint."""
    results = {result.task_id: result for result in stored.results}
    return Position(stored.checkpoint, results, stored.revision, stored=stored.checkpoint)


def resumed(scope: Scope, stored: Stored) -> Position:
    """The position at the stored head; one that was read under new names is first stored under them, as an update."""
    position = position_of(stored)
    if isinstance(stored.checkpoint, Migrated) and stored.checkpoint.due:
        move(position, settled(stored.checkpoint, stamp(scope, position.next_revision(scope))))
    return position


def input_position(scope: Scope, stored: Stored | None, given: Any) -> Position:
    """The position of new input: a checkpoint whose one task is to apply it. Tasks of the old one are dropped."""
    graph = scope.graph
    read_update(graph, START, given)  # refused input leaves a stored thread as it was
    base = None if stored is None else stored.checkpoint
    revision = 0 if stored is None else stored.revision
    new = stamp(scope, revision + 1)
    full = {join.name for join in graph.joins if base and len(base.joins.get(join.name, ())) == len(join.sources)}
    checkpoint = Checkpoint(
        id=new.id,
        parent_id=None if base is None else base.id,
        step=-1 if base is None else base.step + 1,
        source="input",
        created=new.created,
        values=graph.initial_values() if base is None else base.values,
        due=(Task(task_id(new.id, 0), START, 0, _own(given)),),
        joins={} if base is None else {name: seen for name, seen in base.joins.items() if name not in full},
        ran=() if base is None else base.ran,
        owner=scope.owner,
        metadata=metadata_from(scope),
    )
    return Position(checkpoint, {}, revision, [NewCheckpoint(checkpoint, base)], stored=base)


def _own(given: Any) -> Any:
    """Input with its lists, dicts and sets copied, so that the caller's own are never touched."""
    return dataclasses.replace(given, update=copied(given.update)) if isinstance(given, Command) else copied(given)


def edited(
    graph: Graph,
    base: Checkpoint,
    finished: Sequence[tuple[Task, Finished]],
    kept: Sequence[Task],
    new: Stamp,
    *,
    drop_deferred: bool = False,
    in_order: bool = False,
) -> Checkpoint:
    """The "update" checkpoint that an edit of a stored state makes; `in_order`: the edits keep their given order."""
    if drop_deferred:
        base = msgspec.structs.replace(base, deferred=())
    return merge(graph, base, finished, new, source="update", kept=kept, in_order=in_order)


def metadata_from(scope: Scope) -> dict[str, Any]:
    """What the caller wants stored with every checkpoint: scalar entries of metadata and of configurable."""
    configurable = {
        key: value
        for key, value in scope.config.get("configurable", {}).items()
        if key not in ("thread_id", "checkpoint_id", "checkpoint_ns") and not key.startswith("__")
    }
    merged = {**configurable, **(scope.config.get("metadata") or {})}
    return {key: value for key, value in merged.items() if isinstance(value, str | int | float | bool)}


def _command(scope: Scope, stored: Stored | None, command: Command[Any]) -> Opening:
    if command.graph is not None:
        raise InvalidUpdateError(
            f"Command(graph={command.graph!r}) as input: a root graph has no parent graph", node=START
        )
    edits = command.update is not None or (command.goto != () and command.goto != [])
    if command.resume is UNSET and not edits:
        raise EmptyInputError("Command() is empty; give it resume=, update= or goto=")
    if command.resume is not UNSET and scope.saver is None:
        raise RuntimeError(
            "Command(resume=...) needs a checkpointer: compile(checkpointer=...), since an answer goes to a stored run"
        )
    if stored is None:
        if command.resume is not UNSET:
            raise UnknownInterruptError(f"thread {scope.thread_id!r} never ran, so no question of it is open")
        return input_position(scope, None, command), True
    at_head = stored.checkpoint.id == stored.head_id
    position = resumed(scope, stored) if at_head else position_of(stored)
    answers: dict[str, Any] = {}
    places: list[Place] = []
    if command.resume is not UNSET:
        if not at_head and looks_like_answers(command.resume):
            places = yield from asked_below(scope, scope.namespace, stored.checkpoint.due, command.resume.keys())
        below = {key for place in places for key in questions_at(place)}
        answers = match_answers(scope, stored, command.resume, closed_too=not at_head, below=below)
    if not at_head:
        check_together(scope, stored, places, answers)
        position = forked(scope, stored, answers)
        yield from move_children(scope, position, stored, places, answers)
        answers = {}
    if edits:
        _apply_command(scope, position, command)
    if answers:
        position = yield from _answered(scope, position, answers)
    return position, False


def _apply_command(scope: Scope, position: Position, command: Command[Any]) -> None:
    """Applies update and goto of a Command given as input, once, as a checkpoint of its own. Pending tasks stay due."""
    old = position.checkpoint
    update = read_update(scope.graph, START, command)
    task = Task("", START)
    result = Finished("", START, tuple(update.writes), tuple(update.targets), follow_edges=False)
    new = edited(scope.graph, old, [(task, result)], old.due, stamp(scope, position.next_revision(scope)))
    move(position, new)


def move(position: Position, new: Checkpoint) -> None:
    """Makes an edited checkpoint the newest one; results of tasks that stay due go with it."""
    position.unsaved.append(NewCheckpoint(new, position.checkpoint))
    position.checkpoint = new
    position.results = {task.id: position.results[task.id] for task in new.due if task.id in position.results}
    position.unsaved_results = [(new.id, result) for result in position.results.values()]


def match_answers(
    scope: Scope, stored: Stored, resume: Any, *, closed_too: bool, below: Set[str] = frozenset()
) -> dict[str, Any]:
    """Answers by interrupt id. A plain answer belongs to the one open question there is.

    `closed_too` (at an older checkpoint) lets an answered question be answered again, on a branch; `below` are the ids
    of child graphs' questions there. Raises
    UnknownInterruptError for ids of no such question and AmbiguousAnswerError for one answer to several.
    """
    questions: dict[str, Interrupt] = {}
    for result in stored.results:
        if isinstance(result, Paused):
            questions |= {q.id: q for q in result.open}
        if closed_too:
            questions |= {q.id: q for q in result.asked}
    thread = f"thread {scope.thread_id!r}"
    if looks_like_answers(resume):
        unknown = tuple(key for key in resume if key not in questions and key not in below)
        if unknown:
            raise UnknownInterruptError(
                f"{thread}: no open question has id {', '.join(unknown)}; open are"
                f" {', '.join(questions) or 'none'}. It may have been answered already; nothing was written"
                + after_failure(stored),
                ids=unknown,
            )
        return dict(resume)
    first_asked = {r.asked[0].id for r in stored.results if r.asked} if closed_too else set()
    candidates = {
        key: q for key, q in questions.items() if not closed_too or key in first_asked or key not in _closed(stored)
    }
    if len(candidates) > 1:
        raise AmbiguousAnswerError(
            f"{thread}: one answer for {len(candidates)} open questions; say which with Command(resume={{id: answer}})."
            f" Open are {', '.join(f'{key} ({q.value!r})' for key, q in candidates.items())}",
            ids=tuple(candidates),
        )
    if candidates:
        return {next(iter(candidates)): resume}
    if stored.checkpoint.due and not any(isinstance(r, Paused | Failed) for r in stored.results):
        return {}  # a static breakpoint: going on needs no answer
    raise UnknownInterruptError(
        f"{thread}: no question is open; it may have been answered already. Nothing was written{after_failure(stored)}"
    )


def after_failure(stored: Stored) -> str:
    """What to do instead of answering where a step failed at the head; nothing to say elsewhere."""
    if stored.checkpoint.id != stored.head_id or not any(isinstance(r, Failed) for r in stored.results):
        return ""
    return (
        ". The step failed: resume(config) runs it again with the answers it has. To correct an answer, make a branch:"
        " failed = graph.get_state(config).config, then graph.fork(failed), then"
        " graph.answer(failed, answer, question=...)"
    )


def _closed(stored: Stored) -> set[str]:
    return {q.id for r in stored.results for q in r.asked[: len(r.answers)]}


def _answered(scope: Scope, position: Position, answers: dict[str, Any]) -> Generator[Effect, Any, Position]:
    """Binds answers to their tasks and stores that at once, so that each is accepted exactly once."""
    for result in list(position.results.values()):
        if not isinstance(result, Paused):
            continue
        own = result.asked[len(result.answers)].id if len(result.asked) > len(result.answers) else None
        inner = {q.id for q in result.inner}
        given = tuple((key, value) for key, value in answers.items() if key in inner)
        changed = result
        if own in answers:
            changed = msgspec.structs.replace(changed, answers=(*result.answers, answers[own]))
        if given:
            changed = msgspec.structs.replace(changed, given=(*result.given, *given))
        if changed is not result:
            position.results[result.task_id] = changed
            position.unsaved_results = [r for r in position.unsaved_results if r[1].task_id != result.task_id]
            position.unsaved_results.append((position.checkpoint.id, changed))
    if position.unsaved_results and scope.saver is not None and scope.durability != "exit":
        write = write_of(scope, position, position.unsaved, position.unsaved_results)
        yield Save(write)
        position.revision = write.end
        position.unsaved, position.unsaved_results, position.carried = [], [], []
        position.stored = position.checkpoint
    return position
