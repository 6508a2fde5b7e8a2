"""Measures a model on labelled examples: accuracy, NLL, Brier score and ECE, by answer type and by question id.

    python -m decider.train.evaluate MODEL_FOLDER FILE.jsonl

For a Noul, ECE compares P(yes) with the share of yes; for a Choice or a Score, the probability of the best option or
level with the share of right ones. Questions that the state cannot answer count only in `unanswerable`: their mean
confidence should be near 0.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from decider import calibration
from decider.answers import Answer, Calibration, ChoiceAnswer, NoulAnswer, ScoreAnswer
from decider.calibration import Accuracy
from decider.calibration.stored import StoredCalibration, fit_stored
from decider.model import Decider, raw_logits
from decider.train.examples import Example, Label, read_examples


class Judged(NamedTuple):
    """An answer with what is right, and whether the state answers the question (None: that could be argued)."""

    answer: Answer
    label: Label
    answerable: bool | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """How good the answers to one group of questions were; all but `unanswerable` fields leave out null answers."""

    type: str
    accuracy: Accuracy
    nll: float
    brier: float
    ece_width: float
    ece_mass: float
    unanswerable: int
    unanswerable_confidence: float | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores by answer type ("noul", "choice", "score") and by question id; `truncated` counts states that were cut."""

    types: Mapping[str, Scores]
    questions: Mapping[str, Scores]
    truncated: int


def evaluate(
    decider: Decider, examples: Sequence[Example], progress: Callable[[int], None] | None = None
) -> Evaluation:
    """Ask everything in the examples and score the answers; `progress` is told how many examples are done."""
    by_question: dict[str, list[Judged]] = {}
    truncated = 0
    for done, example in enumerate(examples, start=1):
        answers = decider.decide(example.state, example.questions)
        truncated += answers.truncated > 0
        for name, answer in answers.items():
            by_question.setdefault(name, []).append(Judged(answer, example.answers[name]))
        if progress is not None:
            progress(done)
    by_type: dict[str, list[Judged]] = {}
    for judged in by_question.values():
        for judgement in judged:
            by_type.setdefault(type_of(judgement.answer), []).append(judgement)
    return Evaluation(
        {name: score(judged) for name, judged in sorted(by_type.items())},
        {name: score(judged) for name, judged in by_question.items()},
        truncated,
    )


def score(judged: Sequence[Judged]) -> Scores:
    """Score answers of one type against their labels."""
    known = [Judged(answer, label) for answer, label, _ in judged if label is not None]
    unknown = [_confidence(answer) for answer, label, _ in judged if label is None]
    predicted, outcomes, correct, of_outcome = _columns(known)
    return Scores(
        type=type_of(judged[0][0]),
        accuracy=calibration.accuracy(correct),
        nll=calibration.negative_log_likelihood(of_outcome) if known else 0.0,
        brier=_brier(known) if known else 0.0,
        ece_width=calibration.expected_calibration_error(predicted, outcomes) if known else 0.0,
        ece_mass=calibration.expected_calibration_error(predicted, outcomes, kind="mass") if known else 0.0,
        unanswerable=len(unknown),
        unanswerable_confidence=sum(unknown) / len(unknown) if unknown else None,
    )


def judge(decider: Decider, examples: Sequence[Example]) -> list[Judged]:
    """Ask everything in the examples and return each answer with its label."""
    return [
        Judged(answer, example.answers[name], example.answerable(name))
        for example in examples
        for name, answer in decider.decide(example.state, example.questions).items()
    ]


def fit_calibration(judged: Sequence[Judged], name: str) -> Calibration:
    """Return one temperature for each answer type that occurs, and for `answerable`, fitted by NLL to the raw logits.

    Questions that the state cannot answer take part, with an even spread as what is right: without them, a model that
    is always right on the others would be made certain of everything. Raises CalibrationError for a temperature that
    means nothing.
    """
    nouls: list[tuple[float, float]] = []
    others: dict[str, list[tuple[list[float], int | None]]] = {}
    answerable: list[tuple[float, float]] = []
    for answer, label, known in judged:
        if answer.answerable is not None and known is not None:
            answerable.append((_logit(answer.answerable), float(known)))
        if isinstance(answer, NoulAnswer):
            nouls.append((raw_logits(answer)[0], 0.5 if label is None else float(bool(label))))
        else:
            index = None if label is None else _place(answer, label)
            others.setdefault(type_of(answer), []).append((raw_logits(answer), index))
    temperatures: dict[str, float] = {}
    if nouls:
        temperatures["noul"] = calibration.fit_noul_temperature(*zip(*nouls, strict=True)).accepted("noul")
    if answerable:
        fitted = calibration.fit_noul_temperature(*zip(*answerable, strict=True))
        # One that never errs on the calibration answers stays as trained: nothing shows how sure it may be.
        temperatures["answerable"] = 1.0 if fitted.at_bound else fitted.temperature
    for answer_type, answered in others.items():
        logits, chosen = zip(*answered, strict=True)
        temperatures[answer_type] = calibration.fit_choice_temperature(logits, chosen).accepted(answer_type)
    return Calibration(name, temperatures)


def fit_intervals(judged: Sequence[Judged], model_sha256: str) -> StoredCalibration:
    """Return what gives yes/no answers their intervals, from the raw logits of those that the state settles."""
    known = [
        (raw_logits(answer)[0], bool(label))
        for answer, label, _ in judged
        if isinstance(answer, NoulAnswer) and label is not None
    ]
    return fit_stored(model_sha256, [logit for logit, _ in known], [outcome for _, outcome in known])


def report(evaluation: Evaluation) -> Iterable[str]:
    """Yield the evaluation as lines of a table."""
    titles = f"{'accuracy':>10}  {'95 % interval':<16}{'NLL':>7}{'Brier':>8}{'ECE':>7}{'mass':>7}"
    yield f"{'question':<28}{'type':<8}{'n':>6}{titles}"
    for name, scores in [*evaluation.types.items(), *evaluation.questions.items()]:
        share = scores.accuracy
        interval = f"{share.low:.3f}-{share.high:.3f}"
        yield (
            f"{name:<28}{scores.type:<8}{share.count:>6}{share.share:>10.3f}  {interval:<16}{scores.nll:>7.3f}"
            f"{scores.brier:>8.3f}{scores.ece_width:>7.3f}{scores.ece_mass:>7.3f}"
        )
        if scores.unanswerable_confidence is not None:
            yield f"{'':<28}unanswerable: {scores.unanswerable}, mean confidence {scores.unanswerable_confidence:.3f}"
    yield f"states that were cut: {evaluation.truncated}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; `--json` prints the figures as JSON instead of a table."""
    parser = argparse.ArgumentParser(prog="python -m decider.train.evaluate", description="Measure a decision model.")
    parser.add_argument("model", type=Path, help="model folder")
    parser.add_argument("file", type=Path, help="labelled examples, JSON Lines")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    evaluation = evaluate(Decider.load(options.model), read_examples(options.file))
    if options.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(evaluation), indent=2).decode() + "\n")
    else:
        sys.stdout.write("\n".join(report(evaluation)) + "\n")
    return 0


def _logit(p: float) -> float:
    bounded = min(max(p, 1e-12), 1 - 1e-12)
    return math.log(bounded / (1 - bounded))


def type_of(answer: Answer) -> str:
    """Return "noul", "choice" or "score"."""
    if isinstance(answer, NoulAnswer):
        return "noul"
    return "choice" if isinstance(answer, ChoiceAnswer) else "score"


def _place(answer: ChoiceAnswer | ScoreAnswer, label: Label) -> int:
    """Return which of the options or levels, counted from 0, the label names."""
    return [str(name) for name in answer.probabilities].index(str(label))


def _confidence(answer: Answer) -> float:
    return abs(answer.noul - 0.5) * 2 if isinstance(answer, NoulAnswer) else answer.confidence


def _columns(known: Sequence[Judged]) -> tuple[list[float], list[float], list[bool], list[float]]:
    """Return for each answer: what was predicted, whether it came true, whether it was right, p of what was true."""
    predicted: list[float] = []
    outcomes: list[float] = []
    correct: list[bool] = []
    of_outcome: list[float] = []
    for answer, label, _ in known:
        if isinstance(answer, NoulAnswer):
            predicted.append(answer.noul)
            outcomes.append(float(bool(label)))
            correct.append((answer.noul >= 0.5) == bool(label))
            of_outcome.append(answer.noul if label else 1 - answer.noul)
        else:
            shares = list(answer.probabilities.values())
            right = _place(answer, label)
            predicted.append(max(shares))
            correct.append(shares.index(max(shares)) == right)
            outcomes.append(float(correct[-1]))
            of_outcome.append(shares[right])
    return predicted, outcomes, correct, of_outcome


def _brier(known: Sequence[Judged]) -> float:
    nouls = [(answer.noul, float(bool(label))) for answer, label, _ in known if isinstance(answer, NoulAnswer)]
    if nouls:
        return calibration.noul_brier(*zip(*nouls, strict=True))
    choices = [
        (list(answer.probabilities.values()), _place(answer, label))
        for answer, label, _ in known
        if not isinstance(answer, NoulAnswer)
    ]
    return calibration.choice_brier(*zip(*choices, strict=True))


if __name__ == "__main__":
    sys.exit(main())
