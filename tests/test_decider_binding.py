"""Bound buffers give what an ordinary run gives. The device is the CPU here, through the same classes as CUDA."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from decider import Decider, Noul
from decider.binding import SHAPES_KEPT, BoundRunner
from decider.rows import collate
from decider.session import import_onnxruntime

TINY = Path(__file__).parent / "data" / "tiny_decider"


@pytest.fixture(scope="module")
def decider() -> Decider:
    return Decider.load(TINY, "cpu", threads=1)


@pytest.fixture
def bound(decider: Decider) -> BoundRunner:
    return BoundRunner(decider._runner, import_onnxruntime(), "cpu")  # type: ignore[arg-type]


def inputs(decider: Decider, words: int, rows: int = 1) -> dict[str, NDArray[np.int64]]:
    row = decider.encode("seat " * words, {"q": Noul("Is it full?")}).request.rows[0]
    return collate([row] * rows, decider.layout.graph.padding)


def test_shapes_in_any_order_give_what_a_plain_run_gives(decider: Decider, bound: BoundRunner) -> None:
    for words, rows in ((1, 1), (9, 3), (1, 1), (2, 5), (9, 3)):
        batch = inputs(decider, words, rows)
        (wanted,), (given,) = decider._runner.run(["logits"], batch), bound.run(["logits"], batch)
        np.testing.assert_array_equal(np.asarray(given), np.asarray(wanted))


def test_what_was_given_out_is_not_overwritten(decider: Decider, bound: BoundRunner) -> None:
    (first,) = bound.run(None, inputs(decider, 3))
    kept = np.array(first)
    bound.run(None, inputs(decider, 3) | {"input_ids": np.zeros_like(inputs(decider, 3)["input_ids"])})
    np.testing.assert_array_equal(np.asarray(first), kept)


def test_buffers_are_reused_and_no_more_are_kept_than_a_few(decider: Decider, bound: BoundRunner) -> None:
    bound.run(None, inputs(decider, 1))
    (first,) = bound._kept.values()
    bound.run(None, inputs(decider, 1))
    assert list(bound._kept.values()) == [first]
    for words in range(2, SHAPES_KEPT + 5):
        bound.run(None, inputs(decider, words))
        bound.run(None, inputs(decider, 1))
    assert len(bound._kept) == SHAPES_KEPT
    assert first in bound._kept.values()


def test_threads_take_turns(decider: Decider, bound: BoundRunner) -> None:
    batches = [inputs(decider, 1 + number % 4, 1 + number % 3) for number in range(60)]
    with ThreadPoolExecutor(8) as pool:
        given = list(pool.map(lambda batch: np.asarray(bound.run(None, batch)[0]), batches))
    for batch, logits in zip(batches, given, strict=True):
        np.testing.assert_array_equal(logits, np.asarray(decider._runner.run(None, batch)[0]))


def test_another_output_is_refused(decider: Decider, bound: BoundRunner) -> None:
    with pytest.raises(ValueError, match="hidden"):
        bound.run(["hidden"], inputs(decider, 1))
