"""Checkpoints to rows and back, whatever a saver keeps rows in."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.msgpack import Decoder

from minigraph.checkpoint import delta
from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.walk import pack
from minigraph.errors import DecodeError, UnstorableValueError
from minigraph.records import Ancestor, Checkpoint, NewCheckpoint, Task
from minigraph.types import UNSET

SPAN: Final = 32
"""Every so many checkpoints one row holds all changes since the last such row, so that a read takes few rows."""
ROW_COST: Final = 100
"""What reading or writing one more row costs, in bytes of state."""

WRITTEN: Final = "written"


class CheckpointRow(msgspec.Struct, frozen=True):
    """One stored checkpoint. Its state is `changes` applied to the state of the row `base` (None: complete).

    `rows` and `chain_bytes`: how many rows, and how many bytes, a read of the state takes. `links`: rows since the
    last complete or spanning one. `state_bytes`: about how much the state itself takes.
    """

    sequence: int
    thread_id: str
    namespace: str
    checkpoint_id: str
    parent_id: str | None
    step: int
    source: str
    created_at: str
    metadata: str | None
    body: bytes
    changes: bytes
    base: int | None
    rows: int
    links: int
    chain_bytes: int
    state_bytes: int


class AncestorRow(msgspec.Struct, frozen=True):
    """What a row says of its step, without the state."""

    checkpoint_id: str
    step: int
    source: str
    body: bytes


class Chain(msgspec.Struct, frozen=True):
    """Where a state that is to be changed is stored: the numbers of its row."""

    sequence: int
    links: int
    rows: int
    chain_bytes: int
    state_bytes: int


class ResultRow(msgspec.Struct, frozen=True):
    """One stored result. `sequence` is its checkpoint's, `child` that of the one it led to, if it refers to that."""

    sequence: int
    task_id: str
    child: int | None
    body: bytes


class Draft(msgspec.Struct, frozen=True):
    """A checkpoint made ready outside the transaction: all but its place in a chain of rows."""

    new: NewCheckpoint
    body: bytes
    metadata: str | None
    difference: delta.Difference
    written: delta.Keys
    written_growth: int


_items = Decoder(list[Raw]).decode
_names = Decoder(tuple[str, ...]).decode
_changes = Decoder(tuple[dict[str, list[Raw]], dict[str, list[Raw]]]).decode


def metadata_text(metadata: dict[str, Any]) -> str | None:
    """Metadata as JSON text, None if there is none; UnstorableValueError for what JSON would change."""
    if not metadata:
        return None
    _check_json(metadata, "$")
    return msgspec.json.encode(metadata).decode()


def _check_json(value: Any, path: str) -> None:
    kind = type(value)
    if kind is dict:
        for name, part in value.items():
            if type(name) is not str:
                _refuse(name, f"{path} (a name)")
            _check_json(name, path)
            _check_json(part, f"{path}.{name}")
    elif kind is list:
        for index, part in enumerate(value):
            _check_json(part, f"{path}[{index}]")
    elif kind is str:
        try:
            value.encode()
        except UnicodeEncodeError:
            _refuse(value, path)
    elif not (
        kind in (bool, type(None))
        or (kind is int and -(2**63) <= value < 2**63)
        or (kind is float and value - value == 0)
    ):
        _refuse(value, path)


def _refuse(value: object, path: str) -> None:
    name = type(value).__qualname__
    raise UnstorableValueError(
        f"metadata at {path}: a value of type {name} cannot be stored; metadata may hold None, bool, int (64 bits), "
        "finite float, str, list and dict with str keys",
        key="metadata",
        path=path,
        type_name=name,
    )


def read_metadata(text: str | None) -> dict[str, Any]:
    """Metadata from its JSON text."""
    return msgspec.json.decode(text, type=dict[str, Any]) if text else {}


def draft(codec: Codec, new: NewCheckpoint) -> Draft:
    """Encodes what a checkpoint changes; UnstorableValueError where that cannot be stored."""
    point, before = new.checkpoint, new.previous
    encode = codec.encode
    due = [
        [task.id, task.node, task.index, Raw(encode(task.payload, key=task.node, at="$.arg"))]
        if task.is_send
        else ([task.id, task.node, task.index] if task.index else [task.id, task.node])
        for task in point.due
    ]
    body = pack(trimmed([due, point.ran, point.deferred, point.joins, point.owner]))
    if before is None:
        found = delta.complete(encode, point.values)
    else:
        found = delta.difference(encode, before.values, point.values, new.kept)
    written: delta.Keys = {}
    growth = 0
    earlier = () if before is None or found.complete else before.written
    if point.written is not earlier and (point.written or earlier):
        change = delta.list_change(encode, WRITTEN, earlier, point.written)
        if change is not None:
            written[WRITTEN], growth = change
    return Draft(new, body, metadata_text(point.metadata), found, written, growth)


def filled(parts: list[Any], defaults: list[Any]) -> list[Any]:
    """A list with what was trimmed from its end."""
    return [*parts, *defaults[len(parts) :]]


def trimmed(parts: list[Any]) -> list[Any]:
    """A list without the empty values at its end; the list itself is cut."""
    while parts and not parts[-1] and parts[-1] is not UNSET:
        parts.pop()
    return parts


def whole(codec: Codec, prepared: Draft) -> tuple[bytes, int]:
    """The complete state of a draft, and its size in bytes."""
    point, found = prepared.new.checkpoint, prepared.difference
    if not found.complete:
        found = delta.complete(codec.encode, point.values, found.keys)
    size, written = found.growth, {}
    if point.written:
        change = delta.list_change(codec.encode, WRITTEN, (), point.written)
        assert change is not None
        written[WRITTEN], growth = change
        size += growth
    return pack([found.keys, written]), size


def join_changes(blobs: list[bytes]) -> bytes:
    """One change that does what several do, oldest first."""
    parts = [read_changes(blob) for blob in blobs]
    return pack([delta.compose(values for values, _ in parts), delta.compose(written for _, written in parts)])


def read_changes(blob: bytes) -> tuple[delta.Keys, delta.Keys]:
    """The changes of the state and of `written`, payloads still encoded."""
    try:
        return _changes(blob)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DecodeError(f"the stored changes of a checkpoint could not be read: {error}") from error


def read_due(codec: Codec, row: CheckpointRow) -> list[str]:
    """The ids of the tasks that a checkpoint lists, without its state."""
    try:
        (due,) = filled(codec.decode(row.body)[:1], [[]])
        return [str(task[0]) for task in due]
    except (TypeError, ValueError, LookupError, AttributeError, msgspec.MsgspecError) as error:
        raise DecodeError(f"the stored checkpoint {row.checkpoint_id!r} could not be read: {error}") from error


def read_checkpoint(codec: Codec, row: CheckpointRow, blobs: list[bytes]) -> Checkpoint:
    """The checkpoint of a row; `blobs` are the changes of its chain, the complete one first."""
    parts = [read_changes(blob) for blob in blobs]
    values = delta.apply(codec.decode, (keys for keys, _ in parts))
    written = delta.apply(codec.decode, (keys for _, keys in parts)).get(WRITTEN, ())
    try:
        stored = codec.decode(row.body)
        due, ran, deferred, joins, owner = filled(stored, [[], [], [], {}, ""])
        return Checkpoint(
            row.checkpoint_id,
            row.parent_id,
            row.step,
            row.source,
            row.created_at,
            values,
            tuple(Task(*fields) for fields in due),
            tuple(deferred),
            {edge: tuple(seen) for edge, seen in joins.items()},
            tuple(ran),
            tuple(written),
            owner,
            read_metadata(row.metadata),
        )
    except (TypeError, ValueError, AttributeError, msgspec.MsgspecError) as error:
        raise DecodeError(f"the stored checkpoint {row.checkpoint_id!r} could not be read: {error}") from error


def read_ancestor(row: AncestorRow) -> Ancestor:
    """The step of a row; the tasks that were due after it are passed over unread."""
    try:
        parts = _items(row.body)
        ran = _names(parts[1]) if len(parts) > 1 else ()
    except msgspec.MsgspecError as error:
        raise DecodeError(f"the stored checkpoint {row.checkpoint_id!r} could not be read: {error}") from error
    return Ancestor(row.checkpoint_id, row.step, row.source, ran)
