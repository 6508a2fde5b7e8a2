"""The stored form of what tasks gave, without storing again what the state holds already.

A result stands in the row of the next checkpoint, or of a write before it, as [task, ...]: a Finished goes on with its
writes, the others with what they are (PAUSED, FAILED, REMOVED). The task is its place among the due ones where that is
known when it is written, otherwise its id. A write that became part of the checkpoint of the same row is stored as a
place there: the value of the key, some items of its list, or some members of its dict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import is_
from typing import Any, Final

from msgspec import MsgspecError, Raw

from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.delta import stored
from minigraph.checkpoint.rows import filled, long, short, text, trimmed
from minigraph.errors import DecodeError
from minigraph.records import Checkpoint, Failed, Finished, Paused, Result, Task
from minigraph.types import Interrupt, Send

Asked = tuple[Interrupt, ...]
_MISSING: Final = object()
_SHORT: Final = frozenset({bool, int, float, type(None)})
"""What takes no more bytes than its place would."""
_NEAR: Final = 64
"""How far from the end of a list a written item is looked for."""

PAUSED, FAILED, REMOVED = 1, 2, 3
VALUE, SLICE, ITEM, MEMBERS = range(4)
"""How a write is stored as a place in the state of the checkpoint that it led to."""


def write_result(
    codec: Codec, result: Result, known: tuple[int, str] | None, child: Checkpoint | None = None
) -> list[Any]:
    """What is packed for a result.

    `known` are place and node of its task among the due ones of its checkpoint, if they are at hand; `child` is the
    checkpoint that it led to, if the same row holds it.
    """
    task: int | str | bytes
    node: str | None = result.node
    if known is None:
        task = short(result.task_id)
    else:
        task, listed = known
        if listed == node:
            node = None
    if isinstance(result, Finished):
        return [task, *_finished_parts(codec, result, node, child)]
    return [task, *_unfinished_parts(codec, result, node)]


def write_removal(task_id: str) -> list[Any]:
    """What is packed for "the result of this task is forgotten"."""
    return [short(task_id), REMOVED]


def _finished_parts(codec: Codec, result: Finished, node: str | None, child: Checkpoint | None) -> list[Any]:
    encode = codec.encode
    writes: list[list[Any]] = []
    for key, value in result.writes:
        place = None
        if child is not None and type(value) not in _SHORT and key in child.values:
            place = _place(value, child.values[key])
        writes.append([key, stored(encode, value, key)[0]] if place is None else [key, *place])
    parts: list[Any] = [writes, node] if node is not None or not writes or result.targets else [writes]
    if result.targets:
        parts.append([stored(encode, target, result.node, "$.goto")[0] for target in result.targets])
    if result.cached or result.asked or result.answers or not result.follow_edges:
        rest = [not result.follow_edges, result.cached, _questions(codec, result.asked), _values(codec, result.answers)]
        parts = [*filled(parts, [[], None, []]), *rest]
    return parts if parts[-1] else trimmed(parts)


def _unfinished_parts(codec: Codec, result: Paused | Failed, node: str | None) -> list[Any]:
    encode = codec.encode
    shared = [
        _questions(codec, result.asked),
        _values(codec, result.answers),
        _questions(codec, result.inner),
        [[key, Raw(encode(value, key="answer"))] for key, value in result.given],
    ]
    if isinstance(result, Paused):
        return [PAUSED, *trimmed([node, *shared])]
    said = [Raw(encode(result.error_type)), Raw(encode(result.message)), result.cancelled]
    kept = None if result.kept is None else write_result(codec, result.kept, None)
    return [FAILED, node, *said, *trimmed([*shared, kept])]


def _questions(codec: Codec, asked: tuple[Interrupt, ...]) -> list[Any]:
    return [[Raw(codec.encode(question.value, key="interrupt")), short(question.id)] for question in asked]


def _values(codec: Codec, values: tuple[Any, ...]) -> list[Raw]:
    return [Raw(codec.encode(value, key="answer")) for value in values]


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


def read_results(
    codec: Codec,
    into: dict[str, Result],
    stored: Sequence[Raw],
    due: Sequence[Task],
    state: Callable[[], Mapping[str, Any]] | None = None,
) -> None:
    """Adds the results that a row holds to those that rows before it gave, by task.

    `state` gives the values of the row's checkpoint, to which the results may refer.
    """
    for item in stored:
        task: Any = None
        try:
            task, *parts = codec.decode(item)
            task_id, node = (due[task].id, due[task].node) if isinstance(task, int) else (long(task), "")
            if parts and parts[0] == REMOVED:
                into.pop(task_id, None)
            else:
                into[task_id] = _read(task_id, node, parts, state)
        except DecodeError:
            raise
        except (TypeError, ValueError, LookupError, AttributeError, MsgspecError) as error:
            raise DecodeError(f"the stored result of task {task!r} could not be read: {error}") from error


def _read(task_id: str, node: str, parts: list[Any], state: Callable[[], Mapping[str, Any]] | None) -> Result:
    if not parts or type(parts[0]) is list:
        return _finished(task_id, node, parts, state)
    kind, name, *rest = filled(parts, [None, None])
    if kind == PAUSED:
        return Paused(task_id, text(name or node), *_waiting(rest))
    if kind == FAILED:
        error_type, message, cancelled = rest[:3]
        done = rest[7] if len(rest) > 7 else None
        kept = None if done is None else _finished(long(done[0]), "", done[1:], None)
        waiting = _waiting(rest[3:7])
        return Failed(task_id, text(name or node), text(error_type), text(message), bool(cancelled), *waiting, kept)
    raise ValueError(f"there is no result of kind {kind}")


def _finished(task_id: str, node: str, parts: list[Any], state: Callable[[], Mapping[str, Any]] | None) -> Finished:
    writes: list[tuple[str, Any]] = []
    for write in parts[0] if parts else ():
        key, value = write if len(write) == 2 else (write[0], _refer(state, *write))
        writes.append((text(key), value))
    if len(parts) < 3:
        return Finished(task_id, text((parts[1] if len(parts) > 1 else None) or node), tuple(writes))
    _, name, targets, stop, cached, asked, answers = filled(parts, [[], None, [], False, False, [], []])
    return Finished(
        task_id,
        text(name or node),
        tuple(writes),
        tuple([target if type(target) is Send else text(target) for target in targets]),
        not stop,
        bool(cached),
        _interrupts(asked),
        tuple(answers),
    )


def _interrupts(stored: list[Any]) -> tuple[Interrupt, ...]:
    return tuple([Interrupt(value, long(name)) for value, name in stored])


def _waiting(parts: list[Any]) -> tuple[Asked, tuple[Any, ...], Asked, tuple[Any, ...]]:
    asked, answers, inner, given = filled(parts, [[], [], [], []])
    return (
        _interrupts(asked),
        tuple(answers),
        _interrupts(inner),
        tuple([(text(name), answer) for name, answer in given]),
    )


def _refer(state: Callable[[], Mapping[str, Any]] | None, key: str, mode: int, place: Any) -> Any:
    """The value at a place of a key; a list or dict is a new one."""
    if state is None:
        raise ValueError("the checkpoint it led to is not named")
    held = state()[key]
    if mode == VALUE:
        return held.copy() if type(held) in (list, dict, set) else held
    if mode == SLICE:
        return held[place[0] : place[1]]
    if mode == ITEM:
        return held[place]
    if mode == MEMBERS:
        return {name: held[name] for name in place}
    raise ValueError(f"there is no place of kind {mode}")
