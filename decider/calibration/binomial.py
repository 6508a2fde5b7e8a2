"""Counts of successes: exact levels, binomial tails and intervals of a share.

Levels are fractions, so that 0.1 is one tenth: with floats, `0.1 * (n + 1)` lands on the wrong side of a whole number
for some n. Sources: Clopper and Pearson 1934; Wilson 1927.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np

Level: TypeAlias = Fraction | float | str
"""A share in (0, 1): a fraction, text such as "0.05" or "1/20", or a float, read as the decimal that it prints as."""

NORMAL_QUANTILE: Final = 1.959963984540054
# Where the float tail is this close to a level, relative to it, whole numbers decide.
NEAR: Final = 1e-6


def exact_level(value: Level, name: str = "level") -> Fraction:
    """Return a level as the fraction that it is written as; raises ValueError unless it lies between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, Fraction | float | int | str):
        raise ValueError(f"{name} is {value!r}: write a fraction, a number or text such as '0.05'")
    try:
        level = value if isinstance(value, Fraction) else Fraction(str(value))
    except ValueError:
        raise ValueError(f"{name} is {value!r}: write a number between 0 and 1") from None
    if not 0 < level < 1:
        raise ValueError(f"{name} is {value!r}: write a number between 0 and 1")
    return level


def binomial_tail(successes: int, trials: int, share: float) -> float:
    """Return P(X <= successes) for X ~ Bin(trials, share)."""
    _check_counts(successes, trials)
    if successes >= trials or share <= 0:
        return 1.0
    if share >= 1:
        return 0.0
    counts = np.arange(successes + 1, dtype=np.float64)
    logarithms = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, trials + 1, dtype=np.float64)))))
    chosen = logarithms[trials] - logarithms[: successes + 1] - logarithms[trials - np.arange(successes + 1)]
    terms = chosen + counts * math.log(share) + (trials - counts) * math.log1p(-share)
    return min(1.0, math.fsum(np.exp(terms).tolist()))


def tail_is_within(successes: int, trials: int, share: Fraction, level: Fraction) -> bool:
    """Tell whether P(X <= successes) <= level for X ~ Bin(trials, share), exactly."""
    tail, bound = binomial_tail(successes, trials, float(share)), float(level)
    if abs(tail - bound) > NEAR * bound:
        return tail <= bound
    yes, whole = share.numerator, share.denominator
    ways = sum(
        math.comb(trials, count) * yes**count * (whole - yes) ** (trials - count) for count in range(successes + 1)
    )
    return Fraction(ways, whole**trials) <= level


def fewest_trials(share: Level, risk: Level) -> int:
    """Return the fewest trials without one success that speak against `share` at `risk`: (1 - share)^n <= risk."""
    exact_share, exact_risk = exact_level(share, "share"), exact_level(risk, "risk")
    trials = max(1, math.floor(math.log(exact_risk) / math.log1p(-float(exact_share))) - 1)
    while (1 - exact_share) ** trials > exact_risk:
        trials += 1
    return trials


def wilson_interval(correct: int, count: int, z: float = NORMAL_QUANTILE) -> tuple[float, float]:
    """Return the Wilson score interval of a share; (0, 1) when nothing was counted."""
    _check_counts(correct, count)
    if count == 0:
        return 0.0, 1.0
    share = correct / count
    centre = share + z * z / (2 * count)
    spread = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    low = 0.0 if correct == 0 else max(0.0, (centre - spread) / scale)
    return low, 1.0 if correct == count else min(1.0, (centre + spread) / scale)


def clopper_pearson_interval(correct: int, count: int, confidence: Level = "0.95") -> tuple[float, float]:
    """Return the two-sided Clopper-Pearson interval of a share; (0, 1) when nothing was counted."""
    _check_counts(correct, count)
    side = float((1 - exact_level(confidence, "confidence")) / 2)
    return _lower(correct, count, side), _upper(correct, count, side)


def upper_bound(correct: int, count: int, confidence: Level = "0.95") -> float:
    """Return the one-sided Clopper-Pearson upper bound of a share; 1 when nothing was counted."""
    _check_counts(correct, count)
    return _upper(correct, count, float(1 - exact_level(confidence, "confidence")))


def _upper(correct: int, count: int, risk: float) -> float:
    """The share at which so few successes have the probability `risk`."""
    if correct == count:
        return 1.0
    return _root(lambda share: binomial_tail(correct, count, share) > risk)


def _lower(correct: int, count: int, risk: float) -> float:
    return 0.0 if correct == 0 else 1 - _upper(count - correct, count, risk)


def _root(is_below: Callable[[float], bool]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return (low + high) / 2


def _check_counts(successes: int, trials: int) -> None:
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} of {trials}: give a count between 0 and the number of trials")
