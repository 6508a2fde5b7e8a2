"""A saver seen from its async methods alone, so that every check of the sync methods is one of the async ones too."""

from __future__ import annotations

import asyncio
import builtins
import threading
from collections.abc import Coroutine, Iterator
from datetime import datetime
from typing import Any, TypeVar

from minigraph.checkpoint.base import Saver
from minigraph.records import Ancestor, Recorded, Stored, Write
from minigraph.testing.crashing import PassingSaver

T = TypeVar("T")


class AsyncSide(PassingSaver):
    """Calls the async method of another saver where that has one. Use as a context manager.

    All calls share one event loop, in a thread of its own, as those of one program would; calls from several threads
    overlap there.
    """

    def __init__(self, inner: Saver) -> None:
        super().__init__(inner)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> AsyncSide:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._wait(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def get(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> Stored | None:
        """`aget` of the other saver."""
        return self._wait(self.inner.aget(thread_id, namespace, checkpoint_id))

    def put(self, write: Write) -> int:
        """`aput` of the other saver."""
        return self._wait(self.inner.aput(write))

    def history(self, thread_id: str, namespace: str, **options: Any) -> Iterator[Stored]:
        """`ahistory` of the other saver."""
        yield from self._wait(self.inner.ahistory(thread_id, namespace, **options))

    def lineage(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> builtins.list[Ancestor]:
        """`alineage` of the other saver."""
        return self._wait(self.inner.alineage(thread_id, namespace, checkpoint_id))

    def namespaces(self, thread_id: str) -> builtins.list[str]:
        """`anamespaces` of the other saver."""
        return self._wait(self.inner.anamespaces(thread_id))

    def delete_thread(self, thread_id: str) -> None:
        """`adelete_thread` of the other saver."""
        self._wait(self.inner.adelete_thread(thread_id))

    def delete_before(self, moment: datetime, *, unfinished: bool = False) -> builtins.list[str]:
        """`adelete_before` of the other saver."""
        return self._wait(self.inner.adelete_before(moment, unfinished=unfinished))

    def copy_thread(self, source: str, target: str) -> None:
        """`acopy_thread` of the other saver."""
        self._wait(self.inner.acopy_thread(source, target))

    def export_thread(self, thread_id: str) -> str:
        """`aexport_thread` of the other saver."""
        return self._wait(self.inner.aexport_thread(thread_id))

    def import_thread(self, exported: str | bytes, *, thread_id: str | None = None) -> str:
        """`aimport_thread` of the other saver."""
        return self._wait(self.inner.aimport_thread(exported, thread_id=thread_id))

    def prune(self, thread_id: str, *, keep: int) -> None:
        """`aprune` of the other saver."""
        self._wait(self.inner.aprune(thread_id, keep=keep))

    def record_start(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> Recorded | None:
        """`arecord_start` of the other saver."""
        return self._wait(self.inner.arecord_start(thread_id, namespace, task_id, recorded))

    def record(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> None:
        """`arecord` of the other saver."""
        self._wait(self.inner.arecord(thread_id, namespace, task_id, recorded))

    def remove_record(self, thread_id: str, namespace: str, task_id: str, key: str) -> None:
        """`aremove_record` of the other saver."""
        self._wait(self.inner.aremove_record(thread_id, namespace, task_id, key))

    def recorded(self, thread_id: str, namespace: str, task_id: str) -> tuple[Recorded, ...]:
        """`arecorded` of the other saver."""
        return self._wait(self.inner.arecorded(thread_id, namespace, task_id))
