"""Measures the shipped model as the desk uses it, and writes the figures into the docs.

    python benchmarks/decider_figures.py [--public FILE.jsonl.gz] [--cases FILE.jsonl] [--texts FILE.json] [--write]

`--public` is the public decision set (Workshop Desk Decisions v1): its `dev` split, and its `train` split as a second
measurement. `--cases` are generated cases of held-out wordings, of which the first 500 are taken (`--limit`). `--texts`
holds texts from outside the desk, lists under `foreign` and `near`. With `--write`, docs/decider-figures.json and
docs/decider-guard.json get the figures, and the tables of docs/decider.md and docs/decider-guard.md are written from
them. Nothing is fitted here.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pages

from decider import Decider
from desk.decisions.evaluate import (
    Item,
    ask,
    guard_predictions,
    policy_predictions,
    read_items,
    report,
    route_predictions,
)
from desk.decisions.figures import Figures, figure_of, table
from desk.decisions.guard import GuardCase, GuardFigure, certified, guard_cases, guard_table, measure_guards
from desk.decisions.outside import BUILT_IN, OutsideFigure, measure_outside, outside_table
from desk.thresholds import MAIL_COSTS, action_thresholds

DOCS: Final = Path(__file__).parent.parent / "docs"
ROUTER_FIGURES, ROUTER_PAGE = DOCS / "decider-figures.json", DOCS / "decider.md"
GUARD_FIGURES, GUARD_PAGE = DOCS / "decider-guard.json", DOCS / "decider-guard.md"
ROUNDED_TAU: Final = 0.969
"""The threshold as it is often printed; the exact one is 0.96875."""


CERTIFIED: Final = ("composed", "all")


class GuardReport(msgspec.Struct, frozen=True):
    """The guard's figures by set of cases and guard, at the exact threshold, and the router's on outside text.

    `moved_by_rounding` counts, by set, the decisions of all guards that are others at the rounded threshold.
    `certified` says in words, by set and guard, what threshold the cases certify.
    """

    model_sha256: str
    tau_esc: float
    tau_act: float
    sets: dict[str, dict[str, GuardFigure]]
    moved_by_rounding: dict[str, int]
    certified: dict[str, dict[str, str]]
    outside: dict[str, OutsideFigure]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    options = _parser().parse_args(arguments)
    decider = Decider.load(options.model, provider=options.provider, threads=options.threads)
    figures = Figures(decider.manifest.sha256, {})
    tau_esc, tau_act = action_thresholds(MAIL_COSTS)
    guard = GuardReport(decider.manifest.sha256, tau_esc, tau_act, {}, {}, {}, {})
    for name, items in _sets(options):
        print(f"{name}: {len(items)} items")
        measure_set(decider, name, items, figures, guard)
    texts = {kind: list(found.values()) for kind, found in BUILT_IN.items()}
    texts |= read_texts(options.texts) if options.texts else {}
    guard.outside.update(measure_outside(decider, texts))
    print("\n".join(outside_table(guard.outside)))
    if options.write:
        write(figures, guard)
    return 0


def measure_set(decider: Decider, name: str, items: Sequence[Item], figures: Figures, guard: GuardReport) -> None:
    """Ask everything about the items once, print what was found, and add it to both figures."""
    answers = ask(decider, items)
    methods = {
        **route_predictions(items, answers),
        **policy_predictions(items, answers),
        **guard_predictions(items, answers),
    }
    for method, predictions in methods.items():
        for line in report(method, predictions, groups=False):
            print(line)
    figures.sets[name] = {method: figure_of(found) for method, found in methods.items() if found}
    if cases := guard_cases(items, answers):
        guard.sets[name] = measure_guards(cases, guard.tau_esc, guard.tau_act)
        guard.moved_by_rounding[name] = moved(cases, guard.tau_act, ROUNDED_TAU)
        guard.certified[name] = {which: str(certified(cases, which)) for which in CERTIFIED}
        print("\n".join([*guard_table(guard.sets[name]), *_certified_lines(guard.certified[name])]))


def moved(cases: Sequence[GuardCase], left: float, right: float) -> int:
    """Count the decisions of all guards that lie between two values of tau_act."""
    low, high = sorted((left, right))
    return sum(p is not None and low <= p < high for case in cases for p in case.opinions.values())


def read_texts(path: Path) -> dict[str, list[str]]:
    """Read the texts from outside: the lists `foreign` and `near` of the file; KeyError where one is missing."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return {kind: data[kind] for kind in ("foreign", "near")}


def guard_page(guard: GuardReport) -> str:
    """Give the tables of the guard's page."""
    return "\n".join(_guard_lines(guard))


def write(figures: Figures, guard: GuardReport) -> None:
    """Write both files of figures and the tables of both pages."""
    ROUTER_FIGURES.write_text(figures.to_json(), encoding="utf-8")
    GUARD_FIGURES.write_bytes(msgspec.json.format(msgspec.json.encode(guard), indent=1) + b"\n")
    pages.write(ROUTER_PAGE, "routers", table(figures))
    pages.write(GUARD_PAGE, "guard", guard_page(guard))
    pages.write(GUARD_PAGE, "outside", "\n".join(outside_table(guard.outside)))


def _guard_lines(guard: GuardReport) -> Iterator[str]:
    for name, found in guard.sets.items():
        one = next(iter(found.values()))
        yield f"{name}: {one.allowed} cases in which acting is right, {one.not_allowed} in which it is not.\n"
        yield from guard_table(found)
        yield ""
        yield from _certified_lines(guard.certified[name])
        yield ""
    moves = ", ".join(f"{number} in {name}" for name, number in guard.moved_by_rounding.items())
    yield f"Decisions, of all guards, that change where tau_act is rounded to {ROUNDED_TAU}: {moves}."


def _certified_lines(certificates: Mapping[str, str]) -> Iterator[str]:
    for which, text in certificates.items():
        yield f"- `{which}`: {text}"


def _sets(options: argparse.Namespace) -> Iterator[tuple[str, list[Item]]]:
    if options.public is not None:
        name = options.public.name.partition(".")[0]
        for split in ("dev", "train"):
            if items := list(read_items(options.public, split)):
                yield f"{name} ({split})", items
    if options.cases is not None:
        yield options.cases.stem, list(read_items(options.cases, ""))[: options.limit]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure the shipped model as the desk uses it.")
    parser.add_argument("--model", type=Path, help="model folder; the one shipped where left out")
    parser.add_argument("--public", type=Path, help="the public decision set")
    parser.add_argument("--cases", type=Path, help="generated cases of held-out wordings")
    parser.add_argument("--limit", type=int, default=500, help="how many generated cases to take")
    parser.add_argument("--texts", type=Path, help="texts from outside the desk")
    parser.add_argument("--provider", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--threads", type=int, help="threads of the CPU")
    parser.add_argument("--write", action="store_true", help="write figures and tables into docs/")
    return parser


if __name__ == "__main__":
    sys.exit(main())
