"""Temperatures and Platt's fit against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from decider import CalibrationError
from decider.calibration import (
    HIGHEST_TEMPERATURE,
    LOWEST_TEMPERATURE,
    fit_choice_temperature,
    fit_noul_temperature,
    fit_platt,
)


def test_noul_temperature_makes_the_probability_the_share_of_yes() -> None:
    # All logits are 2 and 3 of 4 outcomes are yes: sigmoid(2 / T) = 3/4, so T = 2 / ln 3.
    found = fit_noul_temperature([2, 2, 2, 2], [1, 1, 1, 0])
    assert found.accepted("noul") == pytest.approx(2 / math.log(3), rel=1e-4)
    assert found.nll_after == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    assert found.nll_before == pytest.approx(math.log1p(math.exp(-2)) + 0.25 * 2)
    assert found.count == 4


def test_choice_temperature_with_options_of_different_number() -> None:
    # Two options, gap 4, right in 3 of 4: e^(4/T) = 3. The row of one option adds nothing.
    logits = [[4.0, 0.0]] * 4 + [[1.0]]
    assert fit_choice_temperature(logits, [0, 0, 0, 1, 0]).temperature == pytest.approx(4 / math.log(3), rel=1e-4)


def test_what_nobody_can_know_counts_half() -> None:
    # As above, and once an even spread: (3 + 1/2) / 5 = 7/10, so e^(gap/T) = 7/3.
    assert fit_noul_temperature([2] * 5, [1, 1, 1, 0, 0.5]).temperature == pytest.approx(2 / math.log(7 / 3), rel=1e-4)
    fitted = fit_choice_temperature([[4.0, 0.0]] * 5, [0, 0, 0, 1, None])
    assert fitted.temperature == pytest.approx(4 / math.log(7 / 3), rel=1e-4)


@pytest.mark.parametrize(
    ("outcomes", "bound"),
    [([0, 1], HIGHEST_TEMPERATURE), ([1, 0], LOWEST_TEMPERATURE)],
    ids=["all wrong", "all right"],
)
def test_a_temperature_at_an_end_of_the_range_is_reported_and_refused(outcomes: list[int], bound: float) -> None:
    found = fit_noul_temperature([3, -3], outcomes)
    assert found.at_bound
    assert found.temperature == pytest.approx(bound, rel=1e-3)
    with pytest.raises(CalibrationError, match=r"'noul' cannot be used: the best of 0\.05 to 20 on 2 answers"):
        found.accepted("noul")


@pytest.mark.parametrize("temperature", [0.5, 2.0, 3.0])
def test_a_temperature_is_found_again(temperature: float) -> None:
    """Outcomes drawn with P(yes) = sigmoid(logit / T), 20,000 of them: the spread of the fit is about 1.5 %."""
    random = np.random.default_rng(7)
    logits = random.normal(0, 2 * temperature, 20_000)
    outcomes = (random.random(20_000) < 1 / (1 + np.exp(-logits / temperature))).astype(float)
    assert fit_noul_temperature(logits, outcomes).temperature == pytest.approx(temperature, rel=0.06)


@pytest.mark.parametrize(("logits", "outcomes"), [([], []), ([1.0], [1, 0]), ([[1.0]], [[1.0]])])
def test_columns_that_do_not_fit_are_refused(logits: list[float], outcomes: list[float]) -> None:
    with pytest.raises(ValueError, match="shapes"):
        fit_noul_temperature(logits, outcomes)
    with pytest.raises(ValueError, match="give equally many"):
        fit_choice_temperature([], [])


def test_platt_meets_the_shares_at_two_logits() -> None:
    # At logit 0 one of 4 is yes, at logit 2 three of 4: bias = -ln 3, bias + 2 slope = ln 3.
    found = fit_platt([0] * 4 + [2] * 4, [1, 0, 0, 0, 1, 1, 1, 0])
    assert (found.bias, found.slope) == pytest.approx((-math.log(3), math.log(3)))
    assert found.probability(0) == pytest.approx(0.25)
    assert found.probability(1) == pytest.approx(0.5)
    assert found.probability(-1e6) == 0
    assert found.probability(1e6) == 1


def test_a_ridge_pulls_the_slope_to_one_and_leaves_the_shares_of_all_alone() -> None:
    logits, outcomes = [0] * 4 + [2] * 4, [1, 0, 0, 0, 1, 1, 1, 0]
    slopes = [fit_platt(logits, outcomes, ridge).slope for ridge in (0, 1, 100)]
    assert slopes[0] > slopes[1] > slopes[2] > 1
    assert slopes[2] == pytest.approx(1, abs=0.005)
    strong = fit_platt(logits, outcomes, 100)  # the bias is not held: the mean probability is the share of yes
    assert sum(strong.probability(logit) for logit in logits) == pytest.approx(4)


def test_platt_does_not_depend_on_where_logits_lie() -> None:
    outcomes = [1, 0, 0, 0, 1, 1, 1, 0]
    found = fit_platt([1e5] * 4 + [1e5 + 2] * 4, outcomes)
    assert found.slope == pytest.approx(math.log(3), rel=1e-6)


@pytest.mark.parametrize(
    ("logits", "outcomes", "reason"),
    [
        ([1, 2, 3], [1, 1, 1], "outcomes are the same"),
        ([1, 1, 1], [1, 0, 1], "separates"),
        ([1, 2, 3, 4], [0, 0, 1, 1], "separates"),
        ([4, 3, 2, 1], [0, 0, 1, 1], "separates"),
    ],
)
def test_platt_is_refused_where_no_fit_exists(logits: list[float], outcomes: list[int], reason: str) -> None:
    with pytest.raises(CalibrationError, match=reason):
        fit_platt(logits, outcomes)


def test_a_ridge_gives_separated_data_a_fit() -> None:
    assert 1 < fit_platt([1, 2, 3, 4], [0, 0, 1, 1], ridge=1).slope < 10


def test_outcomes_other_than_yes_and_no_are_refused() -> None:
    with pytest.raises(ValueError, match=r"outcomes holds 0\.5"):
        fit_platt([1, 2], [0.5, 1])
