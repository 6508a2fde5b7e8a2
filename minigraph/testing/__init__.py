"""What the users of the engine need for their own tests: random graphs, laws, crash sweeps, a mutation detector.

The strategies (`graphs`, `inputs_for`, `schedules`) need Hypothesis, which is imported when one of them is first used.
"""

from typing import TYPE_CHECKING

from minigraph.testing.building import build
from minigraph.testing.conformance import ConformanceError, saver_checks, saver_conformance
from minigraph.testing.crash import CrashLawError, CrashReport, crash_everywhere
from minigraph.testing.drawing import draw_program
from minigraph.testing.engines import Engine, langgraph_engine, minigraph_engine
from minigraph.testing.laws import LawError, ReducerReport, check_history, reducer_laws
from minigraph.testing.mutation import MutationError, detect_mutation
from minigraph.testing.oracle import compare
from minigraph.testing.programs import Program
from minigraph.testing.roundtrip import round_trip
from minigraph.testing.scheduling import Schedule
from minigraph.testing.traces import Trace, run

if TYPE_CHECKING:
    from minigraph.testing.strategies import graphs, inputs_for, schedules

__all__ = [
    "ConformanceError",
    "CrashLawError",
    "CrashReport",
    "Engine",
    "LawError",
    "MutationError",
    "Program",
    "ReducerReport",
    "Schedule",
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
]


def __getattr__(name: str) -> object:
    if name in ("graphs", "inputs_for", "schedules"):
        from minigraph.testing import strategies

        return getattr(strategies, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
