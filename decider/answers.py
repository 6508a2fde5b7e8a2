"""What comes back: one answer for each question, and where the answers come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from decider.questions import Text


@dataclass(frozen=True, slots=True)
class Interval:
    """Two probabilities of "yes" between which the evidence leaves room: `low` if it is a no, `high` if it is a yes.

    Whichever belongs to the true answer is calibrated (see decider.calibration.venn_abers). To act on solid ground
    alone, hold `low` against the threshold. It is no confidence interval for the probability.
    """

    low: float
    high: float

    @property
    def merged(self) -> float:
        """One probability for both, the one that loses least in log loss: high / (1 - low + high)."""
        return self.high / (1 - self.low + self.high)


@dataclass(frozen=True, slots=True)
class NoulAnswer:
    """The answer to a Noul: `noul` is the calibrated probability of "yes"; `logit` is the raw score before it.

    `interval` says how far the calibration answers pin the probability down; None for a model that brings none.
    `answerable`, here and in the other answers, is the probability that the state holds what the question asks about;
    None where the model does not say. Scores are multiplied by it: what cannot be answered is left even.
    """

    noul: float
    logit: float | None = None
    answerable: float | None = None
    interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class ChoiceAnswer:
    """The answer to a Choice: calibrated `probabilities` that sum to 1, and `logits`, the raw scores before them."""

    choice: str
    probabilities: Mapping[str, float]
    logits: Mapping[str, float] | None = None
    answerable: float | None = None

    @property
    def confidence(self) -> float:
        """How far the best option is above an even spread: (p_max - 1/n) / (1 - 1/n), in [0, 1]."""
        count = len(self.probabilities)
        if count == 1:
            return 1.0
        return min(1.0, max(0.0, (max(self.probabilities.values()) - 1 / count) / (1 - 1 / count)))


@dataclass(frozen=True, slots=True)
class ScoreAnswer:
    """The answer to a Score: `score` is the expected level, the sum of level * probability, from 0 to n - 1.

    `legend` gives each level's description as it was asked, `probabilities` and the raw `logits` a number each.
    """

    score: float
    legend: Mapping[int, Text]
    probabilities: Mapping[int, float]
    logits: Mapping[int, float] | None = None
    answerable: float | None = None

    @property
    def confidence(self) -> float:
        """How close the levels lie to the likeliest one, in [0, 1]: 1 - E|level - mode| / the even spread's distance.

        The even spread's distance is the mean of |level - centre|; below 0 counts as 0, one level alone is certain.
        """
        count = len(self.probabilities)
        if count == 1:
            return 1.0
        mode = max(self.probabilities, key=lambda level: self.probabilities[level])
        distance = sum(share * abs(level - mode) for level, share in self.probabilities.items())
        even = sum(abs(level - (count - 1) / 2) for level in range(count)) / count
        return min(1.0, max(0.0, 1 - distance / even))


Answer: TypeAlias = NoulAnswer | ChoiceAnswer | ScoreAnswer
"""The answer to one question."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How raw scores became probabilities: a name, and the temperature that divides the logits of each answer type."""

    name: str = "none"
    temperatures: Mapping[str, float] = field(default_factory=dict)

    def temperature(self, answer_type: str) -> float:
        """Return that of `noul`, `choice`, `score` or `answerable`; for a Score a Choice's may stand in; else 1."""
        if answer_type == "score" and "score" not in self.temperatures:
            answer_type = "choice"
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

    `model` and `sha256` name the weights, `provider` what computed them ("cpu", "cuda"), `precision` the numbers they
    are stored and computed in ("" where it is not known), `truncated` counts the tokens of the state that were left
    out because it was too long (0: everything was read).
    """

    answers: Mapping[str, Answer]
    model: str
    provider: str
    sha256: str = ""
    calibration: Calibration = field(default_factory=Calibration)
    usage: Usage = field(default_factory=Usage)
    truncated: int = 0
    precision: str = ""

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

    @property
    def scores(self) -> dict[str, ScoreAnswer]:
        """The answers to Scores alone."""
        return {name: answer for name, answer in self.answers.items() if isinstance(answer, ScoreAnswer)}
