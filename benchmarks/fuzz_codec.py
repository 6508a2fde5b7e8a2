"""Gives the codec bytes that no saver wrote: each must be read as some value, or be a DecodeError, at little cost.

    python benchmarks/fuzz_codec.py --inputs 1000000 --jobs 2

Inputs are mutations of what the codec writes for random values, pieces of several of them put together, well-formed
data of another shape, and bytes of chance. Each has a seed of its own, so that a failure is repeated with
`--first N --inputs 1 --jobs 1`. What was read is encoded again, where it can be, and read once more. Prints the
inputs, the errors by kind, the peak memory and the slowest input; exit status 1 if anything else than a DecodeError
was raised, or an input took longer than --seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import sys
import time
import traceback
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import numpy

from minigraph.checkpoint import tags
from minigraph.checkpoint.codec import Codec
from minigraph.errors import DecodeError, UnstorableValueError

BATCH: Final = 5_000
_TAGS: Final = (*range(1, 32), 100, -1)


class Colour(Enum):
    """An enum of the program."""

    RED = 1


class Point(NamedTuple):
    """A named tuple of the program."""

    x: Any
    y: Any = None


@dataclass(frozen=True, slots=True)
class Frozen:
    """A dataclass of the program."""

    a: Any
    b: Any = field(default=None, init=False)


class Item(msgspec.Struct):
    """A Struct of the program."""

    n: Any
    more: Any = msgspec.UNSET


KNOWN: Final = (Colour, Point, Frozen, Item)


class Outcome(NamedTuple):
    """What became of a batch of inputs: how many of each kind, failures by input, the slowest one."""

    kinds: Counter[str]
    failures: list[tuple[int, str]]
    slowest: tuple[float, int, int]
    """Seconds, number of the input, its bytes."""


def codec_for_fuzzing() -> Codec:
    """A codec that knows some classes."""
    made = Codec()
    made.register(*KNOWN)
    return made


def random_value(chance: random.Random, depth: int = 3) -> Any:
    """A value of any kind that can be stored."""
    if depth and chance.random() < 0.5:
        items = [random_value(chance, depth - 1) for _ in range(chance.randrange(4))]
        names = [random_leaf(chance, hashable=True) for _ in items]
        return chance.choice(_CONTAINERS)(items, names)
    return random_leaf(chance)


_CONTAINERS: Final[tuple[Any, ...]] = (
    lambda items, names: items,
    lambda items, names: tuple(items),
    lambda items, names: dict(zip(names, items, strict=True)),
    lambda items, names: {str(name): item for name, item in zip(names, items, strict=True)},
    lambda items, names: set(names),
    lambda items, names: frozenset(names),
    lambda items, names: Counter(names),
    lambda items, names: deque(items, 3),
    lambda items, names: OrderedDict(zip(names, items, strict=True)),
    lambda items, names: defaultdict(list, zip(names, items, strict=True)),
    lambda items, names: Point(*items[:2]) if items else Point(1),
    lambda items, names: Frozen(items),
    lambda items, names: Item(items),
    lambda items, names: ValueError(*items),
)


def random_leaf(chance: random.Random, *, hashable: bool = False) -> Any:
    """A value without parts."""
    kinds = _LEAVES if hashable else (*_LEAVES, *_UNHASHABLE)
    return chance.choice(kinds)(chance)


def random_exception(chance: random.Random) -> BaseException:
    """An exception of Python's own with parts beneath its arguments."""
    start, text = chance.randrange(4), "abc"
    kinds: tuple[Callable[[], BaseException], ...] = (
        lambda: UnicodeDecodeError("utf-8", text.encode(), start, start + 1, "no"),
        lambda: UnicodeEncodeError("ascii", text, start, start + 1, "no"),
        lambda: UnicodeTranslateError(text, start, start + 1, "no"),
        lambda: OSError(2, "no", "a", None, "b"),
        lambda: BlockingIOError(11, "no", start),
        lambda: SyntaxError("bad", ("file", 1, 2, text, 1, 3)),
        lambda: ImportError("no", name="a", path="b"),
        lambda: StopIteration(start),
        lambda: SystemExit(start),
        lambda: KeyError(text),
        lambda: NameError("no", name=text),
        lambda: AttributeError("no", name=text),
        lambda: ExceptionGroup(text, [ValueError(start)]),
    )
    return chance.choice(kinds)()


_LEAVES: Final[tuple[Any, ...]] = (
    lambda chance: None,
    lambda chance: chance.random() < 0.5,
    lambda chance: chance.randrange(-(2 ** chance.randrange(1, 200)), 2 ** chance.randrange(1, 200)),
    lambda chance: chance.choice((0.0, -0.0, float("nan"), float("inf"), 1e300, chance.random())),
    lambda chance: "".join(chr(chance.choice((65, 0, 233, 0xD800, 0x1F600))) for _ in range(chance.randrange(5))),
    lambda chance: chance.randbytes(chance.randrange(6)),
    lambda chance: datetime(2026, 1, 1 + chance.randrange(28), tzinfo=chance.choice((None, UTC, ZoneInfo("UTC")))),
    lambda chance: timedelta(chance.randrange(-1000, 1000), chance.randrange(1000)),
    lambda chance: Decimal(chance.choice(("1.50", "-0", "NaN", "1E+99", "-Infinity"))),
    lambda chance: Fraction(chance.randrange(-9, 9), chance.randrange(1, 9)),
    lambda chance: complex(chance.random(), float("nan")),
    lambda chance: UUID(int=chance.getrandbits(128)),
    lambda chance: PurePosixPath("a", str(chance.randrange(9))),
    lambda chance: range(chance.randrange(9)),
    lambda chance: Colour.RED,
)
_UNHASHABLE: Final[tuple[Any, ...]] = (
    lambda chance: bytearray(chance.randbytes(3)),
    lambda chance: numpy.arange(chance.randrange(5)).astype(chance.choice(("<i4", ">f8", "<U2", "|S3", "?"))),
    lambda chance: numpy.array([(1, 2.5)], dtype=[("a", "<i4"), ("b", ">f8")]),
    lambda chance: numpy.float32(chance.random()),
    lambda chance: numpy.datetime64("2026-01-01", "s"),
    random_exception,
)


def random_input(chance: random.Random, codec: Codec) -> bytes:
    """Bytes to be read: a mutation of stored ones, pieces of several, or chance."""
    kind = chance.random()
    if kind < 0.05:
        return chance.randbytes(chance.randrange(40))
    data = bytearray(codec.encode(random_value(chance)))
    if kind > 0.4:
        return msgspec.msgpack.encode(_reshaped(chance, _decode(data), 0.5))
    if kind < 0.15:
        other = codec.encode(random_value(chance))
        cut, start = chance.randrange(len(data) + 1), chance.randrange(len(other) + 1)
        data[cut:] = other[start:]
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        _mutate(chance, data)
    if kind > 0.3:
        body = bytes(data) if kind > 0.35 else msgspec.msgpack.encode([msgspec.Raw(bytes(data))])
        return msgspec.msgpack.encode(msgspec.msgpack.Ext(chance.choice(_TAGS), body))
    return bytes(data)


_decode: Final = msgspec.msgpack.Decoder(ext_hook=lambda code, data: msgspec.msgpack.Ext(code, bytes(data))).decode
_PARTS: Final[tuple[Any, ...]] = (
    *(
        None,
        True,
        0,
        -1,
        2**63,
        2**64 - 1,
        -(2**63),
        0.5,
        float("nan"),
        float("inf"),
        "",
        "x",
        "C",
        "<f8",
        "|O",
        "a/../b",
    ),
    *(b"", b"\0" * 8, [], {}, [1, 2], {"a": 1}, [["a", "<i4"]], "builtins:OSError", "Send", "os:system", 10**9),
)


def _reshaped(chance: random.Random, value: Any, share: float) -> Any:
    """Well-formed data of another shape: parts replaced, left out, doubled, or under another tag."""
    if chance.random() < share * 0.2:
        return chance.choice(_PARTS)
    if isinstance(value, msgspec.msgpack.Ext):
        code = chance.choice(_TAGS) if chance.random() < share * 0.2 else value.code
        try:
            body = msgspec.msgpack.encode(_reshaped(chance, _decode(value.data), share))
        except (msgspec.DecodeError, TypeError, OverflowError):
            body = bytes(value.data) + (b"x" if chance.random() < 0.1 else b"")
        return msgspec.msgpack.Ext(code, body)
    if isinstance(value, list):
        times = [chance.choice((1, 1, 1, 1, 1, 1, 1, 0, 2)) for _ in value]
        return [_reshaped(chance, item, share) for item, count in zip(value, times, strict=True) for _ in range(count)]
    if isinstance(value, dict):
        return {name: _reshaped(chance, item, share) for name, item in value.items() if chance.random() < 0.95}
    return value


def _mutate(chance: random.Random, data: bytearray) -> None:
    place = chance.randrange(len(data) + 1)
    match chance.randrange(6):
        case 0 if data:
            data[place % len(data)] = chance.randrange(256)
        case 1 if data:
            data[place % len(data)] ^= 1 << chance.randrange(8)
        case 2:
            data[place:place] = chance.randbytes(chance.randrange(1, 5))
        case 3:
            del data[place : place + chance.randrange(1, 5)]
        case 4:
            data[place:place] = data[place : place + chance.randrange(1, 20)]
        case _:
            data[place:place] = chance.choice(_TOKENS)


_TOKENS: Final = (
    *(
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\x7f\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xc9\x00\x00\x00\x05\x01",
        b"\x91",
        b"\x81",
    ),
    *(b"\xc0", b"\xcf" + b"\xff" * 8, b"\xd3\x80" + b"\x00" * 7, b"\xcb\x7f\xf8" + b"\x00" * 6, b"\xc1"),
    *(bytes((0xC7, 1, code, 0xC0)) for code in range(1, 32)),
)


def read(codec: Codec, data: bytes) -> str:
    """Reads bytes and says what became of them. Raises what is no DecodeError."""
    try:
        value = codec.decode(data)
    except DecodeError as error:
        cause = error.__cause__
        return "DecodeError" if cause is None else f"DecodeError from {type(cause).__name__}"
    try:
        _say(value)
        again = codec.encode(value)
    except UnstorableValueError:
        return "read, and not to be stored again"
    if codec.encode(codec.decode(again)) != again and not _unordered(again):
        raise AssertionError("what was read does not come back")
    return f"read as {type(value).__name__}"


def _say(value: Any) -> None:
    """Has Python say every exception in a value: it may refuse that, and must not die of it."""
    waiting: list[Any] = [value]
    for _ in range(1000):
        if not waiting:
            return
        found = waiting.pop()
        if isinstance(found, BaseException):
            for say in (str, repr, lambda error: "".join(traceback.format_exception(error))):
                with contextlib.suppress(Exception):
                    say(found)
            waiting += [*found.args, *vars(found).values()]
        elif isinstance(found, dict):
            waiting += [*found, *found.values()]
        elif isinstance(found, list | tuple | set | frozenset | deque):
            waiting += found


def _unordered(data: bytes) -> bool:
    """Whether there may be a set in it, whose order is not kept."""
    return bytes((tags.SET,)) in data or bytes((tags.FROZENSET,)) in data


def run(first: int, count: int, seconds: float) -> Outcome:
    """Reads the inputs with these numbers."""
    codec = codec_for_fuzzing()
    kinds: Counter[str] = Counter()
    failures: list[tuple[int, str]] = []
    slowest = (0.0, first, 0)
    for number in range(first, first + count):
        data = random_input(random.Random(number), codec)
        began = time.perf_counter()
        try:
            kinds[read(codec, data)] += 1
        except BaseException as error:
            failures.append((number, f"{type(error).__name__}: {error} ({data.hex()})"))
            if isinstance(error, KeyboardInterrupt):
                raise
        took = time.perf_counter() - began
        slowest = max(slowest, (took, number, len(data)))
        if took > seconds:
            failures.append((number, f"it took {took:.1f} s ({data.hex()})"))
    return Outcome(kinds, failures, slowest)


def _peak_megabytes() -> float:
    mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return max(mine, children) / 1024


def main() -> int:
    """Runs all inputs and prints what became of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first input, which is its seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long one input may take")
    given = parser.parse_args()
    began, total = time.monotonic(), Outcome(Counter(), [], (0.0, 0, 0))
    starts = range(given.first, given.first + given.inputs, BATCH)
    counts = [min(BATCH, given.first + given.inputs - start) for start in starts]
    with ProcessPoolExecutor(given.jobs) as pool:
        for kinds, failures, slowest in pool.map(run, starts, counts, [given.seconds] * len(counts)):
            total = Outcome(total.kinds + kinds, total.failures + failures, max(total.slowest, slowest))
    took, number, size = total.slowest
    print(f"{given.inputs} inputs from number {given.first} in {time.monotonic() - began:.0f} s with {given.jobs} jobs")
    for kind, count in total.kinds.most_common():
        print(f"{count:10} {kind}")
    print(f"peak memory of a process {_peak_megabytes():.0f} MB")
    print(f"slowest input number {number}: {took * 1000:.1f} ms for {size} bytes")
    print(f"{len(total.failures)} failures")
    for number, said in total.failures[:20]:
        print(f"  number {number}: {said}")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
