"""From what mistakes cost to the probabilities at which one acts, asks a person, or hands a case over.

With p the probability that an action is right, the expected costs are

    act       (1 - p) * wrong            escalate   esc
    ask       ask + (1 - p) * miss

where `wrong` is the cost of a wrong action, `ask` of a person's look, `miss` of a wrong action that the person lets
through, and `esc` of handing over. The cheapest action changes at two thresholds (Chow 1970, extended by the
question): `tau_act` where acting costs as much as asking, `tau_esc` where asking costs as much as handing over.

This needs nothing but the standard library, so that a program can read its thresholds before it loads a model.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypeGuard, cast

from decider.errors import CostError

Region: TypeAlias = Literal["act", "ask", "escalate"]
"""What a probability asks for: act alone, ask a person, or hand over."""

NAMES: Final = ("wrong", "ask", "miss", "esc")


class CostWarning(UserWarning):
    """Costs under which one of the three actions is never, or nearly never, the cheapest."""


def is_number(value: object) -> TypeGuard[int | float]:
    """Tell whether a value is an int or a float; a bool is neither."""
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Costs:
    """What each outcome costs, in one unit. `wrong` is above 0, the others are 0 or more.

    A mistake that must never happen has no cost: write it as a hard rule in code.
    Raises CostError when a cost is not a finite number, is negative, or `wrong` is 0.
    """

    wrong: float
    ask: float
    miss: float
    esc: float

    def __post_init__(self) -> None:
        for name in NAMES:
            value: object = getattr(self, name)
            if not is_number(value) or not 0 <= value < math.inf:
                raise CostError(f"cost {name!r}", f"{value!r} is no cost; write a finite number, 0 or more")
        if self.wrong == 0:
            raise CostError("cost 'wrong'", "it is 0, so nothing could ever be wrong; write a number above 0")

    def remarks(self) -> tuple[str, ...]:
        """Return what is odd about these costs, a sentence each; usually nothing."""
        found = {
            "wrong <= miss: a person's look makes a mistake no cheaper, so nothing is ever asked": self.wrong
            <= self.miss,
            "esc < ask: handing over is cheaper than the mere question, so nothing is ever asked": self.esc < self.ask,
            "esc >= wrong: acting wrongly costs no more than handing over, so nothing is ever handed over": self.esc
            >= self.wrong,
            "ask = 0: questions are free, so nothing is done alone unless p = 1": self.ask == 0,
            "esc = 0: handing over is free, so nothing is done alone unless p = 1": self.esc == 0,
        }
        return tuple(text for text, holds in found.items() if holds)

    def with_reviewer(self, caught: float) -> Costs:
        """Return the costs when a person catches only this share, in [0, 1], of the wrong actions they look at.

        `miss` is then caught * miss + (1 - caught) * wrong. Raises CostError for another share.
        """
        share = as_probability(caught)
        if share is None:
            raise CostError("caught", f"{caught!r} is no share; write a number from 0 to 1")
        return Costs(self.wrong, self.ask, share * self.miss + (1 - share) * self.wrong, self.esc)


def read_costs(given: Mapping[str, object]) -> Costs:
    """Return the costs in a mapping, such as one from a settings file.

    Raises CostError when one is missing, unknown or no cost.
    """
    for name in given:
        if name not in NAMES:
            raise CostError(f"cost {name!r}", f"it is not known; there are {', '.join(NAMES)}")
    for name in NAMES:
        if name not in given:
            raise CostError(f"cost {name!r}", f"it is missing; give all of {', '.join(NAMES)}")
    return Costs(*(cast("float", given[name]) for name in NAMES))


def action_thresholds(costs: Costs | tuple[float, float, float, float], *, quiet: bool = False) -> tuple[float, float]:
    """Return (tau_esc, tau_act), both in [0, 1] and in that order, for costs or (wrong, ask, miss, esc).

    tau_act = 1 - ask / (wrong - miss) and tau_esc = 1 - (esc - ask) / miss. Unless tau_esc < tau_act, asking is nowhere
    the cheapest, and both become the point at which acting and handing over cost the same, 1 - esc / wrong. With
    wrong <= miss a look makes a mistake no cheaper, so that holds as well; with miss = 0 a look leaves no mistake, so
    that one asks wherever asking costs less than handing over. Results are cut to [0, 1].

    Warns with CostWarning about odd costs (see Costs.remarks) unless `quiet`; raises CostError (see Costs).
    """
    if not isinstance(costs, Costs):
        costs = Costs(*costs)
    for remark in () if quiet else costs.remarks():
        warnings.warn(remark, CostWarning, stacklevel=2)
    tau_act = 1 - costs.ask / (costs.wrong - costs.miss) if costs.wrong > costs.miss else -math.inf
    if costs.miss > 0:
        tau_esc = 1 - (costs.esc - costs.ask) / costs.miss
    else:
        tau_esc = -math.inf if costs.ask < costs.esc else math.inf
    if max(tau_esc, 0.0) < tau_act:
        return max(tau_esc, 0.0), min(tau_act, 1.0)
    together = min(1.0, max(0.0, 1 - costs.esc / costs.wrong))
    return together, together


def region(p: object, tau_esc: float, tau_act: float) -> Region:
    """Say what to do at probability `p`: ties go up, so p = tau_act acts and p = tau_esc asks.

    A `p` that is no number in [0, 1] (None, NaN, text, a bool) is never acted on: "escalate".
    Raises CostError unless 0 <= tau_esc <= tau_act <= 1.
    """
    check_pair(tau_esc, tau_act)
    probability = as_probability(p)
    if probability is None or probability < tau_esc:
        return "escalate"
    return "act" if probability >= tau_act else "ask"


def as_probability(value: object) -> float | None:
    """Return the value as a float if it is a number in [0, 1], else None."""
    return float(value) if is_number(value) and 0 <= value <= 1 else None


def check_pair(tau_esc: object, tau_act: object) -> None:
    """Raise CostError unless 0 <= tau_esc <= tau_act <= 1."""
    for name, value in (("tau_esc", tau_esc), ("tau_act", tau_act)):
        if as_probability(value) is None:
            raise CostError(name, f"{value!r} is no threshold; write a number from 0 to 1")
    if cast("float", tau_esc) > cast("float", tau_act):
        raise CostError("tau_esc", f"{tau_esc!r} is above tau_act {tau_act!r}; lower it or raise tau_act")
