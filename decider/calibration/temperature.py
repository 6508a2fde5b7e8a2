"""Fits one temperature for each answer type: logits are divided by it before they become probabilities.

Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", equation 9. It never changes which answer is best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from decider.calibration.columns import FloatArray, paired
from decider.errors import CalibrationError

LOWEST_TEMPERATURE: Final = 0.05
HIGHEST_TEMPERATURE: Final = 20.0
# The search ends this close to the minimum, in ln T; nearer than a hundred times that to an end of the range is at it.
PRECISION: Final = 1e-5


@dataclass(frozen=True, slots=True)
class TemperatureFit:
    """A fitted temperature, the mean NLL without and with it, and on how many answers it rests.

    `at_bound`: the NLL still fell at the end of the range. Then the answers are all right (lowest), or the scores tell
    nothing or the opposite (highest), and the temperature means nothing.
    """

    temperature: float
    at_bound: bool
    nll_before: float
    nll_after: float
    count: int

    def accepted(self, answer_type: str) -> float:
        """Return the temperature; raises CalibrationError when it is at an end of the range."""
        if self.at_bound:
            raise CalibrationError(
                f"the temperature for {answer_type!r}",
                f"the best of {LOWEST_TEMPERATURE:g} to {HIGHEST_TEMPERATURE:g} on {self.count} answers is an end of "
                f"that range, {self.temperature:.3g}",
                "Calibrate on more answers, some of them wrong, with scores that tell right from wrong.",
            )
        return self.temperature


def fit_noul_temperature(logits: ArrayLike, outcomes: ArrayLike) -> TemperatureFit:
    """Find the temperature T that minimises the mean NLL of sigmoid(logit / T).

    `logits` and `outcomes` have shape (n,); outcomes are 1 for yes, 0 for no and 0.5 where nobody can know.
    """
    scores, targets = paired(logits, outcomes)

    def loss(temperature: float) -> float:
        scaled = scores / temperature
        return float(np.mean(np.logaddexp(0, scaled) - targets * scaled))

    return _minimise(loss, len(scores))


def fit_choice_temperature(logits: Sequence[ArrayLike], chosen: Sequence[int | None]) -> TemperatureFit:
    """Find the temperature T that minimises the mean NLL of softmax(logits / T), for Choices and for Scores.

    `logits` holds one array (options or levels,) for each question, of any lengths; `chosen` the index of the
    right one, or None where nobody can know: an even spread is right then.
    """
    if not logits or len(logits) != len(chosen):
        raise ValueError(f"{len(logits)} sets of logits and {len(chosen)} outcomes: give equally many, at least one")
    scores = _padded(logits)
    right = np.array([_score_of_target(row, index) for row, index in zip(logits, chosen, strict=True)])

    def loss(temperature: float) -> float:
        scaled = scores / temperature
        return float(np.mean(np.logaddexp.reduce(scaled, axis=1) - right / temperature))

    return _minimise(loss, len(scores))


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


def _minimise(loss: Callable[[float], float], count: int) -> TemperatureFit:
    """Golden-section search over ln T: the NLL is convex in 1/T, so it has one minimum."""
    ratio = (math.sqrt(5) - 1) / 2
    lowest, highest = math.log(LOWEST_TEMPERATURE), math.log(HIGHEST_TEMPERATURE)
    low, high = lowest, highest
    while high - low > PRECISION:
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if loss(math.exp(left)) <= loss(math.exp(right)):
            high = right
        else:
            low = left
    found = (low + high) / 2
    at_bound = min(found - lowest, highest - found) < 100 * PRECISION
    return TemperatureFit(math.exp(found), at_bound, loss(1.0), loss(math.exp(found)), count)
