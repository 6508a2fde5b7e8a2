"""A saver that passes everything on to another, and one that dies on the way, as a killed process does."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Literal, TypeVar

from minigraph.checkpoint.base import Saver, to_its_end
from minigraph.checkpoint.passing import PassingSaver as PassingSaver
from minigraph.records import Ancestor, Finished, Recorded, Stored, Write

T = TypeVar("T")


class Crash(BaseException):
    """The process is gone: nothing after this is stored."""


class CrashingSaver(PassingSaver):
    """A saver that passes everything on to another and dies at write number `at` (from 1): before or after it.

    Its async methods call those of the other saver, not its own sync ones.
    """

    def __init__(self, inner: Saver, at: int | None = None, side: Literal["before", "after"] = "before") -> None:
        super().__init__(inner)
        self.at, self.side = at, side
        self.writes = 0
        self.dead = False
        self.finished: set[tuple[str, str]] = set()
        """The tasks whose end is stored, by thread and id; one that failed when its step was merged is none of them."""
        self.began: dict[tuple[str, str, str], bool] = {}
        """The once() calls whose start is stored, by namespace, task and key, and whether their end is."""
        self.began_again: list[str] = []

    def put(self, write: Write) -> int:
        """`put` of the other saver, unless this is where the process dies."""
        return self._store(lambda: self.inner.put(write), lambda _: self._note_results(write))

    async def aput(self, write: Write) -> int:
        """`aput` of the other saver, unless this is where the process dies."""
        return await self._astore(lambda: self.inner.aput(write), lambda _: self._note_results(write))

    def record_start(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> Recorded | None:
        """`record_start` of the other saver; it counts as a write."""
        place = (namespace, task_id, recorded.key)
        return self._store(
            lambda: self.inner.record_start(thread_id, namespace, task_id, recorded),
            lambda found: self._note_start(place, found),
        )

    async def arecord_start(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> Recorded | None:
        """`arecord_start` of the other saver; it counts as a write."""
        place = (namespace, task_id, recorded.key)
        return await self._astore(
            lambda: self.inner.arecord_start(thread_id, namespace, task_id, recorded),
            lambda found: self._note_start(place, found),
        )

    def record(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> None:
        """`record` of the other saver; it counts as a write."""
        end = {(namespace, task_id, recorded.key): recorded.done}
        self._store(
            lambda: self.inner.record(thread_id, namespace, task_id, recorded), lambda _: self.began.update(end)
        )

    async def arecord(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> None:
        """`arecord` of the other saver; it counts as a write."""
        end = {(namespace, task_id, recorded.key): recorded.done}
        await self._astore(
            lambda: self.inner.arecord(thread_id, namespace, task_id, recorded), lambda _: self.began.update(end)
        )

    def remove_record(self, thread_id: str, namespace: str, task_id: str, key: str) -> None:
        """`remove_record` of the other saver; it counts as a write."""
        place = (namespace, task_id, key)
        self._store(
            lambda: self.inner.remove_record(thread_id, namespace, task_id, key),
            lambda _: self.began.pop(place, None),
        )

    async def aremove_record(self, thread_id: str, namespace: str, task_id: str, key: str) -> None:
        """`aremove_record` of the other saver; it counts as a write."""
        place = (namespace, task_id, key)
        await self._astore(
            lambda: self.inner.aremove_record(thread_id, namespace, task_id, key),
            lambda _: self.began.pop(place, None),
        )

    def delete_thread(self, thread_id: str) -> None:
        """`delete_thread` of the other saver."""
        self.inner.delete_thread(thread_id)
        self.finished = {pair for pair in self.finished if pair[0] != thread_id}

    def delete_before(self, moment: datetime, *, unfinished: bool = False) -> builtins.list[str]:
        """`delete_before` of the other saver."""
        return self.inner.delete_before(moment, unfinished=unfinished)

    def copy_thread(self, source: str, target: str) -> None:
        """`copy_thread` of the other saver."""
        self.inner.copy_thread(source, target)
        self.finished |= {(target, task_id) for thread_id, task_id in self.finished if thread_id == source}

    async def aget(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> Stored | None:
        """`aget` of the other saver."""
        return await self.inner.aget(thread_id, namespace, checkpoint_id)

    async def ahistory(self, thread_id: str, namespace: str, **options: Any) -> builtins.list[Stored]:
        """`ahistory` of the other saver."""
        return await self.inner.ahistory(thread_id, namespace, **options)

    async def alineage(
        self, thread_id: str, namespace: str, checkpoint_id: str | None = None
    ) -> builtins.list[Ancestor]:
        """`alineage` of the other saver."""
        return await self.inner.alineage(thread_id, namespace, checkpoint_id)

    async def anamespaces(self, thread_id: str) -> builtins.list[str]:
        """`anamespaces` of the other saver."""
        return await self.inner.anamespaces(thread_id)

    async def arecorded(self, thread_id: str, namespace: str, task_id: str) -> tuple[Recorded, ...]:
        """`arecorded` of the other saver."""
        return await self.inner.arecorded(thread_id, namespace, task_id)

    def _store(self, store: Callable[[], T], note: Callable[[T], object]) -> T:
        number = self._begin()
        found = store()
        note(found)
        self._end(number)
        return found

    async def _astore(self, store: Callable[[], Awaitable[T]], note: Callable[[T], object]) -> T:
        async def stored() -> T:
            number = self._begin()
            found = await store()
            note(found)
            self._end(number)
            return found

        return await to_its_end(stored())  # a write that is cancelled may be stored, and has to be noted then

    def _begin(self) -> int:
        self.writes += 1
        number = self.writes
        if self.dead or (number, "before") == (self.at, self.side):
            self.dead = True
            raise Crash
        return number

    def _end(self, number: int) -> None:
        if self.dead or (number, "after") == (self.at, self.side):
            self.dead = True
            raise Crash

    def _note_results(self, write: Write) -> None:
        last = {result.task_id: isinstance(result, Finished) for _, result in write.results}
        last |= {task_id: False for _, task_id in write.removed}
        self.finished -= {(write.thread_id, task_id) for task_id in last}
        self.finished |= {(write.thread_id, task_id) for task_id, finished in last.items() if finished}

    def _note_start(self, place: tuple[str, str, str], found: Recorded | None) -> None:
        if found is None:
            if place in self.began:
                self.began_again.append(f"once({place[2]!r}, ...) of task {place[1]} began again")
            self.began[place] = False
