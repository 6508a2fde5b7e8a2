"""What changed between two states, as values: computed, applied and composed, without any I/O.

A delta maps each changed key to a list of operations, each a code followed by its payload:

    WHOLE  value                        the key now holds this value
    TAIL   [kept, [item, ...]]          the list keeps its first `kept` items and goes on with these
    PATCH  [[key, ...], [key, value, ...]]   the dict loses these keys, then these are set in order
    GONE   nil                          the key is no longer there

Values are compared by identity first and by their stored bytes otherwise, so `1`, `True` and `1.0` differ. While a
delta is being made, a plain scalar stands in it as it is and everything else as its stored bytes (Raw).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import is_, itemgetter
from typing import Any, Final, Protocol

from msgspec import MsgspecError, Raw, Struct
from msgspec.msgpack import Decoder

from minigraph.checkpoint.walk import pack
from minigraph.errors import DecodeError

WHOLE: Final = 0
TAIL: Final = 1
PATCH: Final = 2
GONE: Final = 3

Operations = list[Any]
"""Codes and payloads in turn: [WHOLE, payload] or, after composition, several such pairs."""
Keys = dict[str, Operations]

_EXACT: Final = frozenset({str, int, bool, bytes, type(None)})
_MISSING: Final = object()
_HUGE: Final = 2**63
_tail = Decoder(tuple[int, list[Raw]]).decode
_patch = Decoder(tuple[list[Raw], list[Raw]]).decode
_number = Decoder(int).decode


class Encode(Protocol):
    """How a value becomes bytes; `key` and `at` name its place in an error."""

    def __call__(self, value: object, *, key: str | None = None, at: str = "$") -> bytes: ...


class Difference(Struct, frozen=True, gc=False):
    """The changed keys; about how many bytes they take, and by how many the whole state grew.

    `complete` if nothing older is needed.
    """

    keys: Keys
    width: int
    growth: int
    complete: bool


def stored(encode: Encode, value: Any, key: str | None = None, at: str = "$") -> tuple[Any, int]:
    """What MessagePack is given for a value, and about how many bytes it takes."""
    kind = type(value)
    if kind is int:
        if -_HUGE < value < _HUGE:
            return value, 9
    elif kind is str:
        if value.isascii():
            return value, len(value) + 2
    elif value is None or kind is bool:
        return value, 1
    elif kind is float:
        return value, 9
    data = encode(value, key=key, at=at)
    return Raw(data), len(data)


def complete(encode: Encode, values: Mapping[str, Any], known: Keys | None = None) -> Difference:
    """The whole state; payloads of `known` WHOLE operations are used again."""
    keys: Keys = {}
    size = 0
    for key, value in values.items():
        operations = known.get(key) if known else None
        if operations and operations[0] == WHOLE and len(operations) == 2 and type(operations[1]) is Raw:
            width = len(operations[1])
        else:
            payload, width = stored(encode, value, key)
            operations = [WHOLE, payload]
        keys[key] = operations
        size += width + len(key) + 3
    return Difference(keys, size, size, True)


def difference(
    encode: Encode, old: Mapping[str, Any], new: Mapping[str, Any], kept: frozenset[str] = frozenset()
) -> Difference:
    """What turns `old` into `new`, key order included. `kept` names lists known to begin with the old list's items."""
    keys: Keys = {}
    growth = total = 0
    survivors = [*old]
    if not old.keys() <= new.keys():
        for key in old:
            if key not in new:
                keys[key] = [GONE, None]
                growth -= stored(encode, old[key], key)[1] + len(key) + 3
                total += len(key) + 4
        survivors = [key for key in old if key in new]
    for key, value in new.items():
        before = old.get(key, _MISSING)
        if value is before:
            continue
        if before is _MISSING:
            payload, width = stored(encode, value, key)
            keys[key] = [WHOLE, payload]
            growth += width + len(key) + 3
        elif (change := _change(encode, key, before, value, key in kept)) is not None:
            keys[key], width, grown = change
            growth += grown
        else:
            continue
        total += width + len(key) + 3
    if survivors != [*new][: len(survivors)]:
        return complete(encode, new, keys)
    return Difference(keys, total, growth, False)


def _change(encode: Encode, key: str, old: Any, new: Any, kept: bool) -> tuple[Operations, int, int] | None:
    """The operations that turn one value into the other, their width, and the growth; None if they are the same."""
    kind = type(new)
    if kind is type(old):
        if kind in _EXACT:
            if new == old:
                return None
        elif kind is list and old:
            return list_change(encode, key, old, new, kept)
        elif kind is dict and old:
            return _dict_change(encode, key, old, new)
        elif encode(new, key=key) == encode(old, key=key):
            return None
    payload, width = stored(encode, new, key)
    return [WHOLE, payload], width, width - stored(encode, old, key)[1]


def _same(encode: Encode, old: Any, new: Any) -> bool:
    """Whether two different objects have the same stored form."""
    return type(old) is type(new) and encode(old) == encode(new)


def list_change(
    encode: Encode, key: str, old: Sequence[Any], new: Sequence[Any], kept: bool = False
) -> tuple[Operations, int, int] | None:
    """The operation that turns one list into the other, its width, and the growth; None if they are the same."""
    width = min(len(old), len(new))
    if len(new) < len(old) or not (kept or all(map(is_, old, new))):
        width = next((i for i in range(width) if old[i] is not new[i] and not _same(encode, old[i], new[i])), width)
    if width == len(old) == len(new):
        return None
    items = [Raw(encode(item, key=key, at=f"$[{i}]")) for i, item in enumerate(new[width:], width)]
    growth = sum(map(len, items))
    if width < len(old):
        growth -= sum([len(encode(item, key=key)) for item in old[width:]])
    code, payload = (TAIL, pack([width, items])) if width else (WHOLE, pack(items))
    return [code, Raw(payload)], len(payload), growth


def _dict_change(
    encode: Encode, key: str, old: dict[Any, Any], new: dict[Any, Any]
) -> tuple[Operations, int, int] | None:
    removed = [name for name in old if name not in new]
    survivors = [name for name in old if name in new] if removed else list(old)
    in_order = all(a is b or _same(encode, a, b) for a, b in zip(survivors, new, strict=False))
    pairs: list[Raw] = []
    growth = 0
    if in_order:
        for name, value in new.items():
            before = old.get(name, _MISSING)
            if value is before:
                continue
            data = encode(value, key=key, at=_step(name))
            if before is not _MISSING:
                earlier = encode(before, key=key)
                if data == earlier:
                    continue
                growth -= len(earlier)
            else:
                growth += 2
            pairs += (Raw(encode(name, key=key)), Raw(data))
            growth += len(data)
        if not removed and not pairs:
            return None
    if not in_order or len(pairs) // 2 + len(removed) >= len(new):
        data = encode(new, key=key)
        return [WHOLE, Raw(data)], len(data), len(data) - len(encode(old, key=key))
    growth -= sum(len(encode(old[name], key=key)) for name in removed)
    payload = pack([[Raw(encode(name, key=key)) for name in removed], pairs])
    return [PATCH, Raw(payload)], len(payload), growth


def _step(name: object) -> str:
    return f"$.{name}" if type(name) is str and name.isidentifier() else f"$[{name!r}]"


def compose(deltas: Iterable[Mapping[str, Operations]]) -> Keys:
    """One delta that does what several do one after the other, without what later ones make needless."""
    total: dict[str, list[tuple[int, Any]]] = {}
    for delta in deltas:
        for key, operations in delta.items():
            for code, payload in _steps(operations):
                earlier = total.get(key)
                if earlier is None or code == GONE:
                    total[key] = [(code, payload)]
                elif code != WHOLE:
                    earlier.append((code, payload))
                elif earlier[0][0] != GONE:
                    total[key] = [(code, payload)]
                else:
                    if len(earlier) == 1:
                        del total[key]
                    total[key] = [earlier[0], (code, payload)]
    return {key: _merged(steps) for key, steps in total.items()}


def _merged(steps: list[tuple[int, Any]]) -> Operations:
    operations: Operations = []
    for code, run in groupby(steps, itemgetter(0)):
        payloads = [payload for _, payload in run]
        if len(payloads) > 1:
            payloads = [_merge_tails(payloads) if code == TAIL else _merge_patches(payloads)]
        operations += (code, payloads[0])
    return operations


def _merge_tails(payloads: list[Raw]) -> Raw:
    kept, items = _tail(payloads[0])
    for payload in payloads[1:]:
        also, more = _tail(payload)
        del items[max(0, also - kept) :]
        kept = min(kept, also)
        items += more
    return Raw(pack([kept, items]))


def _merge_patches(payloads: list[Raw]) -> Raw:
    lost: dict[bytes, Raw] = {}
    values: dict[bytes, tuple[Raw, Raw]] = {}
    for payload in payloads:
        removed, pairs = _patch(payload)
        for name in removed:
            values.pop(bytes(name), None)
            lost[bytes(name)] = name
        for name, value in zip(pairs[::2], pairs[1::2], strict=True):
            values[bytes(name)] = (name, value)
    return Raw(pack([list(lost.values()), [part for pair in values.values() for part in pair]]))


def _steps(operations: Operations) -> Iterable[tuple[int, Any]]:
    if len(operations) == 2:
        code = operations[0]
        return ((code if type(code) is int else _number(code), operations[1]),)
    codes = [code if type(code) is int else _number(code) for code in operations[::2]]
    return zip(codes, operations[1::2], strict=True)


def apply(decode: Callable[[Any], Any], deltas: Iterable[Mapping[str, Operations]]) -> dict[str, Any]:
    """The state that a complete delta and those after it lead to, made of new objects.

    Raises DecodeError where they do not fit together.
    """
    pending: dict[str, list[tuple[int, Any]]] = {}
    key = ""
    try:
        for delta in deltas:
            for key, operations in delta.items():
                _line_up(pending, key, operations)
        values: dict[str, Any] = {}
        for key, steps in pending.items():
            values[key] = _value(decode, steps)
        return values
    except (TypeError, ValueError, LookupError, MsgspecError) as error:
        raise DecodeError(f"the stored changes of the key {key!r} do not fit together: {error}") from error


def _line_up(pending: dict[str, list[tuple[int, Any]]], key: str, operations: Operations) -> None:
    if not operations:
        raise ValueError("there are none")
    for code, payload in _steps(operations):
        if code == WHOLE:
            pending[key] = [(WHOLE, payload)]
        elif code == GONE:
            pending.pop(key, None)
        else:
            pending[key].append((code, payload))


def advance(values: Mapping[str, Any], keys: Mapping[str, Operations]) -> dict[str, Any]:
    """The state that a delta, whose payloads are decoded, makes of `values`, which stay as they are.

    The two share what did not change. Raises DecodeError where they do not fit together.
    """
    key = ""
    state = {**values}
    try:
        for key, operations in keys.items():
            if not operations:
                raise ValueError("there are none")
            pairs = (operations,) if len(operations) == 2 else zip(operations[::2], operations[1::2], strict=True)
            for code, payload in pairs:
                if code == WHOLE:
                    state[key] = payload
                elif code == GONE:
                    state.pop(key, None)
                else:
                    state[key] = _changed(state[key].copy(), code, *payload)
    except (TypeError, ValueError, LookupError, AttributeError, MsgspecError) as error:
        raise DecodeError(f"the stored changes of the key {key!r} do not fit together: {error}") from error
    return state


def _value(decode: Callable[[Any], Any], steps: list[tuple[int, Any]]) -> Any:
    value = decode(steps[0][1])
    for code, payload in steps[1:]:
        value = _changed(value, code, *decode(payload))
    return value


def _changed(value: Any, code: int, first: Any, second: Any) -> Any:
    """A list or dict after an operation, which is carried out in place."""
    if code == TAIL and type(value) is list and first <= len(value):
        del value[first:]
        value += second
    elif code == PATCH and type(value) is dict:
        for name in first:
            value.pop(name, None)
        value.update(zip(second[::2], second[1::2], strict=True))
    else:
        raise ValueError(f"operation {code} on a {type(value).__name__}")
    return value
