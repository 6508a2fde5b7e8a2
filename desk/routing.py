"""Chooses the next step: a model reads the request, code applies the policy to what it read.

The model reads the request alone, no record can sway it: what the person wants (a Choice) and, one yes/no question
each, what would call for a person or is missing. Every combination of these answers is a ``Reading``; the policy in
code gives it a route, and

    p(route) = P(answerable) * sum over the readings with that route of the product of the answers' probabilities

The answers are taken as independent. What code knows is certain: days, seats, refunds, whether a record exists, and
whether an address in the request is not the record's. What the model says it cannot read, 1 - P(answerable) of the
question what is wanted, goes to a person. A flag is rarer in real requests than in training, so its probability is
corrected for the shipped model (``desk.flags``). ``direct_distribution`` is the rival: one Choice over the routes,
asked in the same pass about the whole case.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from decider import Answer, Answers, Choice, ChoiceAnswer, Noul, NoulAnswer, Question, Request
from desk.decisions.ask import canonical
from desk.decisions.label import INTENTS, PolicyQuestion, Reading, label, policy_answer
from desk.flags import corrections_for
from desk.policy import ROUTES, Case, Facts, Route, facts, render, same_address

FLAGS = ("outside_rules", "names_person", "asks_person")


class RoutingError(ValueError):
    """The answers cannot be composed. ``question`` is the id at fault, ``problem`` what is wrong with its answer."""

    def __init__(self, question: str, problem: str) -> None:
        super().__init__(f"cannot route with the answer to {question!r}: {problem}; ask all of desk.routing.QUESTIONS")
        self.question = question
        self.problem = problem


def noul(question: str) -> Noul:
    """Give a yes/no question of the desk in its canonical wording."""
    return Noul(str(canonical(question)["instructions"]))


def choice(question: str) -> Choice:
    """Give a choice question of the desk in its canonical wording."""
    plain = canonical(question)
    criteria = plain["criteria"]
    assert isinstance(criteria, dict)
    return Choice(criteria, str(plain["instructions"]))


GUARD: Noul = noul("guard")
"""May the assistant do what is asked and send the pending mail without a person?"""
READING_QUESTIONS: dict[str, Question] = {"intent": choice("intent"), **{flag: noul(flag) for flag in FLAGS}}
"""What is asked about the text of a request."""
CASE_QUESTIONS: dict[str, Question] = {"route": choice("route"), "guard": GUARD}
"""Second opinions, asked about the whole rendered case."""


def requests(case: Case, about_case: Mapping[str, Question]) -> list[Request]:
    """Give what to ask a decision model about a case, in one pass; ``together`` takes its answers."""
    asked: list[Request] = [(case.request, READING_QUESTIONS)]
    return [*asked, (render(case, facts(case)), about_case)] if about_case else asked


def together(answers: Sequence[Answers]) -> Answers:
    """Join the answers to the requests about one case; ``truncated`` is the largest of them."""
    joined = {name: answer for each in answers for name, answer in each.items()}
    return replace(answers[0], answers=joined, truncated=max(each.truncated for each in answers))


def route_distribution(case: Case, answers: Mapping[str, Answer]) -> dict[Route, float]:
    """Give the probability of each next step, composed from what the model read and what code knows.

    Raises:
        RoutingError: an answer is missing, of the wrong kind, or no probability.
    """
    found = facts(case)
    total: dict[Route, float] = dict.fromkeys(ROUTES, 0.0)
    answerable = _answerable(answers)
    for reading, probability in readings(found, answers):
        total[label(found, reading).route] += answerable * probability
    total["escalate"] += 1.0 - answerable
    return total


def direct_distribution(answers: Mapping[str, Answer]) -> dict[Route, float]:
    """Give the probability of each next step as the model itself chose among the five.

    Raises:
        RoutingError: the answer to ``route`` is missing or its probabilities do not fit.
    """
    probabilities = _probabilities(answers, "route", ROUTES)
    return {route: probabilities[route] for route in ROUTES}


def best_route(distribution: Mapping[Route, float]) -> Route:
    """Give the most probable next step; of equals the one that leaves more to people."""
    cautious: tuple[Route, ...] = ("escalate", "ask_user", "retrieve", "calculate", "send_email")
    return max(cautious, key=lambda route: distribution[route])


def readings(found: Facts, answers: Mapping[str, Answer]) -> Iterator[tuple[Reading, float]]:
    """Give every reading of the request with its probability; they sum to 1.

    The three ways around a rule (an exception, an override, a change of the rules) lead to the same step, so they are
    asked as one question and stand as one: ``exception`` is true where any is. A request that names an address off the
    record counts as asking for mail there.
    """
    intents = _probabilities(answers, "intent", INTENTS)
    corrected = corrections_for(answers)
    flags = {
        "exception": corrected("outside_rules", _yes(answers, "outside_rules")),
        "other_email": 1.0 if found.other_address else 0.0,
        "names_person": corrected("names_person", _yes(answers, "names_person")),
        "asks_person": corrected("asks_person", _yes(answers, "asks_person")),
    }
    for intent in INTENTS:
        for values in itertools.product((False, True), repeat=len(flags)):
            weights = (p if value else 1.0 - p for value, p in zip(values, flags.values(), strict=True))
            probability = intents[intent] * math.prod(weights)
            if probability > 0.0:
                yield Reading(intent, **dict(zip(flags, values, strict=True))), probability


def policy_probability(question: PolicyQuestion, case: Case, answers: Mapping[str, Answer]) -> float:
    """Give P(yes) for a question about one rule, taking the request to be of the kind the question is about.

    P1, P2, P4 and P5 follow from the records alone and are 0 or 1; P3 rests on one thing the model read, whether
    the new person is named.
    """
    found = facts(case)
    if not policy_answer(question, found, names_person=True):
        return 0.0
    if policy_answer(question, found, names_person=False):
        return 1.0
    return corrections_for(answers)("names_person", _yes(answers, "names_person"))


def allow_probability(case: Case, pending_email: Mapping[str, object], answers: Mapping[str, Answer]) -> float:
    """Give P(the pending mail may be sent without a person), for ``{"to": address, ...}``.

    0 where ``to`` is not exactly the address on record (P6, in code). Otherwise the smaller of two opinions: the
    composed probability that a permitted, complete action is asked, and the model's own answer to ``GUARD``.

    Raises:
        RoutingError: an answer is missing, of the wrong kind, or no probability.
    """
    if not same_address(pending_email.get("to"), facts(case).record_address):
        return 0.0
    return min(route_distribution(case, answers)["send_email"], _yes(answers, "guard"))


def _answerable(answers: Mapping[str, Answer]) -> float:
    """Give P(the request says what is wanted); 1 for a model that does not tell."""
    answer = answers.get("intent")
    answerable = None if answer is None else answer.answerable
    if answerable is None:
        return 1.0
    if not 0.0 <= answerable <= 1.0:
        raise RoutingError("intent", f"answerable {answerable!r} is no probability")
    return answerable


def _yes(answers: Mapping[str, Answer], question: str) -> float:
    answer = answers.get(question)
    if not isinstance(answer, NoulAnswer):
        raise RoutingError(question, "there is no yes/no answer")
    if not 0.0 <= answer.noul <= 1.0:
        raise RoutingError(question, f"{answer.noul!r} is no probability")
    return answer.noul


def _probabilities(answers: Mapping[str, Answer], question: str, options: tuple[str, ...]) -> Mapping[str, float]:
    answer = answers.get(question)
    if not isinstance(answer, ChoiceAnswer):
        raise RoutingError(question, "there is no choice")
    given = answer.probabilities
    if set(given) != set(options):
        raise RoutingError(question, f"the options {sorted(given)} are not {sorted(options)}")
    if not all(0.0 <= p <= 1.0 for p in given.values()) or abs(sum(given.values()) - 1.0) > 0.03:
        raise RoutingError(question, f"{dict(given)} are no probabilities that sum to 1")
    total = sum(given.values())
    return {option: p / total for option, p in given.items()}
