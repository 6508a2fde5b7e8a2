"""Draws the facts of a generated case: dates, seats, money, people, with the edges of the rules drawn often."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from random import Random

from desk.decisions.label import Intent
from desk.decisions.pools import Split
from desk.policy import Event, Registration

EDGE_DAYS = (1, 2, 6, 7, 8, 13, 14, 15)
EDGE_PAYMENTS = (500, 501, 499, 1000, 1001, 1002)
_FIRST_DAY = date(2026, 1, 5)


@cache
def slot_lists() -> Mapping[str, tuple[str, ...]]:
    """Give the lists of names, cities, topics and the like that fill the slots."""
    lists = json.loads((Path(__file__).parent / "slots.json").read_text(encoding="utf-8"))
    return {key: tuple(values) for key, values in lists.items()}


def share(key: str, split: Split) -> Sequence[str]:
    """Give the entries of a list that belong to a split: of every five, three to training and one to each other."""
    places = {"train": (0, 2, 4), "calibration": (1,), "test": (3,)}[split]
    return [entry for place, entry in enumerate(slot_lists()[key]) if place % 5 in places]


@dataclass(frozen=True, slots=True)
class Person:
    """A drawn person with an address of their own."""

    name: str
    email: str

    @property
    def first_name(self) -> str:
        """Give the first name alone."""
        return self.name.split()[0]


@dataclass(frozen=True, slots=True)
class Situation:
    """The records around a request: who writes, about what, and what is on file."""

    today: date
    event: Event
    writer: Person
    registration: Registration | None


def draw_situation(rng: Random, split: Split, intent: Intent) -> Situation:
    """Draw the records for a request with this intent."""
    today = _FIRST_DAY + timedelta(days=rng.randrange(700))
    writer = draw_person(rng, split, "own_domains")
    return Situation(today, _event(rng, split, intent, today), writer, _registration(rng, intent, writer))


def draw_person(rng: Random, split: Split, domains: str) -> Person:
    """Draw a name and an address made from it, at one of the domains listed."""
    first, last = rng.choice(share("first_names", split)), rng.choice(share("last_names", split))
    plain_last = last.lower().replace("'", "")
    local = rng.choice(
        [f"{first.lower()}.{plain_last}", f"{first[0].lower()}.{plain_last}", f"{first.lower()}{rng.randrange(2, 99)}"]
    )
    return Person(f"{first} {last}", f"{local}@{rng.choice(slot_lists()[domains])}")


def draw_other_person(rng: Random, split: Split, domains: str, writer: Person) -> Person:
    """Draw a person who shares neither first name nor address with the writer."""
    while True:
        person = draw_person(rng, split, domains)
        if person.first_name != writer.first_name and person.email != writer.email:
            return person


def _event(rng: Random, split: Split, intent: Intent, today: date) -> Event:
    seats = rng.choice((8, 12, 15, 20, 24, 30, 40, 60))
    remote = rng.random() < (0.45 if intent == "catering" else 0.3)
    return Event(
        id=f"E{rng.randrange(1, 40)}",
        topic=rng.choice(share("topics", split)),
        city=rng.choice(share("cities", split)),
        start_date=today + timedelta(days=_days(rng, intent)),
        seats=seats,
        registered=_registered(rng, seats),
        remote=remote,
        fee_eur=rng.choice((90, 150, 240, 300, 380, 450, 500, 620, 800, 1000)),
    )


def _days(rng: Random, intent: Intent) -> int:
    if intent == "register" and rng.random() < 0.6:
        return rng.choice((7, 8, 13, 14, rng.randrange(7, 70)))
    if rng.random() < 0.45:
        return rng.choice(EDGE_DAYS)
    return rng.randrange(0, 60)


def _registered(rng: Random, seats: int) -> int:
    drawn = rng.random()
    if drawn < 0.25:
        return seats
    return seats - 1 if drawn < 0.42 else rng.randrange(0, seats)


def _registration(rng: Random, intent: Intent, writer: Person) -> Registration | None:
    absent = {"register": 0.93, "cancel": 0.2, "transfer": 0.2, "catering": 0.22, "refund_amount": 0.2}
    if rng.random() < absent.get(intent, 0.35):
        return None
    paid = rng.choice(EDGE_PAYMENTS) if rng.random() < 0.3 else rng.choice((0, 90, 150, 240, 301, 380, 450, 620, 800))
    return Registration(writer.name, writer.email, "waitlisted" if rng.random() < 0.08 else "confirmed", paid)
