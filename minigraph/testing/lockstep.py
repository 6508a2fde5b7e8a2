"""Drives two savers alike, and compares everything that they say."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from minigraph.checkpoint.base import CheckpointTuple, Saver
from minigraph.checkpoint.sameness import same
from minigraph.records import Recorded, Stored, Write
from minigraph.testing.laws import LawError

_TIME: Final = re.compile(r'"created_at": "[^"]*"')


class LockstepSaver(Saver):
    """Does everything on both savers; raises LawError as soon as they answer, or refuse, differently."""

    def __init__(self, first: Saver, second: Saver) -> None:
        self.first, self.second = first, second

    def _both(self, what: str, call: Callable[[Saver], Any]) -> Any:
        answers: list[Any] = []
        errors: list[Exception | None] = []
        for saver in (self.first, self.second):
            try:
                answers.append(call(saver))
                errors.append(None)
            except Exception as error:
                answers.append(None)
                errors.append(error)
        names = [type(self.first).__name__, type(self.second).__name__]
        if [type(error) for error in errors] != [type(error) for error in errors[:1]] * 2:
            raise LawError("savers agree", f"{what}: {names[0]} raised {errors[0]!r}, {names[1]} {errors[1]!r}")
        if errors[0] is not None:
            raise errors[0]
        left, right = answers
        if not same(left, right):
            raise LawError("savers agree", f"{what}: {names[0]} gave {left!r}, {names[1]} gave {right!r}")
        return answers[0]

    def get(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> Stored | None:
        """`get` of both."""
        what = f"get({thread_id!r}, {namespace!r}, {checkpoint_id!r})"
        found: Stored | None = self._both(what, lambda saver: saver.get(thread_id, namespace, checkpoint_id))
        return found

    def put(self, write: Write) -> int:
        """`put` of both."""
        revision: int = self._both(f"put on revision {write.revision}", lambda saver: saver.put(write))
        return revision

    def history(self, thread_id: str, namespace: str, **options: Any) -> Iterator[Stored]:
        """`history` of both, all at once."""
        what = f"history({thread_id!r}, {namespace!r}, {options})"
        yield from self._both(what, lambda saver: [*saver.history(thread_id, namespace, **options)])

    def list(self, config: Mapping[str, Any] | None = None, **options: Any) -> Iterator[CheckpointTuple]:
        """`list` of both, all at once."""
        yield from self._both(f"list({config}, {options})", lambda saver: [*saver.list(config, **options)])

    def namespaces(self, thread_id: str) -> builtins.list[str]:
        """`namespaces` of both."""
        found: builtins.list[str] = self._both(f"namespaces({thread_id!r})", lambda saver: saver.namespaces(thread_id))
        return found

    def delete_thread(self, thread_id: str) -> None:
        """`delete_thread` of both."""
        self._both(f"delete_thread({thread_id!r})", lambda saver: saver.delete_thread(thread_id))

    def delete_before(self, moment: datetime, *, unfinished: bool = False) -> builtins.list[str]:
        """`delete_before` of both."""
        what = f"delete_before({moment}, unfinished={unfinished})"
        found: builtins.list[str] = self._both(what, lambda saver: saver.delete_before(moment, unfinished=unfinished))
        return found

    def copy_thread(self, source: str, target: str) -> None:
        """`copy_thread` of both."""
        self._both(f"copy_thread({source!r}, {target!r})", lambda saver: saver.copy_thread(source, target))

    def export_thread(self, thread_id: str) -> str:
        """`export_thread` of both, but for the times: each saver has stored results at a time of its own."""
        found: builtins.list[str] = []

        def without_times(saver: Saver) -> str:
            found.append(saver.export_thread(thread_id))
            return _TIME.sub("", found[-1])

        self._both(f"export_thread({thread_id!r})", without_times)
        return found[0]

    def import_thread(self, exported: str | bytes, *, thread_id: str | None = None) -> str:
        """`import_thread` of both."""
        what = f"import_thread(..., thread_id={thread_id!r})"
        found: str = self._both(what, lambda saver: saver.import_thread(exported, thread_id=thread_id))
        return found

    def prune(self, thread_id: str, *, keep: int) -> None:
        """`prune` of both."""
        self._both(f"prune({thread_id!r}, keep={keep})", lambda saver: saver.prune(thread_id, keep=keep))

    def record_start(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> Recorded | None:
        """`record_start` of both."""
        what = f"record_start({recorded.key!r})"
        found: Recorded | None = self._both(what, lambda s: s.record_start(thread_id, namespace, task_id, recorded))
        return found

    def record(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> None:
        """`record` of both."""
        self._both(f"record({recorded.key!r})", lambda saver: saver.record(thread_id, namespace, task_id, recorded))

    def remove_record(self, thread_id: str, namespace: str, task_id: str, key: str) -> None:
        """`remove_record` of both."""
        self._both(f"remove_record({key!r})", lambda saver: saver.remove_record(thread_id, namespace, task_id, key))

    def recorded(self, thread_id: str, namespace: str, task_id: str) -> tuple[Recorded, ...]:
        """`recorded` of both."""
        place = (thread_id, namespace, task_id)
        found: tuple[Recorded, ...] = self._both(f"recorded{place}", lambda saver: saver.recorded(*place))
        return found

    def register(self, *types: type, name: str | None = None) -> None:
        """`register` of both."""
        self._both(f"register({types})", lambda saver: saver.register(*types, name=name))

    def close(self) -> None:
        """Closes both."""
        self.first.close()
        self.second.close()
