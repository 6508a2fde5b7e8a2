"""Certified thresholds: walks worked out by hand, and how often the promise is kept over many draws."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from decider.calibration import certified_threshold, clopper_pearson_interval

# 20 scores, so that each step of the grid approves one answer more.
SCORES = [round(0.99 - 0.01 * place, 2) for place in range(20)]


def test_the_walk_stops_at_the_first_threshold_that_fails() -> None:
    # Half wrong at most, 10 % risk: n right answers alone have the p-value 1/2^n, so 4 are needed. Then one wrong:
    # P(X <= 1 of 5) = 6/32 is too much, and the walk ends although P(X <= 1 of 10) would pass.
    wrong = [0, 0, 0, 0, 1] + [0] * 15
    found = certified_threshold(SCORES, wrong, "1/2", "1/10", starts=["1/5"])
    assert (found.threshold, found.approved, found.wrong) == (0.96, 4, 0)
    assert [(step.approved, step.wrong, step.certified) for step in found.steps] == [(4, 0, True), (5, 1, False)]
    assert [step.p_value for step in found.steps] == [pytest.approx(1 / 16), pytest.approx(6 / 32)]


def test_a_walk_that_begins_below_the_mistake_goes_on() -> None:
    wrong = [0, 0, 0, 0, 1] + [0] * 15
    found = certified_threshold(SCORES, wrong, "1/2", "1/10", starts=["1/2"])
    assert (found.threshold, found.approved, found.wrong) == (0.8, 20, 1)
    assert str(found).startswith("Approve at 0.8000 or above: at most 50 % wrong among what is approved, at 90 % conf")
    assert "not for one question" in str(found)


def test_two_walks_share_the_risk() -> None:
    # 4 right answers have the p-value 1/16 > 1/20: with half the risk each, the walk from 1/5 fails at once.
    wrong = [0, 0, 0, 0, 1] + [0] * 15
    found = certified_threshold(SCORES, wrong, "1/2", "1/10", starts=["1/5", "1/2"])
    assert [step.approved for step in found.steps] == [4, *range(10, 21)]
    assert found.threshold == 0.8


def test_a_p_value_that_equals_the_level_certifies() -> None:
    found = certified_threshold([0.9] * 4, [0] * 4, "1/2", "1/16")
    assert (found.threshold, found.approved) == (0.9, 4)
    assert certified_threshold([0.9] * 4, [0] * 4, "1/2", Fraction(1, 16) - Fraction(1, 10**12)).threshold is None


def test_nothing_certified_is_said_in_words() -> None:
    found = certified_threshold(SCORES, [0] * 20, "0.05", "0.1")
    assert found.threshold is None
    assert str(found) == (
        "Nothing can be certified (at most 5 % wrong among what is approved, at 90 % confidence) with these 20 "
        "labelled answers; even without a mistake it takes 45 approved answers. Approve nothing."
    )
    assert "even without" not in str(certified_threshold(SCORES, [1] * 20, "1/2", "1/10"))


def test_thresholds_come_from_the_unlabelled_scores_where_given() -> None:
    recent = [0.905] * 10 + [0.1] * 10
    found = certified_threshold(SCORES, [0] * 20, "1/2", "1/10", unlabelled=recent, starts=["1/20"])
    assert {step.threshold for step in found.steps} == {0.905, 0.1}
    assert (found.threshold, found.approved) == (0.1, 20)
    high = certified_threshold(SCORES, [0] * 20, "1/2", "1/10", unlabelled=[1.0], starts=[1])
    assert high.threshold is None
    assert high.steps[0].p_value == 1.0


def test_the_default_start_approves_twice_what_any_certificate_takes() -> None:
    scores = np.linspace(1, 0, 320)
    found = certified_threshold(scores, np.zeros(320), "0.05", "0.1")
    assert found.steps[0].approved == 96  # 2 * 45 / 320 = 0.28, and the next share of the grid is 0.30
    assert found.approved == 320
    few = certified_threshold(np.linspace(1, 0, 100), np.zeros(100), "0.05", "0.1")
    assert few.steps[0].approved == 45  # twice that is nearly all, and 30 would be too few
    some = certified_threshold(np.linspace(1, 0, 200), np.zeros(200), "0.05", "0.1")
    assert some.steps[0].approved == 60


@pytest.mark.parametrize(("alpha", "delta"), [(0, 0.1), (0.1, 1), ("x", 0.1)])
def test_levels_outside_are_refused(alpha: float, delta: float) -> None:
    with pytest.raises(ValueError, match="write a number between 0 and 1"):
        certified_threshold([0.5], [0], alpha, delta)
    with pytest.raises(ValueError, match="starts is empty"):
        certified_threshold([0.5], [0], "0.1", "0.1", starts=[])


def draws(alpha: str, starts: list[str], count: int) -> tuple[float, float, float]:
    """Mean share accepted, share of draws with nothing certified and with a broken promise, at n = 320, risk 0.1.

    P(right) = 1 - 0.95 U^3 is the score, so the share accepted at t is u = ((1 - t) / 0.95)^(1/3) and 0.95 u^3 / 4
    of that is wrong.
    """
    random = np.random.default_rng(14)
    accepted, nothing, broken = 0.0, 0, 0
    for _ in range(count):
        score = 1 - 0.95 * random.random(320) ** 3
        wrong = (random.random(320) >= score).astype(float)
        recent = 1 - 0.95 * random.random(320) ** 3
        threshold = certified_threshold(score, wrong, alpha, "0.1", recent, starts).threshold
        if threshold is None:
            nothing += 1
            continue
        share = min(1.0, ((1 - threshold) / 0.95) ** (1 / 3))
        accepted += share
        broken += 0.95 * share**3 / 4 > float(alpha)
    return accepted / count, nothing / count, broken / count


@pytest.mark.parametrize(
    ("alpha", "starts", "accepted", "nothing"),
    [
        ("0.05", ["0.3"], 0.401, 0.107),
        ("0.05", ["0.3", "0.6"], 0.314, 0.254),
        ("0.1", ["0.3"], 0.644, 0.0),
        ("0.1", ["0.3", "0.6"], 0.622, 0.001),
    ],
)
def test_the_promise_is_kept_over_many_draws(alpha: str, starts: list[str], accepted: float, nothing: float) -> None:
    count = 400
    mean, none, broken = draws(alpha, starts, count)
    assert mean == pytest.approx(accepted, abs=0.04)
    assert none == pytest.approx(nothing, abs=0.06)
    low, _ = clopper_pearson_interval(round(broken * count), count, "0.99")
    assert low <= 0.1
    assert broken < 0.1
