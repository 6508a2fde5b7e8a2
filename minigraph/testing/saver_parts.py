"""What the checks of savers are written with: checkpoints, threads, and demands that name the check that failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minigraph.checkpoint.base import Saver
from minigraph.records import Checkpoint, NewCheckpoint, Result, Stored, Task, Write


class ConformanceError(AssertionError):
    """A saver does not do what the engine relies on; `check` says which check found it, `what` what it found."""

    def __init__(self, check: str, what: str) -> None:
        super().__init__(f"{check}: {what}")
        self.check, self.what = check, what


TIME = 1_767_225_600_123


def named_id(revision: int, name: str = "") -> str:
    """The id of a checkpoint stored as this revision, whose random half spells a name of up to 8 letters."""
    return f"{revision:016x}{name.encode().ljust(8, bytes(1)).hex()}"


def name_of(checkpoint_id: str) -> str:
    """The name in such an id."""
    return bytes.fromhex(checkpoint_id[16:]).rstrip(bytes(1)).decode()


def point(
    revision: int, name: str, values: dict[str, Any], parent: Checkpoint | None = None, **others: Any
) -> Checkpoint:
    fields: dict[str, Any] = {"source": "loop", "created": TIME, "due": (Task(f"{name}-task", "node"),)}
    step = -1 if parent is None else parent.step + 1
    place = (named_id(revision, name), parent.id if parent else None)
    return Checkpoint(*place, step=step, values=values, **{**fields, **others})


class SavedThread:
    """Writes one checkpoint after another."""

    def __init__(self, saver: Saver, thread_id: str = "t", namespace: str = "") -> None:
        self.saver, self.thread_id, self.namespace = saver, thread_id, namespace
        self.revision = 0
        self.head: Checkpoint | None = None

    def add(self, values: dict[str, Any], parent: Checkpoint | None = None, **others: Any) -> Checkpoint:
        before = parent or self.head
        new = point(self.revision + 1, others.pop("name", f"c{self.revision}"), values, before, **others)
        self.write((NewCheckpoint(new, before),))
        self.head = new
        return new

    def write(self, new: tuple[NewCheckpoint, ...] = (), *results: tuple[str, Result], **others: Any) -> None:
        write = Write(self.thread_id, self.namespace, self.revision, new, results, **others)
        self.revision = self.saver.put(write)

    def history(self, **options: Any) -> list[Stored]:
        return list(self.saver.history(self.thread_id, self.namespace, **options))

    def names(self, **options: Any) -> list[str]:
        return [name_of(stored.checkpoint.id) for stored in self.history(**options)]


def stored_in(saver: Saver, *place: str) -> Stored:
    found = saver.get(*place)
    demand(found is not None, True, f"get{place} finds what was stored")
    assert found is not None
    return found


def demand(found: Any, wanted: Any, what: str) -> None:
    """The same value of the same types, all the way down."""
    if found != wanted or repr(found) != repr(wanted):
        raise ConformanceError(what, f"got {found!r}, expected {wanted!r}")


@contextmanager
def refused(kind: type[Exception], what: str) -> Iterator[None]:
    try:
        yield
    except kind:
        return
    except Exception as error:
        raise ConformanceError(what, f"expected {kind.__name__}, got {type(error).__name__}: {error}") from error
    raise ConformanceError(what, f"expected {kind.__name__}, and nothing was raised")
