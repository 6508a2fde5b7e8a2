"""From what a person wants and what the records say to the right next step: the one place where labels come from.

A ``Reading`` is everything that language alone can tell about a request. Together with ``Facts`` it fixes the route;
the text of the request plays no further part. The generator labels its cases with these functions, and the router runs
the same functions over a model's uncertain reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from desk.policy import Facts, Route

Intent = Literal[
    "register",
    "cancel",
    "transfer",
    "catering",
    "refund_amount",
    "days_to_event",
    "days_to_close",
    "ask_policy",
    "ask_event",
    "other",
]
INTENTS: tuple[Intent, ...] = (
    "register",
    "cancel",
    "transfer",
    "catering",
    "refund_amount",
    "days_to_event",
    "days_to_close",
    "ask_policy",
    "ask_event",
    "other",
)
ACTIONS: frozenset[Intent] = frozenset({"register", "cancel", "transfer", "catering"})
CALCULATIONS: frozenset[Intent] = frozenset({"refund_amount", "days_to_event", "days_to_close"})
ABOUT_OWN_PLACE: frozenset[Intent] = frozenset({"cancel", "transfer", "catering", "refund_amount"})

PolicyQuestion = Literal["P1", "P2", "P3", "P4", "P5"]
POLICY_QUESTIONS: tuple[PolicyQuestion, ...] = ("P1", "P2", "P3", "P4", "P5")
Rule = Literal["R1", "R2", "R3", "R4", "R5", "gap"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a request says, read by a person or a model.

    ``intent`` is the thing wanted; an action outranks a question in the same request. ``catering`` covers food, rooms
    and parking. ``other_email``: mail is wanted at an address that is not the record's. ``names_person``: the person
    who shall take the place over is named. ``asks_person``: a human is asked for.
    """

    intent: Intent
    exception: bool = False
    override: bool = False
    policy_change: bool = False
    other_email: bool = False
    names_person: bool = False
    asks_person: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The next step with the step of the list that chose it (``gap`` where the policy settles nothing)."""

    route: Route
    rule: Rule


def label(facts: Facts, reading: Reading) -> Verdict:
    """Choose the next step: the first that fits of escalate, ask_user, calculate, retrieve, send_email.

    Where none fits, the policy has a gap (late registration, waitlisted cancellation, food at a remote event, a request
    that is none of the desk's business) and a person decides: ``escalate`` with the rule ``gap``.
    """
    if _needs_person(facts, reading):
        return Verdict("escalate", "R1")
    if _lacks_information(facts, reading):
        return Verdict("ask_user", "R2")
    if reading.intent in CALCULATIONS:
        return Verdict("calculate", "R3")
    if reading.intent in ("ask_policy", "ask_event"):
        return Verdict("retrieve", "R4")
    if _is_permitted(facts, reading):
        return Verdict("send_email", "R5")
    return Verdict("escalate", "gap")


def _needs_person(facts: Facts, reading: Reading) -> bool:
    asked = reading.exception or reading.override or reading.policy_change or reading.other_email or reading.asks_person
    return asked or (reading.intent == "cancel" and facts.refund_needs_person)


def _lacks_information(facts: Facts, reading: Reading) -> bool:
    unknown_person = not facts.record_found and not facts.address_given
    if facts.days_before is None:
        return reading.intent not in ("ask_policy", "other")
    if reading.intent == "register" or reading.intent in ABOUT_OWN_PLACE:
        return unknown_person or (reading.intent == "transfer" and not reading.names_person)
    return False


def _is_permitted(facts: Facts, reading: Reading) -> bool:
    match reading.intent:
        case "register":
            return facts.registration_open is True
        case "cancel":
            return facts.confirmed
        case "transfer":
            return facts.confirmed and facts.transfer_open is True
        case "catering":
            return facts.record_found and facts.takes_site_requests is True
        case _:
            return False


def policy_answer(question: PolicyQuestion, facts: Facts, names_person: bool) -> bool:
    """Answer a yes/no question about one rule; only P3 needs something read from the request, the new person's name.

    P1: is the registration accepted (a waitlist place is not)? P2: is the full amount due? P3: may the place be passed
    on? P4: can the food, room or parking wish be met? P5: can the refund be paid without a person? Without a record
    there is nothing to refund, to pass on or to change, so P2, P3 and P5 are answered no (P8).
    """
    match question:
        case "P1":
            return facts.registration_open is True and facts.full is False
        case "P2":
            return facts.refund_percent == 100
        case "P3":
            return facts.confirmed and facts.transfer_open is True and names_person
        case "P4":
            return facts.takes_site_requests is True
        case "P5":
            return facts.refund_due is not None and not facts.refund_needs_person


def may_send(facts: Facts, reading: Reading) -> bool:
    """Tell whether the desk may carry the request out and confirm it by mail without a person agreeing first."""
    return label(facts, reading).route == "send_email"
