"""A write to rows: encoded before the transaction, placed among the rows that are there within it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from minigraph.checkpoint import rows
from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.reading import span_of
from minigraph.checkpoint.results import write_removal, write_result
from minigraph.checkpoint.rows import Changes, Draft, Numbers
from minigraph.checkpoint.tables import Row, Tables
from minigraph.checkpoint.walk import pack
from minigraph.errors import StorageError, ThreadConflictError
from minigraph.identifiers import mark_of, now, parts_of_checkpoint_id
from minigraph.records import Checkpoint, Result, Write

Places = Mapping[str, tuple[int, str]]
"""Place and node of tasks by their ids."""
_NONE: Final[list[Any]] = []


class Head(msgspec.Struct, frozen=True, gc=False):
    """Where a log stands: the revision of its last row, and that row's checkpoint or the one before it."""

    number: int
    revision: int
    at: int
    """The revision of the checkpoint."""
    checkpoint_id: str
    numbers: Numbers
    graph: str = ""
    """The fingerprint of the graph that wrote last."""


class Prepared(msgspec.Struct, gc=False):
    """A write made ready: a draft for each checkpoint, and the results that go into each row."""

    write: Write
    end: int
    """The revision after it."""
    drafts: list[Draft]
    results: dict[int, list[Any]]
    """For each row (0, 1, ...) those of the checkpoint before it; after the last one those of its own checkpoint."""
    older: str | None
    """The checkpoint that the write stores results of and does not bring."""


def prepare(codec: Codec, write: Write, head: Head | None) -> Prepared:
    """Encodes a write, which builds on a head if that is known.

    UnstorableValueError where a value has no exact stored form, StorageError where results belong to several
    checkpoints that it does not bring.
    """
    tiny = head.checkpoint_id if head is not None and head.numbers.state_bytes <= rows.TINY else ""
    drafts = []
    for new in write.checkpoints:
        drafts.append(rows.draft(codec, new, tiny))
    prepared = Prepared(write, write.revision + (len(drafts) or 1), drafts, {}, None)
    if write.results or write.removed:
        _place_results(codec, prepared)
    return prepared


def _place_results(codec: Codec, prepared: Prepared) -> None:
    write, results = prepared.write, prepared.results
    if len(write.results) == 1 and not write.removed:  # the usual step
        ((name, result),) = write.results
        offset, point, child = _place_of(prepared, name)
        known = None
        for place, task in enumerate(point.due if point is not None else ()):
            if task.id == result.task_id:
                known = place, task.node
        results[offset] = [write_result(codec, result, known, child)]
        return
    listed: dict[str, tuple[int, Places, Checkpoint | None]] = {}
    latest: dict[tuple[str, str], Result | None] = {(name, result.task_id): result for name, result in write.results}
    latest.update(dict.fromkeys(write.removed))
    for (name, task_id), given in latest.items():
        if name not in listed:
            offset, point, child = _place_of(prepared, name)
            due = () if point is None else point.due
            listed[name] = offset, {task.id: (place, task.node) for place, task in enumerate(due)}, child
        offset, places, child = listed[name]
        found = write_removal(task_id) if given is None else write_result(codec, given, places.get(task_id), child)
        results.setdefault(offset, []).append(found)


def _place_of(prepared: Prepared, name: str) -> tuple[int, Checkpoint | None, Checkpoint | None]:
    """Which row holds the results of a checkpoint; that checkpoint if it is at hand; the row's own if it came next."""
    new = prepared.write.checkpoints
    offset, point = 0, None
    for place, item in enumerate(new, 1):
        if item.checkpoint.id == name:
            offset, point = place, item.checkpoint
            break
    else:
        if prepared.older not in (None, name):
            raise StorageError(
                f"{_where(prepared.write)}: results of two older checkpoints, {prepared.older!r} and {name!r}"
            )
        prepared.older = name
        previous = new[0].previous if new else None
        if previous is not None and previous.id == name:
            point = previous
    child = new[offset].checkpoint if offset < len(new) else None
    return offset, point, child if child is not None and child.parent_id == name else None


def single_row(codec: Codec, prepared: Prepared, head: Head) -> tuple[Row, Head] | None:
    """The one row of a write that builds on the head alone, and the head it makes.

    None for any other write: that one needs a look at the rows that are there.
    """
    drafts, end, head_id = prepared.drafts, prepared.end, head.checkpoint_id
    if len(drafts) > 1 or prepared.write.carried or prepared.older not in (None, head_id):
        return None
    if not drafts:
        return _results_row(prepared), msgspec.structs.replace(head, revision=end)
    draft = drafts[0]
    point, previous = draft.new.checkpoint, draft.new.previous
    mark = mark_of(point.id, end)
    if mark is None or point.parent_id != head_id:
        return None
    found: Changes | None = None
    if previous is not None and not draft.difference.complete:
        if previous.id != head_id:
            return None
        found = rows.since(draft, head.numbers)
        if found is not None and found.numbers.links >= rows.SPAN:
            return None
    if found is None:
        found = rows.whole(codec, draft)
    back = end - head.at
    place = end, mark, back, back if found.builds else None
    results = prepared.results
    row = rows.row_of(draft, found, place, results.get(0, _NONE), results.get(1, _NONE))
    return row, Head(head.number, end, end, point.id, found.numbers, head.graph)


def store(codec: Codec, tables: Tables, number: int, newest: Row | None, prepared: Prepared) -> Head:
    """Adds the rows of a write to a log whose newest checkpoint is given; returns the head they make.

    Raises StorageError, or ThreadConflictError where the log is not the one that the writer has read.
    """
    write, end, older = prepared.write, prepared.end, prepared.older
    if older is not None and (newest is None or older != rows.id_of(newest)):
        raise StorageError(
            f"{_where(write)}: the checkpoint {older!r} neither is the head nor comes with the write, so no result of "
            "it can be stored"
        )
    if not prepared.drafts:
        if newest is None:
            raise StorageError(f"{_where(write)} has no checkpoint yet and the write brings none")
        _add(tables, number, _results_row(prepared))
        return Head(number, end, newest.revision, rows.id_of(newest), rows.read_body(newest).numbers)
    numbers = Numbers(0, 0, 0)
    for offset, draft in enumerate(prepared.drafts):
        revision = write.revision + 1 + offset
        mark, parent, base = _ancestors(tables, number, write, draft, revision)
        start, found = _changes(codec, tables, number, draft, base)
        numbers = found.numbers
        place = (revision, mark, revision - parent if parent else None, revision - start if found.builds else None)
        results = prepared.results.get(offset, _NONE)
        own = prepared.results.get(offset + 1, _NONE) if draft is prepared.drafts[-1] else _NONE
        _add(tables, number, rows.row_of(draft, found, place, results, own))
    return Head(number, end, end, prepared.drafts[-1].new.checkpoint.id, numbers)


def _ancestors(
    tables: Tables, number: int, write: Write, draft: Draft, revision: int
) -> tuple[bytes, int | None, Row | None]:
    """The random half of a draft's id, its parent's revision, and the row of the state that it changes."""
    point, previous = draft.new.checkpoint, draft.new.previous
    mark = mark_of(point.id, revision)
    if mark is None:
        raise StorageError(
            f"{_where(write)}: the checkpoint {point.id!r} would be stored as revision {revision}, which its id does "
            "not begin with (identifiers.new_checkpoint_id makes such ids)"
        )
    parent = _earlier(tables, number, write, point.parent_id, revision)
    base = None if previous is None else _earlier(tables, number, write, previous.id, revision)
    return mark, None if parent is None else parent.revision, base


def _changes(codec: Codec, tables: Tables, number: int, draft: Draft, base: Row | None) -> tuple[int, Changes]:
    """A draft as changes since a row, and that row's revision; or as the whole state."""
    found = None
    if base is not None and not draft.difference.complete:
        found = rows.since(draft, rows.read_body(base).numbers)
        if found is not None and found.numbers.links >= rows.SPAN:
            start, bodies = span_of(tables, number, base)
            return start, rows.spanning(bodies, draft, found)
    if base is None or found is None:
        return 0, rows.whole(codec, draft)
    return base.revision, found


def _earlier(tables: Tables, number: int, write: Write, checkpoint_id: str | None, revision: int) -> Row | None:
    """The row of an earlier checkpoint; None where there is none, or it was forgotten."""
    if checkpoint_id is None:
        return None
    parts = parts_of_checkpoint_id(checkpoint_id)
    if parts is None or not 0 < parts[0] < revision:
        raise StorageError(f"{_where(write)}: {checkpoint_id!r} is no earlier checkpoint than revision {revision}")
    row = next(iter(tables.rows(number, parts[0], parts[0])), None)
    if row is not None and row.mark != parts[1]:
        raise ThreadConflictError(
            f"{_where(write)}: the checkpoint {checkpoint_id!r} is not of this thread; another run deleted the thread "
            "meanwhile and began it anew, and nothing was stored"
        )
    return row


def _results_row(prepared: Prepared) -> Row:
    return Row(prepared.end, None, None, None, None, None, now(), None, pack(prepared.results.get(0, _NONE)))


def _add(tables: Tables, number: int, row: Row) -> None:
    if not tables.append(number, row):
        raise StorageError(f"revision {row.revision} could not be added: the rows of the thread have a gap")


def _where(write: Write) -> str:
    return f"thread {write.thread_id!r}, namespace {write.namespace!r}"
