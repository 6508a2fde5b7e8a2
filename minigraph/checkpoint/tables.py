"""What a saver keeps its rows in: the narrow interface that another database has to offer.

A thread is a log of writes, one log for each namespace. A row is one write: its number in the log is the thread's
revision, and the last row is the head. A row whose `mark` is None holds results only; every other row is a checkpoint
as well. Rows refer to earlier ones by how many revisions they stand back, so a copy of a log needs no change.

A saver over such tables provides two ways in (see `saver.TableSaver`): a transaction around `Tables`, and `append`
alone, as one statement that is a transaction of its own. All the rest (what a row holds, when a state is stored whole,
how a history is read) is done above this interface, alike for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec


class Row(msgspec.Struct, frozen=True, gc=False):
    """One write. Its state is what `body` changes in the state of the row `base` revisions back (None: it is whole)."""

    revision: int
    mark: bytes | None
    """The random half of the checkpoint's id; None where the write holds results only."""
    parent: int | None
    """How many revisions back the checkpoint stands that it came from; None for the first of a line."""
    base: int | None
    step: int | None
    source: str | None
    created: int | None
    """Milliseconds since 1970; may be None where the write holds results only."""
    metadata: str | None
    """JSON; None if there is none."""
    body: bytes


class Log(NamedTuple):
    """A thread and namespace, and the number by which its rows are kept. A number is given once, deleted or not."""

    number: int
    thread_id: str
    namespace: str
    graphs: str = ""
    """Which graphs wrote it (`labels`)."""


class End(NamedTuple):
    """The end of a log: rows of it, the newest first, the newest checkpoint and all after it among them."""

    log: Log
    rows: list[Row]


class RecordedRow(msgspec.Struct, frozen=True):
    """One stored `once()` call."""

    namespace: str
    task_id: str
    key: str
    done: bool
    value: bytes
    error: str
    questions: int
    children: int


class Query(NamedTuple):
    """Which checkpoints to list: of one log (None: of all), older than one of them, and whose metadata, `source`
    and `step` equal the values of a filter, types included."""

    number: int | None = None
    before: tuple[int, int] | None = None
    """Number and revision; a lower number counts as older."""
    filter: Mapping[str, Any] = MappingProxyType({})
    limit: int | None = None


class Tables(Protocol):
    """Logs, their rows, and once() calls. The lists of rows that its methods give are oldest first."""

    def log(self, thread_id: str, namespace: str) -> Log | None:
        """A log, if there is one."""
        ...

    def logs(self, thread_id: str | None) -> list[Log]:
        """All logs of a thread, by namespace; None: of every thread, the one that began last first."""
        ...

    def idle(self, before: int, thread_id: str | None = None) -> list[str]:
        """The threads (or whether that one) whose last row that has a time was made before one, in milliseconds since
        1970; the oldest first. Those of which nothing has a time are none of them."""
        ...

    def begin(self, thread_id: str, namespace: str, graphs: str = "") -> int:
        """Makes an empty log and returns its number."""
        ...

    def label(self, log: Log, graphs: str) -> None:
        """Sets which graphs wrote a log."""
        ...

    def fill(self, number: int, rows: Sequence[Row]) -> None:
        """Gives an empty log rows, whose revisions follow one another and may begin anywhere."""
        ...

    def revision(self, number: int) -> int:
        """The revision of the last row, 0 where there is none."""
        ...

    def newest(self, number: int) -> Row | None:
        """The last row that is a checkpoint."""
        ...

    def rows(self, number: int, first: int, last: int) -> list[Row]:
        """The rows from one revision to another, both included."""
        ...

    def after(self, number: int, revision: int) -> list[Row]:
        """The rows after a revision, up to and including the next checkpoint."""
        ...

    def chain(self, number: int, revision: int) -> list[Row]:
        """The row and those that its state builds on, `base` by `base`."""
        ...

    def matching(self, query: Query) -> list[tuple[int, int]]:
        """Number and revision of the checkpoints that a query finds, the highest number and revision first."""
        ...

    def append(self, number: int, row: Row) -> bool:
        """Adds a row, unless its revision is taken or the row before it (if any is due) is not there: then False."""
        ...

    def replace(self, number: int, row: Row) -> None:
        """Stores a row anew."""
        ...

    def forget(self, number: int, before: int) -> None:
        """Deletes the rows before a revision."""
        ...

    def copy(self, source: int, target: int) -> None:
        """Gives an empty log the rows of another."""
        ...

    def delete(self, thread_id: str) -> None:
        """Deletes the logs, rows and once() calls of a thread."""
        ...

    def recorded(self, thread_id: str, namespace: str, task_id: str) -> list[RecordedRow]:
        """The once() calls of a task, in the order in which they began."""
        ...

    def all_recorded(self, thread_id: str) -> list[RecordedRow]:
        """The once() calls of a thread; those of one task in the order in which they began."""
        ...

    def add_recorded(self, thread_id: str, row: RecordedRow) -> None:
        """Stores a once() call, in place of an earlier one of its key."""
        ...

    def remove_recorded(self, thread_id: str, namespace: str, task_id: str, key: str | None = None) -> None:
        """Deletes one once() call of a task; None: all of them."""
        ...
