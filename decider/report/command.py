"""`decider report MODEL CASES --out report.html`: measures a model on labelled cases and writes the page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from decider.errors import DeciderError
from decider.model import Decider
from decider.options import add_processor, whole_number
from decider.report.families import ask, families
from decider.report.page import report_page
from decider.report.robustness import measure_robustness, read_wordings
from decider.train.examples import read_examples

if TYPE_CHECKING:
    Parsers: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]


def add_report(commands: Parsers) -> None:
    """Add `decider report`."""
    _arguments(commands.add_parser("report", help="measure a model on labelled cases and write a page about it"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m decider.report`."""
    parser = argparse.ArgumentParser(prog="python -m decider.report", description="Write a page about a model.")
    _arguments(parser)
    options = parser.parse_args(arguments)
    try:
        return report(options)
    except (DeciderError, OSError, ValueError) as error:
        sys.stderr.write(f"decider report: {error}\n")
        return 2


def report(options: argparse.Namespace) -> int:
    """Ask everything, measure, write the page, and say where it is."""
    _check_writable(options.out)
    examples = read_examples(options.cases)[: options.limit]
    wordings = read_wordings(options.wordings) if options.wordings else {}
    decider = Decider.load(options.model, options.provider, options.threads)
    answered = ask(decider, examples, progress=options.progress)
    found = families(answered)
    shifts = measure_robustness(decider, examples[: options.robustness], wordings) if options.robustness else []
    cut = sum(each.cut for each in answered)
    page = report_page(decider.manifest, options.cases.name, found, shifts, cut, len(answered))
    options.out.write_text(page, encoding="utf-8")
    broken = [each.name for each in shifts if not each.holds]
    print(f"{len(answered)} questions, {len(found)} families, written to {options.out}")
    if broken:
        print(f"moved and must not move: {', '.join(broken)}")
    return 1 if broken else 0


def _check_writable(path: Path) -> None:
    """Raise OSError where the page could not be written, before all the work for it; leaves no new file behind."""
    was_there = path.exists()
    with path.open("ab"):
        pass
    if not was_there:
        path.unlink()


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="model folder")
    parser.add_argument("cases", type=Path, help="labelled examples, JSON Lines (see decider.train.examples)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the HTML file to write")
    parser.add_argument("--wordings", type=Path, metavar="FILE", help="other ways to ask the questions, as JSON")
    parser.add_argument("--limit", type=whole_number(1), metavar="N", help="take the first N cases")
    parser.add_argument(
        "--robustness", type=whole_number(0), default=100, metavar="N", help="cases to ask in other ways (100; 0: none)"
    )
    add_processor(parser)
    parser.add_argument("--progress", action="store_true", help="show how many questions are answered")
    parser.set_defaults(run=report)
