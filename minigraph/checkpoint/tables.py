"""What a saver keeps its rows in: the reads and writes that storing threads takes."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from minigraph.checkpoint.rows import AncestorRow, Chain, CheckpointRow, ResultRow
from minigraph.errors import StorageError


class Head(msgspec.Struct, frozen=True):
    """Where a thread and namespace stands; `chain` is where the head's state is stored."""

    checkpoint_id: str
    revision: int
    chain: Chain


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


class Query(msgspec.Struct, frozen=True):
    """Which checkpoints to list, newest first; None means any."""

    thread_id: str | None = None
    namespace: str | None = None
    checkpoint_id: str | None = None
    before: int | None = None
    filter: dict[str, Any] = {}


class Tables(Protocol):
    """Rows of checkpoints, heads, results and once() calls."""

    def head(self, thread_id: str, namespace: str) -> Head | None: ...
    def find(self, thread_id: str, namespace: str, checkpoint_id: str) -> CheckpointRow | None: ...
    def at(self, sequence: int) -> CheckpointRow | None: ...
    def chain(self, row: CheckpointRow) -> list[bytes]:
        """The changes that make up a row's state, the complete one first."""
        ...

    def links(self, sequence: int) -> tuple[int, list[bytes]]:
        """The row at which a row's run of single changes began, and the changes since, oldest first."""
        ...

    def matching(self, query: Query) -> list[int]:
        """The sequence numbers that a query finds, newest first."""
        ...

    def lineage(self, thread_id: str, namespace: str, checkpoint_id: str) -> list[AncestorRow]:
        """A checkpoint and its ancestors as far as they are stored, newest first."""
        ...

    def results(self, sequence: int) -> list[ResultRow]: ...
    def recorded(self, thread_id: str, namespace: str, task_id: str) -> list[RecordedRow]: ...
    def namespaces(self, thread_id: str) -> list[str]: ...
    def holds(self, thread_id: str) -> bool: ...
    def all_recorded(self, thread_id: str) -> list[RecordedRow]: ...
    def add(self, row: CheckpointRow) -> int:
        """Adds a checkpoint and returns the sequence number it got (the row's own is not used)."""
        ...

    def add_result(self, thread_id: str, row: ResultRow) -> None: ...
    def remove_result(self, sequence: int, task_id: str) -> None: ...
    def set_head(self, thread_id: str, namespace: str, checkpoint_id: str, sequence: int, revision: int) -> None: ...
    def add_recorded(self, thread_id: str, row: RecordedRow) -> None: ...
    def remove_recorded(self, thread_id: str, namespace: str, task_id: str, key: str | None = None) -> None:
        """Deletes one `once()` call of a task; None: all of them."""
        ...

    def delete(self, thread_id: str) -> None: ...
    def replace(self, row: CheckpointRow) -> None: ...
    def forget(self, thread_id: str, namespace: str, before: int) -> None:
        """Deletes the checkpoints numbered lower than `before`, with their results."""
        ...


def duplicate(thread_id: str, checkpoint_id: str) -> StorageError:
    """The error for a checkpoint that is stored already."""
    return StorageError(f"thread {thread_id!r}: the checkpoint {checkpoint_id!r} is stored already")


def chain_of(row: CheckpointRow) -> Chain:
    """The numbers of a row."""
    return Chain(row.sequence, row.links, row.rows, row.chain_bytes, row.state_bytes)
