"""Measures of probabilities against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from decider.calibration import (
    accuracy,
    choice_brier,
    expected_calibration_error,
    negative_log_likelihood,
    noul_brier,
    reliability,
    risk_coverage,
)


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


def test_bins_say_how_many_and_how_sure() -> None:
    low, high = reliability([0.1, 0.3, 0.9, 0.8], [0, 1, 1, 1], bins=2)
    assert (low.count, low.predicted, low.share) == pytest.approx((2, 0.2, 0.5))
    assert (high.count, high.predicted, high.share) == pytest.approx((2, 0.85, 1.0))
    # Wilson for 2 of 2: 1 / (1 + z^2 / 2) = 0.3424
    assert (high.low, high.high) == pytest.approx((0.3424, 1.0), abs=1e-4)


def test_bins_of_equal_mass_do_not_depend_on_the_order_of_equal_predictions() -> None:
    predicted, outcomes = [0.5, 0.5, 0.5, 0.5, 0.9, 0.9], [1, 1, 0, 0, 1, 0]
    turned = expected_calibration_error(predicted[::-1], outcomes[::-1], bins=3, kind="mass")
    assert expected_calibration_error(predicted, outcomes, bins=3, kind="mass") == turned
    assert [one.count for one in reliability(predicted, outcomes, bins=3, kind="mass")] == [4, 2]


@pytest.mark.parametrize("predicted", [[1.5, 0.2], [-0.1, 0.2]])
def test_what_is_no_probability_is_refused(predicted: list[float]) -> None:
    with pytest.raises(ValueError, match="give probabilities"):
        reliability(predicted, [1, 0])


@pytest.mark.parametrize(("predicted", "outcomes"), [([math.nan, 0.5], [1, 0]), ([0.5, 0.5], [1, math.inf])])
def test_what_is_no_number_is_refused(predicted: list[float], outcomes: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        noul_brier(predicted, outcomes)


def test_risk_and_coverage() -> None:
    # From the most confident down: right, wrong, right, wrong; risks 0, 1/2, 1/3, 2/4.
    found = risk_coverage([0.6, 0.9, 0.8, 0.7], [1, 0, 1, 0])
    assert found.thresholds.tolist() == [0.9, 0.8, 0.7, 0.6]
    assert found.coverage.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert found.risk == pytest.approx([0, 1 / 2, 1 / 3, 1 / 2])
    assert found.area == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)


def test_equal_scores_are_used_together_whatever_their_order() -> None:
    # One score for all, 1 of 4 wrong: the risk is 1/4 at every coverage.
    for wrong in ([1, 0, 0, 0], [0, 0, 0, 1]):
        found = risk_coverage([0.7] * 4, wrong)
        assert (found.coverage.tolist(), found.risk.tolist()) == ([1.0], [0.25])
        assert found.area == pytest.approx(0.25)
