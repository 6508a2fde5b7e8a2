"""Stored values as JSON that a person can read, and back to the very same bytes.

What JSON holds as it is stands as JSON. Everything else is an object with one name that begins with "$": {"$bytes":
"base64"}, {"$tuple": [1, 2]}, {"$object": ["app:Ticket", {"number": 1}]}. So a class need not be known here, and there
is one form of each value. A dict with a name of that kind, or with names that are no text, is a {"$map": [[name,
value], ...]}.
"""

from __future__ import annotations

import math
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from msgspec import Raw
from msgspec.msgpack import Decoder, Ext

from minigraph.checkpoint import tags
from minigraph.checkpoint.walk import pack


class _Tagged(NamedTuple):
    code: int
    data: bytes


_NAMES: Final = {
    getattr(tags, name): name.lower()
    for name in (
        *("TUPLE", "SET", "FROZENSET", "PAIRS", "INTEGER", "TEXT", "BYTEARRAY", "DEQUE", "ORDERED", "DEFAULT"),
        *("COUNTER", "DATETIME", "DATE", "TIME", "TIMEDELTA", "TIMEZONE", "ZONE", "UUID", "DECIMAL", "FRACTION"),
        *("COMPLEX", "PATH", "RANGE", "ARRAY", "ARRAY_SCALAR", "OBJECT", "NO_VALUE", "ABSENT_FIELD", "NO_FIELD"),
    )
}
_CODES: Final = {name: code for code, name in _NAMES.items()}
_EMPTY: Final = frozenset({tags.NO_VALUE, tags.ABSENT_FIELD, tags.NO_FIELD})
_LEAVES: Final = frozenset(tags.LOAD_BYTES) - _EMPTY
_INFINITE: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_decode: Final = Decoder(ext_hook=lambda code, data: _Tagged(code, bytes(data))).decode


def readable(data: bytes | Raw) -> Any:
    """Stored bytes as what JSON can hold; msgspec's errors and RecursionError for what is no MessagePack."""
    return _shown(_decode(data))


def stored(shown: Any) -> bytes:
    """The bytes of what `readable` gave. ValueError, TypeError or another error of that kind for anything else."""
    try:
        return pack(_packed(shown))
    except struct.error as error:
        raise ValueError(str(error)) from error


def _shown(value: Any) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is int or kind is str:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": _infinite_text(value)}
    if kind is bytes:
        return {"$bytes": b64encode(value).decode()}
    if kind is list:
        return [_shown(item) for item in value]
    if kind is dict:
        if all(type(name) is str and not name.startswith("$") for name in value):
            return {name: _shown(item) for name, item in value.items()}
        return {"$map": [[_shown(name), _shown(item)] for name, item in value.items()]}
    if kind is _Tagged:
        return _tagged(value)
    raise ValueError(f"stored bytes hold a {kind.__name__}, which no saver writes")


def _infinite_text(value: float) -> str:
    text = repr(value)
    packed = struct.pack(">d", value)
    return text if struct.pack(">d", _INFINITE[text]) == packed else packed.hex()


def _tagged(value: _Tagged) -> dict[str, Any]:
    code, data = value
    name = _NAMES.get(code)
    if name is not None:
        if code in _LEAVES:
            form = _leaf(code, data)
        elif code in _EMPTY:
            form = None
        else:
            form = _shown(_decode(data))
        found = {f"${name}": form}
        try:
            if _packed(found).data == data:
                return found
        except (ValueError, struct.error):
            pass
    return {"$extension": [code, b64encode(data).decode()]}


def _leaf(code: int, data: bytes) -> Any:
    """The form of a value that is stored as raw bytes: text where it is text, otherwise base64."""
    try:
        if code == tags.INTEGER:
            number = int.from_bytes(data, "little", signed=True)
            return str(number) if number.bit_length() < 2048 else hex(number)
        if code in (tags.DECIMAL, tags.ZONE):
            return data.decode()
        if code == tags.UUID:
            return data.hex()
        if code == tags.COMPLEX:
            return [_shown(part) for part in struct.unpack("<dd", data)]
    except (ValueError, struct.error):
        pass
    return b64encode(data).decode()


def _leaf_bytes(code: int, form: Any) -> bytes:
    if code == tags.INTEGER:
        return tags.integer_bytes(int(form, 16 if "x" in form else 10))
    if code in (tags.DECIMAL, tags.ZONE):
        return bytes(form.encode())
    if code == tags.UUID:
        return bytes.fromhex(form)
    if code == tags.COMPLEX:
        return struct.pack("<dd", *map(_packed, form))
    return b64decode(form, validate=True)


def _packed(shown: Any) -> Any:
    """What MessagePack is given."""
    kind = type(shown)
    if kind is list:
        return [_packed(item) for item in shown]
    if kind is not dict:
        return shown
    sign = next((name for name in shown if name.startswith("$")), None)
    if sign is None:
        return {name: _packed(item) for name, item in shown.items()}
    if len(shown) != 1:
        raise ValueError(f"{sign!r} stands beside other names")
    form = shown[sign]
    special = _SPECIAL.get(sign)
    if special is not None:
        return special(form)
    code = _CODES.get(sign[1:])
    if code is None:
        raise ValueError(f"{sign!r} is no known form of a value")
    if code in _EMPTY:
        return Ext(code, b"")
    return Ext(code, _leaf_bytes(code, form) if code in _LEAVES else pack(_packed(form)))


def _float(text: str) -> float:
    if text in _INFINITE:
        return _INFINITE[text]
    (number,) = struct.unpack(">d", bytes.fromhex(text))
    return float(number)


def _map(pairs: list[list[Any]]) -> dict[Any, Any]:
    found = {_packed(name): _packed(item) for name, item in pairs}
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in a $map")
    return found


_SPECIAL: Final[dict[str, Callable[[Any], Any]]] = {
    "$bytes": lambda form: b64decode(form, validate=True),
    "$float": _float,
    "$map": _map,
    "$extension": lambda form: Ext(form[0], b64decode(form[1], validate=True)),
}
