"""Finds the lowest score at which a call may be approved, with a bound on how many calls are approved and wrong.

One routine, two budgets. The threshold is the lowest observed score such that at most `k` of the labelled calls at or
above it are wrong. In the mean over calibrations (conformal risk control), k = floor(alpha (n + 1)) - 1; with
probability 1 - delta, k is the largest count whose exact binomial tail is at most delta. A threshold of plus infinity
approves nothing. Levels are fractions.

The rate that is bounded is the joint one, P(approved and wrong). It says little about P(wrong | approved) when few
calls are approved: for that there is decider.calibration.certified_threshold, and a cap here.

Sources: Angelopoulos, Bates, Fisch, Lei and Schuster 2024, arXiv:2208.02814; Bates et al. 2021, arXiv:2101.02703.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from decider.calibration.binomial import Level, exact_level, tail_is_within, upper_bound, wilson_interval
from decider.calibration.columns import FloatArray, binary, paired


def most_wrong(count: int, alpha: Level, delta: Level | None = None) -> int:
    """Return how many of `count` labelled calls may be wrong at or above the threshold; -1: too few calls to say.

    Without `delta` the bound holds in the mean over calibrations, with it for all but a share `delta` of them.
    """
    if count < 0:
        raise ValueError(f"count is {count}: give the number of labelled calls, 0 or more")
    share = exact_level(alpha, "alpha")
    if delta is None:
        return max(-1, math.floor(share * (count + 1)) - 1)
    risk = exact_level(delta, "delta")
    low, high = -1, count  # the tail at `low` is within the risk (or low is -1), the one at `high`, which is 1, is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if tail_is_within(middle, count, share, risk) else (low, middle)
    return low


def lowest_threshold(scores: ArrayLike, wrong: ArrayLike, most: int) -> float:
    """Return the lowest score with at most `most` wrong (1 wrong, 0 right) among those at or above it, else infinity.

    Calls of one score are approved or refused together. Nothing below the lowest observed score is approved.
    """
    values, mistakes = paired(scores, wrong)
    binary(mistakes, "wrong")
    ordered, total = sums_from_the_top(values, mistakes)
    fitting = np.flatnonzero(total <= most)
    return float(ordered[fitting[-1]]) if len(fitting) else math.inf


@dataclass(frozen=True, slots=True)
class JointThreshold:
    """A threshold that bounds P(approved and wrong), and what stands beside it. `str()` states it with both rates.

    `threshold` is infinity, which approves nothing, where `refusal` says why. `approved` and `wrong` count the
    labelled calls at or above `found`, the threshold before the cap. `risk_bound` is the one-sided 95 % upper bound of
    the joint rate.
    """

    alpha: Fraction
    delta: Fraction | None
    cap: Fraction
    threshold: float
    found: float
    approved: int
    wrong: int
    count: int
    refusal: str | None

    @property
    def risk_bound(self) -> float:
        """The one-sided Clopper-Pearson upper bound (95 %) of P(approved and wrong): the null of a drift monitor."""
        return upper_bound(self.wrong, self.count)

    def __str__(self) -> str:
        per_hundred = f"{float(100 * self.alpha):g} in 100 calls"
        if self.delta is None:
            promise = f"on average at most {per_hundred} are both approved and wrong"
        else:
            promise = (
                f"with {float(100 * (1 - self.delta)):g} % confidence at most {per_hundred} are approved and wrong"
            )
        rates = (
            f"Of all calls {self.wrong} of {self.count} are approved and wrong (95 % bound {self.risk_bound:.1%}); "
            f"{_among_approved(self.wrong, self.approved)}"
        )
        if self.refusal is not None:
            return f"Approve nothing: {self.refusal} The aim was: {promise}. {rates}"
        return f"Over calls like the {self.count} examples, {promise}. {rates} It says nothing about one call."


def joint_threshold(
    scores: ArrayLike, wrong: ArrayLike, alpha: Level, *, cap: Level, delta: Level | None = None
) -> JointThreshold:
    """Return the threshold for P(approved and wrong) <= alpha, refused where too many of the approved may be wrong.

    `cap` is the most that the 95 % upper bound of P(wrong | approved) may be. Without it, n = 200 calls that are all
    wrong would have their 19 highest approved at alpha = 0.1, which the joint bound allows. A higher threshold keeps
    the joint bound.
    """
    values, mistakes = paired(scores, wrong)
    most = most_wrong(len(values), alpha, delta)
    found = lowest_threshold(values, mistakes, most)
    taken = values >= found
    approved, bad = int(taken.sum()), int(mistakes[taken].sum())
    limit = exact_level(cap, "cap")
    if most < 0:
        refusal = f"{len(values)} labelled calls are too few for this level."
    elif approved == 0:
        refusal = f"more than {most} of the calls with the highest score are wrong."
    elif (bound := upper_bound(bad, approved)) > limit:
        refusal = f"up to {bound:.1%} of what would be approved may be wrong, and the cap is {float(limit):.1%}."
    else:
        refusal = None
    exact_delta = None if delta is None else exact_level(delta, "delta")
    used = found if refusal is None else math.inf
    return JointThreshold(
        exact_level(alpha, "alpha"), exact_delta, limit, used, found, approved, bad, len(values), refusal
    )


def sums_from_the_top(scores: FloatArray, amounts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the distinct scores from high to low and the sum of the amounts at or above each."""
    distinct, places = np.unique(-scores, return_inverse=True)
    sums = np.cumsum(np.bincount(places, weights=amounts)).astype(np.float64)
    return -distinct, sums


def _among_approved(wrong: int, approved: int) -> str:
    if approved == 0:
        return "none would be approved."
    low, high = wilson_interval(wrong, approved)
    share = f"{wrong / approved:.1%}, 95 % interval {low:.1%} to {high:.1%}"
    return f"of the approved {wrong} of {approved} are wrong ({share})."
