"""Asks the decision model the desk's two questions: what comes next, and may this mail go out without a person?

Each is one pass: over the text of the request, and, for a mail, over the rendered case as well. The model never sees
retrieved pages or the language model's reasons, so text in them cannot move its answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from desk.errors import DeskError
from desk.policy import Case, Route, facts

if TYPE_CHECKING:
    from decider import Answers, DecisionModel


class UnreadError(DeskError):
    """The decision model did not read the whole request; what it says cannot be relied on."""

    def __init__(self, tokens: int) -> None:
        super().__init__(f"the request is too long to be read in full, {tokens} tokens of it were left out")
        self.tokens = tokens


@dataclass(frozen=True, slots=True)
class Source:
    """Who gave a probability: the model's name, what computed it, and how scores became probabilities."""

    model: str
    provider: str
    calibration: str

    def as_dict(self) -> dict[str, str]:
        """Give the source as plain data."""
        return {"model": self.model, "provider": self.provider, "calibration": self.calibration}


@dataclass(frozen=True, slots=True)
class RouteJudgement:
    """The next step with the probabilities of all five, and the likeliest intent that leads to it."""

    route: Route
    p_route: float
    distribution: dict[str, float]
    intent: str
    source: Source


@dataclass(frozen=True, slots=True)
class MailJudgement:
    """The probability that the pending mail may be sent without a person agreeing first."""

    p_allow: float
    source: Source


def judge_route(model: DecisionModel, case: Case) -> RouteJudgement:
    """Ask what comes next, in one pass.

    Raises:
        UnreadError: part of the request was cut off.
        RoutingError, DeciderError: the answers do not fit or could not be given.
    """
    from desk.routing import best_route, requests, route_distribution, together

    answers = together(model.decide_many(requests(case, {})))
    _check_read(answers)
    distribution = route_distribution(case, answers)
    route = best_route(distribution)
    return RouteJudgement(
        route=route,
        p_route=distribution[route],
        distribution={str(name): p for name, p in distribution.items()},
        intent=_likeliest_intent(case, route, answers),
        source=source_of(answers),
    )


def judge_mail(model: DecisionModel, case: Case, arguments: Mapping[str, object]) -> MailJudgement:
    """Ask whether the mail with these arguments may go out without a person, in one pass.

    Raises:
        UnreadError: part of the request was cut off.
        RoutingError, DeciderError: the answers do not fit or could not be given.
    """
    from desk.routing import GUARD, allow_probability, requests, together

    answers = together(model.decide_many(requests(case, {"guard": GUARD})))
    _check_read(answers)
    return MailJudgement(allow_probability(case, arguments, answers), source_of(answers))


def source_of(answers: Answers) -> Source:
    """Give the provenance of answers."""
    temperatures = ", ".join(f"{kind} {value:g}" for kind, value in sorted(answers.calibration.temperatures.items()))
    name = answers.calibration.name
    return Source(answers.model, answers.provider, f"{name} ({temperatures})" if temperatures else name)


def _check_read(answers: Answers) -> None:
    if answers.truncated:
        raise UnreadError(answers.truncated)


def _likeliest_intent(case: Case, route: Route, answers: Answers) -> str:
    from desk.decisions.label import label
    from desk.routing import readings

    found = facts(case)
    total: dict[str, float] = {}
    for reading, probability in readings(found, answers):
        if label(found, reading).route == route:
            total[reading.intent] = total.get(reading.intent, 0.0) + probability
    return max(total, key=lambda intent: total[intent], default="other")
