"""Corrects the probabilities of yes/no flags for how rare they are in requests, for the model they were fitted with.

The correction is Platt's (J. Platt, 1999, "Probabilistic outputs for support vector machines"): a logistic function of
the logit, p' = 1 / (1 + exp(-(bias + slope * logit(p)))), fitted on the calibration wordings by
``python -m desk.decisions.fit_flags``. It belongs to one model: answers of any other model stay as they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

CORRECTIONS: Final = Path(__file__).parent / "flags.json"
LEAST: Final = 1e-4  # probabilities are taken as no closer to 0 and 1 than this


class Correction(msgspec.Struct, frozen=True):
    """The bias and slope of one flag."""

    bias: float
    slope: float

    def __call__(self, p: float) -> float:
        """Give the corrected probability."""
        return 1.0 / (1.0 + math.exp(-(self.bias + self.slope * logit(p))))


class Corrections(msgspec.Struct, frozen=True):
    """The corrections of one model's flags, and how many cases they were fitted on."""

    model_sha256: str
    cases: int
    flags: dict[str, Correction]


def logit(p: float) -> float:
    """Give log(p / (1 - p)), bounded."""
    bounded = min(max(p, LEAST), 1.0 - LEAST)
    return math.log(bounded / (1.0 - bounded))


@functools.cache
def shipped() -> Corrections | None:
    """Read the corrections that come with the shipped model; None where there are none."""
    return msgspec.json.decode(CORRECTIONS.read_bytes(), type=Corrections) if CORRECTIONS.exists() else None


def corrections_for(answers: Mapping[str, object]) -> Callable[[str, float], float]:
    """Give the function (flag, p) -> p that fits the model which gave the answers."""
    found = shipped()
    if found is None or getattr(answers, "sha256", None) != found.model_sha256:
        return lambda flag, p: p
    return lambda flag, p: found.flags[flag](p)
