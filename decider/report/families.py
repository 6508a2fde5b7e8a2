"""Scores the answers to each family of questions: all of one id, and all of one type.

A Noul predicts P(yes), a Choice or a Score the probability of its best option or level. The decision of each is the
likelier outcome, its confidence that outcome's probability. Questions that the state does not answer (null in the file)
are counted apart. Where the model says whether a state answers a question, that is a family of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from decider.answers import Answer, NoulAnswer
from decider.calibration import Bin, Certificate, RiskCoverage, certified_threshold, reliability, risk_coverage
from decider.model import Decider
from decider.train.evaluate import Judged, Scores, score, type_of
from decider.train.examples import Example, Label

ALPHAS: Final = (Fraction(1, 10), Fraction(1, 20), Fraction(1, 100))
"""The shares of wrong answers among those used that thresholds are certified for."""
DELTA: Final = Fraction(1, 20)
ANSWERABLE: Final = "does the state answer it?"


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer with what is right, and the id of its question; `cut`: the state was not read in full."""

    question_id: str
    answer: Answer
    label: Label
    cut: bool = False
    answerable: bool | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """How good the answers to a family of questions are, without the unanswerable, which `scores` count apart.

    `confusion` counts (right, said). `interval_width` is the mean width of the Nouls' intervals, None without any.
    """

    name: str
    scores: Scores
    bins: tuple[Bin, ...]
    curve: RiskCoverage
    certificates: tuple[Certificate, ...]
    confusion: Mapping[tuple[str, str], int]
    interval_width: float | None


def ask(decider: Decider, examples: Sequence[Example], progress: bool = False) -> list[Answered]:
    """Ask everything in the examples, in passes of bounded size."""
    stream = decider.decide_iter(((each.state, each.questions) for each in examples), progress=progress)
    return [
        Answered(name, answer, example.answers[name], given.truncated > 0, example.answerable(name))
        for example, given in zip(examples, stream, strict=True)
        for name, answer in given.items()
    ]


def families(answered: Iterable[Answered]) -> list[Family]:
    """Score the answers by type, then by question id; a group in which nothing can be known is left out."""
    groups: dict[tuple[int, str, str], list[Answered]] = {}
    for each in answered:
        kind = type_of(each.answer)
        groups.setdefault((0, f"every {kind}", kind), []).append(each)
        groups.setdefault((2, each.question_id, kind), []).append(each)
        if each.answer.answerable is not None and each.answerable is not None:
            signal = Answered(ANSWERABLE, NoulAnswer(each.answer.answerable), each.answerable)
            groups.setdefault((1, ANSWERABLE, "noul"), []).append(signal)
    return [
        family(name, found)
        for (_, name, _), found in sorted(groups.items(), key=lambda group: group[0])
        if any(each.label is not None for each in found)
    ]


def family(name: str, answered: Sequence[Answered]) -> Family:
    """Score answers of one type; at least one of them has a label."""
    known = [each for each in answered if each.label is not None]
    rows = [outcomes(each.answer) for each in known]
    right = [outcome_name(each.answer, each.label) for each in known]
    said = [max(row, key=lambda outcome: row[outcome]) for row in rows]
    confidence = [row[name] for row, name in zip(rows, said, strict=True)]
    wrong = [float(left != other) for left, other in zip(right, said, strict=True)]
    if isinstance(known[0].answer, NoulAnswer):
        bins = reliability([row["yes"] for row in rows], [float(each == "yes") for each in right])
    else:
        bins = reliability(confidence, [1 - each for each in wrong])
    return Family(
        name=name,
        scores=score([Judged(each.answer, each.label) for each in answered]),
        bins=bins,
        curve=risk_coverage(confidence, wrong),
        certificates=tuple(certified_threshold(confidence, wrong, alpha, DELTA) for alpha in ALPHAS),
        confusion=Counter(zip(right, said, strict=True)),
        interval_width=_interval_width(known),
    )


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


def _interval_width(known: Sequence[Answered]) -> float | None:
    intervals = [each.answer.interval for each in known if isinstance(each.answer, NoulAnswer)]
    widths = [interval.high - interval.low for interval in intervals if interval is not None]
    return sum(widths) / len(widths) if widths else None
