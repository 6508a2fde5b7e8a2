"""What a program that asks questions depends on, so that another model, or a scripted one, can stand in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from decider.answers import Answers
from decider.questions import QuestionLike


@runtime_checkable
class DecisionModel(Protocol):
    """Anything that answers typed questions about a state."""

    def decide(self, state: object, questions: Mapping[str, QuestionLike]) -> Answers:
        """Answer all questions about one state."""
        ...
