"""Decides which rows run together in one pass of the network.

A pass pads its rows to the longest of them. Its memory grows with rows * tokens^2, the cells of its attention, and with
the tokens themselves. So rows of similar length belong together, and no pass may cost more than there is memory for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# Measured with the shipped model, the memory of passes from 1 row of 2,000 tokens to 1,000 rows of 50 tokens: a cell
# takes so many bytes while a pass runs, and a token as much as so many cells.
BYTES_PER_CELL: Final = 128
CELLS_PER_TOKEN: Final = 200


def cells(rows: int, tokens: int, per_token: int = 0) -> int:
    """Return what a pass over so many rows costs, each padded to so many tokens, in attention cells.

    `per_token` is what a token costs beyond its attention (see decider.rows.AnyLayout).
    """
    return rows * tokens * (tokens + per_token)


def check_waste(max_waste: float) -> None:
    """Raise ValueError for a share outside 0 to 1."""
    if not 0 <= max_waste <= 1:
        raise ValueError(f"max_waste is {max_waste!r}: give the share of padding that is allowed, from 0 to 1")


def plan_passes(lengths: Sequence[int], max_waste: float, max_cells: int, per_token: int = 0) -> list[list[int]]:
    """Distribute rows of these lengths (in tokens) over passes; return the places of the rows of each pass.

    In no pass is padding more than the share `max_waste` of its tokens (0: equal lengths alone; 1: whatever comes), and
    none costs more than `max_cells`, unless one row alone does. Longest rows come first. Raises ValueError for a share
    outside 0 to 1.
    """
    check_waste(max_waste)
    passes: list[list[int]] = []
    width = filled = 0
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        length = lengths[place]
        count = len(passes[-1]) + 1 if passes else 0
        if count and _fits(count, width, filled + length, max_waste, max_cells, per_token):
            passes[-1].append(place)
            filled += length
        else:
            passes.append([place])
            width = filled = length
    return passes


def next_pass(lengths: Sequence[int], max_waste: float, max_cells: int, per_token: int = 0) -> list[int]:
    """Return the places of the rows of one pass: the first row and, in their order, those that fit in beside it.

    The bounds are those of plan_passes.
    """
    check_waste(max_waste)
    chosen: list[int] = []
    width = filled = 0
    for place, length in enumerate(lengths):
        wider = max(width, length)
        if not chosen or _fits(len(chosen) + 1, wider, filled + length, max_waste, max_cells, per_token):
            chosen.append(place)
            width = wider
            filled += length
    return chosen


def _fits(count: int, width: int, filled: int, max_waste: float, max_cells: int, per_token: int) -> bool:
    """Whether so many rows, padded to `width` and with `filled` tokens of their own, may be one pass."""
    return cells(count, width, per_token) <= max_cells and filled >= (1 - max_waste) * count * width
