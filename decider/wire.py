"""The JSON of `POST /v1/systemone`: strict on what comes in, exact on what goes out.

    {"model": NAME, "state": text | {...} | [...], "questions": {ID: QUESTION, ...}}
    {"model": NAME, "answers": {ID: ANSWER, ...}, "usage": {"input_tokens": N, "output_tokens": N}}

Pure functions, used by the server and by the client. What others do not have carries the prefix `x_`, and those who do
not know it may ignore it: in a request `x_cuttable`, the part of a text that may be shortened; in a response where the
answers come from, and the raw logits. Fields beside `model`, `state` and `questions` that are not known are ignored, as
the interface wants it, and the response names them in `x_ignored`; within a question they are a fault.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from decider.answers import Answer, Answers, NoulAnswer, ScoreAnswer
from decider.errors import QuestionError, RequestError, RequestFault
from decider.questions import Choice, Noul, Question, read_question
from decider.rendering import CuttableState, render
from decider.strict_json import RepeatedKeyError, read_json

DEFAULT_MODEL: Final = "jev-latest"
CUTTABLE: Final = "x_cuttable"
KNOWN_FIELDS: Final = ("model", "state", "questions", "assets", CUTTABLE)
REQUEST_ID_HEADER: Final = "x-typesafe-request-id"
KEY_VARIABLE: Final = "DECIDER_API_KEY"
"""Where server and client look for the key in the environment."""


@dataclass(frozen=True, slots=True)
class SystemOneRequest:
    """A request whose every question can be asked; `model` is the name that the caller wrote.

    `ignored` are the names of the fields around the questions of which nothing is known here.
    """

    model: str
    state: object
    questions: Mapping[str, Question]
    ignored: tuple[str, ...] = ()


def check_key(key: str) -> str:
    """Return the key; raises ValueError for one that a header cannot carry, or not as it is. For server and client."""
    if not key or not key.isprintable() or key != key.strip():
        raise ValueError(
            "the key is empty, begins or ends with a space, or holds a line break: no header can carry it as it is. "
            "Give it without, as in DECIDER_API_KEY=$(tr -d '\\n' < FILE)"
        )
    return key


def key_of_environment() -> str | None:
    """Return the key that the environment holds; None where the variable is not set or empty."""
    key = os.environ.get(KEY_VARIABLE)
    return check_key(key) if key else None


def read_request(body: bytes) -> SystemOneRequest:
    """Read the body of a request; raises RequestError with every fault that was found, not the first alone."""
    try:
        fields = read_json(body)
    except RepeatedKeyError as error:
        raise RequestError([RequestFault(("body", *error.path), str(error), "key_repeated")]) from error
    except (ValueError, RecursionError) as error:
        raise RequestError([RequestFault(("body",), f"JSON decode error: {error}", "json_invalid")]) from error
    if not isinstance(fields, dict):
        raise RequestError([RequestFault(("body",), "Input should be a valid dictionary", "dict_type")])
    questions: dict[str, Question] = {}
    faults = [*_faults_around(fields), *_read_questions(fields.get("questions"), questions)]
    if faults:
        raise RequestError(faults)
    ignored = tuple(name for name in fields if name not in KNOWN_FIELDS)
    return SystemOneRequest(fields["model"], _read_state(fields), questions, ignored)


def write_request(state: object, questions: Mapping[str, Question], model: str = DEFAULT_MODEL) -> dict[str, object]:
    """Return the fields of a request, ready for JSON."""
    fields: dict[str, object] = {"model": model, "state": state}
    if isinstance(state, CuttableState):
        head, cuttable, tail = (render(part) for part in (state.head, state.cuttable, state.tail))
        fields["state"] = f"{head}\n{cuttable}\n{tail}"
        fields[CUTTABLE] = [len(head) + 1, len(head) + 1 + len(cuttable)]
    return {**fields, "questions": {name: write_question(question) for name, question in questions.items()}}


def write_question(question: Question) -> dict[str, object]:
    """Return a question in its dictionary form."""
    fields: dict[str, object] = {"type": type(question).__name__.lower()}
    if question.instructions is not None:
        fields["instructions"] = question.instructions
    if isinstance(question, Noul):
        if question.criteria is not None:
            described = {"true": question.criteria.true, "false": question.criteria.false}
            fields["criteria"] = {name: text for name, text in described.items() if text is not None}
    elif isinstance(question, Choice):
        fields["criteria"] = dict(question.criteria)
    else:
        fields["criteria"] = list(question.criteria)
    return fields


def write_response(answers: Answers, ignored: Sequence[str] = ()) -> dict[str, object]:
    """Return the fields of a response, ready for JSON; `ignored` are fields of the request that nobody read."""
    return {
        "model": answers.model,
        "answers": {name: write_answer(answer) for name, answer in answers.items()},
        "usage": {"input_tokens": answers.usage.input_tokens, "output_tokens": answers.usage.output_tokens},
        "x_rows": answers.usage.rows,
        "x_sha256": answers.sha256,
        "x_provider": answers.provider,
        "x_precision": answers.precision,
        "x_calibration": {"name": answers.calibration.name, "temperatures": dict(answers.calibration.temperatures)},
        "x_truncated": answers.truncated,
        **({"x_ignored": list(ignored)} if ignored else {}),
    }


def write_answer(answer: Answer) -> dict[str, object]:
    """Return an answer as fields; levels become text, since the names of JSON fields are text."""
    fields: dict[str, object]
    if isinstance(answer, NoulAnswer):
        fields = {"type": "noul", "noul": answer.noul}
        if answer.logit is not None:
            fields["x_logit"] = answer.logit
        if answer.interval is not None:
            fields["x_interval"] = [answer.interval.low, answer.interval.high]
    else:
        if isinstance(answer, ScoreAnswer):
            fields = {"type": "score", "score": answer.score, "legend": _by_text(answer.legend)}
        else:
            fields = {"type": "choice", "choice": answer.choice}
        fields |= {"probabilities": _by_text(answer.probabilities), "confidence": answer.confidence}
        if answer.logits is not None:
            fields["x_logits"] = _by_text(answer.logits)
    if answer.answerable is not None:
        fields["x_answerable"] = answer.answerable
    return fields


def to_json(fields: object) -> bytes:
    """Return fields as JSON; raises ValueError for NaN and infinity, which JSON does not have."""
    return json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _by_text(values: Mapping[str, object] | Mapping[int, object]) -> dict[str, object]:
    return {str(name): value for name, value in values.items()}


def _faults_around(fields: Mapping[str, object]) -> Iterator[RequestFault]:
    """Everything but the questions."""
    if "model" not in fields:
        yield RequestFault(("body", "model"), "Field required", "missing")
    elif not isinstance(fields["model"], str):
        yield RequestFault(("body", "model"), "Input should be a valid string", "string_type")
    state = fields.get("state")
    if "state" not in fields:
        yield RequestFault(("body", "state"), "Field required", "missing")
    elif not isinstance(state, str | dict | list):
        yield RequestFault(("body", "state"), "Input should be text, an object or an array", "value_error")
    if fields.get("assets") is not None:
        yield RequestFault(("body", "assets"), "This model reads text alone: leave assets out", "value_error")
    cuttable = fields.get(CUTTABLE)
    if cuttable is not None and not _is_cut(cuttable, state):
        rule = "Input should be [start, end]: positions in a state that is text, with a line break around them"
        yield RequestFault(("body", CUTTABLE), rule, "value_error")


def _read_questions(questions: object, read: dict[str, Question]) -> Iterator[RequestFault]:
    """Put the questions that can be asked into `read` and yield what is wrong with the others."""
    place: tuple[str | int, ...] = ("body", "questions")
    if questions is None:
        yield RequestFault(place, "Field required", "missing")
    elif not isinstance(questions, dict):
        yield RequestFault(place, "Input should be a valid dictionary", "dict_type")
    elif not questions:
        yield RequestFault(place, "Ask at least one question", "too_short")
    else:
        for name, fields in questions.items():
            try:
                if not name:
                    raise QuestionError("id", "it is empty", "Name every question.")
                read[name] = read_question(fields)
            except QuestionError as error:
                yield question_fault(error.named(name), fields)


def question_fault(error: QuestionError, question: object) -> RequestFault:
    """Return a question's error as a fault of the body that holds it."""
    kind = question.get("type") if isinstance(question, Mapping) else None
    path = error.path
    if error.code in ("union_tag_invalid", "union_tag_not_found"):
        path = ()
    elif kind in ("noul", "choice", "score"):
        path = (kind, *path)
    loc = ("body", "questions", str(error.question_id), *path)
    return RequestFault(loc, f"{error.problem}. {error.remedy}", error.code)


def _is_cut(cuttable: object, state: object) -> bool:
    if not (isinstance(state, str) and isinstance(cuttable, list) and len(cuttable) == 2):
        return False
    start, end = cuttable
    whole = isinstance(start, int) and isinstance(end, int) and 1 <= start <= end < len(state)
    return whole and state[start - 1] == "\n" == state[end]


def _read_state(fields: Mapping[str, object]) -> object:
    state, cuttable = fields["state"], fields.get(CUTTABLE)
    if isinstance(state, str) and isinstance(cuttable, list):
        start, end = cuttable
        return CuttableState(state[: start - 1], state[start:end], state[end + 1 :])
    return state
