"""Three requests, played in a database of their own: an answer, a mail that a person approves, and a hand-off."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from desk.display import Display, who_spoke
from desk.models import LazyDecider
from desk.service import Desk
from desk.thresholds import default_thresholds

if TYPE_CHECKING:
    from decider import DecisionModel

REVIEWER: Final = "the demo's reviewer"


@dataclass(frozen=True, slots=True)
class Scene:
    """A request of the demonstration; ``intent`` and ``allow`` are used by the prepared probabilities alone."""

    title: str
    registration: str
    request: str
    intent: str
    allow: float
    tau_act: float | None = None


SCENES: Final = (
    Scene(
        "A question about the rules",
        "R105",
        "What do your rules say about refunds when I cancel?",
        "ask_policy",
        0.0,
    ),
    Scene(
        "An action that a person confirms (tau_act is set to 1, so no mail goes out alone)",
        "R101",
        "Please cancel my registration for the bookbinding workshop.",
        "cancel",
        0.8,
        tau_act=1.0,
    ),
    Scene(
        "A refund above 500 EUR, which only a person may approve",
        "R108",
        "I can't come to Lyon after all. Please cancel my place and pay me back.",
        "cancel",
        0.1,
    ),
)


def play(path: str | None, display: Display, *, scripted: bool, ready: Callable[[], None]) -> None:
    """Play the scenes and show every step. Without a path the database is temporary.

    ``ready`` is called once the decision model is loaded. Raises what ``Desk.open`` and ``Desk.ask`` raise.
    """
    if path is not None:
        return _play(path, display, scripted, ready)
    with tempfile.TemporaryDirectory(prefix="desk-demo-") as folder:
        _play(str(Path(folder) / "desk.db"), display, scripted, ready)


def _play(path: str, display: Display, scripted: bool, ready: Callable[[], None]) -> None:
    shipped = None if scripted else LazyDecider().ready()
    ready()
    for number, scene in enumerate(SCENES, start=1):
        with Desk.open(path, decider=shipped or _prepared(scene)) as desk:
            _scene(number, scene, desk, display)


def _scene(number: int, scene: Scene, desk: Desk, display: Display) -> None:
    display.say(f"Request {number} of {len(SCENES)}: {scene.title}", "bold")
    display.say(f"Registration {scene.registration}, today {desk.records.today}: {scene.request}")
    thresholds = default_thresholds()
    if scene.tau_act is not None:
        thresholds["tau_act"] = scene.tau_act
    report = desk.ask(scene.request, registration=scene.registration, thresholds=dict(thresholds), on_step=display.step)
    if report.question is not None:
        mail = report.question["email"]["arguments"]
        display.say(f"Paused. To: {mail['to']}\nSubject: {mail['subject']}\n{mail['body'].rstrip()}")
        display.say(f"Approved by {REVIEWER}:")
        report = desk.review(report.thread, {"verdict": "approve", "by": REVIEWER}, on_step=display.step)
    display.say(f"Outcome: {report.outcome}", "bold")
    display.say(f"Answer: {report.answer}")
    if report.handoff:
        display.say(report.handoff)
    display.say(f"{who_spoke(report)}\n")


def _prepared(scene: Scene) -> DecisionModel:
    from desk.scripted import ScriptedDecider

    return ScriptedDecider({scene.intent: 0.91, "ask_event": 0.09}, allow=scene.allow)
