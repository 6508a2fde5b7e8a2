"""Bodies are read strictly and every fault is listed; what is written is what the interface describes."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decider import (
    Answers,
    Calibration,
    Choice,
    ChoiceAnswer,
    CuttableState,
    Interval,
    Noul,
    NoulAnswer,
    NoulCriteria,
    Question,
    RequestError,
    Score,
    ScoreAnswer,
    Usage,
)
from decider.wire import read_request, to_json, write_request, write_response

NOUL = {"type": "noul", "instructions": "Open?"}
QUESTIONS: dict[str, Question] = {
    "plain": Noul("Open?"),
    "🎯 one side": Noul(criteria=NoulCriteria(false=["shut", 1])),
    "both": Noul({"task": "door"}, NoulCriteria("open", {"state": "shut"})),
    "choice": Choice({"ja": None, "nein danke": "no", "?": {"not": "sure"}}, ["Which", "one?"]),
    "score": Score(["low", {"level": "high"}, ["highest"]]),
}


def body(**fields: object) -> bytes:
    return json.dumps({"model": "jev-latest", "state": "a", "questions": {"q": NOUL}, **fields}).encode()


def faults(sent: bytes) -> list[tuple[str, str]]:
    """The place and the code of each fault."""
    with pytest.raises(RequestError) as caught:
        read_request(sent)
    assert all(fault.msg for fault in caught.value.faults)
    return [(".".join(map(str, fault.loc)), fault.type) for fault in caught.value.faults]


@pytest.mark.parametrize("state", ["text", {"b": [1, None]}, [], "", CuttableState("facts", "wörds\n", "more")])
def test_what_is_written_is_read_back(state: object) -> None:
    request = read_request(to_json(write_request(state, QUESTIONS, "desk")))
    assert (request.model, request.state, request.questions) == ("desk", state, QUESTIONS)
    assert list(request.questions) == list(QUESTIONS)


def test_a_request_worked_out_by_hand() -> None:
    assert write_request(CuttableState("ab", "cde", "f"), {"q": Noul("Open?", NoulCriteria(true="it is"))}) == {
        "model": "jev-latest",
        "state": "ab\ncde\nf",
        "x_cuttable": [3, 6],
        "questions": {"q": {"type": "noul", "instructions": "Open?", "criteria": {"true": "it is"}}},
    }


def test_unknown_fields_around_the_questions_are_ignored_and_named() -> None:
    request = read_request(body(x_trace="1", seed=7, assets=None, x_cuttable=None))
    assert request.questions == {"q": Noul("Open?")}
    assert request.ignored == ("x_trace", "seed")
    answers = Answers({"q": NoulAnswer(0.5)}, "m", "cpu")
    assert write_response(answers, request.ignored)["x_ignored"] == ["x_trace", "seed"]
    assert "x_ignored" not in write_response(answers)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"", [("body", "json_invalid")]),
        (b'{"model": "m", "state":', [("body", "json_invalid")]),
        (b'{"model": "m", "state": NaN, "questions": {}}', [("body", "json_invalid")]),
        (b'"\\ud800"', [("body", "json_invalid")]),
        (b"\xff", [("body", "json_invalid")]),
        (b"[" * 100_000, [("body", "json_invalid")]),
        (b"[]", [("body", "dict_type")]),
        (b'{"model": "m", "model": "n"}', [("body.model", "key_repeated")]),
        (b'{"questions": {"q": {}, "q": {}}}', [("body.questions.q", "key_repeated")]),
        (b"{}", [("body.model", "missing"), ("body.state", "missing"), ("body.questions", "missing")]),
        (body(model=3), [("body.model", "string_type")]),
        (body(state=None), [("body.state", "value_error")]),
        (body(state=1.5), [("body.state", "value_error")]),
        (body(questions={}), [("body.questions", "too_short")]),
        (body(questions=[NOUL]), [("body.questions", "dict_type")]),
        (body(assets={"a": {"type": "image"}}), [("body.assets", "value_error")]),
        (body(x_cuttable=[1, 1]), [("body.x_cuttable", "value_error")]),
        (body(state="a\nb\nc", x_cuttable=[2, 4]), [("body.x_cuttable", "value_error")]),
        (body(state={"a": 1}, x_cuttable=[1, 2]), [("body.x_cuttable", "value_error")]),
        (body(questions={"": NOUL}), [("body.questions..noul.id", "value_error")]),
        (body(questions={"q": "Open?"}), [("body.questions.q.type", "value_error")]),
        (body(questions={"q": {"instructions": "Open?"}}), [("body.questions.q", "union_tag_not_found")]),
        (body(questions={"q": {"type": "box"}}), [("body.questions.q", "union_tag_invalid")]),
        (body(questions={"q": {"type": ["noul"]}}), [("body.questions.q", "union_tag_invalid")]),
        (body(questions={"q": {"type": "noul"}}), [("body.questions.q.noul.instructions", "missing")]),
        (body(questions={"q": {**NOUL, "x": 1}}), [("body.questions.q.noul.x", "extra_forbidden")]),
        (
            body(questions={"q": {"type": "choice", "criteria": {"a b": 3, "c": None}}}),
            [("body.questions.q.choice.criteria.a b", "value_error")],
        ),
        (
            body(questions={"q": {"type": "choice", "criteria": {}}}),
            [("body.questions.q.choice.criteria", "too_short")],
        ),
        (body(questions={"q": {"type": "score"}}), [("body.questions.q.score.criteria", "missing")]),
        (
            body(questions={"q": {"type": "score", "criteria": {"0": "a", "1": "b"}}}),
            [("body.questions.q.score.criteria", "value_error")],
        ),
        (
            body(questions={"q": {"type": "score", "criteria": ["a", None]}}),
            [("body.questions.q.score.criteria.1", "value_error")],
        ),
    ],
)
def test_a_body_that_cannot_be_answered(sent: bytes, expected: list[tuple[str, str]]) -> None:
    assert faults(sent) == expected


def test_every_fault_is_listed_and_good_questions_are_not_in_it() -> None:
    sent = body(state=3, questions={"a": {"type": "noul"}, "b": NOUL, "c": {"type": "score", "criteria": ["a"]}})
    assert faults(sent) == [
        ("body.state", "value_error"),
        ("body.questions.a.noul.instructions", "missing"),
        ("body.questions.c.score.criteria", "too_short"),
    ]


def test_a_response_worked_out_by_hand() -> None:
    answers = Answers(
        {
            "n": NoulAnswer(0.75, 1.5, 0.9, Interval(0.5, 0.8)),
            "c": ChoiceAnswer("ü", {"ü": 0.75, "b": 0.25}, {"ü": 2.0, "b": 1.0}),
            "s": ScoreAnswer(0.25, {0: "low", 1: {"a": 1}}, {0: 0.75, 1: 0.25}),
        },
        model="desk",
        provider="cpu",
        sha256="ab",
        calibration=Calibration("t", {"noul": 2.0}),
        usage=Usage(7, 0, 2),
        truncated=3,
        precision="int8",
    )
    assert write_response(answers) == {
        "model": "desk",
        "answers": {
            "n": {"type": "noul", "noul": 0.75, "x_logit": 1.5, "x_interval": [0.5, 0.8], "x_answerable": 0.9},
            "c": {
                "type": "choice",
                "choice": "ü",
                "probabilities": {"ü": 0.75, "b": 0.25},
                "confidence": 0.5,
                "x_logits": {"ü": 2.0, "b": 1.0},
            },
            "s": {
                "type": "score",
                "score": 0.25,
                "legend": {"0": "low", "1": {"a": 1}},
                "probabilities": {"0": 0.75, "1": 0.25},
                "confidence": 0.5,  # the levels lie 0.25 from level 0, an even spread of two lies 0.5 from its centre
            },
        },
        "usage": {"input_tokens": 7, "output_tokens": 0},
        "x_rows": 2,
        "x_sha256": "ab",
        "x_provider": "cpu",
        "x_precision": "int8",
        "x_calibration": {"name": "t", "temperatures": {"noul": 2.0}},
        "x_truncated": 3,
    }


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_is_no_number_is_not_written(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json({"noul": number})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ALMOST_A_QUESTION = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["noul", "choice", "score", "box", None]),
        "instructions": JSON,
        "criteria": JSON | st.fixed_dictionaries({}, optional={"true": JSON, "false": JSON}),
        "x": JSON,
    },
)


@settings(deadline=None)
@given(
    fields=st.fixed_dictionaries(
        {"model": st.just("m") | JSON},
        optional={
            "state": JSON,
            "questions": st.dictionaries(st.text(max_size=3), ALMOST_A_QUESTION, max_size=3) | JSON,
            "x_cuttable": st.lists(st.integers(-2, 9), max_size=3) | JSON,
        },
    )
)
def test_whatever_comes_is_a_request_or_a_list_of_faults(fields: dict[str, object]) -> None:
    try:
        request = read_request(json.dumps(fields).encode())
    except RequestError as error:
        listed = error.faults
    else:
        assert read_request(to_json(write_request(request.state, request.questions, request.model))) == request
        return
    assert listed
    assert all(fault.loc[0] == "body" and fault.msg and fault.type for fault in listed)


def test_the_parts_of_a_state_are_written_as_a_local_model_reads_them() -> None:
    state = CuttableState({"a": None}, "b")  # type: ignore[arg-type]  # what a caller may pass
    assert str(write_request(state, {"q": Noul("?")})["state"]).startswith('{"a": null}\nb')
