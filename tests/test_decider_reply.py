"""Only sound answers to exactly what was asked get through; whatever is wrong names the question and the field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from decider import Answers, Choice, Decider, Noul, Question, ReplyError, Score, ScoreAnswer, Usage
from decider.reply import UNKNOWN, read_response
from decider.wire import to_json, write_response

TINY = Path(__file__).parent / "data" / "tiny_decider"
QUESTIONS: dict[str, Question] = {
    "n": Noul("Open?"),
    "c": Choice({"red": None, "blue": None, "ü": None}),
    "s": Score(["low", {"level": 1}, "high"]),
}
NOUL: dict[str, object] = {"type": "noul", "noul": 0.25}
CHOICE: dict[str, object] = {"type": "choice", "choice": "ü", "probabilities": {"ü": 0.5, "red": 0.2, "blue": 0.3}}
SCORE: dict[str, object] = {"type": "score", "score": 0.7, "probabilities": {"0": 0.5, "1": 0.3, "2": 0.2}}


def read(answers: object, **fields: object) -> Answers:
    body = {"model": "jev", "answers": answers, "usage": {"input_tokens": 5, "output_tokens": 1}, **fields}
    return read_response(json.dumps(body).encode(), QUESTIONS, "http://there/v1/systemone", "r1")


def changed(answer: dict[str, object], **fields: object) -> dict[str, object]:
    """All three answers, one of them with other fields."""
    answers = {"n": NOUL, "c": CHOICE, "s": SCORE}
    name = next(name for name, given in answers.items() if given is answer)
    return {**answers, name: {**answer, **fields}}


def test_what_a_server_of_this_project_writes_is_read_back_exactly() -> None:
    answers = Decider.load(TINY, "cpu", threads=1).decide("seats free: 3", QUESTIONS)
    assert read_response(to_json(write_response(answers)), QUESTIONS, "http://there") == answers


def test_an_answer_of_another_server_says_what_is_not_known() -> None:
    answers = read({"s": SCORE, "n": NOUL, "c": CHOICE}, x_vendor={"a": 1})
    assert list(answers) == ["n", "c", "s"]
    assert answers.nouls["n"].noul == 0.25
    assert list(answers.choices["c"].probabilities) == ["red", "blue", "ü"]
    assert answers.scores["s"] == ScoreAnswer(0.7, {0: "low", 1: {"level": 1}, 2: "high"}, {0: 0.5, 1: 0.3, 2: 0.2})
    assert (answers.model, answers.provider, answers.calibration.name) == ("jev", UNKNOWN, UNKNOWN)
    assert (answers.usage, answers.truncated) == (Usage(5, 1), 0)


def test_a_probability_that_stands_twice_is_refused() -> None:
    body = b'{"model": "m", "answers": {"n": {"type": "noul", "noul": 0.99, "noul": 0.01}}}'
    with pytest.raises(ReplyError, match="'noul' stands twice"):
        read_response(body, {"n": Noul("Open?")}, "http://there")


@pytest.mark.parametrize("shares", [(0.33, 0.33, 0.33), (0.35, 0.34, 0.34), (1, 0, 0)])
def test_rounded_numbers_pass(shares: tuple[float, float, float]) -> None:
    probabilities = dict(zip(("red", "blue", "ü"), shares, strict=True))
    answers = read(changed(CHOICE, probabilities=probabilities, choice="red"))
    assert answers.choices["c"].probabilities == probabilities


@pytest.mark.parametrize(
    ("answers", "question", "field"),
    [
        (changed(NOUL, noul=1.01), "n", "noul"),
        (changed(NOUL, noul=-0.01), "n", "noul"),
        (changed(NOUL, noul=True), "n", "noul"),
        (changed(NOUL, noul="0.5"), "n", "noul"),
        (changed(NOUL, noul=None), "n", "noul"),
        (changed(NOUL, type="choice"), "n", "type"),
        (changed(NOUL, x_answerable=2), "n", "x_answerable"),
        (changed(NOUL, x_interval=[0.9, 0.1]), "n", "x_interval"),
        (changed(NOUL, x_logit="high"), "n", "x_logit"),
        (changed(CHOICE, probabilities={"ü": 0.5, "red": 0.5}), "c", "probabilities"),
        (changed(CHOICE, probabilities={"ü": 0.5, "red": 0.2, "blue": 0.3, "green": 0.0}), "c", "probabilities"),
        (changed(CHOICE, probabilities={"u\u0308": 0.5, "red": 0.2, "blue": 0.3}), "c", "probabilities"),
        (changed(CHOICE, probabilities={"ü": 0.5, "red": 0.2, "blue": 0.34}), "c", "probabilities"),
        (changed(CHOICE, probabilities={"ü": 0.5, "red": 0.2, "blue": 0.26}), "c", "probabilities"),
        (changed(CHOICE, probabilities={"ü": 1.2, "red": -0.2, "blue": 0.0}), "c", "probabilities['red']"),
        (changed(CHOICE, probabilities=[0.5, 0.2, 0.3]), "c", "probabilities"),
        (changed(CHOICE, choice="red"), "c", "choice"),
        (changed(CHOICE, choice="green"), "c", "choice"),
        (changed(CHOICE, choice=None), "c", "choice"),
        (changed(CHOICE, x_logits={"ü": 1.0}), "c", "x_logits"),
        (changed(SCORE, score=1.5), "s", "score"),
        (changed(SCORE, score=None), "s", "score"),
        (changed(SCORE, probabilities={"1": 0.5, "2": 0.3, "3": 0.2}), "s", "probabilities"),
        ({"n": NOUL, "c": CHOICE}, "s", "answers"),
        ({"n": NOUL, "c": CHOICE, "s": SCORE, "t": NOUL}, "t", "answers"),
        ({"n": NOUL, "c": CHOICE, "s": None}, "s", "answers"),
        (None, None, "answers"),
        ([], None, "answers"),
    ],
)
def test_an_unsound_answer_is_refused(answers: object, question: str | None, field: str) -> None:
    with pytest.raises(ReplyError) as caught:
        read(answers)
    assert (caught.value.question_id, caught.value.field) == (question, field)
    assert (caught.value.endpoint, caught.value.request_id) == ("http://there/v1/systemone", "r1")
    assert question is None or repr(question) in str(caught.value)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"model": "m", "answers": {"n": {"noul": NaN}}}', b"[" * 99_999]
)
def test_a_body_that_is_no_response_is_refused(body: bytes) -> None:
    with pytest.raises(ReplyError) as caught:
        read_response(body, QUESTIONS, "http://there")
    assert (caught.value.question_id, caught.value.field) == (None, "body")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_infinite_numbers_are_refused(number: str) -> None:
    body = json.dumps({"model": "m", "answers": changed(NOUL, noul="?")}).replace('"?"', number)
    with pytest.raises(ReplyError):
        read_response(body.encode(), QUESTIONS, "http://there")


def test_extras_of_the_wrong_type_are_refused() -> None:
    with pytest.raises(ReplyError, match="x_truncated"):
        read(changed(NOUL), x_truncated="no")
    assert read(changed(NOUL), x_truncated=True).truncated == 1


def test_a_number_too_large_for_a_float_is_refused() -> None:
    body = '{"model": "m", "answers": {"q": {"type": "noul", "noul": 1' + "0" * 400 + "}}}"
    with pytest.raises(ReplyError, match="finite"):
        read_response(body.encode(), {"q": Noul("a")}, "http://here", None)
