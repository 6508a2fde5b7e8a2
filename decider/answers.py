"""What comes back: one answer for each question, and where the answers come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class NoulAnswer:
    """The answer to a Noul: `noul` is the calibrated probability of "yes"; `logit` is the raw score before it."""

    noul: float
    logit: float | None = None


@dataclass(frozen=True, slots=True)
class ChoiceAnswer:
    """The answer to a Choice: calibrated `probabilities` that sum to 1, and `logits`, the raw scores before them."""

    choice: str
    probabilities: Mapping[str, float]
    logits: Mapping[str, float] | None = None

    @property
    def confidence(self) -> float:
        """How far the best option is above an even spread: (p_max - 1/n) / (1 - 1/n), in [0, 1]."""
        even = 1 / len(self.probabilities)
        return max(0.0, (max(self.probabilities.values()) - even) / (1 - even))


Answer: TypeAlias = NoulAnswer | ChoiceAnswer
"""The answer to one question."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How raw scores became probabilities: a name, and the temperature that divides the logits of each answer type."""

    name: str = "none"
    temperatures: Mapping[str, float] = field(default_factory=dict)

    def temperature(self, answer_type: str) -> float:
        """Return the temperature of `noul` or `choice`; 1 when none was fitted."""
        return self.temperatures.get(answer_type, 1.0)


@dataclass(frozen=True, slots=True)
class Usage:
    """How much was read: tokens without padding, and rows (a long list of questions takes several rows)."""

    input_tokens: int = 0
    output_tokens: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Answers(Mapping[str, Answer]):
    """The answers by question id, in the order asked, with their provenance.

    `model` and `sha256` name the weights, `provider` what computed them ("cpu", "cuda"), `truncated` counts the
    tokens of the state that were left out because it was too long (0: everything was read).
    """

    answers: Mapping[str, Answer]
    model: str
    provider: str
    sha256: str = ""
    calibration: Calibration = field(default_factory=Calibration)
    usage: Usage = field(default_factory=Usage)
    truncated: int = 0

    def __getitem__(self, question_id: str) -> Answer:
        return self.answers[question_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def nouls(self) -> dict[str, NoulAnswer]:
        """The answers to Nouls alone."""
        return {name: answer for name, answer in self.answers.items() if isinstance(answer, NoulAnswer)}

    @property
    def choices(self) -> dict[str, ChoiceAnswer]:
        """The answers to Choices alone."""
        return {name: answer for name, answer in self.answers.items() if isinstance(answer, ChoiceAnswer)}
