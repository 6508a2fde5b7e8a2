"""Thresholds from costs, worked out by hand, and the regions they cut."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from desk.errors import ThresholdError
from desk.thresholds import (
    Costs,
    action_thresholds,
    as_probability,
    checked_thresholds,
    default_thresholds,
    region,
)


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ((20, 0.5, 4, 3), (0.375, 0.96875)),
        ((4, 2.5, 2, 1), (0.75, 0.75)),  # tau_act -0.25 < tau_esc 1.75: asking never pays, 1 - 1/4
        ((20, 2.5, 4, 3), (0.85, 0.85)),  # tau_esc 0.875 > tau_act 0.84375: 1 - 3/20
        ((20, 0.5, 0, 3), (0.0, 0.975)),  # a look catches everything and costs less than handing over
        ((20, 5, 0, 3), (0.85, 0.85)),  # a look catches everything and costs more than handing over
        ((4, 0.5, 4, 1), (0.75, 0.75)),  # a look catches nothing
        ((4, 0.5, 9, 1), (0.75, 0.75)),
        ((20, 2, 4, 1), (0.95, 0.95)),  # handing over is cheaper than the question
        ((2, 0.5, 1, 3), (0.0, 0.5)),  # handing over never pays: tau_esc -1.5 is cut to 0
        ((2, 1.5, 1, 3), (0.0, 0.0)),  # acting is always cheapest: both are cut to 0
        ((4, 9, 4, 5), (0.0, 0.0)),  # esc >= wrong
        ((4, 1, 2, 0), (1.0, 1.0)),  # handing over is free
    ],
)
def test_thresholds(costs: tuple[float, float, float, float], expected: tuple[float, float]) -> None:
    assert action_thresholds(costs) == pytest.approx(expected)


def test_the_example_is_exact() -> None:
    assert action_thresholds(Costs(wrong=20, ask=0.5, miss=4, esc=3)) == (0.375, 0.96875)
    assert default_thresholds() == {"tau_route": 0.75, "tau_esc": 0.375, "tau_act": 0.96875}


@pytest.mark.parametrize(
    "costs",
    [(0, 1, 1, 1), (-1, 1, 1, 1), (4, -0.1, 1, 1), (4, 1, math.nan, 1), (4, 1, 1, math.inf), (4, True, 1, 1)],
)
def test_bad_costs_are_refused(costs: tuple[float, float, float, float]) -> None:
    with pytest.raises(ThresholdError):
        action_thresholds(costs)


COST = st.floats(0, 50, allow_nan=False)


@given(st.floats(0.01, 50), COST, COST, COST, st.floats(0, 1))
def test_the_region_is_a_cheapest_action(wrong: float, ask: float, miss: float, esc: float, p: float) -> None:
    tau_esc, tau_act = action_thresholds((wrong, ask, miss, esc))
    assert 0 <= tau_esc <= tau_act <= 1
    cost = {"act": (1 - p) * wrong, "ask": ask + (1 - p) * miss, "escalate": esc}
    assert cost[region(p, tau_esc, tau_act)] <= min(cost.values()) + 1e-6


@pytest.mark.parametrize(
    ("p", "expected"),
    [(0.375, "ask"), (0.9687, "ask"), (0.96875, "act"), (0.99, "act"), (0.1, "escalate"), (0, "escalate"), (1, "act")],
)
def test_regions_and_ties(p: float, expected: str) -> None:
    assert region(p, 0.375, 0.96875) == expected


@pytest.mark.parametrize("p", [None, math.nan, -0.001, 1.001, math.inf, "0.99", True, [1.0]])
def test_what_is_no_probability_is_never_acted_on(p: object) -> None:
    assert region(p, 0.0, 0.0) == "escalate"
    assert as_probability(p) is None


@pytest.mark.parametrize("pair", [(0.6, 0.5), (math.nan, 0.5), (0.5, math.nan), (-0.1, 0.5), (0.5, 1.1)])
def test_bad_thresholds_are_refused(pair: tuple[float, float]) -> None:
    with pytest.raises(ThresholdError):
        region(0.5, *pair)


def test_thresholds_of_a_request_are_checked_together() -> None:
    good = {"tau_route": 1, "tau_esc": 0.2, "tau_act": 0.9}
    assert checked_thresholds(good) == {"tau_route": 1.0, "tau_esc": 0.2, "tau_act": 0.9}
    for bad in (
        {**good, "tau_esc": 0.95},
        {**good, "tau": 0.1},
        {"tau_esc": 0.2, "tau_act": 0.9},
        {**good, "tau_act": "x"},
    ):
        with pytest.raises(ThresholdError):
            checked_thresholds(bad)
