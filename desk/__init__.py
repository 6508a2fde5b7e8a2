"""A front desk for workshops: a small agent whose actions pass a guard, a person where needed, and a record."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from desk.database import create_database
    from desk.errors import (
        BadInputError,
        DecisionModelError,
        DeskError,
        DeskStorageError,
        NotFoundError,
        NotWaitingError,
        ThresholdError,
        UnknownEventError,
        UnknownRegistrationError,
        UnknownStepError,
        UnknownThreadError,
        WaitingError,
    )
    from desk.graph import build_graph
    from desk.handoff import Handoff, handoff
    from desk.policy import POLICY, Case, Event, Facts, Registration, facts, render
    from desk.providers import Obeyer, Planner, Provider, Reply, ScriptedProvider
    from desk.records import DeskRecords, Entry
    from desk.report import Moment, Report
    from desk.scripted import ScriptedDecider
    from desk.service import Desk
    from desk.state import K_MAX, DeskState, Outcome, new_turn
    from desk.thresholds import Costs, Region, action_thresholds, default_thresholds, region

__all__ = [
    "K_MAX",
    "POLICY",
    "BadInputError",
    "Case",
    "Costs",
    "DecisionModelError",
    "Desk",
    "DeskError",
    "DeskRecords",
    "DeskState",
    "DeskStorageError",
    "Entry",
    "Event",
    "Facts",
    "Handoff",
    "Moment",
    "NotFoundError",
    "NotWaitingError",
    "Obeyer",
    "Outcome",
    "Planner",
    "Provider",
    "Region",
    "Registration",
    "Reply",
    "Report",
    "ScriptedDecider",
    "ScriptedProvider",
    "ThresholdError",
    "UnknownEventError",
    "UnknownRegistrationError",
    "UnknownStepError",
    "UnknownThreadError",
    "WaitingError",
    "action_thresholds",
    "build_graph",
    "create_database",
    "default_thresholds",
    "facts",
    "handoff",
    "new_turn",
    "region",
    "render",
]

# Where each public name lives. Loaded when it is first used: the training recipe needs the policy without the desk's
# graph, and the command line must answer `--help` before NumPy is there.
_HOMES = {
    "errors": [name for name in __all__ if name.endswith("Error")],
    "graph": ["build_graph"],
    "handoff": ["Handoff", "handoff"],
    "policy": ["POLICY", "Case", "Event", "Facts", "Registration", "facts", "render"],
    "providers": ["Obeyer", "Planner", "Provider", "Reply", "ScriptedProvider"],
    "database": ["create_database"],
    "records": ["DeskRecords", "Entry"],
    "scripted": ["ScriptedDecider"],
    "report": ["Moment", "Report"],
    "service": ["Desk"],
    "state": ["K_MAX", "DeskState", "Outcome", "new_turn"],
    "thresholds": ["Costs", "Region", "action_thresholds", "default_thresholds", "region"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name from the module it lives in."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'desk' has no attribute {name!r}")
    return getattr(import_module(f"desk.{_HOME_OF[name]}"), name)
