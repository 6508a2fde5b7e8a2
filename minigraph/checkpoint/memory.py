"""A saver that keeps everything in this process: the same rows as on disk, in lists."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any

from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.filtering import matches
from minigraph.checkpoint.rows import read_metadata
from minigraph.checkpoint.saver import TableSaver
from minigraph.checkpoint.tables import Log, Query, RecordedRow, Row, Tables
from minigraph.records import Ancestor, Recorded, Stored, Write


class InMemorySaver(TableSaver):
    """Stores threads in this process only; they are gone when it ends.

    Values are encoded like on disk, so what could not be stored there is refused here, and later in-place edits do
    not reach what is stored. Classes need no registration: they are learnt from their instances. One lock makes it
    safe for threads. With a `time_to_live`, threads that nobody wrote to for so long and that have nothing due are
    deleted as new ones begin.
    """

    def __init__(self, *, time_to_live: timedelta | None = None) -> None:
        super().__init__(Codec(learn=True), time_to_live)
        self._transaction = _Transaction()

    def _reading(self) -> _Transaction:
        return self._transaction

    def _writing(self) -> _Transaction:
        return self._transaction

    def _lasting(self) -> _Transaction:
        return self._transaction

    def _append(self, number: int, row: Row) -> bool:
        with self._transaction as tables:
            return tables.append(number, row)

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

    async def anamespaces(self, thread_id: str) -> list[str]:
        """`namespaces`, at once."""
        return self.namespaces(thread_id)

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

    async def adelete_before(self, moment: datetime, *, unfinished: bool = False) -> list[str]:
        """`delete_before`, at once."""
        return self.delete_before(moment, unfinished=unfinished)

    async def acopy_thread(self, source: str, target: str) -> None:
        """`copy_thread`, at once."""
        self.copy_thread(source, target)

    async def aexport_thread(self, thread_id: str) -> str:
        """`export_thread`, at once."""
        return self.export_thread(thread_id)

    async def aimport_thread(self, exported: str | bytes, *, thread_id: str | None = None) -> str:
        """`import_thread`, at once."""
        return self.import_thread(exported, thread_id=thread_id)

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
    """Rows in lists. Only what a write adds can be taken back: nothing else fails halfway."""

    def __init__(self) -> None:
        self.added: list[int] = []
        """The logs that the transaction began, and those that it added a row to."""
        self._numbers = itertools.count(1)
        self._logs: dict[tuple[str, str], Log] = {}
        self._rows: dict[int, list[Row]] = {}
        self._recorded: dict[str, dict[tuple[str, str], dict[str, RecordedRow]]] = {}

    def take_back(self) -> None:
        for number in self.added:
            if self._rows[number]:
                self._rows[number].pop()
        for place in [place for place, log in self._logs.items() if not self._rows[log.number]]:
            del self._rows[self._logs.pop(place).number]
        self.added.clear()

    def log(self, thread_id: str, namespace: str) -> Log | None:
        return self._logs.get((thread_id, namespace))

    def logs(self, thread_id: str | None) -> list[Log]:
        return [log for log in self._logs.values() if thread_id in (None, log.thread_id)][::-1]

    def idle(self, before: int, thread_id: str | None = None) -> list[str]:
        last: dict[str, int] = {}
        for log in self._logs.values():
            if thread_id in (None, log.thread_id):
                times = (row.created for row in reversed(self._rows[log.number]) if row.created is not None)
                if (time := next(times, None)) is not None:
                    last[log.thread_id] = max(time, last.get(log.thread_id, time))
        return sorted((name for name, time in last.items() if time < before), key=lambda name: last[name])

    def begin(self, thread_id: str, namespace: str, graphs: str = "") -> int:
        log = self._logs[thread_id, namespace] = Log(next(self._numbers), thread_id, namespace, graphs)
        self._rows[log.number] = []
        return log.number

    def label(self, log: Log, graphs: str) -> None:
        self._logs[log.thread_id, log.namespace] = log._replace(graphs=graphs)

    def fill(self, number: int, rows: Sequence[Row]) -> None:
        self._rows[number] = [*rows]

    def revision(self, number: int) -> int:
        rows = self._rows.get(number)
        return rows[-1].revision if rows else 0

    def newest(self, number: int) -> Row | None:
        return next((row for row in reversed(self._rows.get(number, ())) if row.mark is not None), None)

    def rows(self, number: int, first: int, last: int) -> list[Row]:
        rows = self._rows.get(number)
        if not rows:
            return []
        start = rows[0].revision
        return rows[max(0, first - start) : max(0, last + 1 - start)]

    def after(self, number: int, revision: int) -> list[Row]:
        found = []
        for row in self.rows(number, revision + 1, revision + 1 + len(self._rows.get(number, ()))):
            found.append(row)
            if row.mark is not None:
                break
        return found

    def chain(self, number: int, revision: int) -> list[Row]:
        found = self.rows(number, revision, revision)
        while found and found[-1].base is not None:
            place = found[-1].revision - found[-1].base
            before = self.rows(number, place, place)
            if not before:
                break
            found += before
        return found[::-1]

    def matching(self, query: Query) -> list[tuple[int, int]]:
        numbers = sorted(self._rows, reverse=True) if query.number is None else [query.number]
        found = (
            (number, row.revision)
            for number in numbers
            for row in reversed(self._rows.get(number, ()))
            if row.mark is not None
            and (query.before is None or (number, row.revision) < query.before)
            and (not query.filter or matches(_labels(row), query.filter))
        )
        return list(itertools.islice(found, query.limit))

    def append(self, number: int, row: Row) -> bool:
        rows = self._rows.get(number)
        if rows is None or (rows[-1].revision if rows else 0) != row.revision - 1:
            return False
        rows.append(row)
        self.added.append(number)
        return True

    def replace(self, number: int, row: Row) -> None:
        rows = self._rows[number]
        rows[row.revision - rows[0].revision] = row

    def forget(self, number: int, before: int) -> None:
        rows = self._rows[number]
        del rows[: before - rows[0].revision]

    def copy(self, source: int, target: int) -> None:
        self._rows[target] = list(self._rows[source])

    def delete(self, thread_id: str) -> None:
        for place in [place for place in self._logs if place[0] == thread_id]:
            del self._rows[self._logs.pop(place).number]
        self._recorded.pop(thread_id, None)

    def recorded(self, thread_id: str, namespace: str, task_id: str) -> list[RecordedRow]:
        return list(self._recorded.get(thread_id, {}).get((namespace, task_id), {}).values())

    def all_recorded(self, thread_id: str) -> list[RecordedRow]:
        return [row for calls in self._recorded.get(thread_id, {}).values() for row in calls.values()]

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


def _labels(row: Row) -> dict[str, Any]:
    return {**read_metadata(row.metadata), "source": row.source, "step": row.step}
