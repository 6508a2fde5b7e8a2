"""Examples from outside the desk: texts that are something else, and messages in which nothing is asked.

A general file ``{"foreign": [...], "near": [...], "general": [...]}`` beside the pools holds texts of other kinds: what
is no request at all, what asks something like the desk's wishes of somebody else, and texts on any subject with
questions of their own. Every question that is asked about them has the answer None: the state does not hold it. A
model trained on them spreads its probability evenly there and says that it cannot answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from decider.rendering import render
from desk.decisions.ask import Answer, Asker, PlainQuestion
from desk.decisions.compose import Sample, Writer
from desk.decisions.pools import POOLS, PoolError, Split
from desk.decisions.surface import blur, join_parts

KINDS: Mapping[str, float] = {"foreign": 3.0, "near": 3.5, "general": 2.0, "hollow": 1.5}
"""Where a text from outside comes from and how often; ``hollow``: a greeting, small talk, a name, and no wish."""
DESK_QUESTIONS = (
    *("intent", "intent", "intent", "outside_rules", "names_person", "asks_person"),
    *("exception", "override", "policy_change", "wants_action", "two_requests", "bending"),
    *(
        "wants_register",
        "wants_cancel",
        "wants_transfer",
        "wants_site",
        "wants_amount",
        "wants_rules",
        "guard",
        "route",
    ),
)
HOLLOW_QUESTIONS = (
    "intent",
    "intent",
    "wants_register",
    "wants_cancel",
    "wants_transfer",
    "wants_amount",
    "wants_rules",
)
HOLLOW_PARTS = ("opening_name", "opening_plain", "closing_name", "closing_plain", "distractor", "pressure", "contact")


@dataclass(frozen=True, slots=True)
class General:
    """A text on any subject with questions about it, in plain form."""

    text: str
    questions: tuple[PlainQuestion, ...]


@dataclass(frozen=True, slots=True)
class Foreign:
    """The texts from outside of one split."""

    foreign: tuple[str, ...]
    near: tuple[str, ...]
    general: tuple[General, ...]


def load_foreign(split: Split, folder: Path = POOLS) -> Foreign:
    """Read the general file of a split.

    Raises:
        PoolError: the file is missing or a part of it is empty.
    """
    path = folder / f"general_{split}.json"
    if not path.exists():
        raise PoolError(str(folder), f"there is no {path.name}; add it with 'foreign', 'near' and 'general'")
    data = json.loads(path.read_text(encoding="utf-8"))
    for part in ("foreign", "near", "general"):
        if not data.get(part):
            raise PoolError(f"{path.name}, {part}", "there is no entry; add at least one")
    entries = tuple(General(render(each["text"]), _questions(each)) for each in data["general"])
    return Foreign(tuple(data["foreign"]), tuple(data["near"]), entries)


class Stranger:
    """Draws examples from outside, one after the other."""

    def __init__(self, rng: Random, split: Split, texts: Foreign, asker: Asker) -> None:
        self.rng, self.split, self.texts, self.asker = rng, split, texts, asker

    def example(self, writer: Writer) -> dict[str, object]:
        """Give one line of a training file; ``writer`` brings greetings, names and small talk."""
        kind = self.rng.choices(tuple(KINDS), tuple(KINDS.values()))[0]
        if kind == "hollow":
            parts = self.rng.sample(HOLLOW_PARTS, self.rng.randrange(1, 4))
            text = join_parts(self.rng, [writer.wording(part) for part in parts])
            return self._line(text, self._desk_questions(HOLLOW_QUESTIONS, 3))
        if kind == "general":
            entry = self.rng.choice(self.texts.general)
            own = self.rng.sample(entry.questions, min(len(entry.questions), self.rng.randrange(1, 4)))
            questions = {f"own_{number}": self._worded(question) for number, question in enumerate(own)}
            return self._line(entry.text, {**questions, **self._desk_questions(DESK_QUESTIONS, 2)})
        text = self.rng.choice(self.texts.foreign if kind == "foreign" else self.texts.near)
        if kind == "near" and self.rng.random() < 0.5:
            parts = [text, *(writer.wording(part) for part in self.rng.sample(HOLLOW_PARTS, self.rng.randrange(1, 3)))]
            self.rng.shuffle(parts)
            text = join_parts(self.rng, parts)
        return self._line(blur(self.rng, text, typos=0.1), self._desk_questions(DESK_QUESTIONS, 4))

    def unrelated(self) -> PlainQuestion:
        """Give a question about something that no request to the desk tells."""
        return self._worded(self.rng.choice(self.rng.choice(self.texts.general).questions))

    def _desk_questions(self, names: tuple[str, ...], count: int) -> dict[str, PlainQuestion]:
        chosen = dict.fromkeys(self.rng.sample(names, count))
        return {name: self.asker.word(name, None)[0] for name in chosen}

    def _worded(self, question: PlainQuestion) -> PlainQuestion:
        return self.asker.denied(question, None)[0] if question["type"] == "noul" else question

    def _line(self, text: str, questions: Mapping[str, PlainQuestion]) -> dict[str, object]:
        answers: dict[str, Answer] = dict.fromkeys(questions)
        return {"state": text, "questions": dict(questions), "answers": answers}


def is_leftover(sample: Sample) -> bool:
    """Tell whether a message is addressed to the desk and still none of its business: can it be answered? Arguable."""
    return sample.plan.core == "other"


def _questions(entry: Mapping[str, object]) -> tuple[PlainQuestion, ...]:
    questions: list[PlainQuestion] = []
    for part in ("yes", "yes_negated", "no", "no_negated", "unknown"):
        wordings = entry[part]
        assert isinstance(wordings, list)
        questions += ({"type": "noul", "instructions": wording} for wording in wordings)
    choice, score = entry["choice"], entry["score"]
    assert isinstance(choice, dict)
    assert isinstance(score, dict)
    questions.append({"type": "choice", "instructions": choice["instructions"], "criteria": choice["options"]})
    questions.append({"type": "score", "instructions": score["instructions"], "criteria": score["levels"]})
    return tuple(questions)
