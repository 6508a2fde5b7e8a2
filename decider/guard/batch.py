"""Decides on a whole batch at once, with a bound on the share of wrong ones among what is approved (batch FDR).

Sources: Jin and Candes 2023, arXiv:2210.01408 (conformal selection); Benjamini and Hochberg 1995.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from numpy.typing import ArrayLike

from decider.calibration.binomial import Level, exact_level
from decider.calibration.columns import binary, paired


def approve_batch(
    scores: ArrayLike, wrong: ArrayLike, batch: Sequence[float], false_share: Level
) -> tuple[tuple[bool, ...], tuple[Fraction, ...]]:
    """Return which calls of one whole batch to approve, and their p-values: batch FDR by conformal selection.

    Bounded is E[wrong approved / max(1, approved)] over batches. That is none of the other two rates, and a batch of
    one makes it the joint one. Decisions change with the batch mates, so this is for batches that are decided as a
    whole, never for calls as they come, nor for a second try of what was refused. Nothing is approved where no
    labelled call is wrong: then the p-values say nothing.
    """
    values, mistakes = paired(scores, wrong)
    binary(mistakes, "wrong")
    if not all(map(math.isfinite, batch)):
        raise ValueError("a score of the batch is infinite or no number: give finite numbers")
    level, bad = exact_level(false_share, "false_share"), values[mistakes == 1]
    p_values = tuple(Fraction(1 + int((bad >= score).sum()), len(values) + 1) for score in batch)
    passing = [
        rank for rank, p_value in enumerate(sorted(p_values), start=1) if p_value <= level * Fraction(rank, len(batch))
    ]
    largest = sorted(p_values)[passing[-1] - 1] if passing and len(bad) else Fraction(0)
    return tuple(p_value <= largest for p_value in p_values), p_values
