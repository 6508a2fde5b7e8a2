"""Checks what a scorer gave before anything is done with it: nothing is cut, filled in or normalised first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from decider.costs import is_number
from decider.guard.errors import EvidenceError

Evidence: TypeAlias = "float | Mapping[str, float]"
"""A probability that the proposed call is right, or one for each option of a choice."""

SUM_TOLERANCE: Final = 0.03
"""How far the probabilities of the options may be from 1 in sum; endpoints round to two digits."""

_REMEDY: Final = "The scorer has to give probabilities from 0 to 1."


def checked_score(value: object) -> float:
    """Return a probability as a float; raises EvidenceError for anything else."""
    return _probability(value, "the score")


def checked_probabilities(value: object, options: Sequence[str]) -> tuple[float, ...]:
    """Return the probabilities in the order of the options; raises EvidenceError unless each has exactly one.

    They have to be from 0 to 1 and to sum up to 1, give or take 0.03. They stay as they are.
    """
    if not isinstance(value, Mapping):
        raise EvidenceError("unparsable", f"the evidence is {_shown(value)}, no mapping of options", _REMEDY)
    missing = [option for option in options if option not in value]
    if missing:
        raise EvidenceError("missing_option", f"there is no probability for {', '.join(map(repr, missing))}", _REMEDY)
    unknown = [key for key in value if key not in options]
    if unknown:
        raise EvidenceError("unknown_option", f"{_shown(unknown[0])} is no option", _REMEDY)
    found = tuple(_probability(value[option], f"the probability of {option!r}") for option in options)
    if not any(found):
        raise EvidenceError("all_zero", "every option has the probability 0", _REMEDY)
    if abs(math.fsum(found) - 1) > SUM_TOLERANCE:
        raise EvidenceError("sum", f"the probabilities sum up to {math.fsum(found):g}", _REMEDY)
    return found


def _probability(value: object, what: str) -> float:
    if not is_number(value):
        raise EvidenceError("unparsable", f"{what} is {_shown(value)}, no number", _REMEDY)
    if not math.isfinite(value):
        raise EvidenceError("not_finite", f"{what} is {value!r}", _REMEDY)
    if value < 0:
        raise EvidenceError("negative", f"{what} is {value!r}", _REMEDY)
    if value > 1:
        raise EvidenceError("above_one", f"{what} is {value!r}", _REMEDY)
    return float(value)


def _shown(value: object) -> str:
    return f"a {type(value).__name__}" if not isinstance(value, str | None) else repr(value)[:60]
