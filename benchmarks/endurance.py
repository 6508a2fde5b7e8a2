"""Trials of a store of threads, at full size: nothing may be lost, and nothing done twice.

    python benchmarks/endurance.py
    python benchmarks/endurance.py --trials kill --kills 2000 --seed 7
    python benchmarks/endurance.py --postgres own

crowd: 8 processes with 200 runs each on one store, and 8 threads of one process with 50 runs of 20 steps. kill: a run
like one of a desk whose worker is killed (SIGKILL) at random moments; another worker goes on, and may be killed too.
race: two answers to one question, eight inputs for one thread, given at once. faults: what can be wrong with a SQLite
file. Exits with 1 if anything was lost, done twice, or accepted or refused wrongly.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pages import write
from trials import crowd, faults, race
from trials.kill import KillTrial, hits
from trials.server import own_server
from trials.store import PostgresStore, SqliteStore, Store

TRIALS: Final = ("crowd", "kill", "race", "faults")
RACES: Final[tuple[tuple[race.What, int, race.Where], ...]] = (
    ("answer", 2, "processes"),
    ("answer", 2, "threads"),
    ("input", 8, "processes"),
    ("input", 8, "threads"),
)
HEAD: Final = "| Trial | Store | How much | What came of it | Wrong |\n|---|---|---|---|---:|"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    runs: int = 200
    """For each process of a crowd; its threads have a quarter of them."""
    kills: int = 500
    rounds: int = 50
    """Of a race."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One trial in the table, and below it what was wrong."""

    trial: str
    store: str
    how_much: str
    outcome: str
    wrong: list[str]
    seconds: float
    more: list[str] = field(default_factory=list)
    """A table of its own."""

    def text(self) -> str:
        """The row."""
        return f"| {self.trial} | {self.store} | {self.how_much} | {self.outcome} | {len(self.wrong)} |"


def crowd_rows(store: Store, sizes: Sizes, folder: Path) -> Iterator[Row]:
    """Many workers."""
    for tally in (
        crowd.processes(store.fresh(1), runs=sizes.runs),
        crowd.threads(store.fresh(2), runs=max(1, sizes.runs // 4)),
        crowd.processes(store.fresh(3), workers=4, runs=sizes.runs, steps=50, kill_every=1.0, seed=sizes.seed),
    ):
        killed = f"{tally.killed} workers killed and replaced" if "killed" in tally.what else "no error"
        complete = "every run complete" if not tally.wrong else "see below"
        how_much = f"{tally.runs} runs of {tally.steps} steps"
        yield Row(f"crowd: {tally.what}", tally.where, how_much, f"{killed}, {complete}", tally.wrong, tally.seconds)


def kill_rows(store: Store, sizes: Sizes, folder: Path) -> Iterator[Row]:
    """Killed workers."""
    tally = KillTrial(store, folder, sizes.seed).run(sizes.kills)
    how_much = f"{tally.kills} kills in {tally.runs} runs"
    outcome = (
        f"{tally.resumed} times resumed, {tally.unknown} unknown outcomes reported and left to a person, "
        f"{len(tally.lost)} lost, {len(tally.repeated)} done twice"
    )
    yield Row("kill: one worker after another", tally.where, how_much, outcome, tally.wrong, tally.seconds, hits(tally))


def race_rows(store: Store, sizes: Sizes, folder: Path) -> Iterator[Row]:
    """Contenders for one thread."""
    for number, (what, contenders, where) in enumerate(RACES, 4):
        found = race.race(store.fresh(number), what, contenders=contenders, rounds=sizes.rounds, where=where)
        refused = ", ".join(f"{count} {name}" for name, count in sorted(found.refused.items()))
        outcome = f"{found.won} won, {refused}, nothing of theirs stored" if not found.wrong else "see below"
        yield Row(f"race: {found.what}", found.where, f"{found.rounds} rounds", outcome, found.wrong, found.seconds)


def fault_rows(store: Store, sizes: Sizes, folder: Path) -> Iterator[Row]:
    """Faults of a SQLite file."""
    tallies = faults.all_faults()
    wrong = [f"{tally.name}: {what}" for tally in tallies for what in tally.wrong]
    done = [tally for tally in tallies if not tally.skipped]
    outcome = "named with its remedy, the thread unharmed, the run goes on when it is over"
    skipped = [f"  skipped: {tally.name}: {tally.skipped}" for tally in tallies if tally.skipped]
    how_much = f"{len(done)} faults"
    yield Row("faults of a file", "SQLite", how_much, outcome if not wrong else "see below", wrong, 0.0, skipped)


ROWS: Final[dict[str, Callable[[Store, Sizes, Path], Iterator[Row]]]] = {
    "crowd": crowd_rows,
    "kill": kill_rows,
    "race": race_rows,
}


def all_rows(stores: list[Store], trials: list[str], sizes: Sizes, folder: Path) -> Iterator[Row]:
    """The rows of some trials, on every store."""
    for store in stores:
        for trial in trials:
            if trial in ROWS:
                place = folder / f"{store.name} {trial}"
                place.mkdir()
                yield from ROWS[trial](store, sizes, place)
    if "faults" in trials:
        yield from fault_rows(stores[0], sizes, folder)


def main() -> int:
    """Runs the command; returns its exit status."""
    sizes = Sizes()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", nargs="+", choices=TRIALS, default=TRIALS, help="which (default: all)")
    parser.add_argument("--runs", type=int, default=sizes.runs, help="runs of each process (default %(default)s)")
    parser.add_argument("--kills", type=int, default=sizes.kills, help="how many kills (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=sizes.rounds, help="rounds of a race (default %(default)s)")
    parser.add_argument("--seed", type=int, default=sizes.seed, help="for the moments of kills (default %(default)s)")
    parser.add_argument("--postgres", metavar="URL", help="the same there, in schemas trial_*; `own` starts a server")
    parser.add_argument("--write", type=Path, help="a page whose tables are to be replaced")
    options = parser.parse_args()
    sizes = Sizes(options.runs, options.kills, options.rounds, options.seed)
    print(HEAD)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        stores: list[Store] = [SqliteStore(folder / "threads.db")]
        if options.postgres:
            own = options.postgres == "own"
            stores.append(PostgresStore(stack.enter_context(own_server(folder)) if own else options.postgres))
        for row in all_rows(stores, list(options.trials), sizes, folder):
            rows.append(row)
            print(row.text(), *(f"  {what}" for what in row.wrong[:20]), sep="\n", flush=True)
    more = [line for row in rows for line in row.more]
    print(
        "", *dict.fromkeys(more), "", *(f"{row.seconds:.0f} s for {row.trial} ({row.store})" for row in rows), sep="\n"
    )
    if options.write:
        block = "\n".join([HEAD, *(row.text() for row in rows), "", *dict.fromkeys(more)])
        write(options.write, "endurance", block)
    return 1 if any(row.wrong for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
