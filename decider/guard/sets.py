"""Finds the set of options that may be the right one: with probability 1 - alpha the right one is in it.

LAC takes every option whose probability is high enough; its sets are the smallest, and may be empty. APS adds options
from the likeliest down until enough probability is covered, which is fairer to hard questions and gives larger sets.
One deterministic rule serves calibration and use: a label's score is the mass of all that rank at or above it. It holds
exactly, is never empty, and ties rank in the order of the options.

"Act when the set is the one proposed label" bounds P(acted and wrong) <= alpha, never P(wrong | acted).

Sources: Sadinle, Lei and Wasserman 2019 (LAC); Romano, Sesia and Candes 2020, arXiv:2006.02544 (APS); Vovk 2012,
arXiv:1209.2673 (the law of the coverage).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from decider.calibration.binomial import Level, exact_level
from decider.calibration.columns import FloatArray, paired

# Sums of the same probabilities in another order may differ in the last digits; here they are equal.
ROUNDED: Final = 12

Method: TypeAlias = Literal["LAC", "APS"]
"""How a set is built: by probability alone, or by probability covered."""


@dataclass(frozen=True, slots=True)
class SetRule:
    """What makes prediction sets: the method, and the largest score that an option in a set may have.

    `limit` is infinity, which puts every option into every set, where there are too few labelled questions.
    """

    method: Method
    alpha: Fraction
    limit: float
    count: int

    def options(self, probabilities: ArrayLike) -> tuple[int, ...]:
        """Return the indexes of the options in the set, in their order."""
        scores = option_scores(probabilities, self.method)
        return tuple(int(index) for index in np.flatnonzero(scores <= self.limit))

    def __str__(self) -> str:
        if self.limit == math.inf:
            return f"Every option stays possible: {self.count} labelled questions are too few for this level."
        held, missed = float(100 * (1 - self.alpha)), float(100 * self.alpha)
        return (
            f"Over questions like the {self.count} examples, the set ({self.method}) holds the right option in at "
            f"least {held:g} of 100, on average, so at most {missed:g} in 100 calls are acted on and wrong. "
            "It says nothing about how many of those acted on are wrong, nor about one call."
        )


def conformal_rank(count: int, alpha: Level) -> int:
    """Return k = ceil((n + 1)(1 - alpha)): the k-th smallest score is the limit; above n there is none."""
    return math.ceil((count + 1) * (1 - exact_level(alpha, "alpha")))


def conformal_limit(scores: ArrayLike, alpha: Level) -> float:
    """Return the k-th smallest of the labelled scores, or infinity where k is above their number."""
    values, _ = paired(scores, scores)
    rank = conformal_rank(len(values), alpha)
    return float(np.partition(values, rank - 1)[rank - 1]) if rank <= len(values) else math.inf


def option_scores(probabilities: ArrayLike, method: Method) -> FloatArray:
    """Return how strange each option would be as the right one, from 0 up, shape (options,)."""
    values, _ = paired(probabilities, probabilities)
    if method == "LAC":
        return 1 - values
    order = np.argsort(-values, kind="stable")
    covered = np.empty_like(values)
    covered[order] = np.round(np.cumsum(values[order]), ROUNDED)
    return covered


def fit_set_rule(
    probabilities: Sequence[ArrayLike], right: Sequence[int], alpha: Level, method: Method = "LAC"
) -> SetRule:
    """Fit to labelled questions: the probabilities of their options, and the index of the right one.

    Questions may have different numbers of options. Raises ValueError for a method or an index that is not there.
    """
    if method not in ("LAC", "APS"):
        raise ValueError(f"method is {method!r}: write 'LAC' or 'APS'")
    if len(probabilities) != len(right):
        raise ValueError(f"{len(probabilities)} questions and {len(right)} labels: give equally many")
    scores: list[float] = []
    for row, index in zip(probabilities, right, strict=True):
        strange = option_scores(row, method)
        if not 0 <= index < len(strange):
            raise ValueError(f"the right option is number {index} and there are {len(strange)}: count from 0")
        scores.append(float(strange[index]))
    limit = conformal_limit(scores, alpha) if scores else math.inf
    return SetRule(method, exact_level(alpha, "alpha"), limit, len(scores))
