"""A saver that passes everything on to another, for those that change a little of what passes."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from minigraph.checkpoint.base import CheckpointTuple, Saver
from minigraph.records import Ancestor, Recorded, Stored, Write


class PassingSaver(Saver):
    """A saver that passes everything on to another. Its async methods call its own sync ones in worker threads."""

    def __init__(self, inner: Saver) -> None:
        self.inner = inner

    def put(self, write: Write) -> int:
        """`put` of the other saver."""
        return self.inner.put(write)

    def get(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> Stored | None:
        """`get` of the other saver."""
        return self.inner.get(thread_id, namespace, checkpoint_id)

    def history(self, thread_id: str, namespace: str, **options: Any) -> Iterator[Stored]:
        """`history` of the other saver."""
        return self.inner.history(thread_id, namespace, **options)

    def lineage(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> builtins.list[Ancestor]:
        """`lineage` of the other saver."""
        return self.inner.lineage(thread_id, namespace, checkpoint_id)

    def list(self, config: Mapping[str, Any] | None = None, **options: Any) -> Iterator[CheckpointTuple]:
        """`list` of the other saver."""
        return self.inner.list(config, **options)

    def namespaces(self, thread_id: str) -> builtins.list[str]:
        """`namespaces` of the other saver."""
        return self.inner.namespaces(thread_id)

    def delete_thread(self, thread_id: str) -> None:
        """`delete_thread` of the other saver."""
        self.inner.delete_thread(thread_id)

    def delete_before(self, moment: datetime, *, unfinished: bool = False) -> builtins.list[str]:
        """`delete_before` of the other saver."""
        return self.inner.delete_before(moment, unfinished=unfinished)

    def copy_thread(self, source: str, target: str) -> None:
        """`copy_thread` of the other saver."""
        self.inner.copy_thread(source, target)

    def export_thread(self, thread_id: str) -> str:
        """`export_thread` of the other saver."""
        return self.inner.export_thread(thread_id)

    def import_thread(self, exported: str | bytes, *, thread_id: str | None = None) -> str:
        """`import_thread` of the other saver."""
        return self.inner.import_thread(exported, thread_id=thread_id)

    def prune(self, thread_id: str, *, keep: int) -> None:
        """`prune` of the other saver."""
        self.inner.prune(thread_id, keep=keep)

    def record_start(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> Recorded | None:
        """`record_start` of the other saver."""
        return self.inner.record_start(thread_id, namespace, task_id, recorded)

    def record(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> None:
        """`record` of the other saver."""
        self.inner.record(thread_id, namespace, task_id, recorded)

    def remove_record(self, thread_id: str, namespace: str, task_id: str, key: str) -> None:
        """`remove_record` of the other saver."""
        self.inner.remove_record(thread_id, namespace, task_id, key)

    def recorded(self, thread_id: str, namespace: str, task_id: str) -> tuple[Recorded, ...]:
        """`recorded` of the other saver."""
        return self.inner.recorded(thread_id, namespace, task_id)

    def register(self, *types: type, name: str | None = None) -> None:
        """`register` of the other saver."""
        self.inner.register(*types, name=name)
