"""Typed questions about a text, answered by a small local model with calibrated probabilities."""

from decider.answers import Answer, Answers, Calibration, ChoiceAnswer, Interval, NoulAnswer, ScoreAnswer, Usage
from decider.errors import (
    BatcherClosedError,
    CalibrationError,
    DeciderError,
    MissingPackageError,
    ModelFileError,
    OverloadedError,
    ProviderError,
    QuestionError,
    RequestTooLargeError,
    StateError,
    TrainingDataError,
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
    "Calibration",
    "CalibrationError",
    "Choice",
    "ChoiceAnswer",
    "CuttableState",
    "Decider",
    "DeciderError",
    "DecisionModel",
    "Encoded",
    "Interval",
    "MissingPackageError",
    "ModelFileError",
    "Noul",
    "NoulAnswer",
    "NoulCriteria",
    "OverloadedError",
    "ProviderError",
    "Question",
    "QuestionError",
    "QuestionLike",
    "Request",
    "RequestTooLargeError",
    "Score",
    "ScoreAnswer",
    "StateError",
    "Text",
    "TrainingDataError",
    "Usage",
]
