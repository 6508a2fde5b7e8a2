"""Reads what an endpoint answered, and accepts nothing but sound answers to exactly the questions that were asked.

Every question has one answer of its own type; probabilities are finite, lie in [0, 1], cover exactly the options and
sum to 1 within 0.03; the chosen option is a likeliest one and a score is the expected level. Rounded numbers pass. What
fails is an error that names the question; there is no partial answer. `confidence` is computed here, since servers use
different formulas for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from decider.answers import Answer, Answers, Calibration, ChoiceAnswer, Interval, NoulAnswer, ScoreAnswer, Usage
from decider.errors import ReplyError
from decider.questions import Choice, Noul, Question
from decider.strict_json import read_json

SUM_TOLERANCE: Final = 0.03
# Servers round: two probabilities of 0.333 may stand for 0.3334 and 0.3326.
TIE_TOLERANCE: Final = 0.01
UNKNOWN: Final = "not reported"


def read_response(
    body: bytes, questions: Mapping[str, Question], endpoint: str, request_id: str | None = None
) -> Answers:
    """Return the answers of a response; raises ReplyError for the first thing in it that is not sound."""
    return _Reader(endpoint, request_id).read(body, questions)


class _Reader:
    """Reads one response; knows whom to name in an error."""

    def __init__(self, endpoint: str, request_id: str | None) -> None:
        self.endpoint = endpoint
        self.request_id = request_id

    def read(self, body: bytes, questions: Mapping[str, Question]) -> Answers:
        """Return the answers in the order of the questions."""
        try:
            fields = read_json(body)
        except (ValueError, RecursionError) as error:
            raise self.wrong("body", f"it is not JSON that can be relied on ({error})") from error
        if not isinstance(fields, dict):
            raise self.wrong("body", f"it is a {type(fields).__name__}, not an object")
        given, model = fields.get("answers"), fields.get("model")
        if not isinstance(model, str):
            raise self.wrong("model", "the name of the model that answered is missing")
        if not isinstance(given, dict):
            raise self.wrong("answers", "they are missing")
        for name in questions:
            if name not in given:
                raise self.wrong("answers", "it is missing", name)
        for name in given:
            if name not in questions:
                raise self.wrong("answers", "nobody asked this", name)
        answers = {name: self.answer(name, question, given[name]) for name, question in questions.items()}
        return self.provenance(fields, answers, model)

    def wrong(self, field: str, problem: str, question_id: str | None = None) -> ReplyError:
        """Return the error for a field."""
        return ReplyError(self.endpoint, field, problem, question_id, self.request_id)

    def answer(self, name: str, question: Question, fields: object) -> Answer:
        """Return the answer to one question."""
        kind = type(question).__name__.lower()
        if not isinstance(fields, dict):
            raise self.wrong("answers", f"it is a {type(fields).__name__}, not an object", name)
        if fields.get("type") != kind:
            raise self.wrong("type", f"it is {fields.get('type')!r} and the question is a {kind!r}", name)
        told = {field: value for field, value in fields.items() if value is not None}
        answerable = self.share(name, "x_answerable", told["x_answerable"]) if "x_answerable" in told else None
        if isinstance(question, Noul):
            logit = self.number(name, "x_logit", told["x_logit"]) if "x_logit" in told else None
            interval = self.interval(name, told["x_interval"]) if "x_interval" in told else None
            return NoulAnswer(self.share(name, "noul", fields.get("noul")), logit, answerable, interval)
        options = question.options if isinstance(question, Choice) else [str(n) for n in range(len(question.criteria))]
        shares = self.distribution(name, options, fields.get("probabilities"))
        logits = self.numbers(name, "x_logits", options, told["x_logits"]) if "x_logits" in told else None
        if isinstance(question, Choice):
            return ChoiceAnswer(self.chosen(name, shares, fields.get("choice")), shares, logits, answerable)
        levels = {int(level): share for level, share in shares.items()}
        score = self.expected(name, levels, fields.get("score"))
        scores = None if logits is None else {int(level): logit for level, logit in logits.items()}
        return ScoreAnswer(score, dict(enumerate(question.criteria)), levels, scores, answerable)

    def number(self, name: str, field: str, value: object) -> float:
        """Return a finite number."""
        try:
            number = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self.wrong(field, f"{value!r:.80} is not a finite number", name)
        return number

    def share(self, name: str, field: str, value: object) -> float:
        """Return a probability."""
        number = self.number(name, field, value)
        if not 0 <= number <= 1:
            raise self.wrong(field, f"{number!r} is not a probability, from 0 to 1", name)
        return number

    def interval(self, name: str, given: object) -> Interval:
        """Return the two probabilities of [low, high]."""
        if not isinstance(given, list) or len(given) != 2:
            raise self.wrong("x_interval", f"{given!r} is not [low, high]", name)
        low, high = (self.share(name, "x_interval", value) for value in given)
        if low > high:
            raise self.wrong("x_interval", f"{low!r} is above {high!r}", name)
        return Interval(low, high)

    def numbers(self, name: str, field: str, options: Sequence[str], given: object) -> dict[str, float]:
        """Return a number for each option, in the order of the options, and for nothing else."""
        if not isinstance(given, dict):
            raise self.wrong(field, f"it is a {type(given).__name__}, not an object", name)
        if given.keys() != set(options):
            missing, extra = set(options) - given.keys(), given.keys() - set(options)
            raise self.wrong(field, f"missing are {sorted(missing)}, nobody asked for {sorted(extra)}", name)
        return {option: self.number(name, f"{field}[{option!r}]", given[option]) for option in options}

    def distribution(self, name: str, options: Sequence[str], given: object) -> dict[str, float]:
        """Return a probability for each option, as given; together they are 1 within the tolerance."""
        numbers = self.numbers(name, "probabilities", options, given)
        shares = {option: self.share(name, f"probabilities[{option!r}]", value) for option, value in numbers.items()}
        total = sum(shares.values())
        if abs(total - 1) > SUM_TOLERANCE + 1e-9:
            raise self.wrong("probabilities", f"they sum to {total:.4f} and must to 1 within {SUM_TOLERANCE}", name)
        return shares

    def chosen(self, name: str, shares: Mapping[str, float], given: object) -> str:
        """Return the chosen option, which is a likeliest one."""
        if not isinstance(given, str) or given not in shares:
            raise self.wrong("choice", f"{given!r} is not one of the options", name)
        if shares[given] < max(shares.values()) - TIE_TOLERANCE:
            raise self.wrong("choice", f"{given!r} is not the likeliest option", name)
        return given

    def expected(self, name: str, levels: Mapping[int, float], given: object) -> float:
        """Return the expected level, which the given score must be close to."""
        score = self.number(name, "score", given)
        expected = sum(level * share for level, share in levels.items())
        if abs(score - expected) > SUM_TOLERANCE * (len(levels) - 1) + TIE_TOLERANCE:
            raise self.wrong("score", f"it is {score:.4f} and the expected level is {expected:.4f}", name)
        return score

    def provenance(self, fields: Mapping[str, object], answers: Mapping[str, Answer], model: str) -> Answers:
        """Put the answers together with what the endpoint says about their origin, which may be nothing."""
        try:
            told = msgspec.convert(fields, type=_Told)
        except msgspec.ValidationError as error:
            raise self.wrong("body", str(error)) from error
        return Answers(
            answers,
            model=model,
            provider=told.x_provider,
            sha256=told.x_sha256,
            calibration=told.x_calibration,
            usage=Usage(told.usage.input_tokens, told.usage.output_tokens, told.x_rows),
            truncated=int(told.x_truncated),
            precision=told.x_precision,
        )


class _Told(msgspec.Struct, frozen=True):
    """The fields of a response beside the answers; all but `usage` are this project's own."""

    usage: Usage = Usage()
    x_provider: str = UNKNOWN
    x_sha256: str = ""
    x_precision: str = ""
    x_calibration: Calibration = Calibration(UNKNOWN)
    x_truncated: int | bool = 0
    x_rows: int = 0
