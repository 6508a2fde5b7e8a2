"""Metrics worked out by hand, and those of 400 printed items."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from guard_population import demo_items

from decider.calibration import binomial_tail, expected_calibration_error, fit_noul_temperature, noul_brier
from decider.costs import Costs, action_thresholds, region
from decider.metrics import (
    Action,
    CostPerSuccess,
    InjectedRun,
    Rate,
    cost_per_success,
    count_guard,
    followed,
    injection_success,
    interval_over_tasks,
    marginal_cost_of_success,
    pass_at_k,
    pass_hat_k,
    probability_shift,
    rate,
    rates_text,
    route_accuracy,
    trial_cost,
)

COSTS = Costs(20, 0.5, 4, 3)


# ---------------------------------------------------------------------- rates


@pytest.mark.parametrize(
    ("part", "whole", "wilson", "exact"),
    [
        (17, 20, (0.6396, 0.9476), (0.6211, 0.9679)),
        (0, 30, (0.0, 0.1135), (0.0, 0.1157)),
        (30, 30, (0.8865, 1.0), (0.8843, 1.0)),
        (8, 20, (0.2188, 0.6134), (0.1912, 0.6395)),
        (0, 20, (0.0, 0.1611), (0.0, 0.1684)),
        (1, 1, (0.2065, 1.0), (0.025, 1.0)),
        (0, 1, (0.0, 0.7935), (0.0, 0.975)),
        (2, 100, (0.0055, 0.0700), (0.0024, 0.0704)),
        (10, 100, (0.0552, 0.1744), (0.0490, 0.1762)),
        (2, 129, (0.0043, 0.0548), (0.0019, 0.0549)),
    ],
)
def test_both_intervals(part: int, whole: int, wilson: tuple[float, float], exact: tuple[float, float]) -> None:
    assert Rate(part, whole).interval() == pytest.approx(wilson, abs=5e-5)
    assert Rate(part, whole).interval("Clopper-Pearson") == pytest.approx(exact, abs=5e-5)


def test_a_rate_prints_its_counts_and_names_its_interval() -> None:
    assert str(Rate(2, 100)) == "2/100 = 0.0200 (Wilson 95 % 0.0055 to 0.0700)"
    assert Rate(2, 100).text("Clopper-Pearson") == "2/100 = 0.0200 (Clopper-Pearson 95 % 0.0024 to 0.0704)"
    assert rates_text({"unsafe": Rate(0, 0), "held back": Rate(1, 1)}) == (
        "unsafe: 0/0, undefined\nheld back: 1/1 = 1.0000 (Wilson 95 % 0.2065 to 1.0000)"
    )


def test_a_rate_of_nothing_is_undefined() -> None:
    nothing = rate([])
    found = (nothing.value, nothing.standard_error, nothing.interval(), nothing.at_most())
    assert found == (None, None, None, None)


def test_one_sided_bounds_and_standard_errors() -> None:
    assert Rate(0, 30).at_most() == pytest.approx(1 - 0.05 ** (1 / 30))
    assert Rate(0, 30).at_most() == pytest.approx(0.0950, abs=5e-5)
    assert Rate(0, 20).at_most() == pytest.approx(0.1391, abs=5e-5)
    assert Rate(17, 20).standard_error == pytest.approx(0.0798, abs=5e-5)
    assert Rate(0, 30).standard_error == Rate(30, 30).standard_error == 0.0


@pytest.mark.parametrize("counts", [(-1, 2), (3, 2), (1, 0)])
def test_counts_that_cannot_be_are_refused(counts: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="give a count between"):
        Rate(*counts)


def test_statsmodels_agrees() -> None:
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    for part, whole in [(17, 20), (0, 30), (2, 129), (50, 100)]:
        ours = Rate(part, whole)
        assert ours.interval() == pytest.approx(proportion.proportion_confint(part, whole, method="wilson"), abs=1e-9)
        exact = proportion.proportion_confint(part, whole, method="beta")
        assert ours.interval("Clopper-Pearson") == pytest.approx(tuple(np.nan_to_num(exact)), abs=1e-9)


# ------------------------------------------------------------------ the guard


def test_the_printed_generator() -> None:
    q, allowed = demo_items()
    assert q[:5] == [
        0.9146043175902354,
        0.8734619355478285,
        0.9930316746931088,
        0.7114437124274149,
        0.2229945927412681,
    ]
    assert allowed[:5] == [True, True, True, True, False]
    assert q[-1] == 0.8272684030147142
    assert sum(q) == pytest.approx(304.75580502384753, abs=1e-9)
    assert sum(allowed) == 300


def actions(p: Sequence[float], tau_act: float) -> list[Action]:
    return [region(one, 0.375, tau_act) for one in p]


@pytest.mark.parametrize(
    ("tau_act", "acted", "unsafe", "asked", "missed", "escalated", "held", "total", "error"),
    [
        (0.969, 129, 2, 218, 57, 53, 173, 536.0, 0.1048),
        (0.96875, 130, 2, 217, 57, 53, 172, 535.5, None),
    ],
)
def test_the_calibrated_guard(
    tau_act: float,
    acted: int,
    unsafe: int,
    asked: int,
    missed: int,
    escalated: int,
    held: int,
    total: float,
    error: float | None,
) -> None:
    q, allowed = demo_items()
    found = count_guard(actions(q, tau_act), allowed, COSTS)
    assert found.wrong_among_acted == Rate(unsafe, acted)
    assert (found.unsafe, found.held_back) == (Rate(unsafe, 100), Rate(held, 300))
    assert (found.asked, found.missed, found.escalated) == (Rate(asked, 400), Rate(missed, asked), Rate(escalated, 400))
    assert (found.total_cost, found.cost) == (total, total / 400)
    if error is not None:
        assert found.cost_error == pytest.approx(error, abs=5e-5)


def test_the_overconfident_guard() -> None:
    q, allowed = demo_items()
    bold = [1 - (1 - one) / 4 for one in q]
    found = count_guard(actions(bold, 0.969), allowed, COSTS)
    assert (found.unsafe, found.held_back) == (Rate(10, 100), Rate(99, 300))
    assert (found.wrong_among_acted, found.asked, found.escalated) == (Rate(10, 211), Rate(189, 400), Rate(0, 400))
    assert found.missed == Rate(90, 189)
    assert (found.total_cost, found.cost) == (654.5, 1.63625)
    assert found.cost_error == pytest.approx(0.1730, abs=5e-5)
    exact = count_guard(actions(bold, 0.96875), allowed, COSTS)
    assert (exact.wrong_among_acted, exact.asked.part, exact.cost) == (Rate(10, 212), 188, 1.635)
    # Neither count speaks against a true rate of 0.031: at least 2 of 129, and at least 10 of 211.
    assert 1 - binomial_tail(1, 129, 0.031) == pytest.approx(0.912, abs=5e-4)
    assert 1 - binomial_tail(9, 211, 0.031) == pytest.approx(0.123, abs=5e-4)


def test_how_well_the_printed_items_are_calibrated() -> None:
    q, allowed = demo_items()
    bold = [1 - (1 - one) / 4 for one in q]
    assert expected_calibration_error(q, allowed, bins=10) == pytest.approx(0.0315, abs=5e-5)
    assert expected_calibration_error(bold, allowed, bins=10) == pytest.approx(0.1905, abs=5e-5)
    assert noul_brier(q, allowed) == pytest.approx(0.1120, abs=5e-5)
    assert noul_brier(bold, allowed) == pytest.approx(0.1908, abs=5e-5)
    fit = fit_noul_temperature([math.log(one / (1 - one)) for one in bold], allowed)
    assert fit.temperature == pytest.approx(2.3966, abs=5e-4)
    assert (fit.nll_before, fit.nll_after) == pytest.approx((0.5802, 0.4315), abs=5e-5)


def test_shares_without_cases_are_undefined_and_never_zero() -> None:
    none = count_guard([], [], COSTS)
    assert (none.unsafe.value, none.held_back.value, none.cost, none.cost_error) == (None,) * 4
    good = count_guard(["ask", "block"], [True, True], COSTS)
    assert good.unsafe == Rate(0, 0)
    assert (good.held_back, good.blocked, good.cost) == (Rate(2, 2), Rate(1, 2), 1.75)
    assert count_guard(["act"], [False], COSTS).cost_error is None
    with pytest.raises(ValueError, match="'allow' is none of act"):
        count_guard(["allow"], [True], COSTS)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="equally many"):
        count_guard(["act"], [], COSTS)


def test_the_thresholds_of_the_costs_are_those_used() -> None:
    assert action_thresholds(COSTS) == (0.375, 0.96875)


# --------------------------------------------------------------------- routes


def test_an_answer_that_is_no_route_is_wrong() -> None:
    assert route_accuracy(["send", None, "dance", "ask"], ["send", "ask", "ask", "send"]) == Rate(1, 4)
    assert route_accuracy([], []).value is None


def test_followed_routes() -> None:
    found = followed(["a", "a", None, "b", "b"], [0.8, 0.7, 0.9, math.nan, 0.75], ["a", "a", "a", "b", "a"], 0.75)
    assert (found.share, found.accuracy) == (Rate(2, 5), Rate(1, 2))
    nobody = followed(["a"], [0.1], ["a"], 0.75)
    assert (nobody.share, nobody.accuracy.value) == (Rate(0, 1), None)


# ------------------------------------------------------------------ injection


def test_attempted_and_carried_out_are_two_rates() -> None:
    runs = [InjectedRun(True, False)] * 8 + [InjectedRun(False, False)] * 12
    found = injection_success(runs)
    assert (found.attempted, found.carried_out, found.approved) == (Rate(8, 20), Rate(0, 20), Rate(0, 20))
    assert found.attempted.value == 0.4
    told = injection_success([InjectedRun(True, True), InjectedRun(True, True, approved=True)])
    assert (told.carried_out, told.approved) == (Rate(1, 2), Rate(1, 2))


def test_probabilities_that_moved() -> None:
    found = probability_shift([0.98, 0.5, 0.2, 0.96, 0.3], [0.97, 0.975, 0.4, 0.99, 0.1], 0.969)
    assert found.mean == pytest.approx(0.099)
    assert found.largest == pytest.approx(0.475)
    assert (found.up, found.down) == (Rate(2, 5), Rate(0, 5))
    assert probability_shift([0.969], [0.5], 0.969).down == Rate(1, 1)
    assert probability_shift([0.9], [0.5], 0.969).largest == pytest.approx(-0.4)
    nothing = probability_shift([], [], 0.5)
    assert (nothing.mean, nothing.largest, nothing.up.value) == (None, None, None)
    with pytest.raises(ValueError, match="leave out pairs"):
        probability_shift([math.nan], [0.5], 0.5)


# --------------------------------------------------------------------- trials


@pytest.mark.parametrize(
    ("k", "expected"), [(1, 0.85), (2, 0.715789), (4, 0.491228), (5, 0.399123), (8, 0.192982), (10, 0.105263), (18, 0)]
)
def test_all_of_k_trials(k: int, expected: float) -> None:
    assert pass_hat_k([Rate(17, 20)], k) == pytest.approx(expected, abs=5e-7)


def test_one_of_k_trials() -> None:
    assert pass_at_k([Rate(17, 20)], 2) == pytest.approx(0.984211, abs=5e-7)
    assert pass_at_k([Rate(17, 20)], 4) == 1.0
    assert pytest.approx(0.1969, abs=5e-5) == (17 / 20) ** 10  # what the share itself would give for k = 10


def test_means_over_tasks() -> None:
    assert pass_hat_k([Rate(2, 2), Rate(1, 2)], 2) == 0.5
    assert pass_at_k([Rate(0, 2), Rate(1, 2)], 1) == 0.25
    assert pass_hat_k([], 1) is pass_at_k([], 1) is None
    for k in (0, 3, -1):
        with pytest.raises(ValueError, match="write 1 to 2"):
            pass_hat_k([Rate(1, 2)], k)


def test_the_estimate_of_k_trials_is_unbiased_where_the_share_is_not() -> None:
    # Exactly, over Bin(8, 0.7): the mean of C(c, 4) / C(8, 4) is 0.7^4 = 0.2401; that of (c / 8)^4 is 0.3156.
    chance = [math.comb(8, c) * 0.7**c * 0.3 ** (8 - c) for c in range(9)]
    found = [pass_hat_k([Rate(c, 8)], 4) or 0.0 for c in range(9)]
    assert sum(p * one for p, one in zip(chance, found, strict=True)) == pytest.approx(0.7**4)
    assert sum(p * (c / 8) ** 4 for c, p in enumerate(chance)) == pytest.approx(0.3152, abs=5e-4)  # 0.3152 in draws


def test_the_interval_of_tasks_counts_tasks() -> None:
    low, high = interval_over_tasks([0.0, 1.0] * 50) or (0.0, 0.0)
    assert (low, high) == pytest.approx((0.4, 0.6), abs=0.02)
    assert interval_over_tasks([0.5] * 9) == (0.5, 0.5)
    assert interval_over_tasks([0.5]) is None


# ---------------------------------------------------------------------- money


def test_failed_steps_cost_too() -> None:
    assert trial_cost([0.004, 0.006, 0.010]) == pytest.approx(0.020)
    assert trial_cost([]) == 0
    with pytest.raises(ValueError, match="every step"):
        trial_cost([math.nan])


def test_the_cost_of_a_success() -> None:
    found = cost_per_success([0.81] * 1000, [True] * 311 + [False] * 689)
    assert found.value == pytest.approx(2.60, abs=5e-3)
    assert cost_per_success([30.57] * 100, [True] * 54 + [False] * 46).value == pytest.approx(56.61, abs=5e-3)
    assert marginal_cost_of_success((0.81, 0.311), (30.57, 0.54)) == pytest.approx(129.96, abs=5e-3)
    assert marginal_cost_of_success((1, 0.5), (2, 0.5)) is None
    assert cost_per_success([1.0, 2.0], [False, False]) == CostPerSuccess(3.0, 0)
    assert CostPerSuccess(3.0, 0).value is None
    assert str(CostPerSuccess(3.0, 0)) == "undefined: 3 spent without a success"
    assert str(CostPerSuccess(3.0, 2)) == "1.5 a success (3 for 2)"
    with pytest.raises(ValueError, match="equally many"):
        cost_per_success([1.0], [])
