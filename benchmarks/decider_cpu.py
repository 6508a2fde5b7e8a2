"""Measures the decider on the CPU: time to load, time a call for 1 to 32 questions, tokens, files, exactness.

    python benchmarks/decider_cpu.py [MODEL_FOLDER] [--threads 1] [--repeats 10] [--json FILE]

Times are the median of the repeats. CPU milliseconds are steadier than wall-clock time on a machine that others use.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from decider import Choice, Decider, Noul, Question
from decider.model import SHIPPED_MODEL, raw_logits

STATE = (
    "Event: Introduction to bookbinding, Leeds, on site, fee 120 EUR, starts 2027-03-01, 20 days left.\n"
    "Registration open, 4 seats free.\nRecord: confirmed, paid 120 EUR.\n"
    "Request: I have to be in another town that week, so I would like to hand my place to my sister if that is fine."
)
CHOICE = Choice(
    {
        "cancel": "give up the place",
        "transfer": "let another person take the place",
        "register": "sign up",
        "details": "learn something about the event",
        "other": None,
    },
    "What does the writer want?",
)
NOUL = Noul("Does the writer ask for an exception to the rules?")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; prints one line a measurement."""
    parser = argparse.ArgumentParser(description="Measure the decider on the CPU.")
    parser.add_argument("model", type=Path, nargs="?", default=SHIPPED_MODEL)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(arguments)
    figures = measure(options.model, options.threads, options.repeats)
    for name, value in figures.items():
        sys.stdout.write(f"{name:<36}{value}\n")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


def measure(folder: Path, threads: int, repeats: int) -> dict[str, float | int | str]:
    """Return the figures by name; milliseconds, megabytes and absolute differences of logits."""
    load_wall, load_cpu = _median(lambda: Decider.load(folder, "cpu", threads), 3)
    decider = Decider.load(folder, "cpu", threads)
    figures: dict[str, float | int | str] = {
        "processor": platform.processor() or platform.machine(),
        "threads": threads,
        "folder MB": round(sum(file.stat().st_size for file in folder.iterdir()) / 1e6, 2),
        "load ms (wall)": load_wall,
        "load ms (CPU)": load_cpu,
        "golden difference": float(f"{decider.check_golden():.2g}"),
        "change by other questions": float(f"{_change_by_company(decider):.2g}"),
    }
    for name, question in (("yes/no", NOUL), ("five-way", CHOICE)):
        for count in (1, 8, 32):
            questions: dict[str, Question] = {str(number): question for number in range(count)}
            wall, cpu = _median(partial(decider.decide, STATE, questions), repeats)
            figures[f"{count} {name} ms (wall)"] = wall
            figures[f"{count} {name} ms (CPU)"] = cpu
            figures[f"{count} {name} tokens"] = decider.decide(STATE, questions).usage.input_tokens
    return figures


def _change_by_company(decider: Decider) -> float:
    """Return how far a logit moves when other questions and other states are asked in the same pass."""
    alone = decider.decide(STATE, {"q": CHOICE})
    crowd: dict[str, Question] = {**{str(number): NOUL for number in range(20)}, "q": CHOICE}
    _, together = decider.decide_many([("A short note.", {"n": NOUL}), (STATE, crowd)])
    pairs = zip(raw_logits(alone["q"]), raw_logits(together["q"]), strict=True)
    return max(abs(left - right) for left, right in pairs)


def _median(call: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return wall-clock and CPU milliseconds."""
    call()
    wall, cpu = [], []
    for _ in range(repeats):
        start_wall, start_cpu = time.perf_counter(), time.process_time()
        call()
        wall.append((time.perf_counter() - start_wall) * 1e3)
        cpu.append((time.process_time() - start_cpu) * 1e3)
    return round(statistics.median(wall), 2), round(statistics.median(cpu), 2)


if __name__ == "__main__":
    sys.exit(main())
