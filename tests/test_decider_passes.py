"""Rows are distributed over passes by length and size, and a stream is answered in order and in bounded memory."""

from __future__ import annotations

import dataclasses
import importlib.util
import io
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from decider import Decider, Noul, QuestionError, Request, RequestTooLargeError, StateError
from decider.layouts import open_layout, read_tokenizer
from decider.manifest import read_manifest
from decider.model import SHIPPED_MODEL
from decider.passes import BYTES_PER_CELL, CELLS_PER_TOKEN, cells, next_pass, plan_passes
from decider.progress import PlainProgress, progress_bar
from decider.session import OpenSession, Runner
from decider.stream import CPU_PASS, WINDOW

TINY = Path(__file__).parent / "data" / "tiny_decider"
TOLERANCE = 1e-5
ANY = 10**9


@pytest.mark.parametrize(
    ("lengths", "max_waste", "max_cells", "expected"),
    [
        ([], 0.5, ANY, []),
        ([7], 0.0, ANY, [[0]]),
        ([3, 9, 10, 3], 0.0, ANY, [[2], [1], [0, 3]]),
        ([3, 9, 10, 3], 0.2, ANY, [[2, 1], [0, 3]]),  # 19 of 20 tokens are used; with a third row 22 of 30
        ([3, 9, 10, 3], 1.0, ANY, [[2, 1, 0, 3]]),
        ([10] * 5, 0.0, 200, [[0, 1], [2, 3], [4]]),  # 2 rows of 10 tokens have 200 cells
        ([10, 30], 1.0, 100, [[1], [0]]),  # a row that is too big goes alone
    ],
)
def test_plans_worked_out_by_hand(
    lengths: list[int], max_waste: float, max_cells: int, expected: list[list[int]]
) -> None:
    assert plan_passes(lengths, max_waste, max_cells) == expected


@given(st.lists(st.integers(1, 700), max_size=60), st.floats(0, 1), st.integers(1, 2_000_000))
def test_every_row_is_in_one_pass_and_no_pass_is_wasteful_or_too_big(
    lengths: list[int], max_waste: float, max_cells: int
) -> None:
    plan = plan_passes(lengths, max_waste, max_cells)
    assert sorted(place for places in plan for place in places) == list(range(len(lengths)))
    for places in plan:
        width = max(lengths[place] for place in places)
        used = sum(lengths[place] for place in places)
        assert len(places) == 1 or cells(len(places), width) <= max_cells
        assert used / (len(places) * width) >= 1 - max_waste - 1e-9


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan")])
def test_a_share_is_between_0_and_1(wrong: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        plan_passes([1], wrong, ANY)


@pytest.mark.parametrize(
    ("lengths", "max_waste", "max_cells", "expected"),
    [
        ([], 1.0, ANY, []),
        ([10, 30], 1.0, 100, [0]),  # beside the first row there is no room for the longer one
        ([30, 10], 1.0, 100, [0]),  # a row that is too big goes alone
        ([3, 10, 3, 10, 3], 0.0, ANY, [0, 2, 4]),
        ([10, 9, 3, 10], 0.2, ANY, [0, 1, 3]),  # with the third row 22 of 30 tokens would be used
        ([10, 10, 10], 1.0, 200, [0, 1]),
        ([3, 9, 10], 1.0, ANY, [0, 1, 2]),
    ],
)
def test_the_next_pass_is_led_by_the_first_row(
    lengths: list[int], max_waste: float, max_cells: int, expected: list[int]
) -> None:
    assert next_pass(lengths, max_waste, max_cells) == expected


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [50, 200, 700, 2600])
@pytest.mark.skipif(not (SHIPPED_MODEL / "decider.json").is_file(), reason="there is no shipped model")
def test_the_largest_pass_that_is_allowed_takes_less_than_a_gigabyte(
    tokens: int, request: pytest.FixtureRequest
) -> None:
    """In a fresh process, beyond what the loaded model takes; BYTES_PER_CELL is an upper bound that is not far off."""
    if "slow" not in str(request.config.getoption("markexpr")):
        pytest.skip("each takes up to half a minute: -m slow runs it")
    if not Path("/proc/self/clear_refs").is_file():
        pytest.skip("the peak of memory is read from Linux's /proc")
    code = f"""
import numpy as np
from decider import Decider, Noul
from decider.passes import cells
def kilobytes(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))
decider = Decider.load(None, "cpu", 2)
decider.decide("seats free", {{"q": Noul("full?")}})
limit, per_token = decider.layout.limits.attention_cells, decider.layout.cells_per_token
rows = limit // cells(1, {tokens}, per_token)
ids = np.full((rows, {tokens}), 50, np.int64)
batch = dict(input_ids=ids, position_ids=ids, question_ids=ids * 0, option_ids=ids * 0)
open("/proc/self/clear_refs", "w").write("5")
before = kilobytes("VmRSS")
decider.run(batch)
print(kilobytes("VmHWM") - before, cells(rows, {tokens}, per_token))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    kilobytes, cost = map(int, done.stdout.split())
    assert kilobytes * 1024 < 1e9
    assert 0.6 < kilobytes * 1024 / (cost * BYTES_PER_CELL) < 1.1


class WatchedRunner:
    """Passes everything on and keeps the shape of each pass."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.shapes: list[tuple[int, int]] = []

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, NDArray[np.int64]]) -> Sequence[object]:
        rows, tokens = input_feed["input_ids"].shape
        self.shapes.append((rows, tokens))
        return self.runner.run(output_names, input_feed)


class ZeroRunner:
    """Gives logits of zero, so that what is measured is not the network."""

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, NDArray[np.int64]]) -> Sequence[object]:
        return [np.zeros((*input_feed["input_ids"].shape, 2), np.float32)]


def with_runner(runner: Runner, attention_cells: int = 60_000_000) -> Decider:
    manifest = read_manifest(TINY)
    limits = dataclasses.replace(manifest.limits, attention_cells=attention_cells)
    layout = open_layout(TINY, read_tokenizer(TINY / "tokenizer.json"), manifest.layout, limits)
    return Decider(manifest, layout, OpenSession(runner, "cpu"), TINY)


def watched() -> tuple[Decider, WatchedRunner]:
    runner = WatchedRunner(Decider.load(TINY, "cpu", threads=1)._runner)
    return with_runner(runner), runner


def requests(count: int) -> list[Request]:
    return [
        (f"seats {number % 10}. " + "please call. " * (number % 7), {"q": Noul("Is it full?")})
        for number in range(count)
    ]


def test_buckets_take_several_passes_of_similar_rows_and_answer_the_same() -> None:
    decider, runner = watched()
    asked = requests(21)
    together = decider.decide_many(asked)
    assert len(runner.shapes) == 1
    in_buckets = decider.decide_many(asked, max_waste=0)
    assert [rows for rows, _ in runner.shapes] == [21] + 7 * [3]  # seven lengths, three states of each
    for left, right in zip(together, in_buckets, strict=True):
        assert left.nouls["q"].noul == pytest.approx(right.nouls["q"].noul, abs=TOLERANCE)


def test_what_is_too_big_for_one_pass_is_split() -> None:
    runner = WatchedRunner(ZeroRunner())
    tokens = len(with_runner(runner).encode(*requests(1)[0]).request.rows[0])
    decider = with_runner(runner, attention_cells=3 * tokens * (tokens + CELLS_PER_TOKEN))
    for max_waste in (1.0, 0.0):
        runner.shapes.clear()
        assert len(decider.decide_many(requests(1) * 4, max_waste)) == 4
        assert runner.shapes == [(3, tokens), (1, tokens)]


def test_one_row_that_is_too_big_is_refused_before_it_is_asked() -> None:
    with pytest.raises(RequestTooLargeError) as caught:
        with_runner(ZeroRunner(), attention_cells=100).encode(*requests(1)[0])
    assert caught.value.limit == 100 < caught.value.cells


def test_a_bad_request_says_which_one_it_was() -> None:
    decider = with_runner(ZeroRunner())
    with pytest.raises(QuestionError) as caught:
        decider.decide_many([*requests(2), ("a", {"odd": {"type": "noul"}})])
    assert caught.value.__notes__ == ["This was request 2 of the call, counted from 0."]


# ---------------------------------------------------------------- streams


def test_a_stream_gives_what_each_request_gives_alone_in_its_order() -> None:
    decider, runner = watched()
    asked = requests(40)
    streamed = list(decider.decide_iter(iter(asked)))
    assert max(cells(*shape) for shape in runner.shapes) <= CPU_PASS
    for answers, (state, questions) in zip(streamed, asked, strict=True):
        assert answers.nouls["q"].noul == pytest.approx(decider.decide(state, questions).nouls["q"].noul, abs=TOLERANCE)


def test_an_empty_stream_gives_nothing() -> None:
    decider, runner = watched()
    assert list(decider.decide_iter([])) == []
    assert runner.shapes == []


def test_a_stream_is_read_no_further_ahead_than_a_window() -> None:
    read = 0

    def endless() -> Iterator[Request]:
        nonlocal read
        while True:
            read += 1
            yield requests(1)[0]

    stream = with_runner(ZeroRunner()).decide_iter(endless())
    assert read == 0
    for _ in range(WINDOW):
        next(stream)
    assert read == WINDOW
    next(stream)
    assert read == 2 * WINDOW


def test_the_answers_before_a_bad_request_are_given_first() -> None:
    stream = with_runner(ZeroRunner()).decide_iter([*requests(3), (None, {"q": Noul("Is it?")}), *requests(1)])
    assert [len(next(stream)) for _ in range(3)] == [1, 1, 1]
    with pytest.raises(StateError) as caught:
        next(stream)
    assert caught.value.__notes__ == ["This was request 3 of the stream, counted from 0."]


class NotOurs(Exception):
    """What a source of requests may raise."""


@pytest.mark.parametrize("error", [NotOurs("the file ended"), ValueError("odd"), StateError("it is odd", "Mend it.")])
@pytest.mark.parametrize("count", [0, 3])
def test_an_error_of_the_source_comes_through_as_it_is_after_the_answers_before_it(
    error: Exception, count: int
) -> None:
    def source() -> Iterator[Request]:
        yield from requests(count)
        raise error

    stream = with_runner(ZeroRunner()).decide_iter(source())
    assert [len(next(stream)) for _ in range(count)] == [1] * count
    with pytest.raises(type(error)) as caught:
        next(stream)
    assert caught.value is error
    assert not hasattr(error, "__notes__")
    assert list(stream) == []


def test_what_is_no_request_is_an_error_after_the_answers_before_it() -> None:
    stream = with_runner(ZeroRunner()).decide_iter([*requests(2), None])  # type: ignore[list-item]
    assert [len(next(stream)) for _ in range(2)] == [1, 1]
    with pytest.raises(TypeError):
        next(stream)


def peak_and_passes(count: int) -> tuple[int, int]:
    """The most bytes that Python and numpy held at once while a stream was answered, and the number of passes."""
    runner = WatchedRunner(ZeroRunner())
    decider = with_runner(runner)
    stream = decider.decide_iter(
        (f"seats {number % 10}", {str(place): Noul("Is it full?") for place in range(3)}) for number in range(count)
    )
    tracemalloc.start()
    answered = sum(len(answers) for answers in stream)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert answered == 3 * count
    assert sum(rows for rows, _ in runner.shapes) == count
    return peak, len(runner.shapes)


def test_memory_does_not_grow_with_the_stream() -> None:
    few, passes = peak_and_passes(2 * WINDOW)
    many, more_passes = peak_and_passes(6 * WINDOW)
    assert more_passes == 3 * passes
    assert many < 1.1 * few
    assert many < 20e6


@pytest.mark.slow
def test_a_hundred_thousand_questions_fit_into_the_memory_of_a_small_program(request: pytest.FixtureRequest) -> None:
    """The real network in a fresh process; tracemalloc does not see what ONNX Runtime takes, the kernel does."""
    if "slow" not in str(request.config.getoption("markexpr")):
        pytest.skip("it takes a minute or two: -m slow runs it")
    if not Path("/proc/self/status").is_file():
        pytest.skip("the peak of memory is read from Linux's /proc")
    code = f"""
from decider import Decider, Noul
full = Noul("full?")
questions = {{str(place): full for place in range(10)}}
requests = ((f"seats free {{number % 50}}", questions) for number in range(10_000))
answered = sum(len(answers) for answers in Decider.load({str(TINY)!r}, "cpu", threads=1).decide_iter(requests))
with open("/proc/self/status") as lines:
    print(answered, next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    answered, kilobytes = map(int, done.stdout.split())
    assert answered == 100_000
    assert kilobytes < 200_000


# --------------------------------------------------------------- progress


def test_plain_progress_shows_the_first_and_the_last_count() -> None:
    stream = io.StringIO()
    progress = PlainProgress(1200, stream)
    for _ in range(1200):
        progress.advance(1)
    progress.close()
    shown = stream.getvalue().split("\r")
    assert shown[1] == "1 of 1,200 requests answered"
    assert shown[-1] == "1,200 of 1,200 requests answered\n"
    assert len(shown) < 10


@pytest.mark.parametrize("installed", [True, False])
def test_a_bar_where_rich_is_installed_and_a_line_where_it_is_not(
    installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if installed:
        pytest.importorskip("rich")
    else:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    stream = io.StringIO()
    with progress_bar(3, stream) as bar:
        bar.advance(3)
    assert ("3/3" if installed else "3 of 3 requests answered") in stream.getvalue()


def test_progress_goes_to_standard_error_and_ends_with_the_stream(capsys: pytest.CaptureFixture[str]) -> None:
    decider = with_runner(ZeroRunner())
    assert len(list(decider.decide_iter(iter(requests(5)), progress=True))) == 5
    next(decider.decide_iter(requests(5), progress=True))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "requests answered" in captured.err
