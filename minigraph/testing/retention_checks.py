"""What every saver must do with threads that have become old."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from minigraph.checkpoint.base import Saver
from minigraph.records import Finished, Recorded, Task
from minigraph.testing.saver_parts import TIME, SavedThread, demand, refused, stored_in

_HOUR = 3_600_000
_START = datetime(2026, 1, 1, 0, 0, 0, 123_000, UTC)
"""The moment that TIME means."""


def old_threads_are_deleted(saver: Saver) -> None:
    """Threads whose last write is older than a moment are deleted with all that is theirs, and no others."""
    for name, hours in (("new", 3), ("old", 0), ("middle", 1)):
        thread = SavedThread(saver, name)
        thread.add({"n": 0}, created=TIME - _HOUR)
        thread.add({"n": 1}, due=(), created=TIME + hours * _HOUR)
        saver.record(name, "", "task", Recorded("k", True, 1))
    SavedThread(saver, "old", "child:1").add({"n": 1}, created=TIME - 5 * _HOUR)
    SavedThread(saver, "new", "child:1").add({"n": 1}, created=TIME - 5 * _HOUR)
    demand(saver.delete_before(_START), [], "a thread written at the very moment is not older")
    moment = (_START + timedelta(hours=2)).astimezone(timezone(timedelta(hours=-7)))
    demand(saver.delete_before(moment), ["old", "middle"], "old threads are deleted, the oldest first")
    demand(saver.delete_before(moment), [], "old threads are deleted once")
    demand([item.config["configurable"]["thread_id"] for item in saver.list()], ["new"] * 3, "the others stay")
    demand((saver.get("old", ""), saver.get("old", "child:1"), saver.recorded("old", "", "task")), (None, None, ()),
           "nothing of a deleted thread stays")  # fmt: skip
    demand(saver.recorded("new", "", "task"), (Recorded("k", True, 1),), "the others stay")


def old_threads_with_something_due_are_spared(saver: Saver) -> None:
    """A thread that waits or failed is deleted only where that is asked for; the root graph counts."""
    for name, due in (("ended", ()), ("waits", (Task("task", "node"),))):
        SavedThread(saver, name).add({"n": 0}, due=due)
        SavedThread(saver, name, "child:1").add({"n": 0})
    moment = _START + timedelta(days=1)
    demand(saver.delete_before(moment), ["ended"], "a thread with something due is spared")
    demand(saver.delete_before(moment, unfinished=True), ["waits"], "unfinished=True spares none")
    demand(saver.namespaces("waits"), [], "a deleted thread is gone")


def a_result_makes_a_thread_younger(saver: Saver) -> None:
    """A write that brings results only counts as a write: its time is when it was stored."""
    thread = SavedThread(saver)
    first = thread.add({"n": 0})
    thread.write((), (first.id, Finished("c0-task", "node")))
    demand(saver.delete_before(_START + timedelta(hours=1), unfinished=True), [], "a result counts as a write")
    demand(saver.delete_before(datetime.now(UTC) + timedelta(days=1), unfinished=True), ["t"], "it has a time")


def moments_without_a_zone_are_refused(saver: Saver) -> None:
    """delete_before wants to know which moment is meant."""
    SavedThread(saver).add({}, due=())
    with refused(ValueError, "a moment without a zone"):
        saver.delete_before(datetime(2030, 1, 1))
    stored_in(saver, "t", "")
