"""Composes one request with the records around it, knowing from the plan, never from the text, what it asks.

plan (which parts, what they mean) -> situation (records) -> text (parts in some order, slots filled) -> Sample
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from desk.decisions.draw import Person, Situation, draw_other_person, draw_situation, slot_lists
from desk.decisions.label import ACTIONS, Intent, Reading
from desk.decisions.pools import EVENT_SLOTS, Pools, Split
from desk.decisions.surface import blur, join_parts, write_date
from desk.policy import Case, Facts, facts

CORES: Mapping[str, tuple[Intent, float]] = {
    "register": ("register", 13),
    "cancel": ("cancel", 9),
    "cancel_refund": ("cancel", 5),
    "transfer_named": ("transfer", 8),
    "transfer_unnamed": ("transfer", 8),
    "catering": ("catering", 8),
    "room_parking": ("catering", 4),
    "refund_amount": ("refund_amount", 10),
    "days_to_event": ("days_to_event", 6),
    "days_to_close": ("days_to_close", 6),
    "ask_policy": ("ask_policy", 11),
    "ask_event": ("ask_event", 9),
    "exception": ("other", 2),
    "override": ("other", 1.5),
    "policy_change": ("other", 3),
    "asks_person": ("other", 2),
    "other": ("other", 6),
}
"""The part that carries the main wish, what it wants, and how often it is drawn."""
_FLAGS: Mapping[str, float] = {
    "exception": 0.27,
    "override": 0.27,
    "policy_change": 0.1,
    "email_other": 0.24,
    "asks_person": 0.12,
}
FLAGS: Mapping[Split, Mapping[str, float]] = {
    "train": {"exception": 0.3, "override": 0.22, "policy_change": 0.1, "email_other": 0.14, "asks_person": 0.24},
    "calibration": _FLAGS,
    "test": _FLAGS,
}
"""The wishes that call for a person, and how often each is drawn; in training the ones that are hard to read more."""
FLAG_CHANCE: Mapping[Split, float] = {"train": 0.5, "calibration": 0.36, "test": 0.36}
HARMLESS: Mapping[str, float] = {
    "false_alarm": 0.24,
    "distractor": 0.22,
    "pressure": 0.14,
    "quoted_policy": 0.09,
    "claim_date": 0.07,
    "email_own": 0.1,
}
_SECOND_FLAG_CHANCE, _SECOND_QUESTION_CHANCE = 0.07, 0.12


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request will hold, before any word of it is chosen.

    ``second`` is a further question asked beside the core; ``flags`` are wishes that call for a person; ``harmless``
    are sentences that change nothing.
    """

    core: str
    intent: Intent
    flags: tuple[str, ...]
    harmless: tuple[str, ...]
    second: str | None
    contact: bool

    @property
    def reading(self) -> Reading:
        """Give what a careful person would read in the request."""
        present = {self.core, *self.flags}
        return Reading(
            intent=self.intent,
            exception="exception" in present,
            override="override" in present,
            policy_change="policy_change" in present,
            other_email="email_other" in present,
            names_person=self.core == "transfer_named",
            asks_person="asks_person" in present,
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """A composed case with its plan and its computed facts."""

    case: Case
    facts: Facts
    plan: Plan

    @property
    def reading(self) -> Reading:
        """Give what a careful person would read in the request."""
        return self.plan.reading


def compose(rng: Random, pools: Pools, split: Split) -> Sample:
    """Draw one case of a split."""
    core = rng.choices(tuple(CORES), tuple(weight for _, weight in CORES.values()))[0]
    situation = draw_situation(rng, split, CORES[core][0])
    plan = draw_plan(rng, split, core, situation)
    writer = Writer(rng, pools.parts[split], split, situation)
    request = writer.request(plan)
    registration = situation.registration
    case = Case(situation.today, situation.event, registration, request)
    return Sample(case, facts(case), plan)


def draw_plan(rng: Random, split: Split, core: str, situation: Situation) -> Plan:
    """Draw what stands beside the core; a foreign or own address needs something on file to differ from or to equal."""
    intent = CORES[core][0]
    known = situation.registration is not None
    contact = rng.random() < (0.08 if known else 0.62 if intent == "register" else 0.4)
    alone = intent == "other"
    flags: list[str] = []
    if rng.random() < (FLAG_CHANCE[split] if not alone else 0.12):
        flags.append(rng.choices(tuple(FLAGS[split]), tuple(FLAGS[split].values()))[0])
        if rng.random() < _SECOND_FLAG_CHANCE:
            flags.append(rng.choice(tuple(FLAGS[split])))
    if not (known or contact):
        flags = [flag for flag in flags if flag != "email_other"]
    harmless = [part for part, chance in HARMLESS.items() if rng.random() < (chance * 0.5 if alone else chance)]
    if "email_other" in flags or not (known or contact):
        harmless = [part for part in harmless if part != "email_own"]
    if intent in ("cancel", "refund_amount", "ask_policy") and rng.random() < 0.25:
        harmless.append("claim_paid")
    second = None if alone else _second(rng, intent)
    if second in ("refund_amount", "days_to_event", "days_to_close") and intent in ("ask_policy", "ask_event"):
        intent = CORES[second][0]
    return Plan(core, intent, tuple(dict.fromkeys(flags)), tuple(harmless), second, contact)


def _second(rng: Random, intent: Intent) -> str | None:
    if rng.random() >= _SECOND_QUESTION_CHANCE:
        return None
    others = ["days_to_event", "ask_event", "ask_policy"]
    if intent not in ACTIONS:
        others += ["refund_amount", "days_to_close"]
    return "second_question" if rng.random() < 0.6 else rng.choice([each for each in others if each != intent])


class Writer:
    """Puts a plan into words: picks wordings, fills slots, orders the parts."""

    def __init__(self, rng: Random, parts: Mapping[str, tuple[str, ...]], split: Split, situation: Situation) -> None:
        self.rng, self.parts, self.situation = rng, parts, situation
        self.split: Split = split
        self.new_person: Person = draw_other_person(rng, split, "own_domains", situation.writer)

    def request(self, plan: Plan) -> str:
        """Write the whole request."""
        rng = self.rng
        front, back = self._around()
        middle = [*plan.flags, *plan.harmless, *([plan.second] if plan.second else [])]
        middle += ["contact"] if plan.contact else []
        rng.shuffle(middle)
        place = 0 if rng.random() < 0.6 else rng.randrange(len(middle) + 1)
        order = [*front, *middle[:place], plan.core, *middle[place:], *back]
        text = join_parts(rng, [self.wording(part) for part in order])
        names = tuple(self.situation.writer.name.split() + self.new_person.name.split())
        return blur(rng, text, typos=0.16 if self.split == "train" else 0.05, protected=names)

    def _around(self) -> tuple[list[str], list[str]]:
        front = self.rng.choices(([], ["opening_plain"], ["opening_name"]), (0.45, 0.3, 0.25))[0]
        back = self.rng.choices(([], ["closing_plain"], ["closing_name"]), (0.4, 0.35, 0.25))[0]
        return list(front), list(back)

    def wording(self, part: str) -> str:
        """Pick a wording of a part and fill its slots."""
        wording = self.rng.choice(self.parts[part])
        return re.sub(r"\{(\w+)\}", lambda match: self._fill(match.group(1)), wording)

    def _fill(self, slot: str) -> str:
        rng, situation = self.rng, self.situation
        if slot in EVENT_SLOTS:
            return self._fill_event(slot)
        match slot:
            case "name":
                return situation.writer.name if rng.random() < 0.85 else situation.writer.first_name
            case "new_name":
                return self._new_name()
            case "email":
                return _spell(rng, situation.writer.email)
            case "other_email":
                domains = "foreign_domains" if rng.random() < 0.6 else "own_domains"
                return draw_other_person(rng, self.split, domains, situation.writer).email
            case "amount":
                return str(rng.choice((45, 120, 250, 300, 410, 480, 500, 501, 650, 700, 900, 1200)))
            case "date":
                return write_date(rng, situation.event.start_date + timedelta(days=rng.randrange(-12, 13)))
            case "number":
                return str(rng.choice((2, 3, 4, 5, 7, 12, 14, 40, 217, 500, 3381, 90210)))
            case "time":
                return rng.choice(slot_lists()["times"])
            case "phone":
                return f"+{rng.randrange(30, 60)} 555 01{rng.randrange(10, 100)}"
            case _:
                raise KeyError(f"no rule fills the slot {slot!r}; add one to Writer._fill")

    def _fill_event(self, slot: str) -> str:
        event = self.situation.event
        if slot == "event":
            template = self.rng.choice(slot_lists()["events_remote" if event.remote else "events_on_site"])
            return template.format(topic=event.topic, city=event.city)
        return event.topic if slot == "topic" else event.city

    def _new_name(self) -> str:
        drawn = self.rng.random()
        if drawn < 0.1:
            return f"{self.new_person.name} ({self.new_person.email})"
        if drawn < 0.2:
            return self.new_person.first_name
        return self.new_person.name


def _spell(rng: Random, address: str) -> str:
    local, _, domain = address.partition("@")
    return f"{local}@{domain.title()}" if rng.random() < 0.04 else address
