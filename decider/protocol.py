"""What a program that asks questions depends on, so that another model, or a scripted one, can stand in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from decider.answers import Answers
from decider.questions import Question, QuestionLike
from decider.rows import AnyRow, EncodedRequest, FloatArray

Request: TypeAlias = tuple[object, Mapping[str, QuestionLike]]
"""A state and the questions about it, by id."""


Picked: TypeAlias = Mapping[str, FloatArray]
"""What the network gave for one row, by question id: the part that the layout reads."""


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
    """A model that checks requests one by one and runs rows of several of them together, a pass at a time."""

    def encode(self, state: object, questions: Mapping[str, QuestionLike]) -> Encoded:
        """Check a request and lay it out; raises DeciderError for one that cannot be asked."""
        ...

    def run_pass(
        self, rows: Sequence[AnyRow], max_waste: float = 1.0, max_cells: int | None = None
    ) -> Mapping[int, Picked]:
        """Run one pass over the first row and those of the others that fit in beside it; return by place what it gave.

        `max_waste` and `max_cells` are those of Decider.decide_encoded.
        """
        ...

    def answer(self, encoded: Encoded, picked: Sequence[Picked]) -> Answers:
        """Make the answers to a request of what its rows gave, in their order."""
        ...
