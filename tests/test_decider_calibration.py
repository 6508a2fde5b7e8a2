"""Calibration against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from decider.calibration import (
    HIGHEST_TEMPERATURE,
    accuracy,
    choice_brier,
    expected_calibration_error,
    fit_choice_temperature,
    fit_noul_temperature,
    negative_log_likelihood,
    noul_brier,
    wilson_interval,
)


def test_noul_temperature_makes_the_probability_the_share_of_yes() -> None:
    # All logits are 2 and 3 of 4 outcomes are yes: sigmoid(2 / T) = 3/4, so T = 2 / ln 3.
    assert fit_noul_temperature([2, 2, 2, 2], [1, 1, 1, 0]) == pytest.approx(2 / math.log(3), rel=1e-4)


def test_choice_temperature_with_options_of_different_number() -> None:
    # Two options, gap 4, right in 3 of 4: e^(4/T) = 3. The row of one option adds nothing.
    logits = [[4.0, 0.0]] * 4 + [[1.0]]
    assert fit_choice_temperature(logits, [0, 0, 0, 1, 0]) == pytest.approx(4 / math.log(3), rel=1e-4)


def test_what_nobody_can_know_counts_half() -> None:
    # As above, and once an even spread: (3 + 1/2) / 5 = 7/10, so e^(gap/T) = 7/3.
    assert fit_noul_temperature([2] * 5, [1, 1, 1, 0, 0.5]) == pytest.approx(2 / math.log(7 / 3), rel=1e-4)
    fitted = fit_choice_temperature([[4.0, 0.0]] * 5, [0, 0, 0, 1, None])
    assert fitted == pytest.approx(4 / math.log(7 / 3), rel=1e-4)


def test_useless_scores_get_the_highest_temperature() -> None:
    assert fit_noul_temperature([3, -3], [0, 1]) == pytest.approx(HIGHEST_TEMPERATURE, rel=1e-3)


@pytest.mark.parametrize(("logits", "outcomes"), [([], []), ([1.0], [1, 0]), ([[1.0]], [[1.0]])])
def test_columns_that_do_not_fit_are_refused(logits: list[float], outcomes: list[float]) -> None:
    with pytest.raises(ValueError, match="shapes"):
        fit_noul_temperature(logits, outcomes)
    with pytest.raises(ValueError, match="give equally many"):
        fit_choice_temperature([], [])


def test_wilson_interval() -> None:
    # 8 of 10 at 95 %: Wilson 1927 gives 0.490 to 0.943.
    assert wilson_interval(8, 10) == pytest.approx((0.4901, 0.9433), abs=1e-3)
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert wilson_interval(5, 5)[1] == 1.0


def test_accuracy_counts() -> None:
    result = accuracy([True, True, False, True])
    assert (result.correct, result.count, result.share) == (3, 4, 0.75)
    assert math.isnan(accuracy([]).share)


def test_scores_of_two_predictions() -> None:
    assert negative_log_likelihood([0.5, 0.25]) == pytest.approx(1.5 * math.log(2))
    assert noul_brier([0.9, 0.4], [1, 1]) == pytest.approx((0.01 + 0.36) / 2)
    assert choice_brier([[0.7, 0.2, 0.1]], [0]) == pytest.approx(0.09 + 0.04 + 0.01)


def test_equal_width_and_equal_mass_differ() -> None:
    # Two bins. Width: {0.1, 0.2, 0.3} and {0.9}; mass: {0.1, 0.2} and {0.3, 0.9}.
    predicted, outcomes = [0.9, 0.1, 0.2, 0.3], [1, 0, 0, 1]
    width = (3 * abs(0.2 - 1 / 3) + abs(0.9 - 1)) / 4
    mass = (2 * abs(0.15 - 0) + 2 * abs(0.6 - 1)) / 4
    assert expected_calibration_error(predicted, outcomes, bins=2) == pytest.approx(width)
    assert expected_calibration_error(predicted, outcomes, bins=2, kind="mass") == pytest.approx(mass)


def test_perfect_and_certain_predictions_have_no_error() -> None:
    assert expected_calibration_error(np.array([1.0, 0.0, 1.0]), [1, 0, 1]) == 0
