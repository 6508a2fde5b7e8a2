"""Random programs on this engine and on LangGraph: how many agree, how many LangGraph cannot speak for, and why.

    python benchmarks/parity.py --programs 2000 --seed 0 --jobs 2 --write part-0.md
    python benchmarks/parity.py --sum part-*.md --write docs/parity.md

Exits with 1 if any program differs; each is shown with its seed, made as small as it stays different. A long sweep is
run in parts, under different PYTHONHASHSEEDs, and added up: a part that is there need not be run again.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random

from minigraph.testing.drawing import draw_program
from minigraph.testing.oracle import Table, compare, smaller, sweep
from minigraph.testing.programs import Program

HEAD = """# Parity with LangGraph

Written by `python benchmarks/parity.py --sum`: random programs, drawn by `minigraph.testing.draw_program`, run on
LangGraph 1.2.24 and here. Compared are what each call streams, returns and asks, the state and what is due after it,
and the whole history of checkpoints at the end.

"""


def main() -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=2000, help="how many programs (default 2000)")
    parser.add_argument("--seed", type=int, default=0, help="the first program's seed (default 0)")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes (default 1)")
    parser.add_argument("--show", type=int, default=3, help="how many differences to make small and print (default 3)")
    parser.add_argument("--sum", type=Path, nargs="+", help="files that this command wrote or printed: adds them up")
    parser.add_argument("--write", type=Path, help="a file for what is printed")
    options = parser.parse_args()
    if options.sum:
        report = HEAD + "\n".join(summed(path.read_text(encoding="utf-8") for path in options.sum))
        table = Table()
    else:
        began = time.monotonic()
        table = compared(range(options.seed, options.seed + options.programs), options.jobs)
        seeds = f"seeds {options.seed} to {options.seed + options.programs - 1}"
        hash_seed = os.environ.get("PYTHONHASHSEED", "random")
        when = f"{seeds}, {time.monotonic() - began:.0f} s, PYTHONHASHSEED {hash_seed}"
        report = "\n".join([*table.lines(), "", when, *differences(table, options.show)])
    print(report)
    if options.write:
        options.write.write_text(report + "\n", encoding="utf-8")
    return 1 if table.different else 0


def compared(seeds: range, jobs: int) -> Table:
    """The table of the programs with these seeds."""
    table = Table()
    parts = [seeds[start : start + 50] for start in range(0, len(seeds), 50)]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for part in pool.imap(sweep, parts):
            table.add(part)
    return table


def differences(table: Table, show: int) -> list[str]:
    """The first programs that differ, made small, and the seeds of all."""
    found: list[str] = []
    for seed, detail in table.different[:show]:
        program = smaller(draw_program(Random(seed)), functools.partial(differs_alike, detail))
        found += ["", f"seed {seed}: {detail}", f"  smaller: {program!r}", f"  {compare(program).detail}"]
    if len(table.different) > show:
        found += ["", f"all seeds that differ: {', '.join(str(seed) for seed, _ in table.different)}"]
    return found


def differs_alike(detail: str, candidate: Program) -> bool:
    """Whether a candidate differs in its traces where the program did, or in an error where that did."""
    found = compare(candidate)
    return found.outcome == "different" and found.detail.startswith("trace") == detail.startswith("trace")


def summed(texts: Iterable[str]) -> list[str]:
    """Several printed tables as one, with their seeds. Raises ValueError for differences and for seeds given twice."""
    table = Table()
    parts: list[tuple[int, int, str]] = []
    for text in texts:
        table.add(Table.read(text))
        match = re.search(r"^seeds (\d+) to (\d+), \d+ s(?:, PYTHONHASHSEED (\w+))?$", text, re.MULTILINE)
        if match is None:
            raise ValueError(f"a table to add up names its seeds below; this one does not: {text!r}")
        parts.append((int(match[1]), int(match[2]), match[3] or "not noted"))
    parts.sort()
    for (_, last, _), (first, _, _) in itertools.pairwise(parts):
        if first <= last:
            raise ValueError(f"the program with seed {first} is in two of the tables")
    programs = sum(last - first + 1 for first, last, _ in parts)
    hashes = ", ".join(sorted({hash_seed for _, _, hash_seed in parts}))
    seeds = f"{programs} programs, seeds {parts[0][0]} to {parts[-1][1]} in {len(parts)} parts"
    return [*table.lines(), "", f"{seeds}, PYTHONHASHSEED {hashes}."]


if __name__ == "__main__":
    sys.exit(main())
