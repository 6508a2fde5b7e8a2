"""Finds the lowest threshold at which answers can be used without a look, with a bound on how many are wrong.

Learn-then-Test with fixed-sequence testing: the thresholds are quantiles of scores, chosen without looking at labels.
From strict to permissive, each is tested against "more than alpha of what it approves is wrong" with the exact binomial
tail; the walk stops at the first that cannot be rejected. Sources: Angelopoulos et al. 2021, arXiv:2110.01052; Geifman
and El-Yaniv 2017, arXiv:1705.08500.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from decider.calibration.binomial import Level, binomial_tail, exact_level, fewest_trials, tail_is_within
from decider.calibration.columns import FloatArray, binary, paired

GRID: Final = tuple(Fraction(percent, 100) for percent in range(5, 101, 5))
"""The shares of recent scores that the thresholds approve."""


@dataclass(frozen=True, slots=True)
class Step:
    """One tested threshold: how many of the labelled answers it approves, how many of them are wrong, the p-value."""

    threshold: float
    approved: int
    wrong: int
    p_value: float
    certified: bool


@dataclass(frozen=True, slots=True)
class Certificate:
    """What could be certified: with confidence 1 - delta, at most alpha of what `threshold` approves is wrong.

    `threshold` is None where nothing could be: then approve nothing. `approved` and `wrong` count among the `count`
    labelled answers. `str()` says it in words, with what it does not promise.
    """

    alpha: Fraction
    delta: Fraction
    threshold: float | None
    approved: int
    wrong: int
    count: int
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        target = (
            f"at most {_percent(self.alpha)} wrong among what is approved, at {_percent(1 - self.delta)} confidence"
        )
        if self.threshold is None:
            needed = fewest_trials(self.alpha, self.delta)
            few = f"; even without a mistake it takes {needed} approved answers" if needed > self.count else ""
            return (
                f"Nothing can be certified ({target}) with these {self.count} labelled answers{few}. Approve nothing."
            )
        return (
            f"Approve at {self.threshold:.4f} or above: {target}. Of {self.count} labelled answers that approves "
            f"{self.approved}, {self.wrong} of them wrong. It holds for the average over answers like these, not for "
            f"one question, and not for text of another kind."
        )


def certified_threshold(
    scores: ArrayLike,
    wrong: ArrayLike,
    alpha: Level,
    delta: Level,
    unlabelled: ArrayLike | None = None,
    starts: Sequence[Level] | None = None,
) -> Certificate:
    """Return the lowest certified threshold for "use an answer when its score is at least this".

    `scores` and `wrong` (1 wrong, 0 right) have shape (n,). `unlabelled` are recent scores that fix the thresholds,
    without them the scores themselves. `starts` are shares of answers approved, at which a walk begins; several walks
    share delta. By default one walk begins where twice the fewest answers that could certify anything are approved,
    or, with few labelled answers, 30 % of them, but no fewer than could certify anything.
    """
    values, mistakes = paired(scores, wrong)
    binary(mistakes, "wrong")
    exact_alpha, exact_delta = exact_level(alpha, "alpha"), exact_level(delta, "delta")
    recent = values if unlabelled is None else paired(unlabelled, unlabelled)[0]
    if starts is None:
        needed = Fraction(fewest_trials(exact_alpha, exact_delta), len(values))
        beginnings = [min(2 * needed, max(needed, Fraction(3, 10)))]
    else:
        beginnings = [_share(start) for start in starts]
    if not beginnings:
        raise ValueError("starts is empty: give a share of answers at which to begin")
    level = exact_delta / len(beginnings)
    walks = [_walk(values, mistakes, recent, start, exact_alpha, level) for start in beginnings]
    certified = [step for walk in walks for step in walk if step.certified]
    best = min(certified, key=lambda step: step.threshold, default=None)
    return Certificate(
        exact_alpha,
        exact_delta,
        None if best is None else best.threshold,
        0 if best is None else best.approved,
        0 if best is None else best.wrong,
        len(values),
        tuple(step for walk in walks for step in walk),
    )


def _walk(
    scores: FloatArray, wrong: FloatArray, recent: FloatArray, start: Fraction, alpha: Fraction, level: Fraction
) -> list[Step]:
    """Test threshold after threshold and stop after the first that fails."""
    ordered = np.sort(recent)[::-1]
    steps: list[Step] = []
    for share in (share for share in GRID if share >= start):
        threshold = float(ordered[math.ceil(share * len(ordered)) - 1])
        taken = scores >= threshold
        approved, mistakes = int(taken.sum()), int(wrong[taken].sum())
        passed = approved > 0 and tail_is_within(mistakes, approved, alpha, level)
        tail = binomial_tail(mistakes, approved, float(alpha)) if approved else 1.0
        steps.append(Step(threshold, approved, mistakes, tail, passed))
        if not passed:
            break
    return steps


def _share(value: Level) -> Fraction:
    return Fraction(1) if value == 1 else exact_level(value, "starts")


def _percent(share: Fraction) -> str:
    return f"{float(share) * 100:g} %"
