"""Tails and intervals of counts: printed values, exact fractions, and SciPy where it is there."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from decider.calibration import (
    Level,
    binomial_tail,
    clopper_pearson_interval,
    exact_level,
    fewest_trials,
    tail_is_within,
    upper_bound,
    wilson_interval,
)

WILSON = {
    (17, 20): (0.6396, 0.9476),
    (0, 30): (0.0, 0.1135),
    (30, 30): (0.8865, 1.0),
    (8, 20): (0.2188, 0.6134),
    (0, 20): (0.0, 0.1611),
    (1, 1): (0.2065, 1.0),
    (0, 1): (0.0, 0.7935),
}
CLOPPER_PEARSON = {(17, 20): (0.6211, 0.9679), (2, 129): (0.0019, 0.0549), (0, 20): (0.0, 0.1684)}


@pytest.mark.parametrize("counts", WILSON, ids=str)
def test_wilson(counts: tuple[int, int]) -> None:
    assert wilson_interval(*counts) == pytest.approx(WILSON[counts], abs=5e-5)


@pytest.mark.parametrize("counts", CLOPPER_PEARSON, ids=str)
def test_clopper_pearson(counts: tuple[int, int]) -> None:
    assert clopper_pearson_interval(*counts) == pytest.approx(CLOPPER_PEARSON[counts], abs=5e-5)


def test_no_success_in_closed_form() -> None:
    assert clopper_pearson_interval(0, 30)[1] == pytest.approx(1 - 0.025 ** (1 / 30))
    assert upper_bound(0, 30) == pytest.approx(1 - 0.05 ** (1 / 30))
    assert upper_bound(0, 20) == pytest.approx(0.1391, abs=5e-5)
    assert clopper_pearson_interval(0, 0) == wilson_interval(0, 0) == (0.0, 1.0)
    assert upper_bound(0, 0) == upper_bound(5, 5) == 1.0
    assert clopper_pearson_interval(5, 5)[0] == pytest.approx(0.025 ** (1 / 5))


def test_tails_worked_out() -> None:
    assert binomial_tail(1, 3, 0.5) == pytest.approx(0.5)
    assert binomial_tail(15, 178, 0.1) == pytest.approx(0.2906, abs=5e-5)
    assert binomial_tail(15, 178, 0.15) == pytest.approx(0.00635, abs=5e-6)
    assert (binomial_tail(3, 3, 0.5), binomial_tail(0, 3, 0.0), binomial_tail(0, 3, 1.0)) == (1.0, 1.0, 0.0)


def test_a_tail_that_equals_its_level_is_within() -> None:
    # P(no success in 2 trials of 1/10) is 81/100 exactly; as a float it is 0.81 and a bit.
    assert tail_is_within(0, 2, Fraction(1, 10), Fraction(81, 100))
    assert not tail_is_within(0, 2, Fraction(1, 10), Fraction(81, 100) - Fraction(1, 10**18))
    assert tail_is_within(15, 178, Fraction(15, 100), Fraction(1, 100))
    assert not tail_is_within(15, 178, Fraction(1, 10), Fraction(1, 100))


@pytest.mark.parametrize(
    ("share", "risk", "trials"),
    [
        ("0.1", "0.1", 22),
        ("0.05", "0.1", 45),
        ("0.05", "0.05", 59),
        ("0.02", "0.1", 114),
        ("0.01", "0.1", 230),
        ("0.01", "0.05", 299),
        ("1/2", "1/2", 1),
        ("0.5", "0.25", 2),
        ("0.9", "0.95", 1),
    ],
)
def test_the_fewest_trials_that_can_show_anything(share: Level, risk: Level, trials: int) -> None:
    assert fewest_trials(share, risk) == trials


def test_levels_are_what_they_are_written_as() -> None:
    assert exact_level(0.1) == exact_level("0.1") == exact_level("1/10") == Fraction(1, 10) != Fraction(0.1)


@pytest.mark.parametrize("level", [0, 1, 1.5, -0.1, math.nan, math.inf, "half", True, None])
def test_what_is_no_level_is_refused(level: object) -> None:
    with pytest.raises(ValueError, match="alpha is"):
        exact_level(level, "alpha")  # type: ignore[arg-type]


@pytest.mark.parametrize("counts", [(-1, 5), (6, 5)])
def test_counts_that_cannot_be_are_refused(counts: tuple[int, int]) -> None:
    for interval in (wilson_interval, clopper_pearson_interval, upper_bound):
        with pytest.raises(ValueError, match="give a count between"):
            interval(*counts)


def test_scipy_agrees() -> None:
    stats = pytest.importorskip("scipy.stats")
    for successes, trials, share in [(0, 1, 0.3), (7, 40, 0.1), (160, 320, 0.5), (90, 2000, 0.05), (5000, 9999, 0.51)]:
        assert binomial_tail(successes, trials, share) == pytest.approx(
            float(stats.binom.cdf(successes, trials, share)), rel=1e-9
        )
        exact = stats.binomtest(successes, trials).proportion_ci(0.9, method="exact")
        assert clopper_pearson_interval(successes, trials, "0.9") == pytest.approx((exact.low, exact.high), abs=1e-10)
        wilson = stats.binomtest(successes, trials).proportion_ci(0.95, method="wilson")
        assert wilson_interval(successes, trials) == pytest.approx((wilson.low, wilson.high), abs=1e-12)
