"""A decision model for tests and examples that answers with prepared probabilities and says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from decider import Answer, Answers, Calibration, ChoiceAnswer, NoulAnswer, QuestionLike, Request
from desk.decisions.label import INTENTS
from desk.routing import FLAGS

SCRIPTED_NAME: Final = "scripted decisions (test double)"


class ScriptedDecider:
    """Answers every pass with the same reading of the request.

    ``intent`` maps intents to probabilities, for the question what comes next; when a mail is judged, the likeliest
    of them is certain, so that the answer to the guard's question, ``allow``, is the probability that comes out.
    ``flags`` are the probabilities of the yes/no questions about the request. ``passes`` counts by kind.
    """

    def __init__(
        self, intent: Mapping[str, float], allow: float = 1.0, flags: Mapping[str, float] | None = None
    ) -> None:
        self.intent: dict[str, float] = {name: intent.get(name, 0.0) for name in INTENTS}
        self.allow = allow
        self.flags = {name: (flags or {}).get(name, 0.0) for name in FLAGS}
        self.passes = {"route": 0, "mail": 0}

    def decide(self, state: object, questions: Mapping[str, QuestionLike]) -> Answers:
        """Give the prepared answers to the questions asked."""
        return self.decide_many([(state, questions)])[0]

    def decide_many(self, requests: Sequence[Request]) -> list[Answers]:
        """Give the prepared answers to the questions asked, in one pass."""
        judges_mail = any("guard" in questions for _, questions in requests)
        self.passes["mail" if judges_mail else "route"] += 1
        likeliest = max(self.intent, key=lambda name: self.intent[name])
        intent = {name: float(name == likeliest) for name in self.intent} if judges_mail else self.intent
        known: dict[str, Answer] = {name: NoulAnswer(p) for name, p in self.flags.items()}
        known |= {"intent": ChoiceAnswer(likeliest, intent), "guard": NoulAnswer(self.allow)}
        return [
            Answers({name: known[name] for name in asked}, SCRIPTED_NAME, "none", calibration=Calibration())
            for _, asked in requests
        ]
