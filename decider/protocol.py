"""What a program that asks questions depends on, so that another model, or a scripted one, can stand in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from decider.answers import Answers
from decider.questions import Question, QuestionLike
from decider.rows import AnyRow, EncodedRequest

Request: TypeAlias = tuple[object, Mapping[str, QuestionLike]]
"""A state and the questions about it, by id."""


@runtime_checkable
class DecisionModel(Protocol):
    """Anything that answers typed questions about a state."""

    def decide(self, state: object, questions: Mapping[str, QuestionLike]) -> Answers:
        """Answer all questions about one state."""
        ...

    def decide_many(self, requests: Sequence[Request]) -> list[Answers]:
        """Answer many states, each with its own questions, together."""
        ...


@dataclass(frozen=True, slots=True)
class Encoded:
    """A request that was checked and laid out as rows: ready to be answered, alone or in the company of others."""

    questions: Mapping[str, Question]
    request: EncodedRequest[AnyRow]


class BatchModel(Protocol):
    """A model that checks requests one by one and answers them together."""

    def encode(self, state: object, questions: Mapping[str, QuestionLike]) -> Encoded:
        """Check a request and lay it out; raises DeciderError for one that cannot be asked."""
        ...

    def decide_encoded(
        self, encoded: Sequence[Encoded], max_waste: float | None = None, max_cells: int | None = None
    ) -> list[Answers]:
        """Answer them all; `max_waste` and `max_cells` are those of Decider.decide_encoded."""
        ...
