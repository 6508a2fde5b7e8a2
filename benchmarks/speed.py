"""What a step, a growing history, a listing and a pause cost here, in LangGraph, and in SQLite by hand, side by side.

    python benchmarks/speed.py
    python benchmarks/speed.py --cases "append a message" --size 3200 --rounds 3
    python benchmarks/speed.py --write docs/speed.md

Times are CPU seconds of the process. In each round every engine runs once and the floor once, in turn, so that a busy
machine is as slow for one as for the other; a ratio is the median over the rounds. The floor does by hand what cannot
be left out: one INSERT a step, one read. SQLite files are in write-ahead-log mode with synchronous=NORMAL for all, and
LangGraph runs with durability="sync", as this engine does by default. A wrong result ends the command.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from pages import write
from speed_cases import CASES, Case, Engine, LangGraph, Minigraph


class Figure(msgspec.Struct):
    """What one engine needed: microseconds of CPU a unit, bytes a unit, and the ratio to the floor of its round."""

    name: str
    micros: float
    stored: float
    ratio: float


def engines_for(case: Case) -> list[Engine]:
    """This engine, and LangGraph in its settings where it is installed."""
    engines: list[Engine] = [Minigraph()]
    try:
        engines += [LangGraph(delta) for delta in case.peers]
    except ImportError:
        print("LangGraph is not installed: no comparison with it", file=sys.stderr)
    return engines


def measured(case: Case, size: int, rounds: int) -> list[Figure]:
    """The floor's figure and each engine's, medians over the rounds."""
    engines = engines_for(case)
    found: list[list[tuple[float, int]]] = [[] for _ in engines]
    floors: list[tuple[float, int]] = []
    for _ in range(rounds):
        floors.append(case.floor(size))
        for place, engine in enumerate(engines):
            found[place].append(case.engine(engine, size))
    figures = [_figure("by hand", floors, floors, size)]
    return figures + [_figure(engine.name, runs, floors, size) for engine, runs in zip(engines, found, strict=True)]


def _figure(name: str, runs: Sequence[tuple[float, int]], floors: Sequence[tuple[float, int]], size: int) -> Figure:
    ratio = statistics.median(run[0] / floor[0] for run, floor in zip(runs, floors, strict=True))
    micros = statistics.median(run[0] for run in runs) / size * 1e6
    return Figure(name, micros, runs[-1][1] / size, ratio)


def imports(rounds: int) -> list[Figure]:
    """CPU seconds of a fresh process that imports a library and its SQLite saver, beside what savers need anyway."""
    lines = {
        "by hand": "import sqlite3, typing, contextvars, dataclasses, msgspec",
        "minigraph": "from minigraph import StateGraph; from minigraph.checkpoint import SqliteSaver",
        "LangGraph": "from langgraph.graph import StateGraph; from langgraph.checkpoint.sqlite import SqliteSaver",
    }
    spent: dict[str, list[tuple[float, int]]] = {name: [] for name in lines}
    for _ in range(rounds):
        for name, line in lines.items():
            code = f"import time; {line}; print(time.process_time())"
            ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
            if ran.returncode == 0:
                spent[name].append((float(ran.stdout), 0))
    return [_figure(name, runs, spent["by hand"], 1) for name, runs in spent.items() if runs]


def lines_of(case: str, unit: str, size: int, figures: Sequence[Figure]) -> Iterator[str]:
    """The rows of a table for one case."""
    own = next(figure for figure in figures if figure.name == "minigraph")
    for figure in figures:
        stored = f"{figure.stored:,.0f}" if figure.stored else ""
        against = "" if figure.name == "by hand" or figure is own else f"{figure.ratio / own.ratio:.1f}"
        what = f"{case} ({size:,})" if figure is figures[0] else ""
        yield f"| {what} | {unit} | {figure.name} | {figure.micros:,.1f} | {figure.ratio:.2f} | {against} | {stored} |"


HEAD: Final = (
    "| What (how many) | for each | by | CPU, us | times the floor | times minigraph | bytes stored |\n"
    "|---|---|---|---:|---:|---:|---:|"
)


def main() -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [case.name for case in CASES] + ["import"]
    parser.add_argument("--cases", nargs="+", choices=names, default=names, help="what to measure (default: all)")
    parser.add_argument("--size", type=int, help="how many steps, messages or answers, instead of each case's own")
    parser.add_argument("--rounds", type=int, default=5, help="how often to measure each (default 5)")
    parser.add_argument("--write", type=Path, help="a page whose table is to be replaced")
    options = parser.parse_args()
    table = [HEAD]
    for case in CASES:
        if case.name in options.cases:
            size = options.size or case.size
            table += lines_of(case.name, case.unit, size, measured(case, size, options.rounds))
            print("\n".join(table[-1:]), file=sys.stderr)
    if "import" in options.cases:
        table += lines_of("import, with the saver", "process", 1, imports(options.rounds))
    print("\n".join(table))
    if options.write:
        write(options.write, "speed", "\n".join(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
