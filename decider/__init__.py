"""Typed questions about a text, answered by a small local model with calibrated probabilities."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decider.answers import Answer, Answers, Calibration, ChoiceAnswer, Interval, NoulAnswer, ScoreAnswer, Usage
    from decider.errors import (
        BatcherClosedError,
        BusyError,
        CalibrationError,
        CostError,
        DeciderError,
        EndpointError,
        KeyRefusedError,
        MissingPackageError,
        ModelFileError,
        ModelOutputError,
        OverloadedError,
        ProviderError,
        QuestionError,
        RefusedError,
        ReplyError,
        RequestError,
        RequestFault,
        RequestTooLargeError,
        ServerFaultError,
        StateError,
        TrainingDataError,
        UnreachableError,
    )
    from decider.model import Decider
    from decider.protocol import BatchModel, DecisionModel, Encoded, Request
    from decider.questions import Choice, Noul, NoulCriteria, Question, QuestionLike, Score, Text
    from decider.rendering import CuttableState

__all__ = [
    "Answer",
    "Answers",
    "BatchModel",
    "BatcherClosedError",
    "BusyError",
    "Calibration",
    "CalibrationError",
    "Choice",
    "ChoiceAnswer",
    "CostError",
    "CuttableState",
    "Decider",
    "DeciderError",
    "DecisionModel",
    "Encoded",
    "EndpointError",
    "Interval",
    "KeyRefusedError",
    "MissingPackageError",
    "ModelFileError",
    "ModelOutputError",
    "Noul",
    "NoulAnswer",
    "NoulCriteria",
    "OverloadedError",
    "ProviderError",
    "Question",
    "QuestionError",
    "QuestionLike",
    "RefusedError",
    "ReplyError",
    "Request",
    "RequestError",
    "RequestFault",
    "RequestTooLargeError",
    "Score",
    "ScoreAnswer",
    "ServerFaultError",
    "StateError",
    "Text",
    "TrainingDataError",
    "UnreachableError",
    "Usage",
]

# Where each public name lives. Loaded when it is first used: costs, metrics and the guard need no tokenizer.
_HOMES = {
    "answers": ["Answer", "Answers", "Calibration", "ChoiceAnswer", "Interval", "NoulAnswer", "ScoreAnswer", "Usage"],
    "errors": [*(name for name in __all__ if name.endswith("Error")), "RequestFault"],
    "model": ["Decider"],
    "protocol": ["BatchModel", "DecisionModel", "Encoded", "Request"],
    "questions": ["Choice", "Noul", "NoulCriteria", "Question", "QuestionLike", "Score", "Text"],
    "rendering": ["CuttableState"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name from the module it lives in."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'decider' has no attribute {name!r}")
    return getattr(import_module(f"decider.{_HOME_OF[name]}"), name)
