"""Measures how good probabilities are: accuracy, NLL, Brier score, calibration error, risk against coverage.

Everything takes plain arrays. Sources: ECE, Guo et al. 2017, equation 3; Brier score, Brier 1950; AURC, Geifman and
El-Yaniv 2017, arXiv:1705.08500.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from decider.calibration.binomial import wilson_interval
from decider.calibration.columns import FloatArray, paired

BINS: Final = 15
ROUNDING: Final = 1e-9  # sums of probabilities may be this far above 1

BinKind = Literal["width", "mass"]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Correct answers out of `count`, as a share with its 95 % Wilson interval."""

    correct: int
    count: int
    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Bin:
    """Predictions of about one size: how many, their mean, and the share that came true with its 95 % interval."""

    count: int
    predicted: float
    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RiskCoverage:
    """What goes wrong when only the most confident answers are used.

    `coverage[i]` is the share of answers with a score of at least `thresholds[i]`, `risk[i]` the share of them that is
    wrong; one entry a distinct score, the most confident first. `area` is AURC, the mean of the risk over coverages.
    """

    thresholds: FloatArray
    coverage: FloatArray
    risk: FloatArray
    area: float


def accuracy(correct: ArrayLike) -> Accuracy:
    """Return the share of true entries with its Wilson interval (z = 1.96)."""
    hits = np.asarray(correct, dtype=bool)
    low, high = wilson_interval(int(hits.sum()), len(hits))
    return Accuracy(int(hits.sum()), len(hits), float(hits.mean()) if len(hits) else math.nan, low, high)


def negative_log_likelihood(probability_of_outcome: ArrayLike) -> float:
    """Return the mean of -ln p, where p is what was given to the outcome that came true (not below 1e-12)."""
    return float(-np.mean(np.log(np.maximum(np.asarray(probability_of_outcome, dtype=np.float64), 1e-12))))


def noul_brier(probabilities: ArrayLike, outcomes: ArrayLike) -> float:
    """Return the mean squared distance of P(yes) from the outcome, in [0, 1]."""
    predicted, targets = paired(probabilities, outcomes)
    return float(np.mean((predicted - targets) ** 2))


def choice_brier(probabilities: Sequence[ArrayLike], chosen: Sequence[int]) -> float:
    """Return the mean over questions of the sum over options of (p - outcome)^2, in [0, 2]."""
    total = 0.0
    for row, index in zip(probabilities, chosen, strict=True):
        distance = np.array(row, dtype=np.float64)
        distance[index] -= 1
        total += float(np.sum(distance**2))
    return total / len(chosen)


def reliability(
    predicted: ArrayLike, outcomes: ArrayLike, bins: int = BINS, kind: BinKind = "width"
) -> tuple[Bin, ...]:
    """Return the bins that are not empty, from low predictions to high.

    `kind` "width" cuts [0, 1] into equal intervals, "mass" into bins with about equally many predictions; equal
    predictions always share a bin, so the order of the items does not matter.
    """
    probabilities, targets = paired(predicted, outcomes)
    if probabilities.min() < -ROUNDING or probabilities.max() > 1 + ROUNDING:
        raise ValueError(f"predictions from {probabilities.min():g} to {probabilities.max():g}: give probabilities")
    probabilities = np.clip(probabilities, 0.0, 1.0)
    places = _places(probabilities, bins, kind)
    groups = (np.flatnonzero(places == index) for index in range(bins))
    return tuple(_bin(probabilities[group], targets[group]) for group in groups if len(group))


def expected_calibration_error(
    predicted: ArrayLike, outcomes: ArrayLike, bins: int = BINS, kind: BinKind = "width"
) -> float:
    """Return the mean distance between predicted probability and share of outcomes, weighted by the bins' sizes."""
    found = reliability(predicted, outcomes, bins, kind)
    return sum(one.count * abs(one.predicted - one.share) for one in found) / sum(one.count for one in found)


def risk_coverage(scores: ArrayLike, wrong: ArrayLike) -> RiskCoverage:
    """Return the risk at every coverage, for scores (higher: more confident) and mistakes (1 wrong, 0 right).

    Answers of one score are used together; within them the area takes mistakes as spread evenly.
    """
    values, mistakes = paired(scores, wrong)
    distinct, places = np.unique(-values, return_inverse=True)
    sizes, mistakes_at = np.bincount(places), np.bincount(places, weights=mistakes)
    approved, total = np.cumsum(sizes), np.cumsum(mistakes_at)
    rising = np.cumsum((mistakes_at / sizes)[np.sort(places)])
    area = float(np.mean(rising / np.arange(1, len(values) + 1)))
    return RiskCoverage(-distinct, approved / len(values), total / approved, area)


def _places(probabilities: FloatArray, bins: int, kind: BinKind) -> NDArray[np.int64]:
    if kind == "width":
        return np.minimum((probabilities * bins).astype(np.int64), bins - 1)
    ordered = np.sort(probabilities)
    return np.searchsorted(ordered, probabilities, side="left").astype(np.int64) * bins // len(ordered)


def _bin(predicted: FloatArray, outcomes: FloatArray) -> Bin:
    share, count = float(outcomes.mean()), len(outcomes)
    low, high = wilson_interval(min(count, round(share * count)), count)
    return Bin(count, float(predicted.mean()), share, low, high)
