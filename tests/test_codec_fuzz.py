"""Bytes that no saver wrote are read as some value or are a DecodeError; a million of them run every night."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import fuzz_codec
import pytest
from fuzz_codec import codec_for_fuzzing, random_input, random_value, read
from hypothesis import given, settings
from hypothesis import strategies as st

from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.sameness import same
from minigraph.errors import DecodeError, UnstorableValueError

ROOT = Path(__file__).parent.parent
CODEC = codec_for_fuzzing()
seeds = st.integers(0, 2**64)


@given(seeds)
def test_a_random_value_comes_back(seed: int) -> None:
    value = random_value(random.Random(seed))
    assert same(CODEC.decode(CODEC.encode(value)), value)


@given(st.binary(max_size=80))
def test_bytes_of_chance(data: bytes) -> None:
    assert read(CODEC, data)


@given(seeds, st.data())
def test_one_byte_that_changed(seed: int, data: st.DataObject) -> None:
    stored = bytearray(CODEC.encode(random_value(random.Random(seed))))
    stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    assert read(CODEC, bytes(stored))


@given(seeds, st.data())
def test_bytes_that_end_early(seed: int, data: st.DataObject) -> None:
    stored = CODEC.encode(random_value(random.Random(seed)))
    with pytest.raises(DecodeError):
        CODEC.decode(stored[: data.draw(st.integers(0, len(stored) - 1))])


@given(seeds)
@settings(max_examples=1000)
def test_inputs_as_they_run_at_night(seed: int) -> None:
    assert read(CODEC, random_input(random.Random(seed), CODEC))


def test_an_input_is_known_by_its_number() -> None:
    assert [random_input(random.Random(n), CODEC) for n in range(50)] == [
        random_input(random.Random(n), codec_for_fuzzing()) for n in range(50)
    ]


class Raising(Codec):
    """A codec with a bug."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def decode(self, data: Any, kind: Any = None) -> Any:
        raise self.error


def test_what_is_no_decode_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_codec, "codec_for_fuzzing", lambda: Raising(MemoryError("much")))
    monkeypatch.setattr(fuzz_codec, "random_input", lambda chance, codec: b"\xc0")
    found = fuzz_codec.run(5, 3, 5.0)
    assert [number for number, _ in found.failures] == [5, 6, 7]
    assert "MemoryError: much (c0)" in found.failures[0][1]


def test_what_takes_long_or_does_not_come_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fuzz_codec.run(0, 1, -1.0).failures[0][1].startswith("it took 0.0 s")

    class Forgetful(Codec):
        def encode(self, value: object, *, key: str | None = None, at: str = "$") -> bytes:
            return super().encode([value], key=key, at=at)

    with pytest.raises(AssertionError, match="does not come back"):
        read(Forgetful(), b"\xc0")

    class Narrow(Codec):
        def encode(self, value: object, *, key: str | None = None, at: str = "$") -> bytes:
            raise UnstorableValueError("no")

    assert read(Narrow(), b"\xc0") == "read, and not to be stored again"


def test_the_command_says_what_it_did() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "fuzz_codec.py"), "--inputs", "300", "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    for part in ("300 inputs from number 0", "DecodeError from", "peak memory", "slowest input", "0 failures"):
        assert part in done.stdout
