"""Every law on many random programs: how many held, and the programs that broke one, made small.

    python benchmarks/laws.py --programs 100000 --jobs 2 --parts runs/laws

With `--parts` the counts of every 500 programs are kept in a file there, and what is there is not run again: a sweep
that was stopped goes on. Exits with 1 if a law was broken.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

from minigraph.checkpoint.sqlite import SqliteSaver
from minigraph.testing import laws
from minigraph.testing.building import CrowdedError
from minigraph.testing.drawing import draw_program
from minigraph.testing.oracle import smaller
from minigraph.testing.programs import Program
from minigraph.testing.scheduling import Schedule

PART = 500


@dataclass(slots=True)
class Count:
    """How many programs were looked at, how often each law held, and the seeds that broke one, with what it said.

    `crowded` counts the laws that were given up since a program's tasks multiply without end.
    """

    programs: int = 0
    held: dict[str, int] = field(default_factory=dict)
    broken: list[tuple[str, int, str]] = field(default_factory=list)
    crowded: int = 0

    def add(self, other: Count) -> None:
        """Adds another count."""
        self.programs += other.programs
        self.crowded += other.crowded
        self.held = dict(Counter(self.held) + Counter(other.held))
        self.broken += other.broken

    def lines(self) -> list[str]:
        """The counts as a table in Markdown."""
        rows = [*sorted(self.held.items()), ("given up", self.crowded), ("broken", len(self.broken))]
        table = [f"| {name} | {count} |" for name, count in rows]
        return [f"{self.programs} programs", "", "| Law | held |", "|---|---:|", *table]


FAILING = ("any finishing order", "savers agree", "sync equals async", "history folds to state")
"""The laws that see programs whose routers fail; the others are about runs without such failures."""


def drawn(name: str, seed: int) -> Program:
    """The program with this seed for a law; its child graphs may have children of their own."""
    return draw_program(Random(seed), failing_routers=name in FAILING, deep_children=True)


def law_named(name: str, seed: int) -> Callable[[Program], None]:
    """A law by name; what it needs besides a program follows from the seed."""
    if name == "any finishing order":
        schedule = Schedule((seed + 1, 2, 0, 3, 1), bool(seed % 2))
        return lambda program: laws.any_finishing_order(program, schedule)
    if name == "savers agree":
        return _savers_agree
    return next(law for law in laws.PROGRAM_LAWS if law.__name__.replace("_", " ") == name)


NAMES = ("any finishing order", "savers agree", *(law.__name__.replace("_", " ") for law in laws.PROGRAM_LAWS))


def _savers_agree(program: Program) -> None:
    with SqliteSaver(":memory:") as saver:
        laws.savers_agree(program, saver)


def counted(seeds: range) -> Count:
    """The laws on the programs with these seeds; any exception is a law broken."""
    found = Count()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            found.programs += 1
            for name in NAMES:
                try:
                    law_named(name, seed)(drawn(name, seed))
                except CrowdedError:
                    found.crowded += 1
                except Exception as error:
                    found.broken.append((name, seed, f"{type(error).__name__}: {error}"))
                else:
                    found.held[name] = found.held.get(name, 0) + 1
    return found


def resumed(seeds: range, parts: Path | None) -> Count:
    """The same, from the file of this part where there is one."""
    if parts is None:
        return counted(seeds)
    path = parts / f"failing-{seeds.start}-{seeds.stop}.json"
    if path.exists():
        return Count(**json.loads(path.read_text(encoding="utf-8")))
    found = counted(seeds)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(asdict(found)), encoding="utf-8")
    unfinished.rename(path)
    return found


def error_of(name: str, seed: int, program: Program) -> str:
    """The type of the error with which a program breaks a law; "" where it does not."""
    try:
        law_named(name, seed)(program)
    except Exception as error:
        return type(error).__name__
    return ""


def main() -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=1000, help="how many programs (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="the first program's seed (default 0)")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes (default 1)")
    parser.add_argument("--parts", type=Path, help="a folder for finished parts, so that a sweep can go on")
    options = parser.parse_args()
    if options.parts is not None:
        options.parts.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    seeds = range(options.seed, options.seed + options.programs)
    parts = [seeds[start : start + PART] for start in range(0, len(seeds), PART)]
    count = Count()
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for part in pool.starmap(resumed, [(part, options.parts) for part in parts], chunksize=1):
            count.add(part)
    print("\n".join(count.lines()))
    print(f"\nseeds {seeds.start} to {seeds.stop - 1}, {time.monotonic() - began:.0f} s")
    for name, seed, what in count.broken[:5]:
        kind = what.partition(":")[0]
        program = smaller(drawn(name, seed), lambda p, name=name, seed=seed, kind=kind: error_of(name, seed, p) == kind)  # type: ignore[misc]
        print(f"\nseed {seed}, {name}: {what}\n  smaller: {program!r}")
    return 1 if count.broken else 0


if __name__ == "__main__":
    sys.exit(main())
