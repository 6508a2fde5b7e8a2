"""From what mistakes cost to the probabilities at which the desk acts, asks a person, or hands a case over.

With p the probability that an action is right, the expected costs are

    act       (1 - p) * wrong            escalate   esc
    ask       ask + (1 - p) * miss

where ``wrong`` is the cost of a wrong action, ``ask`` of a person's look, ``miss`` of a wrong action the person lets
through, and ``esc`` of handing over. The cheapest action changes at two thresholds (Chow 1970, extended by the
question): ``tau_act`` where acting costs as much as asking, ``tau_esc`` where asking costs as much as handing over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypeGuard, cast

from desk.errors import ThresholdError

Region: TypeAlias = Literal["act", "ask", "escalate"]
"""What a probability asks for: act alone, ask a person, or hand over."""


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cut(value: float) -> float:
    return min(1.0, max(0.0, value))


@dataclass(frozen=True, slots=True)
class Costs:
    """What each outcome costs, in one unit. ``wrong`` is above 0, the others are 0 or more.

    Raises:
        ThresholdError: a cost is not a finite number, is negative, or ``wrong`` is 0.
    """

    wrong: float
    ask: float
    miss: float
    esc: float

    def __post_init__(self) -> None:
        for name in ("wrong", "ask", "miss", "esc"):
            value: object = getattr(self, name)
            if not _is_number(value) or not 0 <= value < math.inf:
                raise ThresholdError(f"cost {name!r}", f"{value!r} is no cost; write a finite number, 0 or more")
        if self.wrong == 0:
            raise ThresholdError("cost 'wrong'", "it is 0, so nothing could ever be wrong; write a number above 0")


MAIL_COSTS: Final = Costs(wrong=20, ask=0.5, miss=4, esc=3)
"""A mail that should not have gone out, against a look by a person: thresholds 0.375 and 0.96875."""

ROUTE_COSTS: Final = Costs(wrong=4, ask=2.5, miss=2, esc=1)
"""A request sent down the wrong path: asking never pays, so both thresholds are 0.75."""


def action_thresholds(costs: Costs | tuple[float, float, float, float]) -> tuple[float, float]:
    """Give (tau_esc, tau_act), both in [0, 1] and in that order, for costs or (wrong, ask, miss, esc).

    tau_act = 1 - ask / (wrong - miss) and tau_esc = 1 - (esc - ask) / miss. Where asking is nowhere the cheapest, both
    become the point at which acting and handing over cost the same, 1 - esc / wrong. That is the case when

    - tau_esc > tau_act (it also covers esc < ask: handing over is cheaper than the mere question);
    - wrong <= miss: a person's look makes a mistake no cheaper;
    - miss = 0 and ask > esc: the question alone costs more than handing over.

    miss = 0 and ask <= esc: asking is never dearer than handing over, tau_esc = 0. esc >= wrong: handing over is never
    worth it, the collapsed threshold is 0. Results are cut to [0, 1].

    Raises:
        ThresholdError: see ``Costs``.
    """
    if not isinstance(costs, Costs):
        costs = Costs(*costs)
    together = _cut(1 - costs.esc / costs.wrong)
    if costs.wrong <= costs.miss:
        return together, together
    tau_act = 1 - costs.ask / (costs.wrong - costs.miss)
    if costs.miss > 0:
        tau_esc = 1 - (costs.esc - costs.ask) / costs.miss
    else:
        tau_esc = 0.0 if costs.ask <= costs.esc else math.inf
    if tau_esc > tau_act:
        return together, together
    return _cut(tau_esc), _cut(tau_act)


def region(p: object, tau_esc: float, tau_act: float) -> Region:
    """Say what to do at probability ``p``: ties go up, so p = tau_act acts and p = tau_esc asks.

    A ``p`` that is no number in [0, 1] (None, NaN, text, a bool) is never acted on: "escalate".

    Raises:
        ThresholdError: the thresholds are not 0 <= tau_esc <= tau_act <= 1.
    """
    check_pair(tau_esc, tau_act)
    probability = as_probability(p)
    if probability is None or probability < tau_esc:
        return "escalate"
    return "act" if probability >= tau_act else "ask"


def as_probability(value: object) -> float | None:
    """Give the value as a float if it is a number in [0, 1], else None."""
    return float(value) if _is_number(value) and 0 <= value <= 1 else None


def check_pair(tau_esc: object, tau_act: object) -> None:
    """Raise ``ThresholdError`` unless 0 <= tau_esc <= tau_act <= 1."""
    for name, value in (("tau_esc", tau_esc), ("tau_act", tau_act)):
        if as_probability(value) is None:
            raise ThresholdError(name, f"{value!r} is no threshold; write a number from 0 to 1")
    if cast("float", tau_esc) > cast("float", tau_act):
        raise ThresholdError("tau_esc", f"{tau_esc!r} is above tau_act {tau_act!r}; lower it or raise tau_act")


def default_thresholds() -> dict[str, float]:
    """Give the thresholds a new request runs with: tau_route, tau_esc and tau_act."""
    tau_esc, tau_act = action_thresholds(MAIL_COSTS)
    return {"tau_route": action_thresholds(ROUTE_COSTS)[1], "tau_esc": tau_esc, "tau_act": tau_act}


def checked_thresholds(given: Mapping[str, object]) -> dict[str, float]:
    """Give the three thresholds as floats.

    Raises:
        ThresholdError: one is missing, unknown or out of [0, 1], or tau_esc is above tau_act.
    """
    known = default_thresholds()
    for name in given:
        if name not in known:
            raise ThresholdError(name, f"this is no threshold; there are {', '.join(known)}")
    for name in known:
        if as_probability(given.get(name)) is None:
            raise ThresholdError(name, f"{given.get(name)!r} is no threshold; write a number from 0 to 1")
    check_pair(given["tau_esc"], given["tau_act"])
    return {name: float(cast("float", given[name])) for name in known}
