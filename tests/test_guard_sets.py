"""Prediction sets: limits worked out by hand, and how often the right option is in the set over many draws.

The triage examples whose numbers are printed elsewhere (215 singletons, q = 0.9536373; LAC q = 0.41843, 314 singletons)
belong to another project's data file, which is not here; that project also mixes a random calibration with a fixed use,
which over-covers, so its numbers are no golden values for the one scheme used here.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from decider.guard import Method, conformal_limit, conformal_rank, fit_set_rule, option_scores


@pytest.mark.parametrize(
    ("count", "alpha", "rank"),
    [
        (320, "0.05", 305),
        (320, "0.1", 289),
        (19, "0.05", 19),
        (18, "0.05", 19),
        (999, "0.059", 941),
        (100, "0.005", 101),
    ],
)
def test_the_rank_is_exact(count: int, alpha: str, rank: int) -> None:
    assert conformal_rank(count, alpha) == rank
    assert conformal_rank(count, float(alpha)) == rank  # with floats, 0.059 and 999 give 942


def test_the_limit_is_that_very_order_statistic() -> None:
    scores = [0.4, 0.1, 0.3, 0.2]  # k = ceil(5 * 0.5) = 3, of 4
    assert conformal_limit(scores, "0.5") == 0.3
    assert np.quantile(scores, 3 / 4, method="higher") == 0.4  # a quantile function takes the next one
    assert conformal_limit(scores, "0.2") == 0.4
    assert conformal_limit(scores, "0.1") == math.inf


def test_too_few_questions_leave_every_option_possible() -> None:
    rule = fit_set_rule([[0.9, 0.1]] * 18, [0] * 18, "0.05")
    assert rule.limit == math.inf
    assert rule.options([0.999, 0.001]) == (0, 1)
    assert str(rule) == "Every option stays possible: 18 labelled questions are too few for this level."
    assert fit_set_rule([], [], "0.05").options([0.5, 0.5]) == (0, 1)


def test_scores_by_hand() -> None:
    assert option_scores([0.2, 0.5, 0.3], "LAC") == pytest.approx([0.8, 0.5, 0.7])
    assert option_scores([0.2, 0.5, 0.3], "APS") == pytest.approx([1.0, 0.5, 0.8])
    assert option_scores([0.25, 0.25, 0.5], "APS") == pytest.approx([0.75, 1.0, 0.5])  # ties: in the options' order


def test_sets_by_hand() -> None:
    # Nine questions; the right option has the probabilities 0.9 ... 0.5 and, four times, 0.4: k = ceil(10 * 0.8) = 8.
    rows = [[p, 1 - p] for p in (0.9, 0.8, 0.7, 0.6, 0.55, 0.5, 0.45, 0.4, 0.3)]
    rule = fit_set_rule(rows, [0] * 9, "0.2")
    assert rule.limit == pytest.approx(0.6)
    assert rule.options([0.95, 0.05]) == (0,)
    assert rule.options([0.55, 0.45]) == (0, 1)
    assert rule.options([0.3, 0.3, 0.4]) == (2,)
    assert rule.options([0.35, 0.35, 0.3]) == ()  # LAC sets can be empty
    assert "at least 80 of 100, on average" in str(rule)
    # APS: the right one's mass is p when it is the likeliest and 1 when it is not: k = 8 of those is 1.
    everything = fit_set_rule(rows, [0] * 9, "0.2", "APS")
    assert everything.limit == 1.0
    assert everything.options([0.35, 0.35, 0.3]) == (0, 1, 2)
    half = fit_set_rule(rows, [0] * 9, "0.5", "APS")
    assert half.limit == pytest.approx(0.8)  # k = 5 of .5 .55 .6 .7 .8 .9 1 1 1
    assert half.options([0.7, 0.2, 0.1]) == (0,)
    assert half.options([0.9, 0.1]) == ()
    assert half.options([0.5, 0.3, 0.2]) == (0, 1)


def test_the_same_probabilities_in_another_order_give_the_same_set() -> None:
    rule = fit_set_rule([[0.1, 0.2, 0.7]] * 30, [1] * 30, "0.1", "APS")
    for row, expected in [([0.1, 0.2, 0.7], {0.7, 0.2}), ([0.7, 0.1, 0.2], {0.7, 0.2}), ([0.2, 0.7, 0.1], {0.7, 0.2})]:
        assert {row[index] for index in rule.options(row)} == expected


@pytest.mark.parametrize(
    ("rows", "right", "method"),
    [([[0.5, 0.5]], [2], "LAC"), ([[0.5, 0.5]], [-1], "LAC"), ([[0.5, 0.5]], [0, 1], "LAC"), ([[0.5]], [0], "RAPS")],
)
def test_what_cannot_be_fitted_is_refused(rows: list[list[float]], right: list[int], method: Method) -> None:
    with pytest.raises(ValueError, match=r"give|count|write"):
        fit_set_rule(rows, right, "0.1", method)


def questions(random: np.random.Generator, count: int, boldness: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of four options, and the right one drawn from them; bold ones are sharper than the truth."""
    logits = 1.5 * random.normal(size=(count, 4))
    truth = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    right = (truth.cumsum(axis=1) < random.random((count, 1))).sum(axis=1).clip(0, 3)
    shown = np.exp(boldness * logits)
    return shown / shown.sum(axis=1, keepdims=True), right


def coverage(method: Method, alpha: str, repeats: int, boldness: float = 1.0) -> float:
    """The share of new questions whose set holds the right option, over calibrations on 320 and 20 new ones each."""
    random = np.random.default_rng(6)
    covered = 0
    for _ in range(repeats):
        rows, right = questions(random, 340, boldness)
        rule = fit_set_rule(rows[:320].tolist(), right[:320].tolist(), alpha, method)
        covered += sum(label in rule.options(row) for row, label in zip(rows[320:], right[320:].tolist(), strict=True))
    return covered / (20 * repeats)


@pytest.mark.parametrize("method", ["LAC", "APS"])
@pytest.mark.parametrize("boldness", [1.0, 2.5])
def test_the_right_option_is_in_the_set_as_often_as_promised(method: Method, boldness: float) -> None:
    assert coverage(method, "0.1", 25, boldness) == pytest.approx(0.9, abs=0.045)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "alpha", "low", "high"),
    [
        ("LAC", "0.1", 0.8981, 0.9043),
        ("LAC", "0.05", 0.9482, 0.9521),
        ("APS", "0.1", 0.8960, 0.9060),
        ("APS", "0.05", 0.9470, 0.9700),  # one in 25 right options ranks last and scores 1: ties, so it covers more
    ],
)
def test_coverage_lies_in_the_recorded_range(method: Method, alpha: str, low: float, high: float) -> None:
    assert low <= coverage(method, alpha, 2_000) <= high


def test_another_implementation_agrees_on_the_sets() -> None:
    lac = pytest.importorskip("cli_sdk.stats.conformal").lac
    random = np.random.default_rng(2)
    rows, right = questions(random, 340)
    rule = fit_set_rule(rows[:320].tolist(), right[:320].tolist(), "0.1")
    limit = lac.calibrate(rows[:320], right[:320], 0.1)
    assert rule.limit == limit
    theirs = lac.predict(rows[320:], limit)
    assert [rule.options(row) for row in rows[320:]] == [tuple(int(one) for one in found) for found in theirs]
