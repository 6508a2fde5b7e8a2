"""Data of which everything is known: a population with closed forms, and 400 items from a printed generator."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

BASE_RATE = 0.2375
"""The share of the population that is wrong: the mean of 0.95 U^3."""


def draw(random: np.random.Generator, count: int) -> tuple[FloatArray, FloatArray]:
    """Scores 1 - 0.95 U^3 and whether each is wrong, of which the score is the probability that it is not."""
    score = 1 - 0.95 * random.random(count) ** 3
    return score, (random.random(count) >= score).astype(np.float64)


def approved_share(threshold: float) -> float:
    """The share of the population at or above a threshold."""
    return min(1.0, float((max(0.0, 1 - threshold) / 0.95) ** (1 / 3)))


def joint_risk(threshold: float) -> float:
    """P(approved and wrong) at a threshold."""
    return 0.95 * approved_share(threshold) ** 4 / 4


def selective_error(threshold: float) -> float:
    """P(wrong | approved) at a threshold."""
    return 0.95 * approved_share(threshold) ** 3 / 4


def uniform(seed: int) -> Iterator[float]:
    """Numbers in [0, 1) from arithmetic on 32-bit integers."""
    mask, state = 0xFFFFFFFF, seed
    while True:
        state = (state + 0x6D2B79F5) & mask
        t = (state ^ (state >> 15)) * (state | 1) & mask
        t = ((t + ((t ^ (t >> 7)) * (t | 61) & mask)) & mask) ^ t
        yield ((t ^ (t >> 14)) & mask) / 2**32


def demo_items() -> tuple[list[float], list[bool]]:
    """400 calibrated probabilities q and whether each item is allowed; seed 14."""
    numbers = uniform(14)
    q, allowed = [], []
    for _ in range(400):
        q.append(1 - 0.95 * next(numbers) ** 3)
        allowed.append(next(numbers) < q[-1])
    return q, allowed
