"""What the savers of this package have in common: the order of reading and writing rows, over tables of some kind.

A saver provides `Tables` twice: for reading, and inside a transaction that takes everything back when an error
leaves it.
"""

from __future__ import annotations

import builtins
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from minigraph.checkpoint import rows
from minigraph.checkpoint.base import CheckpointTuple, Saver
from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.results import Child, read_result, write_result
from minigraph.checkpoint.rows import Chain, CheckpointRow, Draft, ResultRow
from minigraph.checkpoint.tables import Head, Query, RecordedRow, Tables, chain_of
from minigraph.checkpoint.walk import pack
from minigraph.errors import DecodeError, StorageError, ThreadConflictError
from minigraph.records import Ancestor, Carried, Checkpoint, Recorded, Result, Stored, Write


class TableSaver(Saver):
    """A saver over `Tables`."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Tables]:
        """Tables for one consistent read."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Tables]:
        """Tables inside one transaction."""

    def _lasting(self) -> AbstractContextManager[Tables]:
        """Tables inside one transaction that outlives a power cut."""
        return self._writing()

    def register(self, *types: type, name: str | None = None) -> None:
        """Makes the program's classes known, so that their instances can be stored and read.

        TypeError for a class that cannot be stored; StorageError if another class has the same stored name.
        """
        self._codec.register(*types, name=name)

    def get(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> Stored | None:
        """The checkpoint with this id, or the head; None if there is none. Its values are new objects."""
        with self._reading() as tables:
            head = tables.head(thread_id, namespace)
            if head is None:
                return None
            if checkpoint_id is None:
                row = tables.at(head.chain.sequence)
            else:
                row = tables.find(thread_id, namespace, checkpoint_id)
            return None if row is None else self._stored(tables, row, head)

    def _stored(self, tables: Tables, row: CheckpointRow, head: Head) -> Stored:
        point = rows.read_checkpoint(self._codec, row, tables.chain(row))
        found = tables.results(row.sequence)
        results: tuple[Result, ...] = ()
        if found:
            order = {task.id: place for place, task in enumerate(point.due)}
            found.sort(key=lambda result: (order.get(result.task_id, len(order)), result.task_id))
            results = tuple(self._results(tables, found))
        return Stored(point, results, head.checkpoint_id, head.revision, row.sequence)

    def _results(self, tables: Tables, found: Iterable[ResultRow]) -> Iterator[Result]:
        children: dict[int | None, Child | None] = {None: None}
        for result in found:
            if result.child is not None and result.child not in children:
                row = tables.at(result.child)
                if row is None:
                    raise DecodeError(f"the checkpoint that task {result.task_id!r} led to is no longer stored")
                children[result.child] = self._child(tables, row)
            yield read_result(self._codec, result, children[result.child])

    def _child(self, tables: Tables, row: CheckpointRow) -> Child:
        def state() -> dict[str, Any]:
            return rows.read_checkpoint(self._codec, row, tables.chain(row)).values

        return Child(self._codec, rows.read_changes(row.changes)[0], state)

    def put(self, write: Write) -> int:
        """Stores everything of `write` in one transaction and returns the new revision.

        Raises ThreadConflictError, storing nothing, if the head's revision is not `write.revision`.
        """
        codec = self._codec
        drafts = [rows.draft(codec, new) for new in write.checkpoints]
        children = {d.new.checkpoint.parent_id: d.new.checkpoint for d in reversed(drafts) if d.new.previous}
        encoded = [
            (checkpoint_id, result.task_id, *write_result(codec, result, children.get(checkpoint_id)))
            for checkpoint_id, result in write.results
        ]
        with self._writing() as tables:
            head = tables.head(write.thread_id, write.namespace)
            revision = head.revision if head else 0
            if revision != write.revision:
                raise ThreadConflictError(
                    f"thread {write.thread_id!r}, namespace {write.namespace!r}: it is at revision {revision}, this "
                    f"run read revision {write.revision}; another run moved it meanwhile and nothing was stored"
                )
            places: dict[str, Chain] = {head.checkpoint_id: head.chain} if head else {}
            for prepared in drafts:
                chain = self._add(tables, write, prepared, places)
                places[prepared.new.checkpoint.id] = chain
            for checkpoint_id, task_id, body, refers in encoded:
                place = self._place(tables, write, checkpoint_id, places).sequence
                child = places[children[checkpoint_id].id].sequence if refers else None
                tables.add_result(write.thread_id, ResultRow(place, task_id, child, body))
            for checkpoint_id, task_id in write.removed:
                tables.remove_result(self._place(tables, write, checkpoint_id, places).sequence, task_id)
            for carried in write.carried:
                self._carry(tables, write, carried)
            if drafts:
                last = drafts[-1].new.checkpoint.id
                tables.set_head(write.thread_id, write.namespace, last, places[last].sequence, revision + 1)
            elif head is not None:
                tables.set_head(write.thread_id, write.namespace, head.checkpoint_id, head.chain.sequence, revision + 1)
            else:
                raise StorageError(f"thread {write.thread_id!r} has no checkpoint yet and the write brings none")
        return revision + 1

    def _place(self, tables: Tables, write: Write, checkpoint_id: str, places: dict[str, Chain]) -> Chain:
        chain = places.get(checkpoint_id)
        if chain is None:
            row = tables.find(write.thread_id, write.namespace, checkpoint_id)
            if row is None:
                raise StorageError(
                    f"thread {write.thread_id!r}, namespace {write.namespace!r}: no checkpoint {checkpoint_id!r} is "
                    "stored, so no result of it can be"
                )
            chain = places[checkpoint_id] = chain_of(row)
        return chain

    def _carry(self, tables: Tables, write: Write, carried: Carried) -> None:
        for row in tables.all_recorded(write.thread_id):
            owner, bar, way = row.task_id.partition("|")
            same = (row.namespace, owner) == (carried.namespace, carried.task_id)
            if same and carried.includes(row.questions, row.children):
                place = {"namespace": write.namespace, "task_id": f"{carried.new_task_id}{bar}{way}"}
                tables.add_recorded(write.thread_id, msgspec.structs.replace(row, **place))

    def _add(self, tables: Tables, write: Write, prepared: Draft, places: dict[str, Chain]) -> Chain:
        """Stores a checkpoint: complete, as changes since its parent, or as all changes since an earlier row."""
        found, before = prepared.difference, prepared.new.previous
        parent: Chain | None = None
        if before is not None and not found.complete:
            parent = places.get(before.id)
            if parent is None:
                row = tables.find(write.thread_id, write.namespace, before.id)
                parent = chain_of(row) if row else None
        chain: Chain | None = None
        base: int | None = None
        changes = b""
        if parent is not None:
            changes = pack([found.keys, prepared.written])
            size = max(0, parent.state_bytes + found.growth + prepared.written_growth)
            base, links = parent.sequence, parent.links + 1
            read_rows, read_bytes = parent.rows + 1, parent.chain_bytes + len(changes) + rows.ROW_COST
            outweighed = read_bytes > 2 * (size + rows.ROW_COST) or len(changes) + rows.ROW_COST // 2 >= size
            if not outweighed and links >= rows.SPAN:
                base, blobs = tables.links(parent.sequence)
                changes = rows.join_changes([*blobs, changes])
                start = tables.at(base)
                assert start is not None
                links, read_rows = 0, start.rows + 1
                read_bytes = start.chain_bytes + len(changes) + rows.ROW_COST
            if not outweighed:
                chain = Chain(0, links, read_rows, read_bytes, size)
        if chain is None:
            base = None
            changes, size = rows.whole(self._codec, prepared)
            chain = Chain(0, 0, 1, len(changes) + rows.ROW_COST, size)
        point = prepared.new.checkpoint
        sequence = tables.add(
            CheckpointRow(
                0,
                write.thread_id,
                write.namespace,
                point.id,
                point.parent_id,
                point.step,
                point.source,
                point.created_at,
                prepared.metadata,
                prepared.body,
                changes,
                base,
                chain.rows,
                chain.links,
                chain.chain_bytes,
                chain.state_bytes,
            )
        )
        return Chain(sequence, chain.links, chain.rows, chain.chain_bytes, chain.state_bytes)

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
        with self._reading() as tables:
            older = None
            if before is not None:
                row = tables.find(thread_id, namespace, before)
                if row is None:
                    return
                older = row.sequence
            sequences = tables.matching(Query(thread_id, namespace, None, older, checked(filter)))
        for sequence in sequences[: bounded(limit)]:
            with self._reading() as tables:
                row, head = tables.at(sequence), tables.head(thread_id, namespace)
                same = row is not None and (row.thread_id, row.namespace) == (thread_id, namespace)
                stored = self._stored(tables, row, head) if row and head and same else None
            if stored is not None:
                yield stored

    def lineage(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> builtins.list[Ancestor]:
        """The checkpoint with this id (None: the head) and its ancestors as far as they are stored, newest first.

        Empty if there is no such checkpoint. No state is read.
        """
        with self._reading() as tables:
            head = tables.head(thread_id, namespace)
            if head is None:
                return []
            found = tables.lineage(thread_id, namespace, checkpoint_id or head.checkpoint_id)
        return [rows.read_ancestor(row) for row in found]

    def list(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """The checkpoints that a config addresses (None: of every thread and namespace), newest first.

        A config without `checkpoint_ns` means the root namespace; `before` is a config with a `checkpoint_id`.
        """
        named = None if config is None else config["configurable"]
        thread_id = named and named["thread_id"]
        namespace = named and named.get("checkpoint_ns", "")
        checkpoint_id = named and named.get("checkpoint_id")
        with self._reading() as tables:
            older = None
            if before is not None:
                place = {**(named or {}), **before["configurable"]}
                row = tables.find(place["thread_id"], place.get("checkpoint_ns", ""), place["checkpoint_id"])
                if row is None:
                    return
                older = row.sequence
            sequences = tables.matching(Query(thread_id, namespace, checkpoint_id, older, checked(filter)))
        for sequence in sequences[: bounded(limit)]:
            with self._reading() as tables:
                row = tables.at(sequence)
                point = rows.read_checkpoint(self._codec, row, tables.chain(row)) if row else None
            if row is not None and point is not None:
                yield _tuple_of(row, point)

    def namespaces(self, thread_id: str) -> builtins.list[str]:
        """The namespaces of a thread that hold a checkpoint, sorted; the root is "" ."""
        with self._reading() as tables:
            return tables.namespaces(thread_id)

    def delete_thread(self, thread_id: str) -> None:
        """Forgets everything about a thread; nothing happens if there is none."""
        with self._writing() as tables:
            tables.delete(thread_id)

    def copy_thread(self, source: str, target: str) -> None:
        """Copies a thread with its history. StorageError if `source` is not there or `target` already is."""
        with self._writing() as tables:
            if not tables.holds(source):
                raise StorageError(f"copy_thread({source!r}, {target!r}): there is no thread {source!r}")
            if tables.holds(target):
                raise StorageError(f"copy_thread({source!r}, {target!r}): the thread {target!r} already exists")
            _copy(tables, source, target)

    def prune(self, thread_id: str, *, keep: int) -> None:
        """Forgets all but the newest `keep` checkpoints of each namespace; the head always stays.

        What tasks recorded with `once()` stays as long as a checkpoint that is kept lists the task. StorageError if
        the thread is not there, ValueError if `keep` is negative.
        """
        if not isinstance(keep, int):
            raise TypeError(f"prune({thread_id!r}, keep={keep!r}): a whole number of checkpoints")
        if keep < 0:
            raise ValueError(f"prune({thread_id!r}, keep={keep}): keep at least 0 checkpoints")
        with self._writing() as tables:
            if not tables.holds(thread_id):
                raise StorageError(f"prune({thread_id!r}): there is no such thread")
            for namespace in tables.namespaces(thread_id):
                head = tables.head(thread_id, namespace)
                assert head is not None
                kept = [*tables.matching(Query(thread_id, namespace))[:keep], head.chain.sequence]
                first = min(kept)
                self._cut(tables, Query(thread_id, namespace), first)
                tables.forget(thread_id, namespace, first)
            self._forget_recorded(tables, thread_id)

    def _forget_recorded(self, tables: Tables, thread_id: str) -> None:
        """Deletes the `once()` calls of tasks that no checkpoint lists any more."""
        found = tables.all_recorded(thread_id)
        if not found:
            return
        listed: set[tuple[str, str]] = set()
        for sequence in tables.matching(Query(thread_id)):
            row = tables.at(sequence)
            if row is not None:
                due = {(row.namespace, task) for task in rows.read_due(self._codec, row)}
                listed |= due | {(row.namespace, result.task_id) for result in tables.results(sequence)}
        for recorded in found:
            if (recorded.namespace, recorded.task_id.partition("|")[0]) not in listed:
                tables.remove_recorded(thread_id, recorded.namespace, recorded.task_id)

    def _cut(self, tables: Tables, query: Query, first: int) -> None:
        """Makes complete every row from `first` on whose state builds on an earlier one."""
        for sequence in tables.matching(query):
            row = tables.at(sequence)
            if row is None or sequence < first or row.base is None or row.base >= first:
                continue
            changes = rows.join_changes(tables.chain(row))
            size = len(changes) + rows.ROW_COST
            numbers = {"base": None, "rows": 1, "links": 0, "chain_bytes": size, "state_bytes": row.state_bytes}
            tables.replace(msgspec.structs.replace(row, changes=changes, **numbers))

    def record_start(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> Recorded | None:
        """Stores that a `once()` call of a running task begins, unless its key has a record: that one is returned.

        Looking and storing are one transaction, so that of two runs one calls.
        """
        row = self._recorded_row(namespace, task_id, recorded)
        with self._lasting() as tables:
            found = [row for row in tables.recorded(thread_id, namespace, task_id) if row.key == recorded.key]
            if not found:
                tables.add_recorded(thread_id, row)
        return self._record(found[0]) if found else None

    def record(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> None:
        """Stores the state of one `once()` call at once, replacing an earlier one of its key."""
        row = self._recorded_row(namespace, task_id, recorded)
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
        return tuple(map(self._record, found))

    def _recorded_row(self, namespace: str, task_id: str, recorded: Recorded) -> RecordedRow:
        value = self._codec.encode(recorded.value, key=recorded.key)
        error = recorded.error.encode(errors="backslashreplace").decode()
        position = (recorded.questions, recorded.children)
        return RecordedRow(namespace, task_id, recorded.key, recorded.done, value, error, *position)

    def _record(self, row: RecordedRow) -> Recorded:
        value = self._codec.decode(row.value)
        return Recorded(row.key, bool(row.done), value, row.error, row.questions, row.children)


def checked(filter: Mapping[str, Any] | None) -> dict[str, Any]:
    """A filter whose values metadata could hold; UnstorableValueError otherwise."""
    chosen = dict(filter or {})
    rows.metadata_text(chosen)
    return chosen


def bounded(limit: int | None) -> int | None:
    """A limit that is None or not negative; ValueError otherwise."""
    if limit is not None and limit < 0:
        raise ValueError(f"limit={limit}: at least 0, or None for all")
    return limit


def _tuple_of(row: CheckpointRow, point: Checkpoint) -> CheckpointTuple:
    def config(checkpoint_id: str) -> dict[str, Any]:
        place = {"thread_id": row.thread_id, "checkpoint_ns": row.namespace, "checkpoint_id": checkpoint_id}
        return {"configurable": place}

    metadata = {"source": point.source, "step": point.step, **point.metadata}
    parent = None if point.parent_id is None else config(point.parent_id)
    return CheckpointTuple(config(point.id), point, metadata, parent)


def _copy(tables: Tables, source: str, target: str) -> None:
    numbers: dict[int, int] = {}
    for sequence in tables.matching(Query(source))[::-1]:
        row = tables.at(sequence)
        assert row is not None
        base = None if row.base is None else numbers[row.base]
        numbers[sequence] = tables.add(msgspec.structs.replace(row, thread_id=target, base=base))
    for sequence, number in numbers.items():
        for result in tables.results(sequence):
            child = None if result.child is None else numbers[result.child]
            tables.add_result(target, ResultRow(number, result.task_id, child, result.body))
    for namespace in tables.namespaces(source):
        head = tables.head(source, namespace)
        assert head is not None
        tables.set_head(target, namespace, head.checkpoint_id, numbers[head.chain.sequence], head.revision)
    for recorded in tables.all_recorded(source):
        tables.add_recorded(target, recorded)
