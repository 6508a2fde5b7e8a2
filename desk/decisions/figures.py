"""What an evaluation found, as data: written beside the docs, and shown there as a table that a test compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from decider.calibration import accuracy, expected_calibration_error


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one method said about one item: the probability of each possible label."""

    label: str
    group: str
    probabilities: Mapping[str, float]

    @property
    def best(self) -> str:
        """Give the most probable label."""
        return max(self.probabilities, key=lambda option: self.probabilities[option])

    @property
    def correct(self) -> bool:
        """Tell whether the most probable label is the true one."""
        return self.best == self.label


class Figure(msgspec.Struct, frozen=True):
    """Accuracy of one method with its 95% Wilson interval, its mean confidence and ECE (15 bins of equal width)."""

    right: int
    count: int
    share: float
    low: float
    high: float
    mean_probability: float
    calibration_error: float


class Figures(msgspec.Struct, frozen=True):
    """The figures of one model, by set of cases and method."""

    model_sha256: str
    sets: dict[str, dict[str, Figure]]

    def to_json(self) -> str:
        """Give the figures as JSON text."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode() + "\n"


def figure_of(predictions: Sequence[Prediction]) -> Figure:
    """Count how often the most probable label was right, and how far the confidence was from that."""
    correct = [each.correct for each in predictions]
    confidence = [each.probabilities[each.best] for each in predictions]
    got = accuracy(correct)
    error = expected_calibration_error(confidence, correct)
    numbers = (got.share, got.low, got.high, sum(confidence) / len(confidence), error)
    return Figure(got.correct, got.count, *(round(float(number), 4) for number in numbers))


def read_figures(path: Path) -> Figures:
    """Read figures that an evaluation wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Figures)


def table(figures: Figures) -> str:
    """Give the figures as a Markdown table."""
    lines = ["| cases | method | right | accuracy (95 % interval) | mean p | ECE |", "|---|---|---|---|---|---|"]
    for name, methods in figures.sets.items():
        for method, one in methods.items():
            lines.append(
                f"| {name} | {method} | {one.right} of {one.count} | {one.share:.3f} ({one.low:.3f} to {one.high:.3f})"
                f" | {one.mean_probability:.3f} | {one.calibration_error:.3f} |"
            )
    return "\n".join(lines)
