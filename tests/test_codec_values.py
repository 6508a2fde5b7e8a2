"""Exceptions as data, generic models, rare values of each kind; and what hostile bytes cannot do."""

from __future__ import annotations

import enum
import io
import json
import struct
import time
import tracemalloc
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, ClassVar, Generic, NamedTuple, TypedDict, TypeVar
from uuid import UUID, SafeUUID, uuid1
from zoneinfo import ZoneInfo

import msgspec
import numpy
import pydantic
import pytest
from conftest import Sync, build, chain, thread
from msgspec.msgpack import Ext

from minigraph.checkpoint import Saver, SqliteSaver, tags
from minigraph.checkpoint.classes import built_in_exception
from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.sameness import same
from minigraph.checkpoint.walk import pack
from minigraph.errors import DecodeError, GraphInterrupt, InvalidUpdateError, UnstorableValueError

T = TypeVar("T")


class Refusal(Exception):
    """A program's exception whose constructor wants something else than its arguments."""

    made: ClassVar[list[str]] = []

    def __init__(self, code: int, *, reason: str) -> None:
        self.made.append(reason)
        super().__init__(f"{code}: {reason}")
        self.code, self.reason = code, reason


class Slotted(ValueError):
    __slots__ = ("place",)
    place: Any

    def __new__(cls, *args: Any) -> Slotted:
        raise AssertionError("it is not called")


class Outer:
    class Colour(enum.StrEnum):
        RED = "red"

    class Level(enum.IntFlag):
        LOW = 1
        HIGH = 2

    class Point(NamedTuple):
        x: int
        y: tuple[int, ...] = ()

    @dataclass(frozen=True, slots=True)
    class Frozen:
        a: int = 0
        b: list[int] = field(default_factory=list, init=False)


class Item(msgspec.Struct, frozen=True, tag="item"):
    n: int
    more: Any = msgspec.UNSET


class Box(pydantic.BaseModel, Generic[T]):
    content: T
    label: str = "none"


def codec() -> Codec:
    made = Codec()
    made.register(
        Refusal, Slotted, Outer.Colour, Outer.Level, Outer.Point, Outer.Frozen, Item, Box, Box[int], Box[list[str]]
    )
    return made


def back(value: Any) -> Any:
    """What is stored and read again, from bytes that say the same when it is stored once more."""
    data = codec().encode(value)
    found = codec().decode(data)
    assert codec().encode(found) == data
    assert type(found) is type(value)
    return found


# -------------------------------------------------------------------------- exceptions


def facts(error: BaseException | None) -> Any:
    """What is to come back of an exception."""
    if error is None:
        return None
    inner = [facts(each) for each in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    return type(error), repr(error.args), str(error), vars(error), facts(error.__cause__), inner


def caused() -> ValueError:
    try:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer", 2) from error
    except ValueError as error:
        error.add_note("while counting")
        return error


def undecodable() -> UnicodeDecodeError:
    try:
        b"a\xff".decode()
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    "error",
    [
        ValueError(),
        ValueError("x", (1, {2}), None),
        KeyError("k"),
        FileNotFoundError(2, "no such file", "a/b"),
        OSError("text only"),
        BlockingIOError(11, "would block", 5),
        OSError(2, "no link", "a", None, "b"),
        undecodable(),
        UnicodeEncodeError("ascii", "a\u00e9", 1, 2, "ordinal not in range"),
        UnicodeTranslateError("a\u00e9", 1, 9, "no such character"),
        UnicodeDecodeError.__new__(UnicodeDecodeError),
        ImportError("no", name="module", path="/x"),
        StopIteration((1, 2)),
        SystemExit(3),
        SyntaxError("bad", ("file", 1, 2, "text", 1, 3)),
        NameError("n", name="n"),
        KeyboardInterrupt(),
        ExceptionGroup("several", [ValueError(1), ExceptionGroup("inner", [KeyError("k")])]),
        BaseExceptionGroup("base", [KeyboardInterrupt()]),
        caused(),
        Refusal(3, reason="no"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_an_exception_is_data(error: BaseException) -> None:
    Refusal.made.clear()
    found = back(error)
    assert facts(found) == facts(error)
    assert Refusal.made == [], "no constructor of the program was called"
    assert found.__traceback__ is None
    names = (
        "errno",
        "strerror",
        "filename",
        "filename2",
        "characters_written",
        "object",
        "encoding",
        "reason",
        "start",
    )
    for name in (*names, "end", "name", "path", "value", "code", "lineno"):
        assert getattr(found, name, None) == getattr(error, name, None)


def test_an_exception_with_slots_comes_back() -> None:
    made = ValueError.__new__(Slotted)
    made.args, made.place = ("x",), (1, 2)
    found = back(made)
    assert (found.args, found.place) == (("x",), (1, 2))
    assert not hasattr(back(ValueError.__new__(Slotted)), "place")


def test_what_an_exception_refers_to_is_not_stored_or_refused() -> None:
    with pytest.raises(AttributeError) as caught:
        object().missing  # type: ignore[attr-defined]  # noqa: B018  # that it fails is what is wanted
    assert caught.value.obj is not None
    assert back(caught.value).obj is None
    with pytest.raises(UnstorableValueError, match=r"\$\[0\]\[1\]: a value of type object"):
        codec().encode(ValueError("x", object()), key="error")
    looped = ValueError("x")
    looped.__cause__ = looped
    with pytest.raises(UnstorableValueError, match="contains itself"):
        codec().encode(looped)
    with pytest.raises(UnstorableValueError, match="GraphInterrupt"):
        codec().encode(GraphInterrupt())


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (UnicodeDecodeError("utf-8", b"abc", 0, 1, "r"), {"start": -(10**9), "end": 1 - 10**9}),
        (UnicodeDecodeError("utf-8", b"abc", 0, 1, "r"), {"object": None}),
        (UnicodeDecodeError("utf-8", b"abc", 0, 1, "r"), {"object": "abc"}),
        (UnicodeEncodeError("ascii", "abc", 0, 1, "r"), {"start": -5, "end": -4}),
        (UnicodeEncodeError("ascii", "abc", 0, 1, "r"), {"object": b"abc"}),
        (UnicodeEncodeError("ascii", "abc", 0, 1, "r"), {"object": 7}),
        (UnicodeEncodeError("ascii", "abc", 0, 1, "r"), {"encoding": [1]}),
        (UnicodeTranslateError("abc", 0, 1, "r"), {"start": -1, "end": 0}),
        (UnicodeTranslateError("abc", 0, 1, "r"), {"reason": None}),
        (UnicodeTranslateError("abc", 0, 1, "r"), {"end": 1.0}),
        (UnicodeTranslateError("abc", 0, 1, "r"), {"start": True}),
    ],
)
def test_a_unicode_error_that_python_could_not_say_is_not_read(error: UnicodeError, wrong: dict[str, Any]) -> None:
    form = built_in_exception(f"builtins:{type(error).__name__}")
    assert form is not None
    parts, others = form.parts(error)
    arguments = Ext(tags.TUPLE, pack(list(others[0])))
    sound = pack(Ext(tags.OBJECT, pack([form.name, parts, arguments, None])))
    assert str(Codec().decode(sound)) == str(error)
    hostile = pack(Ext(tags.OBJECT, pack([form.name, parts | wrong, arguments, None])))
    with pytest.raises(DecodeError, match="not the parts of a Unicode error"):
        Codec().decode(hostile)


def test_a_unicode_error_that_could_not_be_read_is_not_written() -> None:
    error = UnicodeEncodeError("ascii", "abc", 0, 1, "r")
    error.start = -5
    error.object = 5  # type: ignore[assignment]  # Python allows it
    with pytest.raises(UnstorableValueError, match="encoding, object, start, end and reason"):
        Codec().encode(error)


def test_an_unknown_exception_is_refused_when_written_and_when_read() -> None:
    with pytest.raises(UnstorableValueError, match=r"saver\.register\(Refusal\)"):
        Codec().encode([Refusal(1, reason="x")])
    with pytest.raises(DecodeError, match="which is not known here"):
        Codec().decode(codec().encode(Refusal(1, reason="x")))
    for name in ("builtins:open", "builtins:object", "builtins:nothing", "builtins:__import__", "os:error"):
        with pytest.raises(DecodeError, match="which is not known here"):
            Codec().decode(pack(Ext(tags.OBJECT, pack([name, None, Ext(tags.TUPLE, pack(["x"])), None]))))
    wrong: Any = ([[], None], [None, None], [Ext(tags.TUPLE, b"\x90"), "cause"], [Ext(tags.TUPLE, b"\x90")])
    for parts in wrong:
        with pytest.raises(DecodeError):
            Codec().decode(pack(Ext(tags.OBJECT, pack(["builtins:ValueError", None, *parts]))))


def test_a_node_may_keep_its_error_in_the_state(run: Sync, saver: Saver) -> None:
    class State(TypedDict, total=False):
        error: Refusal | None
        log: list[str]

    graph = build({"a": lambda s: {"error": Refusal(7, reason="late")}}, chain("a"), saver, state=State)
    run.invoke(graph, {}, thread())
    found = run.state(graph, thread()).values["error"]
    assert (type(found), found.code, str(found)) == (Refusal, 7, "7: late")


# ------------------------------------------------------------------------- other values

VALUES: list[Any] = [
    None, True, 2**5000, -(2**5000), 5e-324, float("-inf"), -0.0, "\ud800", b"", bytearray(b"\0"), [], (), set(),
    frozenset({frozenset()}), {(): {1: "a", 2.5: "b", None: "c"}}, deque([1], 0), deque([1, 2], 1),
    OrderedDict(b=1, a=2), defaultdict(Outer.Frozen, {"x": Outer.Frozen(1)}), defaultdict(dict),
    Counter(a=-1, b=0), Counter({(1,): 2.5}),
    datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999),
    datetime(2026, 10, 25, 2, tzinfo=ZoneInfo("Etc/GMT+5")),
    datetime(2026, 10, 25, 2, 30, tzinfo=timezone(timedelta(seconds=-1), "odd"), fold=1), timedelta.min, timedelta.max,
    ZoneInfo("America/Argentina/Buenos_Aires"), UUID(int=0), uuid1(), UUID(int=1, is_safe=SafeUUID.unsafe),
    Decimal("-0E-999999"), Decimal("-Infinity"), Decimal("sNaN123"), Fraction(-1, 3), Fraction(3**50_000, 2**50_000),
    complex(float("inf"), -0.0), Path("."), PurePosixPath("/"), PureWindowsPath("C:/a"), range(0, -10, -3),
    Outer.Colour.RED, Outer.Level.LOW | Outer.Level.HIGH, Outer.Level(0), Outer.Level(9), Outer.Point(1, (2,)),
    Outer.Frozen(1), Item(1), Item(1, Item(2, None)), Box[int](content=1), Box[list[str]](content=["a"], label="x"),
    Box(content=(1,)), msgspec.UNSET,
    numpy.array([], dtype="datetime64[ns]"), numpy.zeros((2, 0, 3), "c8"), numpy.array(7, "u1"), numpy.zeros(3, "V0"),
    numpy.array([(1, (2.0, b"x"))], [("a", "<i2"), ("b", [("c", ">f4"), ("d", "S2")])]),
    numpy.timedelta64(3, ("s", 25)),
    numpy.datetime64("NaT"), numpy.complex64(1 - 2j), numpy.bytes_(b"ab"), numpy.void(b"\1\2"), numpy.longdouble("0.1"),
    numpy.asfortranarray(numpy.arange(24.0).reshape(2, 3, 4)), numpy.array(["é", "日本"]), numpy.float16("nan"),
    numpy.array([1, 2], ">i8"), numpy.array([True]), numpy.array([("a", 1)], dtype=[("", "U1"), ("n", "i1")]),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_every_kind_of_value_comes_back(value: Any) -> None:
    assert same(back(value), value)
    assert same(back({"in": [(value,)]}), {"in": [(value,)]})
    if getattr(value, "dtype", None) is not None:
        assert back(value).dtype == value.dtype


def test_a_large_fraction_is_one() -> None:
    found = back(Fraction(3**50_000, 2**50_000))
    assert found == Fraction(3**50_000, 2**50_000)
    assert found * 2 == Fraction(3**50_000, 2**49_999)


def test_a_generic_model_keeps_its_parameter(tmp_path: Path) -> None:
    class State(TypedDict, total=False):
        box: Box[int]

    path = tmp_path / "x.db"
    with SqliteSaver(path) as saver:
        graph = build({"a": lambda s: {"box": Box[int](content=5)}}, chain("a"), saver, state=State)
        graph.invoke({}, thread())
    with SqliteSaver(path) as saver:
        graph = build({"a": lambda s: {}}, chain("a"), saver, state=State)
        found = graph.get_state(thread()).values["box"]
    assert (type(found), found.content, found.model_fields_set) == (Box[int], 5, {"content"})


def nameless_zone() -> ZoneInfo:
    """A zone that was read from a file."""
    header = b"TZif" + bytes(16) + struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    return ZoneInfo.from_file(io.BytesIO(header + struct.pack(">lbb", 0, 0, 0) + b"UTC\0"))


@pytest.mark.parametrize(
    "value",
    [
        numpy.array([object()]), numpy.zeros((2**40,), "V0"), numpy.array([{}], dtype="O"), numpy.ma.array([1]),
        nameless_zone(),
        type("L", (list,), {})(), json.JSONDecoder(), iter([]), (item for item in [1]), NotImplemented, Outer,
        UTC.utcoffset,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_everything_else_is_refused_by_the_step_that_wrote_it(run: Sync, value: Any) -> None:
    class State(TypedDict, total=False):
        things: Any

    graph = build(
        {"writer": lambda s: {"things": {"deep": [1, value]}}}, chain("writer"), SqliteSaver(":memory:"), state=State
    )
    with pytest.raises(InvalidUpdateError, match=r"node 'writer': key 'things' at \$\.deep\[1\]") as caught:
        run.invoke(graph, {}, thread())
    assert isinstance(caught.value, UnstorableValueError)
    assert (caught.value.node, caught.value.key, caught.value.path) == ("writer", "things", "$.deep[1]")
    assert type(value).__name__ in caught.value.type_name


# ----------------------------------------------------------------------------- hostile


def ext(code: int, body: Any) -> bytes:
    return pack(Ext(code, body if isinstance(body, bytes) else pack(body)))


def nested(levels: int, core: bytes) -> bytes:
    """A tuple in a tuple in a tuple ..."""
    sizes = [len(core)]
    for _ in range(levels):
        sizes.append(sizes[-1] + 1 + 6)
    heads = [b"\xc9" + (size + 1).to_bytes(4, "big") + b"\x01\x91" for size in reversed(sizes[:-1])]
    return b"".join(heads) + core


MEGABYTE = 1_000_000
HOSTILE = {
    "an array of a huge shape": ext(tags.ARRAY, ["<f8", [2**62], "C", b""]),
    "an array that is empty and huge": ext(tags.ARRAY, ["<f8", [0, 2**62], "C", b""]),
    "an array of many items without size": ext(tags.ARRAY, ["|V0", [2**40], "C", b""]),
    "an array of a hundred dimensions": ext(tags.ARRAY, ["<f8", [1] * 100, "C", b"\0" * 8]),
    "an array of objects": ext(tags.ARRAY, ["|O", [1], "C", b"\0" * 8]),
    "an array of objects in a field": ext(tags.ARRAY, [[["a", "|O"]], [1], "C", b"\0" * 8]),
    "a dtype with a comma": ext(tags.ARRAY, ["i4,O", [1], "C", b"\0" * 12]),
    "a dtype of another spelling": ext(tags.ARRAY, ["a5", [1], "C", b"\0" * 5]),
    "a long dtype": ext(tags.ARRAY, ["i4," * MEGABYTE, [1], "C", b""]),
    "a dtype that is a dict": ext(tags.ARRAY, [{"names": ["a"], "formats": ["O"]}, [1], "C", b""]),
    "a dtype with a huge field": ext(tags.ARRAY, [[["a", "<i4", [2**30, 2**30]]], [1], "C", b"\0" * 4]),
    "a dtype that contains many": ext(tags.ARRAY, [[["a", "<i4"]] * 2, [1], "C", b"\0" * 8]),
    "a shape that is a text": ext(tags.ARRAY, ["<f8", "1", "C", b"\0" * 8]),
    "a timedelta of too many days": ext(tags.TIMEDELTA, [10**9 + 1, 0, 0]),
    "a timedelta of infinity": ext(tags.TIMEDELTA, [float("inf"), 0, 0]),
    "a zone outside": ext(tags.ZONE, b"../../etc/passwd"),
    "an absolute zone": ext(tags.ZONE, b"/etc/passwd"),
    "a zone with a NUL": ext(tags.ZONE, b"Europe/Berlin\0"),
    "a zone that is a module": ext(tags.ZONE, b"os.path/x"),
    "a huge zone": ext(tags.ZONE, b"A" * MEGABYTE),
    "a deep zone": ext(tags.ZONE, b"A/" * 10 + b"A"),
    "a decimal of a giant exponent": ext(tags.DECIMAL, b"1E+9999999999999999999999"),
    "a fraction of nothing": ext(tags.FRACTION, [1, 0]),
    "a fraction of floats": ext(tags.FRACTION, [1.0, 2.0]),
    "a large fraction of nothing": ext(tags.FRACTION, [Ext(tags.INTEGER, b"\x7f" * MEGABYTE), 0]),
    "a deque of a giant length": ext(tags.DEQUE, [2**64 - 1, 1]),
    "a deque of nothing": ext(tags.DEQUE, []),
    "a counter of lists": ext(tags.COUNTER, [[1], 1]),
    "a key without a value": ext(tags.ORDERED, ["a", 1, "b"]),
    "a set of dicts": ext(tags.SET, [{}]),
    "nested tuples": nested(100_000, b"\xc0"),
    "nested tuples around a megabyte": nested(100_000, ext(tags.TEXT, b"a" * MEGABYTE)),
    "nested lists": b"\x91" * MEGABYTE,
    "nested dicts": b"\x81\xa1a" * MEGABYTE,
    "a factory that is a function": ext(tags.DEFAULT, ["os.system"]),
    "a class that is a module's": ext(tags.OBJECT, ["os:system", None, "ls"]),
    "a path of another kind": ext(tags.PATH, ["__class__", "x"]),
    "a path of another system": ext(
        tags.PATH, ["WindowsPath" if Path().__class__.__name__ == "PosixPath" else "PosixPath", "x"]
    ),
    "a list that claims four billion": b"\xdd\xff\xff\xff\xff",
    "a dict that claims four billion": b"\xdf\xff\xff\xff\xff",
    "bytes that claim four billion": b"\xc6\xff\xff\xff\xff",
    "a tag that claims four billion": b"\xc9\xff\xff\xff\xff\x01",
    "an unknown tag": ext(100, b"\xc0"),
    "an unknown tag around anything": ext(-5, b"\xc1"),
    "more after the end": b"\xc0\xc0",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_an_error_and_cost_little(name: str) -> None:
    data, made = HOSTILE[name], codec()
    tracemalloc.start()
    began = time.perf_counter()
    with pytest.raises(DecodeError):
        made.decode(data)
    seconds = time.perf_counter() - began
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * len(data) + 5 * MEGABYTE
    assert seconds < 5


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (ext(tags.DECIMAL, b"1E+999999999999999999"), Decimal("1E+999999999999999999")),
        (ext(tags.INTEGER, b"\x7f" * MEGABYTE), int.from_bytes(b"\x7f" * MEGABYTE, "little")),
        (ext(tags.RANGE, [0, 2**64 - 1, 1]), range(2**64 - 1)),
        (ext(tags.DEQUE, [2**63 - 1, 1]), deque([1], 2**63 - 1)),
    ],
    ids=["decimal", "int", "range", "deque"],
)
def test_large_values_cost_what_they_take(data: bytes, value: Any) -> None:
    began = time.perf_counter()
    found = codec().decode(data)
    assert found == value
    assert hash(found) == hash(value) if not isinstance(value, deque) else found.maxlen == value.maxlen
    assert time.perf_counter() - began < 5


def test_a_large_fraction_costs_little() -> None:
    parts = [Ext(tags.INTEGER, b"\x7f" * MEGABYTE), Ext(tags.INTEGER, b"\x7d" * MEGABYTE)]
    began = time.perf_counter()
    codec().decode(ext(tags.FRACTION, parts))
    assert time.perf_counter() - began < 5
