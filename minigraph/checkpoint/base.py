"""What the engine asks of a saver. One class to implement; the savers of this package share `saver.TableSaver`."""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, ParamSpec, TypeVar

from minigraph.records import Ancestor, Checkpoint, Recorded, Stored, Write

P = ParamSpec("P")
T = TypeVar("T")


class CheckpointTuple(NamedTuple):
    """A checkpoint as `list()` shows it, with the configs that address it and its parent."""

    config: dict[str, Any]
    checkpoint: Checkpoint
    metadata: dict[str, Any]
    parent_config: dict[str, Any] | None


class Saver(ABC):
    """Stores the checkpoints of threads. Safe to use from several threads; reads never create anything.

    Every method may raise StorageError. A value without an exact stored form raises UnstorableValueError. Methods for a
    whole thread (delete, copy, export, import, prune) raise TypeError or ValueError for what is no thread id: a
    non-empty str.
    """

    @abstractmethod
    def get(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> Stored | None:
        """The checkpoint with this id, or the head; None if there is none. Its values are new objects."""

    @abstractmethod
    def put(self, write: Write) -> int:
        """Stores everything of `write` in one transaction and returns the new revision.

        Raises ThreadConflictError, storing nothing, if the head's revision is not `write.revision`, or if the write
        would begin a child graph's log and there is none of its caller (`write.under`).
        """

    @abstractmethod
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

    @abstractmethod
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

    @abstractmethod
    def namespaces(self, thread_id: str) -> builtins.list[str]:
        """The namespaces of a thread that hold a checkpoint, sorted; the root is "" ."""

    @abstractmethod
    def delete_thread(self, thread_id: str) -> None:
        """Forgets everything about a thread; nothing happens if there is none."""

    @abstractmethod
    def delete_before(self, moment: datetime, *, unfinished: bool = False) -> builtins.list[str]:
        """Deletes the threads that nobody wrote to since a moment (a datetime with a zone), and returns their ids.

        A thread that still has something due, since it waits for a person or failed, is spared unless `unfinished`.
        The namespaces of a thread count together. A thread that is written to meanwhile is spared. ValueError for a
        moment without a zone.
        """

    @abstractmethod
    def copy_thread(self, source: str, target: str) -> None:
        """Copies a thread with its history. StorageError if `source` is not there or `target` already is.

        The copy keeps the times of its steps, so for `delete_before` and `time_to_live` it is as old as its source.
        """

    @abstractmethod
    def export_thread(self, thread_id: str) -> str:
        """A thread as one JSON text: every namespace, checkpoint, result and `once()` call, for `import_thread`.

        Classes need not be registered. StorageError if the thread is not there.
        """

    @abstractmethod
    def import_thread(self, exported: str | bytes, *, thread_id: str | None = None) -> str:
        """Stores a thread from the text that `export_thread` gave, from a saver of any kind; returns its id.

        `thread_id` gives it another one. StorageError, and nothing is stored, where a thread of that id is there, and
        for a text that is damaged, of something else, or from a newer release. The thread keeps the times of its steps,
        so for `delete_before` and `time_to_live` it is as old as it was.
        """

    @abstractmethod
    def prune(self, thread_id: str, *, keep: int) -> None:
        """Forgets all but the newest `keep` checkpoints of each namespace; the head always stays.

        What tasks recorded with `once()` stays as long as a checkpoint that is kept lists the task. StorageError if the
        thread is not there, ValueError if `keep` is negative.
        """

    @abstractmethod
    def record_start(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> Recorded | None:
        """Stores that a `once()` call of a running task begins, unless its key has a record: that one is returned.

        Looking and storing are one transaction, so that of two runs one calls. What it stored must outlive a power
        cut where anything does.
        """

    @abstractmethod
    def record(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> None:
        """Stores the state of one `once()` call at once, replacing an earlier one of its key."""

    @abstractmethod
    def remove_record(self, thread_id: str, namespace: str, task_id: str, key: str) -> None:
        """Forgets a `once()` call, of which it is certain that it did nothing; nothing happens if there is none."""

    @abstractmethod
    def recorded(self, thread_id: str, namespace: str, task_id: str) -> tuple[Recorded, ...]:
        """The `once()` calls stored for a task, in the order in which they began."""

    @abstractmethod
    def register(self, *types: type, name: str | None = None) -> None:
        """Makes the program's classes known, so that their instances can be stored and read.

        TypeError for a class that cannot be stored; StorageError if another class has the same stored name.
        """

    def lineage(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> builtins.list[Ancestor]:
        """The checkpoint with this id (None: the head) and its ancestors as far as they are stored, newest first.

        Empty if there is no such checkpoint. A saver that can follow parents without reading states should do so.
        """
        found = []
        stored = self.get(thread_id, namespace, checkpoint_id)
        while stored is not None:
            point = stored.checkpoint
            found.append(Ancestor(point.id, point.step, point.source, point.ran, stored.graph))
            stored = None if point.parent_id is None else self.get(thread_id, namespace, point.parent_id)
        return found

    def close(self) -> None:  # noqa: B027  # a saver that holds nothing has nothing to do
        """Releases what the saver holds. Closing twice is fine."""

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs one of the methods above in a worker thread, to its end; a saver may have threads of its own."""
        return await in_thread(function, *args, **kwargs)

    async def aget(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> Stored | None:
        """`get` in a worker thread."""
        return await self._in_thread(self.get, thread_id, namespace, checkpoint_id)

    async def aput(self, write: Write) -> int:
        """`put` in a worker thread; when cancelled it ends only after the write has ended."""
        return await self._in_thread(self.put, write)

    async def ahistory(
        self,
        thread_id: str,
        namespace: str,
        *,
        before: str | None = None,
        limit: int | None = None,
        filter: Mapping[str, Any] | None = None,
    ) -> builtins.list[Stored]:
        """`history` in a worker thread, all at once."""

        def read() -> builtins.list[Stored]:
            return [*self.history(thread_id, namespace, before=before, limit=limit, filter=filter)]

        return await self._in_thread(read)

    async def alineage(
        self, thread_id: str, namespace: str, checkpoint_id: str | None = None
    ) -> builtins.list[Ancestor]:
        """`lineage` in a worker thread."""
        return await self._in_thread(self.lineage, thread_id, namespace, checkpoint_id)

    async def anamespaces(self, thread_id: str) -> builtins.list[str]:
        """`namespaces` in a worker thread."""
        return await self._in_thread(self.namespaces, thread_id)

    async def arecord_start(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> Recorded | None:
        """`record_start` in a worker thread; when cancelled it ends only after the write has ended."""
        return await self._in_thread(self.record_start, thread_id, namespace, task_id, recorded)

    async def arecord(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> None:
        """`record` in a worker thread; when cancelled it ends only after the write has ended."""
        await self._in_thread(self.record, thread_id, namespace, task_id, recorded)

    async def aremove_record(self, thread_id: str, namespace: str, task_id: str, key: str) -> None:
        """`remove_record` in a worker thread; when cancelled it ends only after the write has ended."""
        await self._in_thread(self.remove_record, thread_id, namespace, task_id, key)

    async def arecorded(self, thread_id: str, namespace: str, task_id: str) -> tuple[Recorded, ...]:
        """`recorded` in a worker thread."""
        return await self._in_thread(self.recorded, thread_id, namespace, task_id)

    async def adelete_thread(self, thread_id: str) -> None:
        """`delete_thread` in a worker thread."""
        await self._in_thread(self.delete_thread, thread_id)

    async def adelete_before(self, moment: datetime, *, unfinished: bool = False) -> builtins.list[str]:
        """`delete_before` in a worker thread."""
        return await self._in_thread(self.delete_before, moment, unfinished=unfinished)

    async def acopy_thread(self, source: str, target: str) -> None:
        """`copy_thread` in a worker thread."""
        await self._in_thread(self.copy_thread, source, target)

    async def aexport_thread(self, thread_id: str) -> str:
        """`export_thread` in a worker thread."""
        return await self._in_thread(self.export_thread, thread_id)

    async def aimport_thread(self, exported: str | bytes, *, thread_id: str | None = None) -> str:
        """`import_thread` in a worker thread."""
        return await self._in_thread(self.import_thread, exported, thread_id=thread_id)

    async def aprune(self, thread_id: str, *, keep: int) -> None:
        """`prune` in a worker thread."""
        await self._in_thread(self.prune, thread_id, keep=keep)


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a function in a worker thread. A cancellation is passed on once the function has ended, not before."""
    import asyncio

    return await to_its_end(asyncio.to_thread(function, *args, **kwargs))


async def to_its_end(work: Awaitable[T]) -> T:
    """Waits for something that must not be left half done: a cancellation is passed on once it has ended."""
    import asyncio

    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()
        raise cancelled
    return task.result()
