"""The stored form of what tasks gave, without storing again what the state holds already.

A write of a finished task that became part of the next checkpoint is stored as a place there: the value of the key,
some items of its list, or some members of its dict.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any, Final

from msgspec import MsgspecError, Raw

from minigraph.checkpoint import delta
from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.rows import ResultRow, filled, trimmed
from minigraph.checkpoint.walk import pack
from minigraph.errors import DecodeError
from minigraph.records import Checkpoint, Failed, Finished, Paused, Result
from minigraph.types import Interrupt

Asked = tuple[Interrupt, ...]
_MISSING: Final = object()
_NEAR: Final = 64
"""How far from the end of a list a written item is looked for."""

INLINE, VALUE, SLICE, ITEM, MEMBERS = range(5)
"""How a result's write is stored: itself, or a place in the state of the checkpoint that it led to."""


def write_result(codec: Codec, result: Result, child: Checkpoint | None) -> tuple[bytes, bool]:
    """The stored form of a result, and whether it refers to the state of `child`, the checkpoint it led to."""
    encode = codec.encode
    if isinstance(result, Finished):
        writes = [_write(codec, key, value, child) for key, value in result.writes]
        refers = any(mode != INLINE for _, mode, _ in writes)
        if not (result.targets or result.cached or result.asked or result.answers) and result.follow_edges:
            return pack([0, result.node, writes] if writes else [0, result.node]), refers
        targets = [Raw(encode(target, key=result.node, at="$.goto")) for target in result.targets]
        rest = [not result.follow_edges, result.cached, _questions(codec, result.asked), _values(codec, result.answers)]
        return pack([0, result.node, *trimmed([writes, targets, *rest])]), refers
    shared = [
        _questions(codec, result.asked),
        _values(codec, result.answers),
        _questions(codec, result.inner),
        [[key, Raw(encode(value, key="answer"))] for key, value in result.given],
    ]
    if isinstance(result, Paused):
        return pack([1, result.node, *trimmed(shared)]), False
    text = [Raw(encode(result.error_type)), Raw(encode(result.message)), result.cancelled]
    done = None if result.kept is None else [result.kept.task_id, Raw(write_result(codec, result.kept, None)[0])]
    return pack([2, result.node, *text, *trimmed([*shared, done])]), False


def _questions(codec: Codec, asked: tuple[Interrupt, ...]) -> list[Any]:
    return [[Raw(codec.encode(question.value, key="interrupt")), question.id] for question in asked]


def _values(codec: Codec, values: tuple[Any, ...]) -> list[Raw]:
    return [Raw(codec.encode(value, key="answer")) for value in values]


def _write(codec: Codec, key: str, value: Any, child: Checkpoint | None) -> list[Any]:
    if child is not None and key in child.values and value is not None and type(value) not in (bool, int, float):
        place = _place(value, child.values[key])
        if place is not None:
            return [key, *place]
    return [key, INLINE, Raw(codec.encode(value, key=key))]


def _place(value: Any, state: Any) -> tuple[int, Any] | None:
    """Where a written value stands in the state it led to, compared by identity; None if it does not."""
    kind = type(value)
    if value is state:
        return VALUE, None
    if type(state) is list and state:
        if kind is list and value:
            width = len(value)
            starts = range(len(state) - width, max(-1, len(state) - width - _NEAR), -1)
            for start in starts:
                if state[start] is value[0] and all(map(is_, value, state[start : start + width])):
                    return SLICE, [start, start + width]
        for index in range(len(state) - 1, max(-1, len(state) - 1 - _NEAR), -1):
            if state[index] is value:
                return ITEM, index
    if kind is dict and type(state) is dict and value:
        names = list(value)
        if all(type(name) is str and state.get(name, _MISSING) is value[name] for name in names):
            return MEMBERS, names
    return None


def read_result(codec: Codec, row: ResultRow, child: Child | None) -> Result:
    """The result of a row; `child` is the checkpoint it led to, where it refers to that."""
    try:
        kind, node, *parts = codec.decode(row.body)
        if kind == 0:
            return _finished(row.task_id, node, parts, child)
        if kind == 1:
            return Paused(row.task_id, node, *_waiting(parts))
        if kind == 2:
            done = parts[-1] if len(parts) > 7 else None
            kept = None if done is None else _finished(done[0], done[1][1], done[1][2:], None)
            error_type, message, cancelled = parts[:3]
            return Failed(row.task_id, node, error_type, message, cancelled, *_waiting(parts[3:7]), kept)
    except (TypeError, ValueError, LookupError, AttributeError, MsgspecError) as error:
        raise DecodeError(f"the stored result of task {row.task_id!r} could not be read: {error}") from error
    raise DecodeError(f"the stored result of task {row.task_id!r} is of an unknown kind")


def _finished(task_id: str, node: str, parts: list[Any], child: Child | None) -> Finished:
    writes, targets, stop, cached, asked, answers = filled(parts, [[], [], False, False, [], []])
    return Finished(
        task_id,
        node,
        tuple((key, _read_write(key, mode, payload, child)) for key, mode, payload in writes),
        tuple(targets),
        not stop,
        bool(cached),
        _interrupts(asked),
        tuple(answers),
    )


def _interrupts(stored: list[Any]) -> tuple[Interrupt, ...]:
    return tuple(Interrupt(value, name) for value, name in stored)


def _waiting(parts: list[Any]) -> tuple[Asked, tuple[Any, ...], Asked, tuple[Any, ...]]:
    asked, answers, inner, given = filled(parts, [[], [], [], []])
    return _interrupts(asked), tuple(answers), _interrupts(inner), tuple(map(tuple, given))


def _read_write(key: str, mode: int, payload: Any, child: Child | None) -> Any:
    if mode == INLINE:
        return payload
    if child is None:
        raise ValueError("the checkpoint it led to is not named")
    return child.value(key, mode, payload)


class Child:
    """The checkpoint that finished tasks led to: what its own row changed, and only if needed its whole state."""

    def __init__(self, codec: Codec, changes: delta.Keys, state: Callable[[], dict[str, Any]]) -> None:
        self._codec, self._changes, self._read = codec, changes, state
        self._state: dict[str, Any] | None = None

    def value(self, key: str, mode: int, place: Any) -> Any:
        """A new object with the value at a place of a key."""
        operations = self._changes.get(key)
        found = _MISSING if operations is None else self._changed(operations, mode, place)
        if found is not _MISSING:
            return found
        if self._state is None:
            self._state = self._read()
        return self._codec.decode(self._codec.encode(_at(self._state[key], mode, place)))

    def _changed(self, operations: delta.Operations, mode: int, place: Any) -> Any:
        decode = self._codec.decode
        if (whole := delta.whole_value(operations)) is not None:
            return _at(decode(whole), mode, place)
        if mode in (ITEM, SLICE) and (tail := delta.list_items(operations)) is not None:
            kept, items = tail
            if mode == ITEM and place >= kept:
                return decode(items[place - kept])
            if mode == SLICE and place[0] >= kept:
                return [decode(item) for item in items[place[0] - kept : place[1] - kept]]
        if mode == MEMBERS and (pairs := delta.set_members(operations)) is not None:
            values = {decode(name): value for name, value in zip(pairs[::2], pairs[1::2], strict=True)}
            if all(name in values for name in place):
                return {name: decode(values[name]) for name in place}
        return _MISSING


def _at(held: Any, mode: int, place: Any) -> Any:
    if mode == VALUE:
        return held
    if mode == SLICE:
        return held[place[0] : place[1]]
    if mode == ITEM:
        return held[place]
    if mode == MEMBERS:
        return {name: held[name] for name in place}
    raise ValueError(f"there is no place of kind {mode}")
