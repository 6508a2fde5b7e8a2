"""What can be asked about a state: `Noul` (yes or no), `Choice` (one of several options), `Score` (ordered levels).

The records check themselves when they are made, so a question that exists can be asked. Plain dictionaries with a
`type` field are accepted wherever a record is; fields that are not known are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from decider.errors import QuestionError
from decider.rendering import render

MIN_OPTIONS: Final = 2
MAX_OPTIONS: Final = 255
MIN_LEVELS: Final = 2
MAX_LEVELS: Final = 10

Text: TypeAlias = "str | dict[str, object] | list[object]"
"""Text, or a structure that JSON can hold, which is rendered to text."""


@dataclass(frozen=True, slots=True)
class NoulCriteria:
    """What "yes" (`true`) and "no" (`false`) mean for a Noul; at least one of the two is described."""

    true: Text | None = None
    false: Text | None = None

    def __post_init__(self) -> None:
        if self.true is None and self.false is None:
            raise QuestionError("criteria", "neither 'true' nor 'false' is described", "Describe one, or leave it out.")
        _check_text(("criteria", "true"), self.true)
        _check_text(("criteria", "false"), self.false)


@dataclass(frozen=True, slots=True)
class Noul:
    """A question with the answer yes or no; needs `instructions` or a described outcome in `criteria`."""

    instructions: Text | None = None
    criteria: NoulCriteria | None = None

    def __post_init__(self) -> None:
        if self.criteria is not None and not isinstance(self.criteria, NoulCriteria):
            raise QuestionError(
                "criteria", f"it is a {type(self.criteria).__name__}", "Write NoulCriteria(true=..., false=...)."
            )
        if self.instructions is None and self.criteria is None:
            raise QuestionError("instructions", "nothing is asked", "Give instructions or criteria.", code="missing")
        _check_text("instructions", self.instructions)


@dataclass(frozen=True, slots=True)
class Choice:
    """A question with 2 to 255 options, of which one is the answer.

    `criteria` maps each option to its description; None means that the name alone says it.
    """

    criteria: Mapping[str, Text | None]
    instructions: Text | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.criteria, Mapping):
            raise QuestionError(
                "criteria", f"it is a {type(self.criteria).__name__}", "Write a mapping from option to description."
            )
        count = len(self.criteria)
        if not MIN_OPTIONS <= count <= MAX_OPTIONS:
            raise QuestionError(
                "criteria",
                f"it has {count} option(s)",
                f"Give {MIN_OPTIONS} to {MAX_OPTIONS} options.",
                code="too_short" if count < MIN_OPTIONS else "too_long",
            )
        for option, description in self.criteria.items():
            if not isinstance(option, str) or not option.strip():
                raise QuestionError("criteria", f"the option {option!r} has no name", "Name options with text.")
            _check_text("criteria", option)
            _check_text(("criteria", option), description)
        _check_text("instructions", self.instructions)
        object.__setattr__(self, "criteria", dict(self.criteria))

    @property
    def options(self) -> tuple[str, ...]:
        """The options' names in the order given."""
        return tuple(self.criteria)


@dataclass(frozen=True, slots=True)
class Score:
    """A question whose answer lies on a scale of 2 to 10 levels, described in order from 0 upwards."""

    criteria: Sequence[Text]
    instructions: Text | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.criteria, list | tuple):
            raise QuestionError(
                "criteria", f"it is a {type(self.criteria).__name__}", "Write a list with a description of each level."
            )
        count = len(self.criteria)
        if not MIN_LEVELS <= count <= MAX_LEVELS:
            raise QuestionError(
                "criteria",
                f"it has {count} level(s)",
                f"Give {MIN_LEVELS} to {MAX_LEVELS} levels.",
                code="too_short" if count < MIN_LEVELS else "too_long",
            )
        for level, description in enumerate(self.criteria):
            if description is None:
                raise QuestionError(("criteria", level), "the level is not described", "Say what it means.")
            _check_text(("criteria", level), description)
        _check_text("instructions", self.instructions)
        object.__setattr__(self, "criteria", tuple(self.criteria))


Question: TypeAlias = Noul | Choice | Score
"""A question about a state."""
QuestionLike: TypeAlias = Noul | Choice | Score | Mapping[str, object]
"""A question, or its dictionary form with a `type`."""


def read_questions(questions: Mapping[str, QuestionLike]) -> dict[str, Question]:
    """Return the questions as records, in the order given.

    Raises QuestionError, with the question's id and field, for the first that cannot be asked, and when there is none.
    """
    if not isinstance(questions, Mapping) or not questions:
        raise QuestionError("questions", "there is none", "Give a mapping from question id to question.")
    records: dict[str, Question] = {}
    for question_id, question in questions.items():
        if not isinstance(question_id, str) or not question_id:
            raise QuestionError("id", f"{question_id!r} is not a name", "Use text that is not empty.", str(question_id))
        _check_text("id", question_id)
        try:
            records[question_id] = question if isinstance(question, Question) else read_question(question)
        except QuestionError as error:
            raise error.named(question_id) from None
    return records


def read_question(fields: Mapping[str, object]) -> Question:
    """Return the record for a plain dictionary with the fields `type`, `instructions` and `criteria`."""
    if not isinstance(fields, Mapping):
        raise QuestionError("type", f"it is a {type(fields).__name__}", "Give a Noul, Choice, Score or dictionary.")
    kind = fields.get("type")
    if kind not in ("noul", "choice", "score"):
        problem, code = (
            (f"{kind!r} is not a kind of question", "union_tag_invalid")
            if "type" in fields
            else ("it is missing", "union_tag_not_found")
        )
        raise QuestionError("type", problem, "Write 'noul', 'choice' or 'score'.", code=code)
    _refuse_unknown(fields, ("type", "instructions", "criteria"))
    instructions = _text(fields.get("instructions"), ("instructions",))
    criteria = fields.get("criteria")
    if kind == "noul":
        return Noul(instructions, _read_noul_criteria(criteria))
    if kind == "score":
        if not isinstance(criteria, list | tuple):
            raise _wrong_shape(criteria, "the levels", "a list with a description of each level")
        return Score(criteria, instructions)
    if not isinstance(criteria, Mapping):
        raise _wrong_shape(criteria, "the options", "a mapping from option to description")
    return Choice({option: _text(criteria[option], ("criteria", option)) for option in criteria}, instructions)


def _read_noul_criteria(criteria: object) -> NoulCriteria | None:
    """Read {"true": ..., "false": ...}; some clients write both and describe neither, which says nothing."""
    if criteria is None or isinstance(criteria, NoulCriteria):
        return criteria
    if not isinstance(criteria, Mapping):
        raise QuestionError("criteria", f"it is a {type(criteria).__name__}", "Write {'true': ..., 'false': ...}.")
    _refuse_unknown(criteria, ("true", "false"), ("criteria",))
    true, false = (_text(criteria.get(name), ("criteria", name)) for name in ("true", "false"))
    return None if true is None and false is None else NoulCriteria(true, false)


def _wrong_shape(criteria: object, what: str, wanted: str) -> QuestionError:
    if criteria is None:
        return QuestionError("criteria", f"{what} are missing", f"Write {wanted}.", code="missing")
    return QuestionError("criteria", f"{what} are a {type(criteria).__name__}", f"Write {wanted}.")


def _refuse_unknown(fields: Mapping[str, object], known: tuple[str, ...], prefix: tuple[str, ...] = ()) -> None:
    for name in fields:
        if name not in known:
            allowed = f"Allowed are {', '.join(known)}."
            raise QuestionError((*prefix, name), "this field is not known", allowed, code="extra_forbidden")


def _text(value: object, path: tuple[str, ...]) -> Text | None:
    if value is None or isinstance(value, str | dict | list):
        return value
    raise QuestionError(path, f"it is a {type(value).__name__}", "Write text, an object or a list.")


def _check_text(path: str | tuple[str | int, ...], value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str | dict | list):
        raise QuestionError(path, f"it is a {type(value).__name__}", "Write text, an object or a list.")
    if not value or (isinstance(value, str) and not value.strip()):
        raise QuestionError(path, "it is empty", "Write what is meant, or None.")
    try:
        render(value)
    except ValueError as error:
        raise QuestionError(path, str(error), "Write text that JSON can hold.") from None
