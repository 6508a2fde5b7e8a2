"""Finds the lowest threshold for losses of any size, such as those of an audit in which one call stands for several.

Calibrating on the calls that people saw anyway is not enough: those are the ones that were not approved, and the bound
would break. A random audit of approved calls with weights mends it. Source: Angelopoulos et al. 2024, arXiv:2208.02814.
"""

from __future__ import annotations

import math
from fractions import Fraction

from numpy.typing import ArrayLike

from decider.calibration.binomial import Level, exact_level
from decider.calibration.columns import paired
from decider.guard.levels import sums_from_the_top


def lowest_threshold_of_losses(
    scores: ArrayLike, losses: ArrayLike, largest: float, alpha: Level, count: int | None = None
) -> float:
    """Return the lowest score at which approving costs at most `alpha` a call in the mean, for losses from 0 up.

    `largest` bounds any loss that can occur. With it, an audit of a share pi of the approved calls stands for all of
    them: an audited call that was wrong has the loss 1/pi, which is the largest then; a call that a person saw anyway
    has 1; `count` is the number of all calls, with those that nobody looked at, whose loss is 0.
    """
    values, amounts = paired(scores, losses)
    share, total = exact_level(alpha, "alpha"), len(values) if count is None else count
    if total < len(values):
        raise ValueError(f"count is {total}, and there are {len(values)} losses: give the number of all calls")
    if not 0 < largest < math.inf or amounts.min() < 0 or amounts.max() > largest:
        raise ValueError(f"losses from {amounts.min():g} to {amounts.max():g}: give 0 to `largest`, {largest:g}")
    room = share * (total + 1) - Fraction(largest)
    ordered, sums = sums_from_the_top(values, amounts)
    fitting = [place for place, spent in enumerate(sums.tolist()) if Fraction(spent) <= room]
    return float(ordered[fitting[-1]]) if fitting else math.inf
