"""Exact comparison: types count, the order of dicts and sets does not, and nobody's == is asked."""

from __future__ import annotations

import copy
import dataclasses
import enum
import math
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pydantic
import pytest

from minigraph import Send
from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.sameness import same
from minigraph.types import UNSET

NAN = float("nan")


@dataclasses.dataclass
class Quarrel:
    """Refuses to be compared, and is therefore told apart by its fields alone."""

    inner: Any

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("never ask me")

    __hash__ = None  # type: ignore[assignment]


@dataclasses.dataclass
class Flatterer:
    """Calls everything equal to itself."""

    name: str
    note: Any = dataclasses.field(default=None, compare=False)

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class Record(msgspec.Struct):
    """With a part of any kind."""

    part: Any = None


class Model(pydantic.BaseModel):
    """Remembers which fields were set."""

    x: Any = None
    y: int = 0


class Pair(NamedTuple):
    """A tuple with names."""

    a: Any
    b: Any


class Colour(enum.Enum):
    """Two members that are no numbers."""

    RED = 1
    BLUE = 2


class Opaque:
    """Has no stored form, only its own idea of what is equal."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __eq__(self, other: object) -> Any:
        return self.answer

    __hash__ = None  # type: ignore[assignment]


def ordered_set(*items: Any) -> set[Any]:
    """A set whose members were added in this order."""
    made: set[Any] = set()
    for item in items:
        made.add(item)
    return made


DIFFERENT: list[tuple[Any, Any]] = [
    (1, True),
    (1, 1.0),
    (0, False),
    (0, None),
    (0.0, -0.0),
    (NAN, None),
    (NAN, 1.0),
    ("1", 1),
    ("a", b"a"),
    ([1], (1,)),
    ([1], [True]),
    ([1], [1, 1]),
    ([], ()),
    ([], None),
    ({}, []),
    ({1: "x"}, {True: "x"}),
    ({1: "x"}, {1.0: "x"}),
    ({"a": 1}, {"a": 1, "b": 2}),
    ({"a": 1}, {"b": 1}),
    ({"a": [1]}, {"a": [1.0]}),
    ({1}, {True}),
    ({1}, frozenset({1})),
    ({1, 2}, {1, 3}),
    ({(1, 2)}, {(1, True + 1.0)}),
    (deque([1], 3), deque([1], 4)),
    (deque([1]), [1]),
    (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)),
    (OrderedDict(a=1), {"a": 1}),
    (Counter("ab"), Counter("abb")),
    (defaultdict(list, a=[]), defaultdict(set, a=[])),
    (Decimal("1.0"), Decimal("1.00")),
    (Decimal(1), 1),
    (Fraction(1, 2), 0.5),
    (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
    (datetime(2026, 1, 1), datetime(2026, 1, 1, fold=1)),
    (complex(0, 0.0), complex(0, -0.0)),
    (range(0), range(1, 1)),
    (bytearray(b"a"), b"a"),
    (Colour.RED, Colour.BLUE),
    (Colour.RED, 1),
    (Pair(1, 2), (1, 2)),
    (Pair(1, 2), Pair(1, 2.0)),
    (Quarrel(1), Quarrel(True)),
    (Flatterer("a"), Flatterer("b")),
    (Flatterer("a", 1), Flatterer("a", 2)),
    (Record(1), Record(True)),
    (Model(x=1), Model(x=1, y=0)),
    (Model(x=1), Model(x=1.0)),
    (Send("a", 1), Send("a", True)),
    (UNSET, None),
    (np.array([1]), np.array([1.0])),
    (np.array([1, 2]), np.array([[1, 2]])),
    (np.array([1, 2]), np.array([1, 3])),
    (np.array([1, 2]), [1, 2]),
    (np.float64(1), 1.0),
    (np.float32(1), np.float64(1)),
    (Opaque(False), Opaque(False)),
    (Opaque(np.array([True])), Opaque(np.array([True]))),
]

EQUAL: list[tuple[Any, Any]] = [
    (NAN, -NAN),
    ([NAN, {"a": NAN}], [float("inf") - float("inf"), {"a": float("nan")}]),
    ({NAN}, {float("nan")}),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({NAN: 1, "b": 2}, {"b": 2, float("nan"): 1}),
    (ordered_set(0, 8, 16), ordered_set(16, 8, 0)),
    ({frozenset({1}), (1, "x"), (2, 3)}, {(2, 3), (1, "x"), frozenset({1})}),
    (Record(ordered_set(0, 8)), Record(ordered_set(8, 0))),
    (Record({"a": 1, "b": [2]}), Record({"b": [2], "a": 1})),
    (Counter("ab"), Counter("ba")),
    (defaultdict(list, a=[1], b=[]), defaultdict(list, b=[], a=[1])),
    (2**200, 2**200),
    ("\ud800", "\ud800"),
    (Quarrel([NAN]), Quarrel([NAN])),
    (Flatterer("a"), Flatterer("a")),
    (Opaque(True), Opaque(True)),
    (np.array([1.0, NAN]), np.array([1.0, NAN])),
    (np.float64("nan"), np.float64("nan")),
]


@pytest.mark.parametrize(("left", "right"), DIFFERENT, ids=lambda value: type(value).__name__)
def test_values_that_are_told_apart(left: Any, right: Any) -> None:
    assert not same(left, right)
    assert not same(right, left)
    assert not same([left], [right])
    assert not same(Record({"k": left}), Record({"k": right}))


@pytest.mark.parametrize(("left", "right"), EQUAL, ids=lambda value: type(value).__name__)
def test_values_that_are_the_same(left: Any, right: Any) -> None:
    assert same(left, right)
    assert same((right,), (left,))
    assert same(Record({"k": left}), Record({"k": right}))


@pytest.mark.parametrize("value", [v for pair in DIFFERENT for v in pair if not isinstance(v, Opaque)])
def test_a_value_is_the_same_as_itself_stored_and_read(value: Any) -> None:
    codec = Codec(learn=True)
    assert same(value, codec.decode(codec.encode(value)))
    assert same(value, copy.deepcopy(value))


def test_a_large_set_takes_no_square_of_its_size() -> None:
    big, turned = set(range(100_000)), set(range(99_999, -1, -1))
    assert same(big, turned)
    assert not same(big, {*range(99_999), math.pi})
