"""A saver that keeps everything in this process: the same rows as on disk, in dictionaries."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import msgspec

from minigraph.checkpoint import rows
from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.rows import AncestorRow, CheckpointRow, ResultRow
from minigraph.checkpoint.saver import TableSaver
from minigraph.checkpoint.tables import Head, Query, RecordedRow, Tables, chain_of, duplicate
from minigraph.records import Ancestor, Recorded, Stored, Write


class InMemorySaver(TableSaver):
    """Stores threads in this process only; they are gone when it ends.

    Values are encoded like on disk, so what could not be stored there is refused here, and later in-place edits do
    not reach what is stored. Classes need no registration: they are learnt from their instances. One lock makes it
    safe for threads.
    """

    def __init__(self) -> None:
        super().__init__(Codec(learn=True))
        self._transaction = _Transaction()

    def _reading(self) -> _Transaction:
        return self._transaction

    def _writing(self) -> _Transaction:
        return self._transaction

    async def aget(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> Stored | None:
        """`get`, at once."""
        return self.get(thread_id, namespace, checkpoint_id)

    async def aput(self, write: Write) -> int:
        """`put`, at once."""
        return self.put(write)

    async def ahistory(
        self,
        thread_id: str,
        namespace: str,
        *,
        before: str | None = None,
        limit: int | None = None,
        filter: Mapping[str, Any] | None = None,
    ) -> list[Stored]:
        """`history`, at once."""
        return [*self.history(thread_id, namespace, before=before, limit=limit, filter=filter)]

    async def alineage(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> list[Ancestor]:
        """`lineage`, at once."""
        return self.lineage(thread_id, namespace, checkpoint_id)

    async def arecord_start(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> Recorded | None:
        """`record_start`, at once."""
        return self.record_start(thread_id, namespace, task_id, recorded)

    async def arecord(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> None:
        """`record`, at once."""
        self.record(thread_id, namespace, task_id, recorded)

    async def aremove_record(self, thread_id: str, namespace: str, task_id: str, key: str) -> None:
        """`remove_record`, at once."""
        self.remove_record(thread_id, namespace, task_id, key)

    async def arecorded(self, thread_id: str, namespace: str, task_id: str) -> tuple[Recorded, ...]:
        """`recorded`, at once."""
        return self.recorded(thread_id, namespace, task_id)

    async def adelete_thread(self, thread_id: str) -> None:
        """`delete_thread`, at once."""
        self.delete_thread(thread_id)

    async def acopy_thread(self, source: str, target: str) -> None:
        """`copy_thread`, at once."""
        self.copy_thread(source, target)

    async def aprune(self, thread_id: str, *, keep: int) -> None:
        """`prune`, at once."""
        self.prune(thread_id, keep=keep)


class _Transaction:
    """A with block in which nobody else reads or writes, and after which an error has left nothing behind."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._tables = _MemoryTables()

    def __enter__(self) -> Tables:
        self._lock.acquire()
        self._tables.added.clear()
        return self._tables

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                self._tables.take_back()
        finally:
            self._lock.release()


class _MemoryTables:
    """Rows in dictionaries. Only adding checkpoints can be taken back: nothing after it in a write can fail."""

    def __init__(self) -> None:
        self.added: list[int] = []
        self._numbers = itertools.count(1)
        self._rows: dict[int, CheckpointRow] = {}
        self._ids: dict[tuple[str, str], dict[str, int]] = {}
        self._heads: dict[tuple[str, str], tuple[str, int]] = {}
        self._results: dict[int, dict[str, ResultRow]] = {}
        self._recorded: dict[str, dict[tuple[str, str], dict[str, RecordedRow]]] = {}

    def take_back(self) -> None:
        for sequence in self.added:
            row = self._rows.pop(sequence)
            del self._ids[row.thread_id, row.namespace][row.checkpoint_id]
        self.added.clear()

    def head(self, thread_id: str, namespace: str) -> Head | None:
        found = self._heads.get((thread_id, namespace))
        if found is None:
            return None
        row = self._rows[self._ids[thread_id, namespace][found[0]]]
        return Head(found[0], found[1], chain_of(row))

    def find(self, thread_id: str, namespace: str, checkpoint_id: str) -> CheckpointRow | None:
        sequence = self._ids.get((thread_id, namespace), {}).get(checkpoint_id)
        return None if sequence is None else self._rows[sequence]

    def at(self, sequence: int) -> CheckpointRow | None:
        return self._rows.get(sequence)

    def chain(self, row: CheckpointRow) -> list[bytes]:
        blobs = [row.changes]
        while row.base is not None:
            row = self._rows[row.base]
            blobs.append(row.changes)
        return blobs[::-1]

    def links(self, sequence: int) -> tuple[int, list[bytes]]:
        blobs = []
        row = self._rows[sequence]
        while row.links and row.base is not None:
            blobs.append(row.changes)
            row = self._rows[row.base]
        return row.sequence, blobs[::-1]

    def matching(self, query: Query) -> list[int]:
        places = [
            ids
            for (thread_id, namespace), ids in self._ids.items()
            if query.thread_id in (None, thread_id) and query.namespace in (None, namespace)
        ]
        found = [
            sequence
            for ids in places
            for checkpoint_id, sequence in ids.items()
            if query.checkpoint_id in (None, checkpoint_id)
            and (query.before is None or sequence < query.before)
            and (not query.filter or _matches(self._rows[sequence], query.filter))
        ]
        return sorted(found, reverse=True)

    def lineage(self, thread_id: str, namespace: str, checkpoint_id: str) -> list[AncestorRow]:
        found = []
        row = self.find(thread_id, namespace, checkpoint_id)
        while row is not None:
            found.append(AncestorRow(row.checkpoint_id, row.step, row.source, row.body))
            row = None if row.parent_id is None else self.find(thread_id, namespace, row.parent_id)
        return found

    def results(self, sequence: int) -> list[ResultRow]:
        return list(self._results.get(sequence, {}).values())

    def recorded(self, thread_id: str, namespace: str, task_id: str) -> list[RecordedRow]:
        return list(self._recorded.get(thread_id, {}).get((namespace, task_id), {}).values())

    def namespaces(self, thread_id: str) -> list[str]:
        return sorted(namespace for owner, namespace in self._heads if owner == thread_id)

    def holds(self, thread_id: str) -> bool:
        return thread_id in self._recorded or any(owner == thread_id for owner, _ in self._heads)

    def all_recorded(self, thread_id: str) -> list[RecordedRow]:
        return [row for calls in self._recorded.get(thread_id, {}).values() for row in calls.values()]

    def add(self, row: CheckpointRow) -> int:
        ids = self._ids.setdefault((row.thread_id, row.namespace), {})
        if row.checkpoint_id in ids:
            raise duplicate(row.thread_id, row.checkpoint_id)
        sequence = next(self._numbers)
        ids[row.checkpoint_id] = sequence
        self._rows[sequence] = msgspec.structs.replace(row, sequence=sequence)
        self.added.append(sequence)
        return sequence

    def add_result(self, thread_id: str, row: ResultRow) -> None:
        self._results.setdefault(row.sequence, {})[row.task_id] = row

    def remove_result(self, sequence: int, task_id: str) -> None:
        self._results.get(sequence, {}).pop(task_id, None)

    def set_head(self, thread_id: str, namespace: str, checkpoint_id: str, sequence: int, revision: int) -> None:
        self._heads[thread_id, namespace] = (checkpoint_id, revision)

    def add_recorded(self, thread_id: str, row: RecordedRow) -> None:
        calls = self._recorded.setdefault(thread_id, {}).setdefault((row.namespace, row.task_id), {})
        calls[row.key] = row

    def remove_recorded(self, thread_id: str, namespace: str, task_id: str, key: str | None = None) -> None:
        tasks = self._recorded.get(thread_id, {})
        calls = tasks.get((namespace, task_id), {})
        for name in [key] if key is not None else list(calls):
            calls.pop(name, None)
        if not calls:
            tasks.pop((namespace, task_id), None)
        if not tasks:
            self._recorded.pop(thread_id, None)

    def delete(self, thread_id: str) -> None:
        for place in [place for place in self._ids if place[0] == thread_id]:
            for sequence in self._ids.pop(place).values():
                del self._rows[sequence]
                self._results.pop(sequence, None)
            self._heads.pop(place, None)
        self._recorded.pop(thread_id, None)

    def replace(self, row: CheckpointRow) -> None:
        self._rows[row.sequence] = row

    def forget(self, thread_id: str, namespace: str, before: int) -> None:
        ids = self._ids[thread_id, namespace]
        for checkpoint_id, sequence in list(ids.items()):
            if sequence < before:
                del ids[checkpoint_id], self._rows[sequence]
                self._results.pop(sequence, None)


def _matches(row: CheckpointRow, wanted: dict[str, Any]) -> bool:
    present = {**rows.read_metadata(row.metadata), "source": row.source, "step": row.step}
    return all(key in present and _equal(present[key], value) for key, value in wanted.items())


def _equal(a: object, b: object) -> bool:
    return msgspec.json.encode(a) == msgspec.json.encode(b)
