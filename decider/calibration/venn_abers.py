"""Gives each yes/no answer an interval of two probabilities, which are far apart where little is known.

A Venn-Abers predictor fits isotonic regression twice, with the new item taken as a no and as a yes. Read at the new
item, the two fits give p0 <= p1, and the one that belongs to the true outcome is calibrated, for any exchangeable data.
That is no confidence interval for the probability itself: the true probability often lies outside.

Sources: Vovk and Petej 2014, arXiv:1211.0025; Vovk, Petej and Fedorova 2015, arXiv:1511.00213.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from decider.answers import Interval
from decider.calibration.columns import binary, paired


@dataclass(frozen=True, slots=True)
class VennAbers:
    """A fitted predictor: two step functions of the score, rising, and the number of answers behind them.

    p0 at a score is `lower[i]`, where i counts the `lower_scores` that are not above it; p1 is `upper[i]`, where i
    counts the `upper_scores` below it. So each list of values is one longer than its list of scores.
    """

    lower_scores: tuple[float, ...]
    lower: tuple[float, ...]
    upper_scores: tuple[float, ...]
    upper: tuple[float, ...]
    count: int

    def __post_init__(self) -> None:
        for scores, values in ((self.lower_scores, self.lower), (self.upper_scores, self.upper)):
            if len(values) != len(scores) + 1 or not (_is_rising(scores) and _is_rising(values)):
                raise ValueError(
                    "the steps do not fit: scores and values rise, and there is one value more than scores"
                )
            if not 0 <= values[0] <= values[-1] <= 1:
                raise ValueError("the steps do not fit: a value is no probability")

    def interval(self, score: float) -> Interval:
        """Return (p0, p1) for a score, in O(log n); for NaN all is possible."""
        if math.isnan(score):
            return Interval(0.0, 1.0)
        low = self.lower[bisect_right(self.lower_scores, score)]
        return Interval(low, self.upper[bisect_left(self.upper_scores, score)])


def fit_venn_abers(scores: ArrayLike, outcomes: ArrayLike) -> VennAbers:
    """Fit to scores and outcomes (1 yes, 0 no), both of shape (n,), in O(n log n) for all practical data."""
    values, targets = paired(scores, outcomes)
    binary(targets, "outcomes")
    distinct, places = np.unique(values, return_inverse=True)
    items = [
        (total, weight)
        for total, weight in zip(
            np.bincount(places, weights=targets).tolist(), np.bincount(places).tolist(), strict=True
        )
    ]
    below, above = _stacks(items, descending=False), _stacks(reversed(items), descending=True)[::-1]
    # A no that is put at a score or just above it joins that score's block; a yes at or just below it does so too.
    lower = [0.0, *(_inserted(0.0, below[i + 1], above[i + 1]) for i in range(len(items)))]
    upper = [*(_inserted(1.0, below[i], above[i]) for i in range(len(items))), 1.0]
    return VennAbers(*_steps(distinct.tolist(), lower), *_steps(distinct.tolist(), upper), len(values))


class _Block(NamedTuple):
    """A pooled block of an isotonic fit and the blocks beyond it; a stack that shares its tail with others."""

    total: float
    weight: int
    rest: _Block | None


def _stacks(items: Iterable[tuple[float, int]], *, descending: bool) -> list[_Block | None]:
    """Return the isotonic fit of the first 0, 1, 2, ... items as stacks, the last block on top."""
    stack: _Block | None = None
    stacks: list[_Block | None] = [stack]
    for total, weight in items:
        while stack is not None and _is_out_of_order(stack, total, weight, descending):
            total, weight, stack = total + stack.total, weight + stack.weight, stack.rest
        stack = _Block(total, weight, stack)
        stacks.append(stack)
    return stacks


def _is_out_of_order(block: _Block, total: float, weight: int, descending: bool) -> bool:
    """Compare the means of a block and of (total, weight) without dividing."""
    difference = block.total * weight - total * block.weight
    return difference <= 0 if descending else difference >= 0


def _inserted(outcome: float, below: _Block | None, above: _Block | None) -> float:
    """Return the mean of the block that one more item, between two fitted sides, ends in."""
    total, weight = outcome, 1
    while True:
        if below is not None and _is_out_of_order(below, total, weight, False):
            total, weight, below = total + below.total, weight + below.weight, below.rest
        elif above is not None and _is_out_of_order(above, total, weight, True):
            total, weight, above = total + above.total, weight + above.weight, above.rest
        else:
            return total / weight


def _is_rising(values: Sequence[float]) -> bool:
    return all(left < right for left, right in pairwise(values))


def _steps(scores: Sequence[float], values: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Leave out the scores at which the value stays as it is."""
    changes = [index for index in range(len(scores)) if values[index + 1] != values[index]]
    return tuple(scores[index] for index in changes), (values[0], *(values[index + 1] for index in changes))
