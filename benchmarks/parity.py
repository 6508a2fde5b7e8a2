"""Random programs on this engine and on LangGraph: how many agree, how many LangGraph cannot speak for, and why.

    python benchmarks/parity.py --programs 2000 --seed 0 --jobs 2

Exits with 1 if any program differs; each is shown with its seed, made as small as it stays different.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import sys
import time
from random import Random

from minigraph.testing.drawing import draw_program
from minigraph.testing.oracle import Table, compare, smaller, sweep
from minigraph.testing.programs import Program


def differs_alike(detail: str, candidate: Program) -> bool:
    """Whether a candidate differs in its traces where the program did, or in an error where that did."""
    found = compare(candidate)
    return found.outcome == "different" and found.detail.startswith("trace") == detail.startswith("trace")


def main() -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=2000, help="how many programs (default 2000)")
    parser.add_argument("--seed", type=int, default=0, help="the first program's seed (default 0)")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes (default 1)")
    parser.add_argument("--show", type=int, default=3, help="how many differences to make small and print (default 3)")
    options = parser.parse_args()
    began = time.monotonic()
    seeds = range(options.seed, options.seed + options.programs)
    table = Table()
    parts = [seeds[start : start + 50] for start in range(0, len(seeds), 50)]
    if options.jobs > 1:
        with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
            for part in pool.imap(sweep, parts):
                table.add(part)
    else:
        for seeds_of_part in parts:
            table.add(sweep(seeds_of_part))
    print("\n".join(table.lines()))
    print(f"\nseeds {seeds.start} to {seeds.stop - 1}, {time.monotonic() - began:.0f} s")
    for seed, detail in table.different[: options.show]:
        program = smaller(draw_program(Random(seed)), functools.partial(differs_alike, detail))
        print(f"\nseed {seed}: {detail}\n  smaller: {program!r}\n  {compare(program).detail}")
    if len(table.different) > options.show:
        print(f"\nall seeds that differ: {', '.join(str(seed) for seed, _ in table.different)}")
    return 1 if table.different else 0


if __name__ == "__main__":
    sys.exit(main())
