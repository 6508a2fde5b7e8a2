"""What the users of the engine need for their own tests: random graphs, laws, crash sweeps, a mutation detector.

The strategies (`graphs`, `inputs_for`, `schedules`) and `thread_machine` need Hypothesis, which is imported when one of
them is first used.
"""

import importlib
from typing import TYPE_CHECKING

from minigraph.testing.building import build
from minigraph.testing.conformance import ConformanceError, saver_checks, saver_conformance
from minigraph.testing.crash import CrashLawError, CrashReport, crash_everywhere
from minigraph.testing.drawing import draw_program
from minigraph.testing.engines import Engine, langgraph_engine, minigraph_engine
from minigraph.testing.laws import LawError, ReducerReport, check_history, reducer_laws
from minigraph.testing.lockstep import LockstepSaver
from minigraph.testing.mutation import MutationError, detect_mutation
from minigraph.testing.oracle import compare
from minigraph.testing.programs import Program
from minigraph.testing.roundtrip import round_trip
from minigraph.testing.scheduling import Schedule
from minigraph.testing.traces import Trace, run

if TYPE_CHECKING:
    from minigraph.testing.machine import thread_machine
    from minigraph.testing.rules import ThreadMachine
    from minigraph.testing.strategies import graphs, inputs_for, schedules

__all__ = [
    "ConformanceError",
    "CrashLawError",
    "CrashReport",
    "Engine",
    "LawError",
    "LockstepSaver",
    "MutationError",
    "Program",
    "ReducerReport",
    "Schedule",
    "ThreadMachine",
    "Trace",
    "build",
    "check_history",
    "compare",
    "crash_everywhere",
    "detect_mutation",
    "draw_program",
    "graphs",
    "inputs_for",
    "langgraph_engine",
    "minigraph_engine",
    "reducer_laws",
    "round_trip",
    "run",
    "saver_checks",
    "saver_conformance",
    "schedules",
    "thread_machine",
]


_NEED_HYPOTHESIS = {
    "ThreadMachine": "rules",
    "graphs": "strategies",
    "inputs_for": "strategies",
    "schedules": "strategies",
    "thread_machine": "machine",
}
"""The names that need Hypothesis, and their modules."""


def __getattr__(name: str) -> object:
    if name in _NEED_HYPOTHESIS:
        return getattr(importlib.import_module(f"minigraph.testing.{_NEED_HYPOTHESIS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
