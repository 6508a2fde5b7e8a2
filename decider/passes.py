"""Decides which rows run together in one pass of the network.

A pass pads its rows to the longest of them, and the network's time and memory grow with rows * tokens^2: the cells of
its attention. So rows of similar length belong together, and no pass may have more cells than the memory has room for.
"""

from __future__ import annotations

from collections.abc import Sequence


def cells(rows: int, tokens: int, per_token: int = 0) -> int:
    """Return the attention cells of a pass over so many rows, each padded to so many tokens.

    `per_token` is what a token costs beyond that, in cells (see decider.rows.AnyLayout).
    """
    return rows * tokens * (tokens + per_token)


def plan_passes(lengths: Sequence[int], max_waste: float, max_cells: int, per_token: int = 0) -> list[list[int]]:
    """Distribute rows of these lengths (in tokens) over passes; return the places of the rows of each pass.

    In no pass is padding more than the share `max_waste` of its tokens (0: equal lengths alone; 1: whatever comes), and
    none has more than `max_cells` attention cells, unless one row alone has. Longest rows come first. Raises ValueError
    for a share outside 0 to 1.
    """
    if not 0 <= max_waste <= 1:
        raise ValueError(f"max_waste is {max_waste!r}: give the share of padding that is allowed, from 0 to 1")
    passes: list[list[int]] = []
    width = filled = 0
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        length = lengths[place]
        count = len(passes[-1]) + 1 if passes else 0
        fits = (
            count and cells(count, width, per_token) <= max_cells and filled + length >= (1 - max_waste) * count * width
        )
        if fits:
            passes[-1].append(place)
            filled += length
        else:
            passes.append([place])
            width = filled = length
    return passes
