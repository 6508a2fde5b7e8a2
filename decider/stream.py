"""Answers a stream of requests in bounded memory: a window of rows is read ahead, planned into passes and answered.

Memory grows with the window and the largest pass, not with the stream. A larger window finds more rows of equal
length; a larger pass buys nothing on a CPU, where one row already keeps the cores busy, and much on a GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Final

from decider.answers import Answers
from decider.errors import about_request
from decider.progress import progress_bar
from decider.protocol import Encoded, Request

if TYPE_CHECKING:
    from decider.model import Decider

# Rows that are read ahead.
WINDOW: Final = 256
# What a pass may cost, in attention cells (see decider.passes).
CPU_PASS: Final = 500_000
CUDA_PASS: Final = 30_000_000


def answer_stream(
    model: Decider, requests: Iterable[Request], max_waste: float, max_cells: int, progress: bool = False
) -> Iterator[Answers]:
    """Yield the answers to each request in its order; see Decider.decide_iter."""
    total = len(requests) if isinstance(requests, Sized) else None
    with progress_bar(total) if progress else contextlib.nullcontext() as bar:
        for window in _windows(model, requests):
            for answers in model.decide_encoded(window, max_waste, max_cells):
                yield answers
                if bar is not None:
                    bar.advance(1)


def _windows(model: Decider, requests: Iterable[Request]) -> Iterator[list[Encoded]]:
    """Lay requests out, WINDOW rows at a time; what stands before an error is a window too, whoever raises it."""
    window: list[Encoded] = []
    rows = 0
    try:
        for place, (state, questions) in enumerate(requests):
            with about_request(place, "stream"):
                window.append(model.encode(state, questions))
            rows += len(window[-1].request.rows)
            if rows >= WINDOW:
                yield window
                window, rows = [], 0
    except Exception:
        if window:
            yield window
        raise
    if window:
        yield window
