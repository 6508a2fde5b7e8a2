"""The desk's costs and the thresholds that follow from them (see ``decider.costs``), and a check of those given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from decider.costs import Costs, Region, action_thresholds, as_probability, check_pair, region
from decider.errors import CostError
from desk.errors import ThresholdError

__all__ = [
    "MAIL_COSTS",
    "ROUTE_COSTS",
    "Costs",
    "Region",
    "action_thresholds",
    "as_probability",
    "checked_thresholds",
    "default_thresholds",
    "region",
]

MAIL_COSTS: Final = Costs(wrong=20, ask=0.5, miss=4, esc=3)
"""A mail that should not have gone out, against a look by a person: thresholds 0.375 and 0.96875."""

ROUTE_COSTS: Final = Costs(wrong=4, ask=2.5, miss=2, esc=1)
"""A request sent down the wrong path: handing over is cheaper than a question, so nothing is asked."""


def default_thresholds() -> dict[str, float]:
    """Give the thresholds a new request runs with: tau_route, tau_esc and tau_act."""
    tau_esc, tau_act = action_thresholds(MAIL_COSTS)
    tau_route = action_thresholds(ROUTE_COSTS, quiet=True)[1]
    return {"tau_route": tau_route, "tau_esc": tau_esc, "tau_act": tau_act}


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
    try:
        check_pair(given["tau_esc"], given["tau_act"])
    except CostError as error:
        raise ThresholdError(error.field, error.problem) from error
    return {name: float(cast("float", given[name])) for name in known}
