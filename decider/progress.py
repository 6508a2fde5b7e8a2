"""Shows how far a long run is: a bar where `rich` is installed, otherwise a line that is rewritten each second."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, TextIO

SECONDS_BETWEEN_LINES: Final = 1.0


class Progress(Protocol):
    """What counts finished requests."""

    def advance(self, count: int) -> None:
        """Say that `count` more are finished."""
        ...


class PlainProgress:
    """Rewrites one line of text, at most once a second, with the count and, where it is known, the total."""

    def __init__(self, total: int | None, stream: TextIO) -> None:
        self._of_total = "" if total is None else f" of {total:,}"
        self._stream = stream
        self._done = 0
        self._next = 0.0

    def advance(self, count: int) -> None:
        """Count, and show the count when it is time."""
        self._done += count
        if (now := time.monotonic()) >= self._next:
            self._next = now + SECONDS_BETWEEN_LINES
            self._stream.write(f"\r{self._line()}")
            self._stream.flush()

    def close(self) -> None:
        """Show the last count and end the line."""
        self._stream.write(f"\r{self._line()}\n")
        self._stream.flush()

    def _line(self) -> str:
        return f"{self._done:,}{self._of_total} requests answered"


@dataclass(frozen=True, slots=True)
class _RichProgress:
    advance_task: Callable[[int], None]

    def advance(self, count: int) -> None:
        self.advance_task(count)


@contextlib.contextmanager
def progress_bar(total: int | None, stream: TextIO | None = None) -> Iterator[Progress]:
    """Show progress on standard error, or on `stream`, until the block is left; `total` None: not known."""
    target = sys.stderr if stream is None else stream
    if importlib.util.find_spec("rich") is None:
        plain = PlainProgress(total, target)
        try:
            yield plain
        finally:
            plain.close()
    else:
        with _rich_bar(total, target) as bar:
            yield bar


@contextlib.contextmanager
def _rich_bar(total: int | None, stream: TextIO) -> Iterator[Progress]:
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("requests answered"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(file=stream)) as shown:
        task = shown.add_task("", total=total)
        yield _RichProgress(lambda count: shown.advance(task, count))
