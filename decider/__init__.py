"""Typed questions about a text, answered by a small local model with calibrated probabilities."""

from decider.answers import Answer, Answers, Calibration, ChoiceAnswer, NoulAnswer, ScoreAnswer, Usage
from decider.errors import (
    DeciderError,
    MissingPackageError,
    ModelFileError,
    ProviderError,
    QuestionError,
    RequestTooLargeError,
    StateError,
    TrainingDataError,
)
from decider.model import Decider
from decider.protocol import DecisionModel
from decider.questions import Choice, Noul, NoulCriteria, Question, QuestionLike, Score, Text
from decider.rendering import CuttableState

__all__ = [
    "Answer",
    "Answers",
    "Calibration",
    "Choice",
    "ChoiceAnswer",
    "CuttableState",
    "Decider",
    "DeciderError",
    "DecisionModel",
    "MissingPackageError",
    "ModelFileError",
    "Noul",
    "NoulAnswer",
    "NoulCriteria",
    "ProviderError",
    "Question",
    "QuestionError",
    "QuestionLike",
    "RequestTooLargeError",
    "Score",
    "ScoreAnswer",
    "StateError",
    "Text",
    "TrainingDataError",
    "Usage",
]
