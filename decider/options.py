"""What options of the command line have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return the type of an option that is a whole number within bounds; others end the command with the bounds."""
    allowed = f"at least {least}" if most is None else f"{least} to {most}"

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f"{text!r} is not allowed: give a whole number, {allowed}")
        return number

    return read


def seconds(text: str) -> float:
    """Read a time in seconds above 0; the type of an option."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: give a time in seconds, above 0")
    return number


def add_processor(parser: argparse.ArgumentParser) -> None:
    """Add what computes: the provider and the threads."""
    parser.add_argument("--provider", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--threads", type=whole_number(1), metavar="N", help="CPU threads")
