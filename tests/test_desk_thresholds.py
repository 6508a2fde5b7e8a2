"""The desk's own thresholds, and the check of those that somebody gives; tests/test_costs.py has the arithmetic."""

from __future__ import annotations

import pytest

import decider.costs
from desk import thresholds
from desk.errors import ThresholdError
from desk.thresholds import checked_thresholds, default_thresholds


def test_the_thresholds_of_a_request() -> None:
    assert default_thresholds() == {"tau_route": 0.75, "tau_esc": 0.375, "tau_act": 0.96875}


@pytest.mark.parametrize("name", ["Costs", "action_thresholds", "as_probability", "region"])
def test_the_arithmetic_is_the_deciders(name: str) -> None:
    assert getattr(thresholds, name) is getattr(decider.costs, name)


@pytest.mark.parametrize(
    "changed", [{"tau_esc": 0.95}, {"tau": 0.1}, {"tau_act": "x"}, {"tau_act": True}, {"tau_route": float("nan")}]
)
def test_thresholds_of_a_request_are_checked_together(changed: dict[str, object]) -> None:
    good: dict[str, object] = {"tau_route": 1, "tau_esc": 0.2, "tau_act": 0.9}
    assert checked_thresholds(good) == {"tau_route": 1.0, "tau_esc": 0.2, "tau_act": 0.9}
    with pytest.raises(ThresholdError):
        checked_thresholds({**good, **changed})


def test_a_missing_threshold_is_refused() -> None:
    with pytest.raises(ThresholdError, match="tau_route"):
        checked_thresholds({"tau_esc": 0.2, "tau_act": 0.9})
