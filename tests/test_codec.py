"""Exact round trips, refusals with their place, and hostile bytes."""

from __future__ import annotations

import enum
import math
import subprocess
import sys
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from uuid import UUID, uuid1
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.tags import DECIMAL, TUPLE
from minigraph.checkpoint.walk import MAX_DEPTH, pack
from minigraph.errors import DecodeError, GraphInterrupt, StorageError, UnstorableValueError
from minigraph.types import UNSET, Command, Interrupt, Overwrite, Send, TimeoutPolicy


def shape(value: Any) -> Any:
    """A value as nested pairs of type and content, so that 1, True and 1.0 differ, and nan equals itself."""
    kind = type(value)
    if kind in (list, tuple, deque):
        return kind, getattr(value, "maxlen", None), [shape(item) for item in value]
    if kind in (set, frozenset):
        return kind, sorted(repr(shape(item)) for item in value)
    if isinstance(value, dict):
        factory = getattr(value, "default_factory", None)
        return kind, factory, [(shape(name), shape(part)) for name, part in value.items()]
    if kind is datetime or kind is time:
        return kind, repr(value), value.fold
    return kind, repr(value)


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=8)
    | st.binary(max_size=8)
    | st.complex_numbers()
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.uuids()
    | st.dates()
    | st.times()
    | st.datetimes(timezones=st.none() | st.just(UTC) | st.just(ZoneInfo("Europe/Berlin")))
    | st.timedeltas()
)
hashables = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3), max_leaves=5
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.sets(hashables, max_size=3)
        | st.dictionaries(hashables, inner, max_size=4)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
        | st.lists(inner, max_size=4).map(lambda items: deque(items, 7))
        | st.dictionaries(st.text(max_size=3), inner, max_size=3).map(OrderedDict)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3).map(lambda items: defaultdict(list, items))
    ),
    max_leaves=20,
)


@given(values)
def test_what_is_stored_comes_back_with_its_types_and_order(value: Any) -> None:
    codec = Codec()
    data = codec.encode(value)
    assert shape(codec.decode(data)) == shape(value)


@pytest.mark.parametrize(
    "value",
    [
        2**64,
        -(2**63) - 1,
        {2**70: "big key"},
        {"\ud800": "lone surrogate"},
        {True: 1, 2.5: 2, None: 3, b"x": 4},
        {(1, 2): {"nested": (3,)}},
        -0.0,
        math.inf,
        bytearray(b"ab"),
        deque([1, 2], maxlen=2),
        deque([1, 2]),
        Counter("abca"),
        defaultdict(None, {1: 2}),
        OrderedDict([(2, 1), (1, 2)]),
        range(3, 10, 2),
        timezone(timedelta(hours=2), "two"),
        UTC,
        ZoneInfo("Europe/Berlin"),
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        time(1, 2, 3, 4, tzinfo=UTC, fold=1),
        date(2026, 1, 2),
        Decimal("1.00"),
        Decimal("sNaN12"),
        Fraction(1, 3),
        complex(-0.0, math.inf),
        Path("a/b"),
        PurePosixPath("//x"),
        PureWindowsPath("C:\\x"),
        uuid1(),
        UUID(int=5),
        UNSET,
        msgspec.UNSET,
        Send("node", {"x": (1,)}),
        TimeoutPolicy(run_timeout=timedelta(seconds=3)),
        Command(update={"a": 1}, goto=[Send("b", 1), "c"], resume=None),
        Interrupt({"question": ("yes", "no")}, "0" * 32),
        Overwrite([1]),
    ],
    ids=repr,
)
def test_exact(value: Any) -> None:
    found = Codec().decode(Codec().encode(value))
    assert shape(found) == shape(value)
    if isinstance(value, Command):
        assert found.resume is None
    if isinstance(value, UUID):
        assert found.is_safe is value.is_safe
    if value is UNSET or value is msgspec.UNSET:
        assert found is value


def test_nan_and_mixed_numbers_keep_their_types() -> None:
    found = Codec().decode(Codec().encode([1, True, 1.0, math.nan]))
    assert [type(item) for item in found] == [int, bool, float, float]
    assert math.isnan(found[3])


class Colour(enum.Enum):
    RED = 1
    CRIMSON = 1
    BLUE = (2, 3)

    @classmethod
    def _missing_(cls, value: object) -> Any:
        raise AssertionError("called")


class Word(enum.StrEnum):
    YES = "yes"


class Number(enum.IntEnum):
    ONE = 1


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Outer:
    class Inner(enum.Enum):
        A = "a"


@dataclass
class Plain:
    x: int
    tags: list[str] = field(default_factory=list)
    computed: int = field(init=False)

    def __post_init__(self) -> None:
        if self.x < 0:
            raise AssertionError("__post_init__ ran")
        self.computed = self.x * 2


@dataclass(frozen=True, slots=True)
class Slotted:
    x: int
    other: Any = None
    lazy: int = field(init=False)

    def __post_init__(self) -> None:
        if self.x < 0:
            raise AssertionError("__post_init__ ran")


@dataclass
class Remembering:
    x: int

    @cached_property
    def twice(self) -> int:
        return self.x * 2


class Point(NamedTuple):
    x: int
    y: Any = None


class Record(msgspec.Struct, frozen=True):
    x: int
    y: tuple[int, ...] = ()


class Guarded(msgspec.Struct, frozen=True, tag="g", dict=True):
    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise AssertionError("__post_init__ ran")


CLASSES = (Colour, Word, Number, Right, Outer.Inner, Plain, Slotted, Remembering, Point, Record, Guarded)


def known() -> Codec:
    codec = Codec()
    codec.register(*CLASSES)
    return codec


@pytest.mark.parametrize("codec", [known(), Codec(learn=True)], ids=["registered", "learnt"])
@pytest.mark.parametrize(
    "value",
    [
        Colour.RED,
        Colour.CRIMSON,
        Colour.BLUE,
        Word.YES,
        Number.ONE,
        Right.READ,
        Right.READ | Right.WRITE,
        Right(0),
        Outer.Inner.A,
        Plain(1, ["a"]),
        Slotted(1, Point(1, Slotted(2))),
        Point(1, (2,)),
        Record(1, (2, 3)),
        Guarded(1),
        [Plain(1), {"a": Record(2)}],
        {Point(1, 2): Colour.RED, Word.YES: 1},
        defaultdict(Plain, {"a": Plain(1)}),  # type: ignore[arg-type]  # a class that cannot be called without arguments
    ],
    ids=lambda value: type(value).__name__,
)
def test_objects_of_known_classes(codec: Codec, value: Any) -> None:
    found = codec.decode(codec.encode(value))
    assert type(found) is type(value)
    assert repr(found) == repr(value) if not isinstance(value, Slotted) else found.x == value.x
    assert codec.encode(found) == codec.encode(value)


def test_objects_are_restored_without_running_the_programs_code() -> None:
    codec = known()
    plain, slotted, guarded = Plain(1), Slotted(1), Guarded(1)
    plain.x = -1
    object.__setattr__(slotted, "x", -1)
    msgspec.structs.force_setattr(guarded, "x", -1)
    assert codec.decode(codec.encode(plain)).__dict__ == {"x": -1, "tags": [], "computed": 2}
    found = codec.decode(codec.encode(slotted))
    assert found.x == -1
    assert not hasattr(found, "lazy")
    assert type(codec.decode(codec.encode(guarded))) is Guarded
    assert codec.decode(codec.encode(guarded)).x == -1


def test_attributes_beside_the_fields_are_kept_and_remembered_properties_are_not() -> None:
    codec = known()
    value = Remembering(2)
    value.note = "mine"  # type: ignore[attr-defined]
    assert value.twice == 4
    assert codec.decode(codec.encode(value)).__dict__ == {"x": 2, "note": "mine"}


def test_two_classes_of_one_name_are_told_apart_when_learnt() -> None:
    def make() -> type:
        @dataclass
        class Local:
            x: int

        return Local

    first, second = make(), make()
    codec = Codec(learn=True)
    data = [codec.encode(first(1)), codec.encode(second(1))]
    assert [type(codec.decode(item)) for item in data] == [first, second]
    strict = Codec()
    strict.register(first)
    with pytest.raises(StorageError, match="two different classes"):
        strict.register(second)
    strict.register(second, name="second")
    assert type(strict.decode(strict.encode(second(1)))) is second


def test_a_class_may_gain_fields_and_a_missing_one_is_an_error() -> None:
    old, new, slim = Codec(), Codec(), Codec()

    @dataclass
    class Before:
        x: int

    @dataclass
    class After:
        x: int
        y: list[int] = field(default_factory=lambda: [7])

    @dataclass
    class Demanding:
        x: int
        z: int

    old.register(Before, name="item")
    new.register(After, name="item")
    slim.register(Demanding, name="item")
    data = old.encode(Before(1))
    assert new.decode(data) == After(1, [7])
    with pytest.raises(DecodeError, match="'z' is not stored"):
        slim.decode(data)


def test_register_passes_over_what_is_known_anyway_and_refuses_what_has_no_form() -> None:
    codec = Codec()
    codec.register(int, list, dict, tuple, datetime, Decimal, Send, list[int])
    codec.register(Plain)
    codec.register(Plain)

    class Opaque:
        pass

    for kind in (Opaque, GraphInterrupt, threading.Lock):
        with pytest.raises(TypeError):
            codec.register(kind)
    with pytest.raises(TypeError, match="exactly one class"):
        codec.register(Plain, Point, name="x")


class MyList(list):  # type: ignore[type-arg]
    pass


class MyStr(str):
    pass


@pytest.mark.parametrize(
    ("value", "path", "type_name"),
    [
        ([{"name": object()}], "$[0].name", "object"),
        ({"a b": lambda: 1}, "$['a b']", "function"),
        ((1, {2, (3, b"".join)}), None, None),
        (ValueError(object()), "$[0][0]", "object"),
        (GraphInterrupt(), "$", "minigraph.errors.GraphInterrupt"),
        (MyList([1]), "$", f"{__name__}.MyList"),
        ({"s": MyStr("x")}, "$.s", f"{__name__}.MyStr"),
        ({MyStr("x"): 1}, None, None),
        (Plain(1), "$", f"{__name__}.Plain"),
        (slice(1), "$", "slice"),
        (int, "$", "type"),
        (memoryview(b"x"), "$", "memoryview"),
        (defaultdict(lambda: 1), "$", "collections.defaultdict"),
        ([...], "$[0]", "ellipsis"),
    ],
)
def test_what_has_no_exact_form_is_refused_at_its_place(value: Any, path: str | None, type_name: str | None) -> None:
    with pytest.raises(UnstorableValueError) as caught:
        Codec().encode(value, key="notes")
    assert caught.value.key == "notes"
    assert "'notes'" in str(caught.value)
    if path is not None:
        assert caught.value.path == path
    if type_name is not None:
        assert caught.value.type_name == type_name


def test_the_refusal_says_how_to_register() -> None:
    codec = Codec()
    codec.register(Plain)
    with pytest.raises(UnstorableValueError, match=r"saver\.register\(Point\)") as caught:
        codec.encode(Plain(1, [Point(1)]))  # type: ignore[list-item]
    assert caught.value.path == "$.tags[0]"


def test_cycles_and_depth_give_a_clear_error() -> None:
    cycle: list[Any] = []
    cycle.append({"again": cycle})
    deep: Any = 1
    for _ in range(MAX_DEPTH + 5):
        deep = (deep,)
    for value in (cycle, deep):
        with pytest.raises(UnstorableValueError, match="levels deep, or it contains itself"):
            Codec().encode(value)
    fine: Any = 1
    for _ in range(MAX_DEPTH):
        fine = (fine,)
    assert Codec().decode(Codec().encode(fine)) == fine


def ext(code: int, body: bytes) -> bytes:
    return msgspec.msgpack.encode(msgspec.msgpack.Ext(code, body))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 100_000,
        ext(99, b""),
        ext(DECIMAL, b"no number"),
        ext(TUPLE, b""),
        ext(TUPLE, pack({"a": 1})),
        ext(26, pack(["os:system", ["ls"]])),
        ext(26, pack([1, 2, 3])),
        ext(12, pack([1, 2])),
        ext(12, pack([2026, 1, 1, 0, 0, 0, 0, 0, "zone"])),
        ext(17, b"../../../etc/passwd"),
        ext(20, pack([1, 0])),
        ext(22, pack(["__class__", "x"])),
        ext(23, pack([1, 2, 0])),
        ext(2, pack([[1]])),
        ext(24, pack(["|O", [1], "C", b"12345678"])),
        ext(24, pack(["<f8", [2**40], "C", b"12345678"])),
        ext(10, pack(["os:system"])),
    ],
)
def test_hostile_bytes_are_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        Codec().decode(data)


@given(st.binary(max_size=60))
def test_random_bytes_decode_or_are_a_decode_error(data: bytes) -> None:
    codec = known()
    try:
        codec.decode(data)
    except DecodeError:
        return


@given(values, st.data())
def test_truncated_bytes_are_a_decode_error(value: Any, data: st.DataObject) -> None:
    stored = Codec().encode(value)
    cut = data.draw(st.integers(0, len(stored) - 1))
    with pytest.raises(DecodeError):
        Codec().decode(stored[:cut])


def test_pydantic_models_come_back_without_validation() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        model_config = pydantic.ConfigDict(extra="allow")
        x: int
        y: str = "y"
        _secret: Any = pydantic.PrivateAttr(default=1)

        @pydantic.field_validator("x")  # type: ignore[untyped-decorator]  # imported at run time
        @classmethod
        def check(cls, value: int) -> int:
            assert value >= 0
            return value

    codec = Codec(learn=True)
    value = Model(x=1, more=(1, 2))
    value.__dict__["x"] = -1
    value._secret = {"a": (1,)}
    found = codec.decode(codec.encode(value))
    assert type(found) is Model
    assert found == value
    assert (found.x, found.more, found._secret) == (-1, (1, 2), {"a": (1,)})
    assert found.model_fields_set == {"x", "more"}


def test_arrays_come_back_bit_by_bit() -> None:
    numpy = pytest.importorskip("numpy")
    structured = numpy.array([(1, 2.5, "ab")], dtype=[("a", "<i4"), ("b", ">f8"), ("c", "<U3")])
    for value in (
        numpy.arange(6, dtype="int16").reshape(2, 3),
        numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)),
        numpy.zeros((0, 4)),
        numpy.array(3.5),
        numpy.array(["2026-01-01"], dtype="datetime64[D]"),
        structured,
        numpy.array([True, False]),
    ):
        found = Codec().decode(Codec().encode(value))
        assert (found.dtype, found.shape, found.flags.f_contiguous) == (
            value.dtype,
            value.shape,
            value.flags.f_contiguous,
        )
        assert found.tobytes() == value.tobytes()
        assert found.flags.writeable
    for scalar in (numpy.float64(0.1), numpy.int8(3), numpy.bool_(True), numpy.str_("x"), structured[0]):
        found = Codec().decode(Codec().encode(scalar))
        assert type(found) is type(scalar)
        assert found == scalar
    for refused in (numpy.array([object()]), numpy.ma.array([1]), numpy.str_("x\0")):
        with pytest.raises(UnstorableValueError):
            Codec().encode(refused)


def test_registering_from_many_threads() -> None:
    codec = Codec(learn=True)
    kinds: list[Any] = [enum.Enum(f"Kind{number}", ["A"]) for number in range(40)]
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for kind in kinds:
                member = kind["A"]
                assert codec.decode(codec.encode(member)) is member
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_the_memory_saver_loads_nothing_heavy() -> None:
    script = (
        "import sys, minigraph.checkpoint.memory, minigraph.checkpoint\n"
        "heavy = [n for n in ('sqlite3', 'asyncio', 'pydantic', 'numpy') "
        "if n in sys.modules]\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
