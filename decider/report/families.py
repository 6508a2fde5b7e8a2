"""Scores the answers to each family of questions: all of one id, and all of one type.

A Noul predicts P(yes), a Choice or a Score the probability of its best option or level. The decision of each is the
likelier outcome, its confidence that outcome's probability. Questions that the state does not answer (null in the file)
are counted apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from decider.answers import Answer, NoulAnswer, ScoreAnswer
from decider.calibration import (
    Accuracy,
    Bin,
    Certificate,
    RiskCoverage,
    accuracy,
    certified_threshold,
    choice_brier,
    expected_calibration_error,
    negative_log_likelihood,
    noul_brier,
    reliability,
    risk_coverage,
)
from decider.model import Decider
from decider.train.examples import Example, Label

ALPHAS: Final = (Fraction(1, 10), Fraction(1, 20), Fraction(1, 100))
"""The shares of wrong answers among those used that thresholds are certified for."""
DELTA: Final = Fraction(1, 20)


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, the id of its question, and what is right; `cut` tells that the state was not read in full."""

    question_id: str
    answer: Answer
    label: Label
    cut: bool


@dataclass(frozen=True, slots=True)
class Family:
    """How good the answers to a family of questions are; the fields behind `kind` leave the unanswerable out.

    `confusion` counts (right, said). `interval_width` is the mean width of the Nouls' intervals, None without any.
    `unanswerable_confidence` is the mean confidence, from 0 for an even spread to 1, where nothing can be known.
    """

    name: str
    kind: str
    accuracy: Accuracy
    nll: float
    brier: float
    ece_width: float
    ece_mass: float
    bins: tuple[Bin, ...]
    curve: RiskCoverage
    certificates: tuple[Certificate, ...]
    confusion: Mapping[tuple[str, str], int]
    interval_width: float | None
    unanswerable: int
    unanswerable_confidence: float | None


def ask(decider: Decider, examples: Sequence[Example], progress: bool = False) -> list[Answered]:
    """Ask everything in the examples, in passes of bounded size."""
    stream = decider.decide_iter(((each.state, each.questions) for each in examples), progress=progress)
    return [
        Answered(name, answer, example.answers[name], given.truncated > 0)
        for example, given in zip(examples, stream, strict=True)
        for name, answer in given.items()
    ]


def families(answered: Iterable[Answered]) -> list[Family]:
    """Score the answers by type, then by question id; a group in which nothing can be known is left out."""
    by_type: dict[str, list[Answered]] = {}
    by_question: dict[tuple[str, str], list[Answered]] = {}
    for each in answered:
        by_type.setdefault(kind_of(each.answer), []).append(each)
        by_question.setdefault((each.question_id, kind_of(each.answer)), []).append(each)
    groups = [(f"every {kind}", found) for kind, found in sorted(by_type.items())]
    groups += [(name, found) for (name, _), found in sorted(by_question.items())]
    return [family(name, found) for name, found in groups if any(each.label is not None for each in found)]


def family(name: str, answered: Sequence[Answered]) -> Family:
    """Score answers of one type; at least one of them has a label."""
    known = [each for each in answered if each.label is not None]
    unknown = [_above_even(each.answer) for each in answered if each.label is None]
    rows = [outcomes(each.answer) for each in known]
    right = [outcome_name(each.answer, each.label) for each in known]
    said = [max(row, key=lambda outcome: row[outcome]) for row in rows]
    of_outcome = [row[name] for row, name in zip(rows, right, strict=True)]
    correct = [left == other for left, other in zip(right, said, strict=True)]
    confidence = [row[name] for row, name in zip(rows, said, strict=True)]
    predicted, came_true = confidence, [float(each) for each in correct]
    if isinstance(known[0].answer, NoulAnswer):
        predicted, came_true = [row["yes"] for row in rows], [float(each == "yes") for each in right]
    wrong = [float(not each) for each in correct]
    return Family(
        name=name,
        kind=kind_of(known[0].answer),
        accuracy=accuracy(correct),
        nll=negative_log_likelihood(of_outcome),
        brier=_brier(known, rows, right),
        ece_width=expected_calibration_error(predicted, came_true),
        ece_mass=expected_calibration_error(predicted, came_true, kind="mass"),
        bins=reliability(predicted, came_true),
        curve=risk_coverage(confidence, wrong),
        certificates=tuple(certified_threshold(confidence, wrong, alpha, DELTA) for alpha in ALPHAS),
        confusion=Counter(zip(right, said, strict=True)),
        interval_width=_interval_width(known),
        unanswerable=len(unknown),
        unanswerable_confidence=sum(unknown) / len(unknown) if unknown else None,
    )


def kind_of(answer: Answer) -> str:
    """Return "noul", "choice" or "score"."""
    if isinstance(answer, NoulAnswer):
        return "noul"
    return "score" if isinstance(answer, ScoreAnswer) else "choice"


def outcomes(answer: Answer) -> dict[str, float]:
    """Return the probability of each outcome by its name: yes and no, the options, or the levels as digits."""
    if isinstance(answer, NoulAnswer):
        return {"yes": answer.noul, "no": 1 - answer.noul}
    return {str(outcome): p for outcome, p in answer.probabilities.items()}


def outcome_name(answer: Answer, label: Label) -> str:
    """Return the name of the right outcome."""
    if isinstance(answer, NoulAnswer):
        return "yes" if label else "no"
    return str(label)


def _above_even(answer: Answer) -> float:
    return abs(answer.noul - 0.5) * 2 if isinstance(answer, NoulAnswer) else answer.confidence


def _brier(known: Sequence[Answered], rows: Sequence[Mapping[str, float]], right: Sequence[str]) -> float:
    if isinstance(known[0].answer, NoulAnswer):
        return noul_brier([row["yes"] for row in rows], [float(name == "yes") for name in right])
    places = [list(row).index(name) for row, name in zip(rows, right, strict=True)]
    return choice_brier([list(row.values()) for row in rows], places)


def _interval_width(known: Sequence[Answered]) -> float | None:
    intervals = [each.answer.interval for each in known if isinstance(each.answer, NoulAnswer)]
    widths = [interval.high - interval.low for interval in intervals if interval is not None]
    return sum(widths) / len(widths) if widths else None
