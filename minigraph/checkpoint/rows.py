"""Checkpoints to rows and back, whatever a saver keeps rows in.

The body of a row that is a checkpoint is one MessagePack array (`Body`), cut after its last value that is not empty;
that of a row with results only is the array of those. Values of the state stand in it as `delta` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Raw
from msgspec.msgpack import Decoder

from minigraph.checkpoint import delta
from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.tables import Row
from minigraph.checkpoint.walk import pack
from minigraph.errors import DecodeError, UnstorableValueError
from minigraph.identifiers import joined_checkpoint_id, task_id
from minigraph.records import Ancestor, Checkpoint, NewCheckpoint, Task
from minigraph.types import UNSET

SPAN: Final = 32
"""Every so many checkpoints one row holds all changes since the last such row, so that a read takes few rows."""
ROW_COST: Final = 100
"""What reading or writing one more row costs, in bytes of state."""

TINY: Final = ROW_COST // 2
"""The bytes of a state of which changes would save less than another row costs: it is stored whole each time."""

WRITTEN: Final = "written"


ValueT = TypeVar("ValueT")


class Numbers(msgspec.Struct, frozen=True, gc=False):
    """What a read of a state takes, by which a saver decides when to store one whole.

    `links`: rows since the last whole or spanning one. `chain_bytes`: what must be read. `state_bytes`: about how much
    the state itself takes.
    """

    links: int
    chain_bytes: int
    state_bytes: int


class Body(msgspec.Struct, Generic[ValueT], array_like=True, gc=False):
    """What a row holds of a checkpoint besides its columns.

    `results` are those of the checkpoint before, in the order of the log; `own` those of this one. Both are still
    encoded. So are the values in `changes` and `written` (ValueT is Raw), or they are what they stand for (Any).
    """

    links: int = 0
    chain_bytes: int = 0
    state_bytes: int = 0
    due: list[str | list[Raw]] = []
    results: list[Raw] = []
    changes: dict[str, list[ValueT]] = {}
    ran: tuple[str, ...] = ()
    own: list[Raw] = []
    deferred: tuple[str, ...] = ()
    joins: dict[str, tuple[str, ...]] = {}
    owner: str = ""
    written: list[ValueT] = []

    @property
    def numbers(self) -> Numbers:
        """What a read of the state takes."""
        return Numbers(self.links, self.chain_bytes, self.state_bytes)


class _BodyWithValues(Body[Any], array_like=True, gc=False):
    """One whose values are what they stand for."""


class Draft(msgspec.Struct, gc=False):
    """A checkpoint made ready outside the transaction: all but its place in a chain of rows.

    `width` and `growth` are those of the difference and of `written` together.
    """

    new: NewCheckpoint
    metadata: str | None
    due: list[Any]
    difference: delta.Difference
    written: delta.Operations
    width: int
    growth: int


class Changes(msgspec.Struct, gc=False):
    """What a row says of the state, and the numbers that follow; `builds`: whether these are changes since a base."""

    numbers: Numbers
    keys: delta.Keys
    written: delta.Operations
    builds: bool


_body = Decoder(Body[Raw]).decode
_items = Decoder(list[Raw]).decode


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


def draft(codec: Codec, new: NewCheckpoint, tiny: str = "") -> Draft:
    """Encodes what a checkpoint changes; UnstorableValueError where that cannot be stored.

    `tiny` is the id of a checkpoint whose state takes no more than TINY bytes: what follows it is stored whole.
    """
    point, before = new.checkpoint, new.previous
    encode = codec.encode
    if before is None or before.id == tiny:
        found = delta.complete(encode, point.values)
    else:
        found = delta.difference(encode, before.values, point.values, new.kept)
    written: delta.Operations = []
    width, growth = found.width, found.growth
    earlier = () if before is None or found.complete else before.written
    if point.written is not earlier and (point.written or earlier):
        change = delta.list_change(encode, WRITTEN, earlier, point.written)
        if change is not None:
            written, width, growth = change[0], width + change[1], growth + change[2]
    due = _due(codec, point)
    return Draft(new, metadata_text(point.metadata) if point.metadata else None, due, found, written, width, growth)


def _due(codec: Codec, point: Checkpoint) -> list[str | list[Any]]:
    """The due tasks: of each its node; of a Send also index and payload; its id where another checkpoint listed it
    first."""
    found: list[str | list[Any]] = []
    place = 0
    for task in point.due:
        known = task.id == task_id(point.id, place)
        place += known
        is_send = task.payload is not UNSET
        if known and not is_send and not task.index:
            found.append(task.node)
            continue
        entry = [task.node, task.index] if known and is_send else [task.node, short(task.id), task.index]
        found.append([*entry, Raw(codec.encode(task.payload, key=task.node, at="$.arg"))] if is_send else entry)
    return found


def _tasks(codec: Codec, checkpoint_id: str, stored: list[str | list[Raw]]) -> list[Task]:
    found: list[Task] = []
    place = 0
    for entry in stored:
        if isinstance(entry, str):
            found.append(Task(task_id(checkpoint_id, place), entry))
            place += 1
            continue
        node, second, *rest = [codec.decode(part) for part in entry]
        text(node)
        if type(second) is int:
            found.append(Task(task_id(checkpoint_id, place), node, second, *rest))
            place += 1
        else:
            found.append(Task(long(second), node, *rest))
    return found


def short(name: str) -> str | bytes:
    """The stored form of an id: half as long where it consists of hexadecimal digits."""
    try:
        packed = bytes.fromhex(name)
    except ValueError:
        return name
    return packed if packed.hex() == name else name


def long(stored: object) -> str:
    """The id from its stored form; ValueError for what is none."""
    return stored.hex() if isinstance(stored, bytes) else text(stored)


def text(stored: object) -> str:
    """A name or a text that is stored as it is; ValueError for anything else."""
    if type(stored) is not str:
        raise ValueError(f"{stored!r:.50} stands where a name or a text is stored")
    return stored


def since(prepared: Draft, parent: Numbers) -> Changes | None:
    """A draft as changes since its parent; None where the state is better stored whole."""
    size = max(0, parent.state_bytes + prepared.growth)
    cost = parent.chain_bytes + prepared.width + ROW_COST
    if cost > 2 * (size + ROW_COST) or prepared.width + TINY >= size:
        return None
    return Changes(Numbers(parent.links + 1, cost, size), prepared.difference.keys, prepared.written, True)


def whole(codec: Codec, prepared: Draft) -> Changes:
    """A draft as the whole state."""
    point, found = prepared.new.checkpoint, prepared.difference
    if not found.complete:
        found = delta.complete(codec.encode, point.values, found.keys)
    size = found.growth
    written: delta.Operations = []
    if point.written:
        change = delta.list_change(codec.encode, WRITTEN, (), point.written)
        assert change is not None
        written, size = change[0], size + change[2]
    return Changes(Numbers(0, size + ROW_COST, size), found.keys, written, False)


def spanning(bodies: Sequence[Body[Raw]], prepared: Draft, last: Changes) -> Changes:
    """All changes since the first of these rows, which is a whole or spanning one; those after it lead to the draft."""
    keys = delta.compose([*[body.changes for body in bodies[1:]], prepared.difference.keys])
    written = _composed([*[body.written for body in bodies[1:]], prepared.written])
    cost = bodies[0].chain_bytes + len(pack(keys)) + ROW_COST
    return Changes(Numbers(0, cost, last.numbers.state_bytes), keys, written, True)


def _composed(parts: Iterable[delta.Operations]) -> delta.Operations:
    return delta.compose({WRITTEN: part} for part in parts if part).get(WRITTEN, [])


def row_of(
    prepared: Draft,
    found: Changes,
    place: tuple[int, bytes, int | None, int | None],
    results: list[Any],
    own: list[Any],
) -> Row:
    """The row of a draft; `place` holds revision, mark, parent and base."""
    point = prepared.new.checkpoint
    numbers = found.numbers
    parts = [numbers.links, numbers.chain_bytes, numbers.state_bytes, prepared.due, results, found.keys, point.ran]
    if own or point.deferred or point.joins or point.owner or found.written:
        parts += [own, point.deferred, point.joins, point.owner, found.written]
    body = pack(parts if parts[-1] else trimmed(parts))
    return Row(*place, point.step, point.source, point.created, prepared.metadata, body)


def made_whole(chain: Sequence[Row]) -> Row:
    """The last row of a chain with the whole state in it, so that it needs no other."""
    row, bodies = chain[-1], [read_body(link) for link in chain]
    keys, written = delta.compose(body.changes for body in bodies), _composed(body.written for body in bodies)
    size = bodies[-1].state_bytes
    items: list[Any] = [*_items(row.body)]
    items += [[], [], {}, (), [], (), {}, "", []][len(items) - 3 :]
    items[:3], items[5], items[11] = (0, size + ROW_COST, size), keys, written
    return msgspec.structs.replace(row, base=None, body=pack(trimmed(items)))


def filled(parts: list[Any], defaults: list[Any]) -> list[Any]:
    """A list with what was trimmed from its end."""
    return [*parts, *defaults[len(parts) :]]


def trimmed(parts: list[Any]) -> list[Any]:
    """A list without the empty values at its end; the list itself is cut."""
    while parts and not parts[-1]:
        parts.pop()
    return parts


def read_body(row: Row) -> Body[Raw]:
    """What a checkpoint's row holds, without reading values."""
    try:
        return _body(row.body)
    except (msgspec.MsgspecError, RecursionError, TypeError) as error:
        raise DecodeError(f"the stored checkpoint of revision {row.revision} could not be read: {error}") from error


def read_values(codec: Codec, row: Row) -> Body[Any]:
    """What a checkpoint's row holds, with the values of its changes as new objects."""
    try:
        body: Body[Any] = codec.decode(row.body, _BodyWithValues)
    except DecodeError as error:
        raise DecodeError(f"the stored checkpoint of revision {row.revision} could not be read: {error}") from error
    return body


def read_results(row: Row) -> list[Raw]:
    """What a row holds that is no checkpoint: results of the one before it, still encoded."""
    try:
        return _items(row.body)
    except (msgspec.MsgspecError, RecursionError, TypeError) as error:
        raise DecodeError(f"the stored results of revision {row.revision} could not be read: {error}") from error


class State(msgspec.Struct, frozen=True, gc=False):
    """The values of a checkpoint, and what its child graph hands back."""

    values: dict[str, Any]
    written: tuple[tuple[str, Any], ...]


NOTHING: Final = State({}, ())
"""What a row that holds a whole state builds on."""


def read_state(codec: Codec, bodies: Sequence[Body[Raw]]) -> State:
    """The state that a chain of rows leads to, made of new objects."""
    values = delta.apply(codec.decode, [body.changes for body in bodies])
    parts = [{WRITTEN: body.written} for body in bodies if body.written]
    return State(values, tuple(delta.apply(codec.decode, parts).get(WRITTEN, ())) if parts else ())


def next_state(before: State, body: Body[Any]) -> State:
    """The state after a row's changes; it shares with the one before what did not change."""
    values = delta.advance(before.values, body.changes)
    if not body.written:
        return State(values, before.written)
    written = delta.advance({WRITTEN: [*before.written]}, {WRITTEN: body.written})
    return State(values, tuple(written[WRITTEN]))


def id_of(row: Row) -> str:
    """The id of a row's checkpoint."""
    assert row.mark is not None
    return joined_checkpoint_id(row.revision, row.mark)


def read_due(codec: Codec, name: str, body: Body[Any]) -> tuple[Task, ...]:
    """The tasks that the checkpoint with this id lists."""
    try:
        return tuple(_tasks(codec, name, body.due))
    except (TypeError, ValueError, AttributeError, msgspec.MsgspecError) as error:
        raise DecodeError(f"the due tasks of the stored checkpoint {name!r} could not be read: {error}") from error


def read_checkpoint(codec: Codec, row: Row, body: Body[Any], state: State, parent_id: str | None) -> Checkpoint:
    """The checkpoint of a row."""
    name = id_of(row)
    step, source, created = row.step, row.source, row.created
    if step is None or source is None or created is None:
        raise DecodeError(f"the stored checkpoint {name!r} lacks its step, its source or its time")
    try:
        for key, _ in state.written:
            text(key)
        return Checkpoint(
            name,
            parent_id,
            step,
            source,
            created,
            state.values,
            read_due(codec, name, body) if body.due else (),
            body.deferred,
            body.joins,
            body.ran,
            state.written,
            body.owner,
            read_metadata(row.metadata) if row.metadata else {},
        )
    except (TypeError, ValueError, AttributeError, msgspec.MsgspecError) as error:
        raise DecodeError(f"the stored checkpoint {name!r} could not be read: {error}") from error


def read_ancestor(row: Row, graph: str) -> Ancestor:
    """What a row says of its step, without the state."""
    return Ancestor(id_of(row), row.step or 0, row.source or "", read_body(row).ran, graph)
