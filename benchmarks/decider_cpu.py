"""What the decider costs on the CPU, as ratios that are measured side by side in one process.

    python benchmarks/decider_cpu.py
    python benchmarks/decider_cpu.py --model FOLDER --rounds 3 --json figures.json
    python benchmarks/decider_cpu.py --write docs/decider-runtime.md

Times are CPU seconds. In each round both sides of a ratio run once, in turn, so that a busy machine is as slow for one
as for the other; a ratio is the median over the rounds. Fresh processes tell the time to the first answer and the peak
of memory. Exit status 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

from pages import write

from decider import Choice, Decider, MissingPackageError, Noul, Question, Request
from decider.layout import Layout
from decider.manifest import read_manifest
from decider.model import SHIPPED_MODEL, raw_logits
from decider.precision import write_dynamic_int8
from decider.rows import collate

STATE: Final = (
    "Event: Introduction to bookbinding, Leeds, on site, fee 120 EUR, starts 2027-03-01, 20 days left.\n"
    "Registration open, 4 seats free.\nRecord: confirmed, paid 120 EUR.\n"
    "Request: I have to be in another town that week, so I would like to hand my place to my sister if that is fine."
)
MORE: Final = " I asked by telephone last week and nobody could tell me, so please write soon what you need from us."
DESCRIBED: Final = Choice(
    {
        "cancel": "give up the place",
        "transfer": "let another person take the place",
        "register": "sign up",
        "details": "learn something about the event",
        "other": None,
    },
    "What does the writer want?",
)
NAMED: Final = Choice(dict.fromkeys(("cancel", "transfer", "register", "ask", "other")), "What is wanted?")
NOUL: Final = Noul("Does the writer ask for an exception to the rules?")
QUESTIONS: Final = 8
FIRST_ANSWER: Final = """
import sys, time
sys.path.insert(0, {here!r})
from decider import Choice, Decider
question = Choice({options!r}, {wording!r})
decider = Decider.load({folder!r}, "cpu", threads=1)
decider.decide({short!r}, {{"q": question}})
first = time.process_time()
decider.decide({full!r}, {{str(place): question for place in range({count})}})
with open("/proc/self/status") as lines:
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
print(first, peak * 1024)
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement; `goal` is what it must not pass, upwards for "at most", downwards for "at least"."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    kind: Literal["at most", "at least"] = "at most"

    @property
    def missed(self) -> bool:
        """Whether there is a goal and the value is on its wrong side."""
        if self.goal is None:
            return False
        return not (self.value <= self.goal if self.kind == "at most" else self.value >= self.goal)


def eight(question: Question) -> dict[str, Question]:
    """The same question under eight names: they are answered independently, as eight different ones would be."""
    return {str(place): question for place in range(QUESTIONS)}


def ratio(slow: Callable[[], object], quick: Callable[[], object], rounds: int) -> float:
    """The CPU time of one thing as a multiple of another's: the median over the rounds, after one round to warm up."""
    found = []
    for _ in range(rounds + 1):
        start = time.process_time()
        slow()
        middle = time.process_time()
        quick()
        found.append((middle - start) / (time.process_time() - middle))
    return statistics.median(found[1:])


def one_call_for_all(decider: Decider, rounds: int) -> Iterator[Figure]:
    """Eight five-way questions about one state: eight calls as a multiple of one call that asks them all."""
    for state, size in ((STATE, "short state"), (STATE + MORE * 4, "longer state"), (STATE + MORE * 20, "full state")):
        assert isinstance(decider.layout, Layout)
        tokens = len(decider.layout.encode_state(state).tokens)
        for question, kind in ((DESCRIBED, "described options"), (NAMED, "named options")):
            asked = eight(question)

            def apart(state: str = state, asked: dict[str, Question] = asked) -> None:
                for name, question in asked.items():
                    decider.decide(state, {name: question})

            name = f"eight calls against one: {size} ({tokens} tokens), {kind}"
            goal = 4.0 if (size, question) == ("full state", NAMED) else None
            value = ratio(apart, partial(decider.decide, state, asked), rounds)
            yield Figure(name, value, "times", goal, "at least")


def against_the_session(decider: Decider, rounds: int) -> Iterator[Figure]:
    """A call, from text to answers, as a multiple of the bare ONNX Runtime session on the same tensors."""
    cases: dict[str, dict[str, Question]] = {
        "one yes/no question": {"q": NOUL},
        "eight five-way questions": eight(DESCRIBED),
    }
    for name, asked in cases.items():
        tensors = collate(decider.encode(STATE, asked).request.rows, decider.layout.graph.padding)
        session = partial(decider._runner.run, ["logits"], tensors)
        value = ratio(partial(decider.decide, STATE, asked), session, rounds)
        yield Figure(f"a call against the bare session: {name}", value, "times", 1.2)


def passes(decider: Decider, rounds: int) -> Iterator[Figure]:
    """Requests of mixed lengths: one padded pass as a multiple of passes over rows of similar length."""
    requests: list[Request] = [(STATE[:40] + MORE * (place % 8), {"q": NOUL}) for place in range(32)]
    value = ratio(
        partial(decider.decide_many, requests), partial(decider.decide_many, requests, max_waste=0.25), rounds
    )
    yield Figure("32 states of mixed lengths: one pass against length buckets", value, "times")


def quick_copy(decider: Decider, rounds: int) -> Iterator[Figure]:
    """One question to the exact model as a multiple of the copy in dynamic int8; nothing where onnx is missing."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "quick"
        try:
            write_dynamic_int8(decider.folder, target)
        except MissingPackageError as error:
            print(f"dynamic int8 is left out: {error}", file=sys.stderr)
            return
        quick = Decider.load(target, "cpu", threads=1)
        asked: dict[str, Question] = {"q": DESCRIBED}
        value = ratio(partial(decider.decide, STATE, asked), partial(quick.decide, STATE, asked), rounds)
        yield Figure("one question: exact weights against dynamic int8", value, "times")


def fresh_processes(folder: Path, count: int) -> Iterator[Figure]:
    """CPU seconds from start to first answer, the least, and the peak of memory after eight questions, the most."""
    code = FIRST_ANSWER.format(
        here=str(Path(__file__).parent.parent),
        options=dict(DESCRIBED.criteria),
        wording=DESCRIBED.instructions,
        folder=str(folder),
        short=STATE,
        full=STATE + MORE * 20,
        count=QUESTIONS,
    )
    found = []
    for _ in range(count):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        found.append([float(number) for number in done.stdout.split()])
    yield Figure("load to first answer, fresh process", min(each[0] for each in found), "CPU s", 1.0)
    yield Figure("peak memory, fresh process", max(each[1] for each in found) / 1e6, "MB", 400)


def exactness(decider: Decider) -> Iterator[Figure]:
    """How far a raw score moves with other questions and states in the pass, and against golden.json."""
    alone = decider.decide(STATE, {"q": DESCRIBED})
    crowd: dict[str, Question] = {**{str(number): NOUL for number in range(20)}, "q": DESCRIBED}
    _, together = decider.decide_many([("A short note.", {"n": NOUL}), (STATE, crowd)])
    moved = max(
        abs(left - right) for left, right in zip(raw_logits(alone["q"]), raw_logits(together["q"]), strict=True)
    )
    yield Figure("a logit moves with company", moved, "", 1e-5)
    yield Figure("a logit moves against golden.json", decider.check_golden(), "", 2e-3)


def measure(folder: Path, rounds: int) -> list[Figure]:
    """All figures of a model folder."""
    size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
    decider = Decider.load(folder, "cpu", threads=1)
    figures = [Figure("model folder", size, "MB", 25), *fresh_processes(folder, rounds), *exactness(decider)]
    for part in (one_call_for_all, against_the_session, passes, quick_copy):
        for figure in part(decider, rounds):
            print(line(figure), file=sys.stderr)
            figures.append(figure)
    return figures


def which_model(folder: Path) -> str:
    """The line over the table, by which a test sees that the figures are those of the shipped model."""
    manifest = read_manifest(folder)
    return f"Measured with the model `{manifest.name}`, sha256 `{manifest.sha256[:16]}`."


def line(figure: Figure) -> str:
    """A row of the table."""
    value = f"{figure.value:.1e}" if 0 < figure.value < 1e-2 else f"{figure.value:.2f}".rstrip("0").rstrip(".")
    goal = "" if figure.goal is None else f"{figure.kind} {figure.goal:g}"
    return f"| {figure.name} | {value} {figure.unit} | {goal} |".replace("  |", " |")


HEAD: Final = "| What | measured | goal |\n|---|---:|---:|"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=SHIPPED_MODEL, help="a model folder (default: the shipped one)")
    parser.add_argument("--rounds", type=int, default=5, help="how often to measure each (default 5)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--write", type=Path, help="a page whose table is to be replaced")
    options = parser.parse_args(arguments)
    figures = measure(options.model, options.rounds)
    table = "\n".join([which_model(options.model), "", HEAD, *map(line, figures)])
    print(table)
    if options.json:
        options.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=1) + "\n", encoding="utf-8")
    if options.write:
        write(options.write, "decider-cpu", table)
    missed = [figure.name for figure in figures if figure.missed]
    if missed:
        print(f"missed: {'; '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
