"""The closed set of standard-library values the codec knows: for each a tag and a way there and back.

A leaf is a value whose stored form is raw bytes. A composite is taken apart into a list whose items are stored in
turn. Modules that few programs need (decimal, uuid, ...) are looked up in `sys.modules` when a value is stored, for a
value of theirs cannot exist before they are loaded, and are imported by name here when one is read.
"""

from __future__ import annotations

import re
import struct
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import Any, NamedTuple

from minigraph.types import UNSET, Unset

TUPLE, SET, FROZENSET, PAIRS, INTEGER, TEXT, BYTEARRAY, DEQUE, ORDERED, DEFAULT, COUNTER = range(1, 12)
DATETIME, DATE, TIME, TIMEDELTA, TIMEZONE, ZONE, UUID, DECIMAL, FRACTION, COMPLEX, PATH, RANGE = range(12, 24)
ARRAY, ARRAY_SCALAR, OBJECT, NO_VALUE, ABSENT_FIELD, NO_FIELD = range(24, 30)

FACTORIES: dict[str, type] = {t.__name__: t for t in (list, dict, set, int, float, str, tuple, bool, bytes, frozenset)}
"""What a defaultdict may make without being registered."""
_ZONE = re.compile(r"[A-Za-z0-9+_-]{1,50}(/[A-Za-z0-9+_-]{1,50}){0,3}")
"""What a name of the time zone database looks like, so that no other file is ever looked for."""
_LARGE = 10_000
"""From how many bits on a fraction is not reduced again, which takes the square of them."""


class Leaf(NamedTuple):
    """A value stored as raw bytes."""

    tag: int
    dump: Callable[[Any], bytes]


class Composite(NamedTuple):
    """A value stored as a list of its parts."""

    tag: int
    parts: Callable[[Any], list[Any]]


class Unsuitable(Exception):
    """This one value of a known type has no exact stored form; the text says why."""


def without_attributes(value: object) -> None:
    """Refuses a container that carries more than its items."""
    if vars(value):
        raise Unsuitable("it carries attributes of its own, which would be lost")


def _plain_pairs(value: Mapping[Any, Any]) -> list[Any]:
    without_attributes(value)
    return [part for pair in value.items() for part in pair]


def _datetime_parts(value: datetime) -> list[Any]:
    clock = [value.hour, value.minute, value.second, value.microsecond, value.fold, value.tzinfo]
    return [value.year, value.month, value.day, *clock]


def _time_parts(value: time) -> list[Any]:
    return [value.hour, value.minute, value.second, value.microsecond, value.fold, value.tzinfo]


def _timezone_parts(value: timezone) -> list[Any]:
    return list(value.__getinitargs__())  # type: ignore[attr-defined]  # pickle's own view of it, missing in typeshed


def _zone_bytes(value: Any) -> bytes:
    if value.key is None:
        raise Unsuitable("a ZoneInfo read from a file has no name to store")
    if _ZONE.fullmatch(value.key) is None:
        raise Unsuitable("its name is none of the time zone database")
    return str(value.key).encode()


def _uuid_bytes(value: Any) -> bytes:
    safe = value.is_safe.value
    return bytes(value.bytes) + (b"" if safe is None else struct.pack("b", safe))


STANDARD: dict[type, Leaf | Composite] = {
    tuple: Composite(TUPLE, list),
    set: Composite(SET, list),
    frozenset: Composite(FROZENSET, list),
    bytearray: Leaf(BYTEARRAY, bytes),
    deque: Composite(DEQUE, lambda value: [value.maxlen, *value]),
    OrderedDict: Composite(ORDERED, _plain_pairs),
    Counter: Composite(COUNTER, _plain_pairs),
    datetime: Composite(DATETIME, _datetime_parts),
    date: Composite(DATE, lambda value: [value.year, value.month, value.day]),
    time: Composite(TIME, _time_parts),
    timedelta: Composite(TIMEDELTA, lambda value: [value.days, value.seconds, value.microseconds]),
    timezone: Composite(TIMEZONE, _timezone_parts),
    complex: Leaf(COMPLEX, lambda value: struct.pack("<dd", value.real, value.imag)),
    range: Composite(RANGE, lambda value: [value.start, value.stop, value.step]),
    Unset: Leaf(NO_VALUE, lambda value: b""),
}

_PATHS = ("PurePosixPath", "PureWindowsPath", "PosixPath", "WindowsPath")
LATER: tuple[tuple[str, str, Leaf | Composite], ...] = (
    ("zoneinfo", "ZoneInfo", Leaf(ZONE, _zone_bytes)),
    ("uuid", "UUID", Leaf(UUID, _uuid_bytes)),
    ("decimal", "Decimal", Leaf(DECIMAL, lambda value: str(value).encode())),
    ("fractions", "Fraction", Composite(FRACTION, lambda value: [value.numerator, value.denominator])),
    *(("pathlib", name, Composite(PATH, lambda value: [type(value).__name__, str(value)])) for name in _PATHS),
)


def find(kind: type) -> Leaf | Composite | None:
    """The form of a type from a module that may not be loaded, or None."""
    for module, name, form in LATER:
        if getattr(sys.modules.get(module), name, None) is kind:
            return form
    return None


def integer_bytes(value: int) -> bytes:
    """Any int in two's complement, little endian, in as few bytes as hold it."""
    return value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)


def paired(parts: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Keys with their values, from the flat list of both."""
    if len(parts) % 2:
        raise ValueError("a key without a value")
    return zip(parts[::2], parts[1::2], strict=True)


def _zone(parts: object) -> tzinfo | None:
    if parts is not None and not isinstance(parts, tzinfo):
        raise ValueError("a time zone was expected")
    return parts


def _load_datetime(parts: list[Any]) -> datetime:
    year, month, day, hour, minute, second, microsecond, fold, zone = parts
    return datetime(year, month, day, hour, minute, second, microsecond, _zone(zone), fold=fold)


def _load_time(parts: list[Any]) -> time:
    hour, minute, second, microsecond, fold, zone = parts
    return time(hour, minute, second, microsecond, _zone(zone), fold=fold)


def _load_fraction(parts: list[Any]) -> object:
    from fractions import Fraction

    numerator, denominator = parts
    if type(numerator) is not int or type(denominator) is not int:
        raise ValueError("a fraction has two integers")
    if denominator > 0 and max(numerator.bit_length(), denominator.bit_length()) > _LARGE:
        value: Any = object.__new__(Fraction)
        value._numerator, value._denominator = numerator, denominator
        return value
    return Fraction(numerator, denominator)


def _load_path(parts: list[Any]) -> object:
    import pathlib

    name, text = parts
    if name not in _PATHS or type(text) is not str:
        raise ValueError("not a path")
    return getattr(pathlib, name)(text)


def _load_unset(data: bytes) -> Unset:
    return UNSET


def _load_zone(data: bytes) -> object:
    from zoneinfo import ZoneInfo

    name = data.decode("ascii")
    if _ZONE.fullmatch(name) is None:
        raise ValueError(f"{name[:50]!r} is no name of a time zone")
    return ZoneInfo(name)


def _load_uuid(data: bytes) -> object:
    import uuid

    if len(data) == 16:
        return uuid.UUID(bytes=data)
    return uuid.UUID(bytes=data[:16], is_safe=uuid.SafeUUID(struct.unpack("b", data[16:])[0]))


def _load_decimal(data: bytes) -> object:
    from decimal import Decimal

    return Decimal(data.decode("ascii"))


LOAD_PARTS: dict[int, Callable[[list[Any]], Any]] = {
    TUPLE: tuple,
    SET: set,
    FROZENSET: frozenset,
    PAIRS: lambda parts: dict(paired(parts)),
    DEQUE: lambda parts: deque(parts[1:], parts[0]),
    ORDERED: lambda parts: OrderedDict(paired(parts)),
    COUNTER: lambda parts: _load_counter(parts),
    DATETIME: _load_datetime,
    DATE: lambda parts: date(*parts),
    TIME: _load_time,
    TIMEDELTA: lambda parts: timedelta(*parts),
    TIMEZONE: lambda parts: timezone(*parts),
    FRACTION: _load_fraction,
    PATH: _load_path,
    RANGE: lambda parts: range(*parts),
}

LOAD_BYTES: dict[int, Callable[[bytes], Any]] = {
    INTEGER: lambda data: int.from_bytes(data, "little", signed=True),
    TEXT: lambda data: data.decode("utf-8", "surrogatepass"),
    BYTEARRAY: bytearray,
    COMPLEX: lambda data: complex(*struct.unpack("<dd", data)),
    ZONE: _load_zone,
    UUID: _load_uuid,
    DECIMAL: _load_decimal,
    NO_VALUE: _load_unset,
}


def _load_counter(parts: list[Any]) -> Counter[Any]:
    counter: Counter[Any] = Counter()
    dict.update(counter, paired(parts))
    return counter
