"""Asks questions about a composed case and knows their true answers.

The wordings of the questions stand in ``questions.json``: a canonical one, which the router uses, and others that each
belong to one split; those under ``*_not``, and those put into a denial, ask the opposite, so their answer is flipped.
An answer of None means that the case does not settle the question. A question that could be argued over is not asked.

What language alone settles is asked about the request (``about="request"``), the rest about the whole rendered case.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Literal

from desk.decisions.compose import Sample
from desk.decisions.label import (
    ACTIONS,
    CALCULATIONS,
    POLICY_QUESTIONS,
    Intent,
    PolicyQuestion,
    label,
    may_send,
    policy_answer,
)
from desk.decisions.pools import Split
from desk.policy import FULL_REFUND_DAYS, HALF_REFUND_DAYS

About = Literal["request", "case"]
Answer = bool | str | int | None
PlainQuestion = dict[str, object]

CANONICAL_SHARE: Mapping[Split, float] = {"train": 0.65, "calibration": 0.5, "test": 0.5}
NEGATED_SHARE = 0.3
DENIED_SHARE = 0.08
FEWER_OPTIONS_SHARE = 0.7
READING_BESIDE_A_CASE = 0.15
NAMELESS_LEFT_OUT = 0.9
"""Most requests are no transfers: asked of them as often as of others, the question who is named would be learned as
"is it a transfer?"."""
_ABOUT: Mapping[PolicyQuestion, frozenset[Intent]] = {
    "P1": frozenset({"register"}),
    "P2": frozenset({"cancel", "refund_amount"}),
    "P3": frozenset({"transfer"}),
    "P4": frozenset({"catering"}),
    "P5": frozenset({"cancel", "refund_amount"}),
}
_WANTS: Mapping[str, frozenset[Intent]] = {
    "wants_register": frozenset({"register"}),
    "wants_cancel": frozenset({"cancel"}),
    "wants_transfer": frozenset({"transfer"}),
    "wants_site": frozenset({"catering"}),
    "wants_amount": frozenset({"refund_amount"}),
    "wants_days": frozenset({"days_to_event", "days_to_close"}),
    "wants_rules": frozenset({"ask_policy"}),
    "wants_details": frozenset({"ask_event"}),
}
WEIGHTS: Mapping[str, float] = {
    "intent": 5.0,
    "route": 1.6,
    "guard": 1.6,
    "outside_rules": 5.0,
    "exception": 0.5,
    "override": 0.5,
    "policy_change": 0.4,
    "other_email": 1.6,
    "names_person": 6.0,
    "asks_person": 3.5,
    "wants_action": 0.3,
    "two_requests": 0.15,
    "bending": 0.4,
    "refund_share": 0.6,
    "time_left": 0.6,
    **dict.fromkeys(POLICY_QUESTIONS, 1.3),
    **dict.fromkeys(_WANTS, 0.12),
}
"""How readily each question is picked before its answers are evened out."""
ABOUT_THE_CASE: frozenset[str] = frozenset(
    {"route", "guard", "other_email", "refund_share", "time_left", *POLICY_QUESTIONS}
)
"""The questions that need the records; all others are about the request alone."""


@cache
def question_bank() -> Mapping[str, Mapping[str, Mapping[str, object]]]:
    """Give the wordings of all questions: ``nouls``, ``choices``, ``scores``, and ``denials`` of yes/no questions."""
    bank: Mapping[str, Mapping[str, Mapping[str, object]]] = json.loads(
        (Path(__file__).parent / "questions.json").read_text(encoding="utf-8")
    )
    return bank


def canonical(question: str) -> PlainQuestion:
    """Give the one wording of a question that the router asks, in plain form.

    Raises:
        KeyError: there is no question of that name.
    """
    bank = question_bank()
    if question in bank["nouls"]:
        return {"type": "noul", "instructions": bank["nouls"][question]["canonical"]}
    if question in bank["scores"]:
        instructions, levels = (
            _texts(bank["scores"][question], "instructions"),
            _texts(bank["scores"][question], "levels"),
        )
        return {"type": "score", "instructions": instructions["canonical"], "criteria": levels["canonical"]}
    choice = bank["choices"][question]
    instructions, criteria = choice["instructions"], choice["criteria"]
    assert isinstance(instructions, dict)
    assert isinstance(criteria, dict)
    options = {option: texts["canonical"] for option, texts in criteria.items()}
    return {"type": "choice", "instructions": instructions["canonical"], "criteria": options}


def truths(sample: Sample) -> dict[str, Answer]:
    """Give the true answer to every question this case lends itself to; questions open to argument are left out."""
    reading, plan = sample.reading, sample.plan
    unrelated = plan.core == "other"
    verdict = label(sample.facts, reading)
    known: dict[str, Answer] = {
        "route": None if unrelated and verdict.rule == "gap" else verdict.route,
        "guard": may_send(sample.facts, reading),
        "outside_rules": reading.exception or reading.override or reading.policy_change,
        "other_email": reading.other_email,
    }
    known.update(_bending(sample))
    if not (reading.exception or reading.override):
        known["asks_person"] = reading.asks_person
    if reading.intent == "transfer":
        known["names_person"] = reading.names_person
    elif not unrelated and reading.intent != "other":
        known["names_person"] = False
    known.update(_wishes(sample))
    known.update(_rules(sample))
    known.update(_levels(sample))
    return known


def _levels(sample: Sample) -> dict[str, Answer]:
    """Answer the questions with a scale; levels count from 0."""
    found, reading = sample.facts, sample.reading
    known: dict[str, Answer] = {}
    if not reading.policy_change and not (reading.exception and reading.override):
        known["bending"] = 2 if reading.override else int(reading.exception)
    known["refund_share"] = None if found.refund_percent is None else (0, 50, 100).index(found.refund_percent)
    if found.days_before is not None:
        known["time_left"] = (found.days_before >= HALF_REFUND_DAYS) + (found.days_before >= FULL_REFUND_DAYS)
    return known


def _bending(sample: Sample) -> dict[str, Answer]:
    """Answer the three ways around a rule; with one of them present the other two could be argued over."""
    reading = sample.reading
    ways: dict[str, Answer] = {
        "exception": reading.exception,
        "override": reading.override,
        "policy_change": reading.policy_change,
    }
    present = any(ways.values())
    return {way: value for way, value in ways.items() if value or not present}


def _wishes(sample: Sample) -> dict[str, Answer]:
    reading, plan = sample.reading, sample.plan
    known: dict[str, Answer] = {}
    if reading.exception or reading.policy_change:
        return known
    known["intent"] = reading.intent
    for question, intents in _WANTS.items():
        information = question in ("wants_rules", "wants_details", "wants_days", "wants_amount")
        if not (information and (plan.second or reading.override or reading.asks_person)):
            known[question] = reading.intent in intents
    flagged = bool(plan.flags) or "email_own" in plan.harmless
    if not flagged and (reading.intent in ACTIONS or reading.intent in CALCULATIONS | {"ask_policy", "ask_event"}):
        known["wants_action"] = reading.intent in ACTIONS
        if "quoted_policy" not in plan.harmless:
            known["two_requests"] = plan.second is not None
    return known


def _rules(sample: Sample) -> dict[str, Answer]:
    reading = sample.reading
    known: dict[str, Answer] = {}
    for question in POLICY_QUESTIONS:
        if reading.intent in _ABOUT[question]:
            known[question] = policy_answer(question, sample.facts, reading.names_person)
        elif reading.intent == "other" and sample.plan.core == "other":
            known[question] = None
    return known


class Asker:
    """Picks questions for case after case so that both answers to every question come up about equally often."""

    def __init__(self, rng: Random, split: Split) -> None:
        self.rng = rng
        self.split: Split = split
        self.counts: Counter[tuple[str, Answer]] = Counter()

    def ask(self, sample: Sample, about: About) -> tuple[dict[str, PlainQuestion], dict[str, Answer]]:
        """Give two to five questions about a case (fewer where it lends itself to fewer) and their answers."""
        known = {name: answer for name, answer in truths(sample).items() if self._fits(name, about, sample)}
        questions: dict[str, PlainQuestion] = {}
        answers: dict[str, Answer] = {}
        for name in self._pick(known, self.rng.randrange(*((3, 6) if about == "request" else (2, 4)))):
            self.counts[name, known[name]] += 1
            questions[name], answers[name] = self.word(name, known[name])
        return questions, answers

    def _fits(self, name: str, about: About, sample: Sample) -> bool:
        if name == "names_person" and sample.plan.intent != "transfer" and self.rng.random() < NAMELESS_LEFT_OUT:
            return False
        if name in ABOUT_THE_CASE:
            return about == "case"
        return about == "request" or self.rng.random() < READING_BESIDE_A_CASE

    def _pick(self, known: Mapping[str, Answer], count: int) -> list[str]:
        keyed = [(self.rng.random() ** (1 / self._weight(name, answer)), name) for name, answer in known.items()]
        return [name for _, name in sorted(keyed, reverse=True)[:count]]

    def _weight(self, name: str, answer: Answer) -> float:
        if answer is None:
            return WEIGHTS[name] * 0.25
        if not isinstance(answer, bool):
            options = len(_options(canonical(name)))
            asked = sum(number for (question, _), number in self.counts.items() if question == name)
            return WEIGHTS[name] * min(3.0, max(0.1, ((asked / options + 5) / (self.counts[name, answer] + 5)) ** 3))
        this, that = self.counts[name, answer], self.counts[name, not answer]
        return WEIGHTS[name] * min(4.0, max(0.05, ((that + 5) / (this + 5)) ** 4))

    def word(self, name: str, answer: Answer) -> tuple[PlainQuestion, Answer]:
        """Put one question into words of this split; a negated wording flips a yes/no answer."""
        if self.split == "train" and name == "intent" and self.rng.random() < FEWER_OPTIONS_SHARE:
            plain = canonical(name) if self.rng.random() < CANONICAL_SHARE[self.split] else self._choice(name)
            return self._shuffled(self.fewer(plain, answer)), answer
        if self.rng.random() < CANONICAL_SHARE[self.split]:
            return self._shuffled(canonical(name)), answer
        if name in question_bank()["choices"]:
            return self._choice(name), answer
        if name in question_bank()["scores"]:
            return self._score(name), answer
        wordings = question_bank()["nouls"][name]
        negated = self.rng.random() < NEGATED_SHARE
        chosen = wordings[f"{self.split}_not" if negated else self.split]
        assert isinstance(chosen, list)
        return self.denied({"type": "noul", "instructions": self.rng.choice(chosen)}, _flipped(answer, negated))

    def denied(self, question: PlainQuestion, answer: Answer) -> tuple[PlainQuestion, Answer]:
        """Now and then put a yes/no question into a denial, which flips its answer."""
        if self.rng.random() >= DENIED_SHARE:
            return question, answer
        denial = str(self.rng.choice(_texts(question_bank()["denials"], self.split)))
        return {**question, "instructions": denial.format(question=question["instructions"])}, _flipped(answer, True)

    def fewer(self, question: PlainQuestion, answer: Answer) -> PlainQuestion:
        """Leave out some wrong options of a Choice, so that the same options are not always asked together."""
        criteria = question["criteria"]
        assert isinstance(criteria, dict)
        kept = self.rng.sample(list(criteria), self.rng.randrange(2, 6))
        return {
            **question,
            "criteria": {name: text for name, text in criteria.items() if name in kept or name == answer},
        }

    def _score(self, name: str) -> PlainQuestion:
        score = question_bank()["scores"][name]
        instructions, levels = _texts(score, "instructions")[self.split], _texts(score, "levels")[self.split]
        return {
            "type": "score",
            "instructions": self.rng.choice(instructions),
            "criteria": self.rng.choice(levels),
        }

    def _choice(self, name: str) -> PlainQuestion:
        choice = question_bank()["choices"][name]
        instructions, criteria = choice["instructions"], choice["criteria"]
        assert isinstance(instructions, dict)
        assert isinstance(criteria, dict)
        options = {option: self.rng.choice(texts[self.split]) for option, texts in criteria.items()}
        return self._shuffled(
            {"type": "choice", "instructions": self.rng.choice(instructions[self.split]), "criteria": options}
        )

    def _shuffled(self, question: PlainQuestion) -> PlainQuestion:
        criteria = question.get("criteria")
        if not isinstance(criteria, dict):
            return question
        options = list(criteria.items())
        self.rng.shuffle(options)
        return {**question, "criteria": dict(options)}


def _flipped(answer: Answer, negated: bool) -> Answer:
    return not answer if negated and isinstance(answer, bool) else answer


def _options(question: PlainQuestion) -> Sequence[object]:
    criteria = question["criteria"]
    assert isinstance(criteria, dict | list)
    return list(criteria)


def _texts(entry: Mapping[str, object], key: str) -> Any:
    """Give one field of the question bank, which is JSON and has no closer type."""
    return entry[key]
