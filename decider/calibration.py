"""Fits temperatures and measures how good probabilities are.

Everything takes plain arrays. Sources: temperature scaling and ECE, Guo et al. 2017, "On Calibration of Modern Neural
Networks", equations 3 and 9; Brier score, Brier 1950; interval, Wilson 1927.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

BINS: Final = 15
LOWEST_TEMPERATURE: Final = 0.05
HIGHEST_TEMPERATURE: Final = 20.0


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Correct answers out of `count`, as a share with its 95 % Wilson interval."""

    correct: int
    count: int
    share: float
    low: float
    high: float


def fit_noul_temperature(logits: ArrayLike, outcomes: ArrayLike) -> float:
    """Return the temperature T that minimises the mean NLL of sigmoid(logit / T).

    `logits` and `outcomes` have shape (n,); outcomes are 1 for yes, 0 for no and 0.5 where nobody
    can know.
    """
    scores, targets = _pair(logits, outcomes)

    def loss(temperature: float) -> float:
        scaled = scores / temperature
        return float(np.mean(np.logaddexp(0, scaled) - targets * scaled))

    return _minimise(loss)


def fit_choice_temperature(logits: Sequence[ArrayLike], chosen: Sequence[int | None]) -> float:
    """Return the temperature T that minimises the mean NLL of softmax(logits / T).

    `logits` holds one array (options,) for each question, of any lengths; `chosen` the index of the right
    option, or None where nobody can know: an even spread is right then.
    """
    if not logits or len(logits) != len(chosen):
        raise ValueError(f"{len(logits)} sets of logits and {len(chosen)} outcomes: give equally many, at least one")
    scores = _padded(logits)
    right = np.array([_score_of_target(row, index) for row, index in zip(logits, chosen, strict=True)])

    def loss(temperature: float) -> float:
        scaled = scores / temperature
        return float(np.mean(np.logaddexp.reduce(scaled, axis=1) - right / temperature))

    return _minimise(loss)


def accuracy(correct: ArrayLike) -> Accuracy:
    """Return the share of true entries with its Wilson interval (z = 1.96)."""
    hits = np.asarray(correct, dtype=bool)
    low, high = wilson_interval(int(hits.sum()), len(hits))
    return Accuracy(int(hits.sum()), len(hits), float(hits.mean()) if len(hits) else math.nan, low, high)


def wilson_interval(correct: int, count: int, z: float = 1.959964) -> tuple[float, float]:
    """Return the Wilson score interval of a share; (0, 1) when nothing was counted."""
    if count == 0:
        return 0.0, 1.0
    share = correct / count
    centre = share + z * z / (2 * count)
    spread = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def negative_log_likelihood(probability_of_outcome: ArrayLike) -> float:
    """Return the mean of -ln p, where p is what was given to the outcome that came true (not below 1e-12)."""
    return float(-np.mean(np.log(np.maximum(np.asarray(probability_of_outcome, dtype=np.float64), 1e-12))))


def noul_brier(probabilities: ArrayLike, outcomes: ArrayLike) -> float:
    """Return the mean squared distance of P(yes) from the outcome, in [0, 1]."""
    predicted, targets = _pair(probabilities, outcomes)
    return float(np.mean((predicted - targets) ** 2))


def choice_brier(probabilities: Sequence[ArrayLike], chosen: Sequence[int]) -> float:
    """Return the mean over questions of the sum over options of (p - outcome)^2, in [0, 2]."""
    total = 0.0
    for row, index in zip(probabilities, chosen, strict=True):
        distance = np.array(row, dtype=np.float64)
        distance[index] -= 1
        total += float(np.sum(distance**2))
    return total / len(chosen)


def expected_calibration_error(
    predicted: ArrayLike, outcomes: ArrayLike, bins: int = BINS, kind: Literal["width", "mass"] = "width"
) -> float:
    """Return the mean distance between predicted probability and share of outcomes, weighted by the bins' sizes.

    `kind` "width" cuts [0, 1] into equal intervals, "mass" cuts the sorted predictions into equally many.
    """
    probabilities, targets = _pair(predicted, outcomes)
    if kind == "width":
        places = np.minimum((probabilities * bins).astype(int), bins - 1)
        groups = [np.flatnonzero(places == index) for index in range(bins)]
    else:
        groups = np.array_split(np.argsort(probabilities, kind="stable"), bins)
    error = sum(
        len(group) * abs(float(probabilities[group].mean() - targets[group].mean())) for group in groups if len(group)
    )
    return error / len(probabilities)


def _pair(first: ArrayLike, second: ArrayLike) -> tuple[FloatArray, FloatArray]:
    left, right = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if left.ndim != 1 or left.shape != right.shape or not len(left):
        raise ValueError(f"shapes {left.shape} and {right.shape}: give two arrays of one equal length, not empty")
    return left, right


def _score_of_target(logits: ArrayLike, index: int | None) -> float:
    row = np.asarray(logits, dtype=np.float64)
    return float(row.mean() if index is None else row[index])


def _padded(logits: Sequence[ArrayLike]) -> FloatArray:
    """Put rows of different lengths into one array; the missing places hold minus infinity, which has no weight."""
    rows = [np.asarray(row, dtype=np.float64) for row in logits]
    padded = np.full((len(rows), max(len(row) for row in rows)), -np.inf)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


def _minimise(loss: Callable[[float], float]) -> float:
    """Golden-section search over ln T: the NLL is convex in 1/T, so it has one minimum."""
    ratio = (math.sqrt(5) - 1) / 2
    low, high = math.log(LOWEST_TEMPERATURE), math.log(HIGHEST_TEMPERATURE)
    while high - low > 1e-5:
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if loss(math.exp(left)) <= loss(math.exp(right)):
            high = right
        else:
            low = left
    return math.exp((low + high) / 2)
