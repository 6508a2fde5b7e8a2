"""What the savers of this package have in common: the order of reading and writing rows, over tables of some kind.

A saver provides `Tables` twice, for reading and inside a transaction that takes everything back when an error leaves
it, and `_append`, the one statement that stores a step.
"""

from __future__ import annotations

import builtins
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import msgspec

from minigraph.checkpoint import rows
from minigraph.checkpoint.arguments import (
    check_keep,
    check_thread_id,
    checked_filter,
    checked_limit,
    place_before,
    place_of,
)
from minigraph.checkpoint.base import CheckpointTuple, Saver
from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.labels import extended, graph_at, kept_from, latest
from minigraph.checkpoint.reading import Found, Read, chain_of, read_end, read_many, read_one
from minigraph.checkpoint.recorded import carry, forget_unlisted, read, row_of
from minigraph.checkpoint.retention import TimeToLive, delete_idle, idle_threads, milliseconds
from minigraph.checkpoint.tables import End, Log, Query, Row, Tables
from minigraph.checkpoint.writing import Head, Prepared, prepare, single_row, store
from minigraph.errors import StorageError, ThreadConflictError
from minigraph.identifiers import parts_of_checkpoint_id, revision_of
from minigraph.records import Ancestor, Checkpoint, Recorded, Stored, Write

BLOCK: Final = 512
"""How many checkpoints a history reads at a time."""
REMEMBERED: Final = 1024
"""How many threads a saver remembers the heads of."""


class TableSaver(Saver):
    """A saver over `Tables`."""

    def __init__(self, codec: Codec, time_to_live: timedelta | None = None) -> None:
        self._codec = codec
        self._time_to_live: TimeToLive | None = None
        if time_to_live is not None:
            self._time_to_live = TimeToLive(time_to_live, self._idle_threads, self._delete_idle)
        self._heads: dict[tuple[str, str], Head] = {}
        """What was last read or written of a thread. A write that builds on it fails if it is no longer so."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Tables]:
        """Tables for one consistent read."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Tables]:
        """Tables inside one transaction."""

    @abstractmethod
    def _lasting(self) -> AbstractContextManager[Tables]:
        """Tables inside one transaction that outlives a power cut once it has ended."""

    @abstractmethod
    def _append(self, number: int, row: Row) -> bool:
        """`Tables.append` as a transaction of its own."""

    def _end(self, thread_id: str, namespace: str) -> End | None:
        """The end of a log, found with one statement. None without a log, and of a saver that has no such statement."""
        return None

    def register(self, *types: type, name: str | None = None) -> None:
        """Makes the program's classes known, so that their instances can be stored and read.

        TypeError for a class that cannot be stored; StorageError if another class has the same stored name.
        """
        self._codec.register(*types, name=name)

    def get(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> Stored | None:
        """The checkpoint with this id, or the head; None if there is none. Its values are new objects."""
        end = self._end(thread_id, namespace) if checkpoint_id is None else None
        read = None if end is None else read_end(self._codec, end.rows)
        if end is not None and read is not None:
            return self._newest(end.log, end.rows[0].revision, read)
        with self._reading() as tables:
            log = tables.log(thread_id, namespace)
            head = None if log is None else tables.newest(log.number)
            if log is None or head is None:
                return None
            after = tables.after(log.number, head.revision)
            revision = after[-1].revision if after else head.revision
            head_id = rows.id_of(head)
            if checkpoint_id is None or checkpoint_id == head_id:
                return self._newest(log, revision, read_one(self._codec, tables, log.number, head, after))
            row = find(tables, log.number, checkpoint_id)
            if row is None:
                return None
            after = tables.after(log.number, row.revision)
            point, results, _ = read_one(self._codec, tables, log.number, row, after)
        return Stored(point, results, head_id, revision, graph_at(log.graphs, row.revision))

    def _newest(self, log: Log, revision: int, read: Read) -> Stored:
        """The newest checkpoint of a log whose last row has a revision; the next write will build on it."""
        point, results, numbers = read
        at = revision_of(point.id)
        head = Head(log.number, revision, at, point.id, numbers, latest(log.graphs))
        self._remember(log.thread_id, log.namespace, head)
        return Stored(point, results, point.id, revision, graph_at(log.graphs, at))

    def put(self, write: Write) -> int:
        """Stores everything of `write` in one transaction and returns the new revision.

        Raises ThreadConflictError, storing nothing, if the head's revision is not `write.revision`, or if the write
        would begin a child graph's log and there is none of its caller (`write.under`).
        """
        known = self._heads.get((write.thread_id, write.namespace))
        if known is not None and known.revision != write.revision:
            known = None
        prepared = prepare(self._codec, write, known)
        single = None
        if known is not None and (known.graph == write.graph or not write.graph):
            single = single_row(self._codec, prepared, known)
        if single is not None and known is not None and self._append(known.number, single[0]):
            head = single[1]
        else:
            head = self._put(prepared, known)
        self._remember(write.thread_id, write.namespace, head)
        return head.revision

    def _put(self, prepared: Prepared, known: Head | None) -> Head:
        """Stores a write of any kind; `known` is what its revision was remembered to be."""
        write = prepared.write
        with self._writing() as tables:
            log = tables.log(write.thread_id, write.namespace)
            number = None if log is None else log.number
            revision = 0 if number is None else tables.revision(number)
            if revision != write.revision or (known is not None and known.number != number):
                self._heads.pop((write.thread_id, write.namespace), None)
                raise ThreadConflictError(
                    f"thread {write.thread_id!r}, namespace {write.namespace!r}: it is at revision {revision}, this "
                    f"run read revision {write.revision}; another run moved it meanwhile and nothing was stored"
                )
            if number is None and write.under is not None and tables.log(write.thread_id, write.under) is None:
                raise ThreadConflictError(
                    f"thread {write.thread_id!r}, namespace {write.namespace!r}: the thread was deleted while a run of"
                    " it called this child graph; nothing was stored"
                )
            newest = None if number is None else tables.newest(number)
            graphs = extended("" if log is None else log.graphs, revision + 1, write.graph)
            if number is None:
                number = tables.begin(write.thread_id, write.namespace, graphs)
            head = store(self._codec, tables, number, newest, prepared)
            for carried in write.carried:
                carry(tables, write, carried)
            if log is not None and graphs != log.graphs:
                tables.label(log, graphs)
        if self._time_to_live is not None and not write.revision and not write.namespace:
            self._time_to_live.thread_began()
        return msgspec.structs.replace(head, graph=latest(graphs))

    def _remember(self, thread_id: str, namespace: str, head: Head) -> None:
        heads = self._heads
        heads[thread_id, namespace] = head
        if len(heads) > REMEMBERED:
            for oldest in [*heads][: REMEMBERED // 2]:
                heads.pop(oldest, None)

    def history(
        self,
        thread_id: str,
        namespace: str,
        *,
        before: str | None = None,
        limit: int | None = None,
        filter: Mapping[str, Any] | None = None,
    ) -> Iterator[Stored]:
        """The checkpoints of a thread and namespace, newest first.

        `before`: only those stored before the one with this id. `limit`: at most so many (0: none). `filter`: only
        those whose `source`, `step` or metadata equal these values, types included.
        """
        query = Query(filter=checked_filter(filter), limit=checked_limit(limit))
        with self._reading() as tables:
            log = tables.log(thread_id, namespace)
            if log is None:
                return
            number = log.number
            if before is not None:
                row = find(tables, number, before)
                if row is None:
                    return
                query = query._replace(before=(number, row.revision))
            wanted = [revision for _, revision in tables.matching(query._replace(number=number))]
            newest = tables.newest(number)
            if newest is None:
                return
            head_id, revision = rows.id_of(newest), tables.revision(number)
        for point, results in self._blocks(number, wanted):
            yield Stored(point, results, head_id, revision, graph_at(log.graphs, revision_of(point.id)))

    def lineage(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> builtins.list[Ancestor]:
        """The checkpoint with this id (None: the head) and its ancestors as far as they are stored, newest first.

        Empty if there is no such checkpoint. No state is read.
        """
        with self._reading() as tables:
            log = tables.log(thread_id, namespace)
            if log is None:
                return []
            row = tables.newest(log.number) if checkpoint_id is None else find(tables, log.number, checkpoint_id)
            known = {} if row is None else {each.revision: each for each in tables.rows(log.number, 1, row.revision)}
        line = []
        while row is not None:
            line.append(rows.read_ancestor(row, graph_at(log.graphs, row.revision)))
            row = None if row.parent is None else known.get(row.revision - row.parent)
        return line

    def list(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """The checkpoints that a config addresses (None: of every thread and namespace), newest first.

        A config without `checkpoint_ns` means the root namespace; `before` is a config with a `checkpoint_id`. Of
        several threads the one that began last comes first.
        """
        query = Query(filter=checked_filter(filter), limit=checked_limit(limit))
        named = {} if config is None else place_of(config)
        earlier = None if before is None else place_before(before, named)
        with self._reading() as tables:
            logs = {log.number: log for log in tables.logs(named.get("thread_id"))}
            if earlier is not None:
                older = _find(tables, earlier)
                if older is None:
                    return
                query = query._replace(before=(older[0], older[1].revision))
            if config is not None:
                log = tables.log(named["thread_id"], named.get("checkpoint_ns", ""))
                if log is None:
                    return
                query = query._replace(number=log.number)
            matching = tables.matching(query)
            if named.get("checkpoint_id") is not None:
                exact = _find(tables, named)
                matching = [place for place in matching if exact and place == (exact[0], exact[1].revision)]
        for number, places in groupby(matching, itemgetter(0)):
            for point, _ in self._blocks(number, [revision for _, revision in places]):
                yield _tuple_of(logs[number], point)

    def _blocks(self, number: int, wanted: builtins.list[int]) -> Iterator[Found]:
        for start in range(0, len(wanted), BLOCK):
            with self._reading() as tables:
                found = read_many(self._codec, tables, number, wanted[start : start + BLOCK])
            yield from found

    def namespaces(self, thread_id: str) -> builtins.list[str]:
        """The namespaces of a thread that hold a checkpoint, sorted; the root is "" ."""
        with self._reading() as tables:
            return sorted(log.namespace for log in tables.logs(thread_id))

    def delete_thread(self, thread_id: str) -> None:
        """Forgets everything about a thread; nothing happens if there is none."""
        check_thread_id("delete_thread", thread_id)
        with self._writing() as tables:
            tables.delete(thread_id)

    def delete_before(self, moment: datetime, *, unfinished: bool = False) -> builtins.list[str]:
        """Deletes the threads that nobody wrote to since a moment (a datetime with a zone), and returns their ids.

        A thread that still has something due, since it waits for a person or failed, is spared unless `unfinished`.
        Each thread is one short transaction; one that is written to meanwhile is spared.
        """
        before = milliseconds(moment)
        found = self._idle_threads(before, unfinished=unfinished)
        return [name for name in found if self._delete_idle(name, before, unfinished=unfinished)]

    def _idle_threads(self, before: int, *, unfinished: bool = False) -> builtins.list[str]:
        with self._reading() as tables:
            return idle_threads(tables, before, unfinished=unfinished)

    def _delete_idle(self, thread_id: str, before: int, *, unfinished: bool = False) -> bool:
        with self._writing() as tables:
            return delete_idle(tables, thread_id, before, unfinished=unfinished)

    def copy_thread(self, source: str, target: str) -> None:
        """Copies a thread with its history. StorageError if `source` is not there or `target` already is.

        The copy keeps the times of its steps, so for `delete_before` and `time_to_live` it is as old as its source.
        """
        check_thread_id("copy_thread", source)
        check_thread_id("copy_thread", target)
        with self._writing() as tables:
            if not _holds(tables, source):
                raise StorageError(f"copy_thread({source!r}, {target!r}): there is no thread {source!r}")
            if _holds(tables, target):
                raise StorageError(f"copy_thread({source!r}, {target!r}): the thread {target!r} already exists")
            for log in tables.logs(source):
                tables.copy(log.number, tables.begin(target, log.namespace, log.graphs))
            for recorded in tables.all_recorded(source):
                tables.add_recorded(target, recorded)

    def export_thread(self, thread_id: str) -> str:
        """A thread as one JSON text: every namespace, checkpoint, result and `once()` call, for `import_thread`.

        Classes need not be registered. StorageError if the thread is not there.
        """
        check_thread_id("export_thread", thread_id)
        from minigraph.checkpoint import exchange  # needed for this alone, and not worth loading before

        with self._reading() as tables:
            thread = exchange.thread_of(tables, thread_id)
        if not thread.logs and not thread.recorded:
            raise StorageError(f"export_thread({thread_id!r}): there is no such thread")
        return exchange.written(thread)

    def import_thread(self, exported: str | bytes, *, thread_id: str | None = None) -> str:
        """Stores a thread from the text that `export_thread` gave, from a saver of any kind; returns its id.

        `thread_id` gives it another one. StorageError, and nothing is stored, where a thread of that id is there, and
        for a text that is damaged, of something else, or from a newer release. The thread keeps the times of its steps,
        so for `delete_before` and `time_to_live` it is as old as it was.
        """
        if thread_id is not None:
            check_thread_id("import_thread", thread_id)
        from minigraph.checkpoint import exchange

        thread = exchange.read(exported, thread_id)
        with self._writing() as tables:
            if _holds(tables, thread.thread_id):
                raise StorageError(
                    f"import_thread(...): the thread {thread.thread_id!r} already exists; delete it first, or give the"
                    " import another id with thread_id="
                )
            exchange.keep(tables, thread)
        return thread.thread_id

    def prune(self, thread_id: str, *, keep: int) -> None:
        """Forgets all but the newest `keep` checkpoints of each namespace; the head always stays.

        The oldest that is kept has no parent any more. What tasks recorded with `once()` stays as long as a checkpoint
        that is kept lists the task. StorageError if the thread is not there, ValueError if `keep` is negative.
        """
        check_thread_id("prune", thread_id)
        check_keep(f"prune({thread_id!r})", keep)
        with self._writing() as tables:
            if not _holds(tables, thread_id):
                raise StorageError(f"prune({thread_id!r}): there is no such thread")
            for log in tables.logs(thread_id):
                kept = tables.matching(Query(log.number, limit=max(keep, 1)))
                first = kept[-1][1]
                for row in tables.rows(log.number, first, kept[0][1]):
                    if row.base is not None and row.revision - row.base < first:
                        tables.replace(log.number, rows.made_whole(chain_of(tables, log.number, row)))
                tables.forget(log.number, first)
                if (graphs := kept_from(log.graphs, first)) != log.graphs:
                    tables.label(log, graphs)
            forget_unlisted(self._codec, tables, thread_id)

    def record_start(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> Recorded | None:
        """Stores that a `once()` call of a running task begins, unless its key has a record: that one is returned.

        Looking and storing are one transaction, so that of two runs one calls.
        """
        row = row_of(self._codec, namespace, task_id, recorded)
        with self._lasting() as tables:
            found = [row for row in tables.recorded(thread_id, namespace, task_id) if row.key == recorded.key]
            if not found:
                tables.add_recorded(thread_id, row)
        return read(self._codec, found[0]) if found else None

    def record(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> None:
        """Stores the state of one `once()` call at once, replacing an earlier one of its key."""
        row = row_of(self._codec, namespace, task_id, recorded)
        with self._writing() as tables:
            tables.add_recorded(thread_id, row)

    def remove_record(self, thread_id: str, namespace: str, task_id: str, key: str) -> None:
        """Forgets a `once()` call, of which it is certain that it did nothing; nothing happens if there is none."""
        with self._writing() as tables:
            tables.remove_recorded(thread_id, namespace, task_id, key)

    def recorded(self, thread_id: str, namespace: str, task_id: str) -> tuple[Recorded, ...]:
        """The `once()` calls stored for a task, in the order in which they began."""
        with self._reading() as tables:
            found = tables.recorded(thread_id, namespace, task_id)
        return tuple([read(self._codec, row) for row in found])


def find(tables: Tables, number: int, checkpoint_id: str) -> Row | None:
    """The row of a checkpoint of a log, by its id."""
    parts = parts_of_checkpoint_id(checkpoint_id)
    found = [] if parts is None else tables.rows(number, parts[0], parts[0])
    return found[0] if found and parts is not None and found[0].mark == parts[1] else None


def _find(tables: Tables, place: Mapping[str, Any]) -> tuple[int, Row] | None:
    """Number and row of the checkpoint that a config names."""
    log = tables.log(place["thread_id"], place.get("checkpoint_ns", ""))
    row = None if log is None else find(tables, log.number, place["checkpoint_id"])
    return None if log is None or row is None else (log.number, row)


def _holds(tables: Tables, thread_id: str) -> bool:
    return bool(tables.logs(thread_id) or tables.all_recorded(thread_id))


def _tuple_of(log: Log, point: Checkpoint) -> CheckpointTuple:
    def config(checkpoint_id: str) -> dict[str, Any]:
        place = {"thread_id": log.thread_id, "checkpoint_ns": log.namespace, "checkpoint_id": checkpoint_id}
        return {"configurable": place}

    metadata = {"source": point.source, "step": point.step, **point.metadata}
    parent = None if point.parent_id is None else config(point.parent_id)
    return CheckpointTuple(config(point.id), point, metadata, parent)
