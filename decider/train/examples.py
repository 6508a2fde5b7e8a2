"""Reads labelled examples: JSON Lines, one state with its questions and their right answers a line.

    {"state": "...", "questions": {"id": {"type": "noul", ...}}, "answers": {"id": ANSWER}}

ANSWER is true or false, the name of an option, the number of a level (from 0), or null: the state does not hold the
answer, so an even spread is right. A list `open` names the questions of which it could be argued whether the state
answers them; that is not learned from them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from decider.errors import QuestionError, TrainingDataError
from decider.questions import Choice, Noul, Question, Score, read_questions

Label = bool | str | int | None


@dataclass(frozen=True, slots=True)
class Example:
    """A state, its questions, and the right answer to each: yes or no, an option's name, a level, or None.

    `open`: questions of which it could be argued whether the state answers them.
    """

    state: object
    questions: Mapping[str, Question]
    answers: Mapping[str, Label]
    open: frozenset[str] = frozenset()

    def answerable(self, question_id: str) -> bool | None:
        """Tell whether the state answers a question; None where that could be argued."""
        return None if question_id in self.open else self.answers[question_id] is not None


def read_examples(path: Path) -> list[Example]:
    """Read a file of examples; raises TrainingDataError for the first line that cannot be used, and for no lines."""
    examples: list[Example] = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                examples.append(_read_line(path, number, line))
    if not examples:
        raise TrainingDataError(path, 1, "the file holds no examples", "Generate it first.")
    return examples


def target(question: Question, answer: Label) -> list[float]:
    """Return what the model should say: [P(yes)] for a Noul, one probability an option or level for the others."""
    if isinstance(question, Noul):
        return [0.5 if answer is None else float(bool(answer))]
    options = _options(question)
    return [1 / len(options) if answer is None else float(option == answer) for option in options]


def _read_line(path: Path, number: int, line: str) -> Example:
    try:
        fields = json.loads(line)
        state, raw_questions, answers = fields["state"], fields["questions"], fields["answers"]
        questions = read_questions(raw_questions)
        argued = frozenset(fields.get("open", ()))
    except (json.JSONDecodeError, KeyError, TypeError, QuestionError) as error:
        raise TrainingDataError(
            path, number, f"it cannot be read ({error!r})", "Write state, questions and answers."
        ) from error
    if not isinstance(answers, dict) or set(answers) != set(questions):
        raise TrainingDataError(path, number, "answers and questions have different ids", "Answer every question.")
    for name, question in questions.items():
        if not _fits(question, answers[name]):
            raise TrainingDataError(
                path,
                number,
                f"{answers[name]!r} is no answer to {name!r}",
                "Write true, false, an option, a level or null.",
            )
    if not argued <= set(questions):
        raise TrainingDataError(
            path, number, f"{sorted(argued - set(questions))} are not asked", "Name questions asked."
        )
    return Example(state, questions, answers, argued)


def _fits(question: Question, answer: object) -> bool:
    if answer is None:
        return True
    if isinstance(question, Noul):
        return isinstance(answer, bool)
    return not isinstance(answer, bool) and answer in _options(question)


def _options(question: Choice | Score) -> Sequence[str | int]:
    return question.options if isinstance(question, Choice) else range(len(question.criteria))
