"""Questions check themselves; dictionaries are read strictly; texts are rendered in one way."""

from __future__ import annotations

import math

import pytest

from decider import (
    Answers,
    Calibration,
    Choice,
    ChoiceAnswer,
    Noul,
    NoulAnswer,
    NoulCriteria,
    QuestionError,
    Score,
    ScoreAnswer,
)
from decider.questions import read_questions
from decider.rendering import render


def test_a_dictionary_and_a_record_are_the_same_question() -> None:
    read = read_questions(
        {
            "a": {"type": "noul", "instructions": "Open?", "criteria": {"true": "yes, it is", "false": None}},
            "b": {"type": "choice", "criteria": {"x": None, "y": "the second"}},
            "c": Noul("Closed?"),
            "d": {"type": "score", "instructions": {"ask": "How wide?"}, "criteria": ["shut", {"wide": True}]},
        }
    )
    assert read == {
        "a": Noul("Open?", NoulCriteria(true="yes, it is")),
        "b": Choice({"x": None, "y": "the second"}),
        "c": Noul("Closed?"),
        "d": Score(["shut", {"wide": True}], {"ask": "How wide?"}),
    }
    assert list(read) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ({"instructions": "Open?"}, "type"),
        ({"type": "box", "instructions": "Where?"}, "type"),
        ({"type": "score", "instructions": "How much?"}, "criteria"),
        ({"type": "score", "criteria": {"0": "low", "1": "high"}}, "criteria"),
        ({"type": "score", "criteria": "low, high"}, "criteria"),
        ({"type": "score", "criteria": ["alone"]}, "criteria"),
        ({"type": "score", "criteria": [str(level) for level in range(11)]}, "criteria"),
        ({"type": "score", "criteria": ["low", None]}, "criteria[1]"),
        ({"type": "score", "criteria": ["low", 3]}, "criteria[1]"),
        ({"type": "score", "criteria": ["low", ""]}, "criteria[1]"),
        ({"type": "score", "criteria": ["low", "high"], "legend": {}}, "legend"),
        ({"type": "noul", "instructions": "Open?", "weight": 2}, "weight"),
        ({"type": "noul"}, "instructions"),
        ({"type": "noul", "instructions": "  "}, "instructions"),
        ({"type": "noul", "instructions": 3}, "instructions"),
        ({"type": "noul", "instructions": ["a", math.nan]}, "instructions"),
        ({"type": "noul", "instructions": "lone \ud800"}, "instructions"),
        ({"type": "noul", "instructions": "Open?", "criteria": {"maybe": "x"}}, "criteria.maybe"),
        ({"type": "noul", "criteria": {"true": None, "false": None}}, "instructions"),
        ({"type": "noul", "instructions": "Open?", "criteria": {"true": ""}}, "criteria.true"),
        ({"type": "noul", "instructions": "Open?", "criteria": "yes"}, "criteria"),
        ({"type": "choice", "criteria": {"only": None}}, "criteria"),
        ({"type": "choice", "criteria": ["a", "b"]}, "criteria"),
        ({"type": "choice", "criteria": {"a": None, " ": None}}, "criteria"),
        ({"type": "choice", "criteria": {"a": 1, "b": None}}, "criteria.a"),
        ({"type": "choice", "criteria": {"the first": 1, "b": None}}, "criteria['the first']"),
        ({"type": "choice", "instructions": "Which?"}, "criteria"),
        ("Open?", "type"),
    ],
)
def test_a_question_that_cannot_be_asked_names_itself_and_the_field(question: object, field: str) -> None:
    with pytest.raises(QuestionError) as caught:
        read_questions({"fine": Noul("Open?"), "wrong": question})  # type: ignore[dict-item]  # wrong on purpose
    assert (caught.value.question_id, caught.value.field) == ("wrong", field)
    assert "'wrong'" in str(caught.value)


def test_criteria_that_describe_nothing_are_none() -> None:
    read = read_questions({"q": {"type": "noul", "instructions": "Open?", "criteria": {"true": None, "false": None}}})
    assert read == {"q": Noul("Open?")}
    with pytest.raises(QuestionError):
        NoulCriteria()


@pytest.mark.parametrize("count", [2, 255])
def test_from_two_to_255_options(count: int) -> None:
    assert len(Choice({f"option {number}": None for number in range(count)}).options) == count


def test_256_options_are_too_many() -> None:
    with pytest.raises(QuestionError, match="256 option"):
        Choice({f"option {number}": None for number in range(256)})


@pytest.mark.parametrize("count", [2, 10])
def test_from_two_to_ten_levels(count: int) -> None:
    assert len(Score([f"level {number}" for number in range(count)]).criteria) == count


@pytest.mark.parametrize("questions", [{}, {"": Noul("Open?")}, None])
def test_no_question_or_no_name_is_refused(questions: dict[str, Noul]) -> None:
    with pytest.raises(QuestionError):
        read_questions(questions)


def test_a_choice_keeps_its_own_options() -> None:
    options: dict[str, str | None] = {"a": None, "b": None}
    choice = Choice(options)
    options["c"] = None
    assert choice.options == ("a", "b")


def test_a_score_keeps_its_own_levels() -> None:
    levels = ["low", "high"]
    score = Score(levels)
    levels.append("higher")
    assert score.criteria == ("low", "high")


def test_text_is_left_alone_and_data_becomes_json_with_sorted_keys() -> None:
    assert render('as "it" is\n') == 'as "it" is\n'
    assert render({"b": [1, None], "a": "x\ny: 1"}) == '{"a": "x\\ny: 1", "b": [1, null]}'


def holds_itself() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value", [holds_itself(), math.nan, {1: "a"}, {"a": [{None: 1}]}, {"a": {1, 2}}, "\udc80", object()]
)
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"^(it|the text) (has|holds|cannot) "):
        render(value)


def test_confidence_is_zero_for_an_even_spread_and_one_for_certainty() -> None:
    assert ChoiceAnswer("a", {"a": 0.25, "b": 0.25, "c": 0.25, "d": 0.25}).confidence == 0
    assert ChoiceAnswer("a", {"a": 1.0, "b": 0.0}).confidence == 1
    assert ChoiceAnswer("a", {"a": 0.7, "b": 0.2, "c": 0.1}).confidence == pytest.approx((0.7 - 1 / 3) / (2 / 3))


def test_the_confidence_of_a_score_counts_how_far_levels_lie_from_the_likeliest() -> None:
    """Three levels spread evenly lie 2/3 from their centre on average; here they lie 0.4 from level 2."""
    assert score_of(0.1, 0.2, 0.7).confidence == pytest.approx(1 - 0.4 / (2 / 3))
    assert score_of(0.0, 1.0, 0.0).confidence == 1
    assert score_of(0.5, 0.0, 0.5).confidence == 0  # 1 - 1.0 / (2 / 3) is below 0
    assert score_of(1.0).confidence == 1


def score_of(*shares: float) -> ScoreAnswer:
    levels = dict(enumerate(shares))
    return ScoreAnswer(sum(n * p for n, p in levels.items()), {n: str(n) for n in levels}, levels)


def test_a_score_without_a_temperature_takes_that_of_a_choice() -> None:
    assert Calibration("t", {"choice": 2.0}).temperature("score") == 2.0
    assert Calibration("t", {"choice": 2.0, "score": 3.0}).temperature("score") == 3.0
    assert Calibration("t", {"noul": 2.0}).temperature("score") == 1.0


def test_answers_are_a_mapping_with_views_by_type() -> None:
    yes, pick, level = NoulAnswer(0.9), ChoiceAnswer("a", {"a": 0.8, "b": 0.2}), score_of(0.2, 0.8)
    answers = Answers({"n": yes, "c": pick, "s": level}, model="scripted", provider="scripted")
    assert dict(answers) == {"n": yes, "c": pick, "s": level}
    assert (answers.nouls, answers.choices, answers.scores) == ({"n": yes}, {"c": pick}, {"s": level})
    assert (answers.truncated, answers.calibration.temperature("noul")) == (0, 1.0)
