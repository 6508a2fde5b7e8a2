"""Checks the arrays that the measures and fits take."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def paired(first: ArrayLike, second: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return both as float arrays (n,); raises ValueError unless they are of one length, at least 1, and finite."""
    left, right = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if left.ndim != 1 or left.shape != right.shape or not len(left):
        raise ValueError(f"shapes {left.shape} and {right.shape}: give two arrays of one equal length, not empty")
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise ValueError("an entry is infinite or no number: give finite numbers")
    return left, right


def binary(values: FloatArray, name: str) -> FloatArray:
    """Return the values; raises ValueError unless each is 0 or 1."""
    if not np.isin(values, (0.0, 1.0)).all():
        raise ValueError(f"{name} holds {values[~np.isin(values, (0.0, 1.0))][0]:g}: give 0 or 1 for each item")
    return values
