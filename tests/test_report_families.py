"""The scores of families of questions, worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from decider import Answer, Choice, ChoiceAnswer, Decider, Interval, Noul, NoulAnswer, Question, ScoreAnswer
from decider.report.families import ANSWERABLE, Answered, ask, families, outcomes
from decider.train.examples import Example, Label

TINY = Path(__file__).parent / "data" / "tiny_decider"


def answered(name: str, answer: Answer, label: Label) -> Answered:
    return Answered(name, answer, label)


def test_a_family_of_nouls() -> None:
    given = [
        answered("a", NoulAnswer(0.8, interval=Interval(0.7, 0.9)), True),
        answered("a", NoulAnswer(0.6, interval=Interval(0.5, 0.6)), False),
        answered("a", NoulAnswer(0.1), False),
        answered("a", NoulAnswer(0.9), None),
    ]
    whole, found = families(given)
    assert (whole.name, found.name, found.scores.type) == ("every noul", "a", "noul")
    assert (found.scores.accuracy.correct, found.scores.accuracy.count) == (2, 3)
    assert found.scores.nll == pytest.approx(-(math.log(0.8) + math.log(0.4) + math.log(0.9)) / 3)
    assert found.scores.brier == pytest.approx((0.04 + 0.36 + 0.01) / 3)
    assert found.scores.ece_width == pytest.approx((0.2 + 0.6 + 0.1) / 3)
    assert [(one.predicted, one.share) for one in found.bins] == [(0.1, 0.0), (0.6, 0.0), (0.8, 1.0)]
    # By confidence: 0.9 right, 0.8 right, 0.6 wrong.
    assert found.curve.coverage == pytest.approx([1 / 3, 2 / 3, 1])
    assert found.curve.risk == pytest.approx([0, 0, 1 / 3])
    assert found.confusion == {("yes", "yes"): 1, ("no", "yes"): 1, ("no", "no"): 1}
    assert found.interval_width == pytest.approx(0.15)
    assert found.scores.unanswerable == 1
    assert found.scores.unanswerable_confidence == pytest.approx(0.8)
    assert [str(one.alpha) for one in found.certificates] == ["1/10", "1/20", "1/100"]


def test_choices_and_scores_predict_that_their_best_is_right() -> None:
    choice = ChoiceAnswer("x", {"x": 0.75, "y": 0.25})
    score = ScoreAnswer(0.4, {0: "low", 1: "high"}, {0: 0.6, 1: 0.4})
    found = families(
        [answered("c", choice, "x"), answered("c", choice, "y"), answered("s", score, 0), answered("s", score, 1)]
    )
    assert [(each.name, each.scores.type) for each in found] == [
        ("every choice", "choice"),
        ("every score", "score"),
        ("c", "choice"),
        ("s", "score"),
    ]
    assert found[2].scores.brier == pytest.approx((2 * 0.25**2 + 2 * 0.75**2) / 2)
    assert found[2].scores.ece_width == pytest.approx(0.25)
    assert found[3].confusion == {("0", "0"): 1, ("1", "0"): 1}
    assert found[3].scores.nll == pytest.approx(-(math.log(0.6) + math.log(0.4)) / 2)
    assert found[3].interval_width is None


def test_one_id_asked_in_two_types_makes_two_families() -> None:
    mixed = [answered("q", NoulAnswer(0.9), True), answered("q", ChoiceAnswer("x", {"x": 0.9, "y": 0.1}), "x")]
    assert [(each.name, each.scores.type) for each in families(mixed)[2:]] == [("q", "choice"), ("q", "noul")]


def test_a_group_without_labels_is_left_out() -> None:
    assert families([answered("a", NoulAnswer(0.9), None)]) == []


def test_outcomes_have_names() -> None:
    assert outcomes(NoulAnswer(0.75)) == {"yes": 0.75, "no": 0.25}
    assert outcomes(ScoreAnswer(0.4, {0: "low", 1: "high"}, {0: 0.6, 1: 0.4})) == {"0": 0.6, "1": 0.4}


def test_asking_keeps_questions_and_labels_together() -> None:
    questions: dict[str, Question] = {"open": Noul("Is it open?"), "colour": Choice({"red": None, "blue": None})}
    examples = [Example(f"door {place}", questions, {"open": place == 1, "colour": None}) for place in range(3)]
    decider = Decider.load(TINY, "cpu", threads=1)
    found = ask(decider, examples)
    assert [(each.question_id, each.label, each.cut) for each in found] == [
        (name, label, False) for place in range(3) for name, label in (("open", place == 1), ("colour", None))
    ]
    assert isinstance(found[2].answer, NoulAnswer)
    assert found[2].answer.noul == pytest.approx(decider.decide("door 1", questions).nouls["open"].noul, abs=1e-5)


def test_whether_the_model_knows_that_it_does_not_know_is_a_family() -> None:
    """Says rightly that it can answer, rightly that it cannot, wrongly that it can; one is not labelled."""
    given = [
        Answered("a", NoulAnswer(0.9, answerable=0.8), True, answerable=True),
        Answered("a", NoulAnswer(0.5, answerable=0.1), None, answerable=False),
        Answered("b", ChoiceAnswer("x", {"x": 0.6, "y": 0.4}, answerable=0.7), None, answerable=False),
        Answered("b", ChoiceAnswer("x", {"x": 0.6, "y": 0.4}, answerable=0.7), "x", answerable=None),
    ]
    found = {each.name: each for each in families(given)}
    assert list(found) == ["every choice", "every noul", ANSWERABLE, "a", "b"]
    signal = found[ANSWERABLE]
    assert signal.confusion == {("yes", "yes"): 1, ("no", "no"): 1, ("no", "yes"): 1}
    assert signal.scores.brier == pytest.approx((0.04 + 0.01 + 0.49) / 3)
