"""Stops runs before and after every write, goes on from what is left, and counts what was lost or done twice.

    python benchmarks/crash.py --graphs 200 --jobs 2
    python benchmarks/crash.py --graphs 0 --desk

Random graphs whose first input comes to an end, with questions, retries, child graphs, and nodes and routers that fail
once; with `--desk` the desk graph as well: a request that pauses for a person, who approves the mail, and one that is
sent at once. A graph counts as lost where it did not come to the end, or not by the same states, after one of its
stops, and as done twice where a task ran again whose end was stored, or a mail went out twice. Exits with 1 if any did.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from desk.database import create_database
from desk.policy import Case
from desk.records import DeskRecords
from desk.scripted import ScriptedDecider
from desk.service import Desk
from desk.state import DeskState, new_turn
from desk.thresholds import default_thresholds
from minigraph import CompiledGraph
from minigraph.checkpoint import Saver, SqliteSaver
from minigraph.testing import CrashLawError, Program, build, crash_everywhere, draw_program, minigraph_engine, run
from minigraph.testing.building import Flaky
from minigraph.testing.programs import Input, answer_to, input_of
from tools import Mailer


@dataclass(slots=True)
class Tally:
    """What became of some graphs: how many, how often they were stopped, and those that broke, by name."""

    graphs: int = 0
    stops: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Adds another tally."""
        self.graphs += other.graphs
        self.stops += other.stops
        self.lost += other.lost
        self.twice += other.twice

    def lines(self, name: str) -> list[str]:
        """The tally as a row of a table, and what broke below it."""
        row = f"| {name} | {self.graphs} | {self.stops} | {len(self.lost)} | {len(self.twice)} |"
        return [row, *(f"  lost: {what}" for what in self.lost), *(f"  done twice: {what}" for what in self.twice)]


def tallied(name: str, sweep: Callable[[], int]) -> Tally:
    """The tally of one graph; `sweep` gives the number of its stops."""
    tally = Tally(graphs=1)
    try:
        tally.stops = sweep()
    except CrashLawError as error:
        (tally.twice if error.ran_again else tally.lost).append(f"{name}: {error}")
    return tally


# ------------------------------------------------------------------- random graphs


def terminating(seed: int) -> Program | None:
    """The program with this seed, asked for one input, where that comes to its end."""
    program = draw_program(Random(seed), failing_routers=True)
    first = replace(program, turns=(Input(seed % 3, ("log", "text")),), before=(), after=())
    last = run(first).calls[-1]
    return first if last.ended == "ok" and not last.next else None


def random_graph(seed: int) -> Tally:
    """The sweep over one random program; nothing where it has no end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = terminating(seed)
        return Tally() if program is None else tallied(f"seed {seed}", partial(_sweep, program))


def _sweep(program: Program) -> int:
    (turn,) = program.turns
    assert isinstance(turn, Input)
    return crash_everywhere(
        lambda saver: build(program, minigraph_engine(), saver),
        input_of(turn),
        answers=lambda question: answer_to(program, question.value),
        failures=Flaky,
    ).crashes


# ---------------------------------------------------------------------- desk graph


class DeskRuns:
    """The runs of one sweep over the desk, each with a database of its own that a stopped run leaves to the next.

    `allow` is how sure the guard is that the mail may go out: below its threshold a person is asked.
    """

    def __init__(self, folder: Path, allow: float, stack: ExitStack) -> None:
        self.folder, self.stack, self.count = folder, stack, 0
        self.decider = ScriptedDecider({"cancel": 1.0}, allow=allow)
        self.desk: Desk | None = None

    def make_saver(self) -> Saver:
        """The saver of a new run, over a new database."""
        self.count += 1
        path = self.folder / f"{self.count}.db"
        create_database(path)
        return SqliteSaver(path)

    def graph(self, saver: Saver) -> CompiledGraph:
        """The desk as another process opens it, with the saver that will be stopped."""
        path = self.folder / f"{self.count}.db"
        self.desk = self.stack.enter_context(Desk.open(path, decider=self.decider))
        graph = copy.copy(self.desk.graph)
        graph.checkpointer = saver
        return graph

    def mails(self) -> list[int]:
        """How many mails went out in each run."""
        found = []
        for number in range(1, self.count + 1):
            with Mailer(self.folder / f"{number}.db") as mailer:
                found.append(len(mailer.deliveries()))
        return found


def request() -> DeskState:
    """What a run is given: somebody wants to cancel a place."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "desk.db"
        create_database(path)
        with DeskRecords(path) as records:
            entry = records.registration("R101")
            event = records.event(entry.event_id)
            case = Case(records.today, event, entry.registration, "Please cancel my place.")
    return new_turn(case, default_thresholds(), 1)


def desk_graph(allow: float) -> Tally:
    """The sweep over one request to the desk; every run must send one mail."""
    name = f"desk, guard {allow}"
    with TemporaryDirectory() as folder, ExitStack() as stack:
        runs = DeskRuns(Path(folder), allow, stack)

        def sweep() -> int:
            answer = {"verdict": "approve", "by": "Ann"}
            return crash_everywhere(
                runs.graph, request(), answers=lambda question: answer, make_saver=runs.make_saver
            ).crashes

        tally = tallied(name, sweep)
        for number, sent in enumerate(runs.mails(), 1):
            if sent != 1:
                (tally.twice if sent else tally.lost).append(f"{name}: {sent} mails in run {number}")
    return tally


# ------------------------------------------------------------------------- command


def sweep_random(graphs: int, jobs: int) -> Tally:
    """The tally of so many random graphs that have an end, from seed 0 on."""
    tally = Tally()
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for start in itertools.count(step=50):
            for part in pool.imap(random_graph, range(start, start + 50)):
                if tally.graphs < graphs:
                    tally.add(part)
            if tally.graphs == graphs:
                break
    return tally


def main() -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=200, help="how many random graphs (default 200)")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes (default 1)")
    parser.add_argument("--desk", action="store_true", help="the desk graph as well")
    options = parser.parse_args()
    began = time.monotonic()
    print("| Graphs | how many | stops | lost | done twice |\n|---|---:|---:|---:|---:|")
    tallies = [sweep_random(options.graphs, options.jobs)] if options.graphs else []
    for tally in tallies:
        print("\n".join(tally.lines("random")), flush=True)
    if options.desk:
        for allow, name in ((0.8, "desk, a person approves"), (0.99, "desk, sent at once")):
            tallies.append(desk_graph(allow))
            print("\n".join(tallies[-1].lines(name)), flush=True)
    print(f"\n{time.monotonic() - began:.0f} s")
    return 1 if any(tally.lost or tally.twice for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
