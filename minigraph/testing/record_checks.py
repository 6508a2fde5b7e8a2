"""What every saver must do with the records of `once()` calls."""

from __future__ import annotations

import threading
from typing import Any

from minigraph.checkpoint.base import Saver
from minigraph.errors import ThreadConflictError, UnstorableValueError
from minigraph.records import Carried, Recorded, Task, Write
from minigraph.testing.saver_parts import SavedThread, demand, refused


def once_records_are_replaced_by_key(saver: Saver) -> None:
    """Records of once() calls keep the order in which they began, and make no thread."""
    place, begun = ("t", "ns", "task"), Recorded("b", False, None, "", 2, 1)
    demand(saver.record_start(*place, begun), None, "a once call that begins")
    demand(saver.record_start(*place, Recorded("a", False)), None, "another key")
    demand(saver.record_start(*place, Recorded("b", False)), begun, "a once call that began before")
    saver.record(*place, Recorded("a", False, None, "E: no", 0, 0))
    saver.record(*place, Recorded("b", True, {"sent": (1,)}, "", 2, 1))
    wanted = (Recorded("b", True, {"sent": (1,)}, "", 2, 1), Recorded("a", False, None, "E: no", 0, 0))
    demand(saver.recorded(*place), wanted, "once records are replaced by key")
    demand((saver.recorded("t", "ns", "other"), saver.get("t", "ns")), ((), None), "records make no thread")
    demand(saver.recorded("t", "", "task"), (), "records of another namespace are others")
    with refused(UnstorableValueError, "a result without a stored form"):
        saver.record(*place, Recorded("a", True, object()))
    demand(saver.recorded(*place), wanted, "a refused record changes nothing")
    for _ in range(2):
        saver.remove_record(*place, "b")
        demand(saver.recorded(*place), wanted[1:], "a removed record is gone, alone")
    demand(saver.record_start(*place, begun), None, "a once call whose record was removed begins again")
    demand([recorded.key for recorded in saver.recorded(*place)], ["a", "b"], "it is the last one then")


def of_two_once_calls_one_begins(saver: Saver) -> None:
    """Of four threads that begin the same call exactly one does, in each of 10 rounds."""
    for number in range(10):
        begun: list[Recorded | None] = []

        def begin(key: str = f"k{number}", begun: list[Recorded | None] = begun) -> None:
            begun.append(saver.record_start("t", "", "task", Recorded(key, False)))

        threads = [threading.Thread(target=begin) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        demand(sorted(found is None for found in begun), [False, False, False, True], "of several calls one begins")


def once_records_go_with_their_tasks(saver: Saver) -> None:
    """A copy of a thread has its records; pruning forgets those of tasks that no checkpoint lists any more."""
    thread = SavedThread(saver)
    for number in range(3):
        due = (Task("kept", "n"), Task(f"t{number}", "n"))
        thread.add({"n": number}, due=due)
        saver.record("t", "", f"t{number}", Recorded("k", True, number))
        saver.record("t", "", f"t{number}|0:1:n", Recorded("k", True, (number,)))
    saver.record("t", "", "kept", Recorded("a", True, 1))
    saver.record("t", "", "kept", Recorded("b", False))
    saver.record("t", "ns", "t2", Recorded("k", True))
    saver.copy_thread("t", "copy")
    saver.delete_thread("t")
    demand(saver.recorded("t", "", "t2"), (), "a deleted thread has no records")

    def found() -> list[Any]:
        return [[r.value for r in saver.recorded("copy", "", f"t{n}")] for n in range(3)]

    demand(found(), [[0], [1], [2]], "a copy has the records")
    saver.prune("copy", keep=2)
    demand(found(), [[], [1], [2]], "pruning forgets the records of tasks that are gone")
    demand(saver.recorded("copy", "", "t0|0:1:n"), (), "and those of the child graphs that they called")
    demand(saver.recorded("copy", "", "t1|0:1:n"), (Recorded("k", True, (1,)),), "and no others")
    demand(saver.recorded("copy", "ns", "t2"), (), "a task is known by its namespace too")
    wanted = (Recorded("a", True, 1), Recorded("b", False))
    demand(saver.recorded("copy", "", "kept"), wanted, "what several checkpoints list stays, in its order")


def once_records_are_carried_to_a_branch(saver: Saver) -> None:
    """A write copies records to tasks of its namespace: all of them, or those from before a question or a child."""
    thread = SavedThread(saver)
    thread.add({})
    calls = (
        Recorded("a", True, 1),
        Recorded("b", False, None, "E", 1, 0),
        Recorded("c", True, 3, "", 1, 1),
        Recorded("d", True, 4, "", 2, 1),
    )
    for recorded in calls:
        saver.record("t", "old", "x", recorded)
    saver.record("t", "old", "x|0:1:n", calls[0])
    saver.record("t", "old", "xy", calls[0])
    limits: list[tuple[int | None, int | None, int]] = [
        (None, None, 4), (0, None, 1), (1, None, 3), (None, 0, 2), (1, 0, 2), (2, 1, 4),
    ]  # fmt: skip
    for number, (questions, children, count) in enumerate(limits):
        thread.write(carried=(Carried("old", "x", f"y{number}", questions, children),))
        demand(saver.recorded("t", "", f"y{number}"), calls[:count], f"carried up to {questions}, {children}")
        demand(saver.recorded("t", "", f"y{number}|0:1:n"), calls[:1], "what child graphs recorded goes with it")
    demand(saver.recorded("t", "old", "x"), calls, "carrying copies")
    old = Write("t", "", 0, carried=(Carried("old", "x", "z"),))
    with refused(ThreadConflictError, "a write on another revision"):
        saver.put(old)
    demand(saver.recorded("t", "", "z"), (), "a refused write carries nothing")
