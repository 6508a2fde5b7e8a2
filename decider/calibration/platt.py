"""Fits a bias and a slope that turn logits into probabilities: p = sigmoid(bias + slope * logit).

Source: J. Platt 1999, "Probabilistic outputs for support vector machines". Beside the temperature it has a bias, which
follows a base rate that is not that of the training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from decider.calibration.columns import FloatArray, binary, paired
from decider.errors import CalibrationError

STEPS: Final = 100


@dataclass(frozen=True, slots=True)
class PlattFit:
    """The fitted bias and slope."""

    bias: float
    slope: float

    def probability(self, logit: float) -> float:
        """Return the corrected probability of yes."""
        value = self.bias + self.slope * logit
        return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))


def fit_platt(logits: ArrayLike, outcomes: ArrayLike, ridge: float = 0.0) -> PlattFit:
    """Return the bias and slope of greatest likelihood, by Newton's method.

    `logits` and `outcomes` (0 or 1) have shape (n,). `ridge` pulls the slope towards 1: it is added as
    ridge * (slope - 1)^2 / 2 to the sum of the NLL. Raises CalibrationError where no finite fit exists: all outcomes
    are the same, or, without a ridge, a threshold on the logits separates them.
    """
    scores, targets = paired(logits, outcomes)
    binary(targets, "outcomes")
    if ridge < 0:
        raise ValueError(f"ridge is {ridge}: give 0 or more")
    if targets.min() == targets.max():
        raise _refused(f"all {len(targets)} outcomes are the same")
    if ridge == 0 and _is_separated(scores, targets):
        raise _refused("a threshold on the logits separates yes from no")
    centre, spread = float(scores.mean()), float(scores.std())
    if spread == 0:
        raise _refused("all logits are the same")
    inputs = np.column_stack([np.ones(len(scores)), (scores - centre) / spread])
    penalty, aim = np.array([0.0, ridge / spread**2]), np.array([0.0, spread])
    weights = np.zeros(2)
    for _ in range(STEPS):
        p = np.exp(-np.logaddexp(0, -inputs @ weights))
        gradient = inputs.T @ (p - targets) + penalty * (weights - aim)
        if float(np.abs(gradient).max()) < 1e-9 * len(scores):
            slope = float(weights[1]) / spread
            return PlattFit(float(weights[0]) - slope * centre, slope)
        curvature = (inputs * (p * (1 - p))[:, None]).T @ inputs + np.diag(penalty)
        weights = _improved(inputs, targets, penalty, aim, weights, gradient, curvature)
    raise _refused(f"no fit was reached in {STEPS} steps")


def _is_separated(scores: FloatArray, targets: FloatArray) -> bool:
    yes, no = scores[targets == 1], scores[targets == 0]
    return bool(yes.min() >= no.max() or no.min() >= yes.max())


def _improved(
    inputs: FloatArray,
    targets: FloatArray,
    penalty: FloatArray,
    aim: FloatArray,
    weights: FloatArray,
    gradient: FloatArray,
    curvature: FloatArray,
) -> FloatArray:
    """Take Newton's step, halved until the loss does not rise."""

    def loss(at: FloatArray) -> float:
        value = inputs @ at
        return float(np.sum(np.logaddexp(0, value) - targets * value) + np.sum(penalty * (at - aim) ** 2) / 2)

    step = np.linalg.lstsq(curvature, gradient, rcond=None)[0]
    before = loss(weights)
    for _ in range(30):
        if loss(weights - step) <= before:
            break
        step = step / 2
    return np.asarray(weights - step)


def _refused(problem: str) -> CalibrationError:
    return CalibrationError("Platt's fit", problem, "Calibrate on more answers, of both kinds, or give a ridge.")
