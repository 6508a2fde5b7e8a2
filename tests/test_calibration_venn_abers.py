"""Intervals of yes/no answers: known values, the definition by brute force, and what the theory promises."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from decider import CalibrationError, Decider, Interval, ModelFileError
from decider.calibration import VennAbers, fit_venn_abers
from decider.calibration.stored import fit_stored, read_stored, write_stored

TINY = Path(__file__).parent / "data" / "tiny_decider"
SCORES = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
OUTCOMES = [0, 0, 1, 0, 1, 1, 0, 1]


@pytest.mark.parametrize(
    ("score", "low", "high"),
    [(0.05, 0, 1 / 3), (0.35, 1 / 3, 2 / 3), (0.5, 1 / 2, 3 / 4), (0.65, 1 / 2, 3 / 4), (0.95, 0.6, 1)],
)
def test_known_intervals(score: float, low: float, high: float) -> None:
    found = fit_venn_abers(SCORES, OUTCOMES).interval(score)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_the_merged_probability() -> None:
    assert Interval(0.5, 0.75).merged == pytest.approx(0.6)
    assert Interval(0.2, 0.2).merged == pytest.approx(0.2)


def isotonic(items: Sequence[tuple[float, float]], at: float) -> float:
    """The isotonic fit at a score among the items, by the min-max formula over their pooled scores."""
    scores = sorted({score for score, _ in items})
    groups = [[outcome for score, outcome in items if score == wanted] for wanted in scores]
    place = scores.index(at)

    def mean(start: int, end: int) -> float:
        pooled = [outcome for group in groups[start : end + 1] for outcome in group]
        return sum(pooled) / len(pooled)

    return max(min(mean(start, end) for end in range(place, len(groups))) for start in range(place + 1))


@pytest.mark.parametrize("seed", range(12))
def test_the_definition_by_brute_force(seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = (random.integers(0, 9, 14) / 4).tolist()  # many ties
    outcomes = random.integers(0, 2, 14).tolist()
    fitted = fit_venn_abers(scores, outcomes)
    items = list(zip(scores, outcomes, strict=True))
    for at in np.arange(-0.25, 2.5, 0.125).tolist():
        found = fitted.interval(at)
        assert found.low == pytest.approx(isotonic([*items, (at, 0)], at))
        assert found.high == pytest.approx(isotonic([*items, (at, 1)], at))
        assert found.low < found.high


def test_scipy_agrees() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    random = np.random.default_rng(3)
    scores = random.normal(size=300)
    outcomes = (random.random(300) < 1 / (1 + np.exp(-scores))).astype(float)
    fitted = fit_venn_abers(scores, outcomes)
    for at in random.normal(size=20).tolist():
        found = fitted.interval(at)
        place = int(np.searchsorted(np.sort(scores), at))
        for outcome, value in ((0.0, found.low), (1.0, found.high)):
            column = np.insert(outcomes[np.argsort(scores)], place, outcome)
            assert value == pytest.approx(float(optimize.isotonic_regression(column).x[place]))


def test_the_probability_under_the_true_outcome_is_calibrated() -> None:
    """q = 1 - 0.95 U^3, 320 calibration items: the mean of outcome minus the true side's probability is near 0."""
    random = np.random.default_rng(11)
    differences, widths = [], []
    for _ in range(60):
        chance = 1 - 0.95 * random.random(420) ** 3
        outcome = (random.random(420) < chance).astype(float)
        fitted = fit_venn_abers(chance[:320], outcome[:320])
        for score, truth in zip(chance[320:].tolist(), outcome[320:].tolist(), strict=True):
            found = fitted.interval(score)
            differences.append(truth - (found.high if truth else found.low))
            widths.append(found.high - found.low)
    assert abs(float(np.mean(differences))) < 0.015  # 6,000 of them; their standard error is about 0.005
    assert float(np.mean(widths)) == pytest.approx(0.047, abs=0.008)


def test_many_answers_take_few_steps() -> None:
    random = np.random.default_rng(5)
    logits = random.normal(0, 3, 20_000)
    outcomes = (random.random(20_000) < 1 / (1 + np.exp(-logits))).astype(float)
    fitted = fit_venn_abers(logits, outcomes)
    assert fitted.count == 20_000
    assert len(fitted.lower_scores) + len(fitted.upper_scores) < 3_000
    assert fitted.interval(0).low == pytest.approx(0.5, abs=0.06)


def test_scores_without_a_place() -> None:
    fitted = fit_venn_abers(SCORES, OUTCOMES)
    assert fitted.interval(float("nan")) == Interval(0.0, 1.0)
    assert fitted.interval(float("inf")) == fitted.interval(0.9)
    assert fitted.interval(float("-inf")) == fitted.interval(0.0)


def test_one_kind_of_outcome() -> None:
    fitted = fit_venn_abers([1, 2, 3], [1, 1, 1])
    assert fitted.interval(2) == Interval(2 / 3, 1.0)  # put in as a no: pooled with the yeses at and below it


@pytest.mark.parametrize(("scores", "outcomes"), [([], []), ([1.0], [0.5]), ([float("nan")], [1])])
def test_what_cannot_be_fitted_is_refused(scores: list[float], outcomes: list[float]) -> None:
    with pytest.raises(ValueError, match="give"):
        fit_venn_abers(scores, outcomes)


def test_steps_that_do_not_fit_are_refused() -> None:
    for lower_scores, lower in [((1.0,), (0.0,)), ((2.0, 1.0), (0.0, 0.1, 0.2)), ((1.0,), (0.0, 1.5))]:
        with pytest.raises(ValueError, match="steps do not fit"):
            VennAbers(lower_scores, lower, (), (1.0,), 3)


def test_the_file_comes_back_as_it_was(tmp_path: Path) -> None:
    stored = fit_stored("abc", SCORES, [bool(outcome) for outcome in OUTCOMES])
    write_stored(tmp_path, stored)
    assert read_stored(tmp_path, "abc") == stored
    assert read_stored(tmp_path / "elsewhere", "abc") is None


def test_the_file_of_other_weights_or_damaged_is_refused(tmp_path: Path) -> None:
    write_stored(tmp_path, fit_stored("abc", SCORES, [bool(outcome) for outcome in OUTCOMES]))
    with pytest.raises(ModelFileError, match="fitted with other weights"):
        read_stored(tmp_path, "def")
    path = tmp_path / "calibration.json"
    for text in (path.read_text().replace("0.5", "0.1", 1), path.read_text()[:-9], "{}"):
        path.write_text(text)
        with pytest.raises(ModelFileError, match="cannot be read"):
            read_stored(tmp_path, "abc")


def test_without_a_labelled_noul_there_is_nothing_to_fit() -> None:
    with pytest.raises(CalibrationError, match="no labelled Noul"):
        fit_stored("abc", [], [])


def test_a_model_with_the_file_gives_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from decider.calibration.__main__ import main

    folder = shutil.copytree(TINY, tmp_path / "model")
    question = {"type": "noul", "instructions": "Is the door open?"}
    lines = [
        json.dumps({"state": f"door {number}", "questions": {"open": question}, "answers": {"open": number % 3 == 0}})
        for number in range(12)
    ]
    (tmp_path / "cases.jsonl").write_text("\n".join(lines))
    assert Decider.load(folder, "cpu").decide("door 1", {"open": question}).nouls["open"].interval is None
    assert main([str(folder), str(tmp_path / "cases.jsonl")]) == 0
    assert capsys.readouterr().out.startswith("12 answers, ")
    decider = Decider.load(folder, "cpu")
    answer = decider.decide("door 1", {"open": question}).nouls["open"]
    assert decider.intervals is not None
    assert answer.logit is not None
    assert answer.interval == decider.intervals.interval(answer.logit)
    assert main([str(folder), str(tmp_path / "cases.jsonl")]) == 0  # over the file that is there
