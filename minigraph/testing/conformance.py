"""What every saver must do, as checks over the Saver contract alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from minigraph.checkpoint.base import Saver
from minigraph.errors import StorageError, ThreadConflictError, UnstorableValueError
from minigraph.records import (
    Ancestor,
    Carried,
    Checkpoint,
    Failed,
    Finished,
    NewCheckpoint,
    Paused,
    Recorded,
    Result,
    Stored,
    Task,
    Write,
)
from minigraph.types import Interrupt, Send


class ConformanceError(AssertionError):
    """A saver does not do what the engine relies on; `check` is the name of the check that found it."""

    def __init__(self, check: str, what: str) -> None:
        super().__init__(f"{check}: {what}")
        self.check = check


def saver_conformance(make_saver: Callable[[], Saver]) -> tuple[str, ...]:
    """Runs every check on a fresh, empty saver each; returns the names of the checks.

    Raises ConformanceError for the first that fails. For one test per check, see `saver_checks`.
    """
    for name, check in saver_checks().items():
        saver = make_saver()
        try:
            check(saver)
        except ConformanceError:
            raise
        except Exception as error:
            raise ConformanceError(name, f"{type(error).__name__}: {error}") from error
        finally:
            saver.close()
    return tuple(saver_checks())


def saver_checks() -> Mapping[str, Callable[[Saver], None]]:
    """The checks by name; each takes an empty saver."""
    checks = (
        every_field_comes_back,
        every_kind_of_result_comes_back,
        reads_create_nothing,
        another_revision_is_refused,
        results_are_replaced_by_task,
        a_write_is_all_or_nothing,
        stored_values_are_safe_from_edits,
        every_state_of_a_long_history_can_be_read,
        branches_have_states_of_their_own,
        lineages_follow_parents,
        history_can_be_limited_and_filtered,
        list_shows_threads,
        threads_are_deleted_alone,
        copies_are_threads_of_their_own,
        pruning_keeps_the_newest,
        once_records_are_replaced_by_key,
        of_two_once_calls_one_begins,
        once_records_go_with_their_tasks,
        once_records_are_carried_to_a_branch,
        async_methods_do_the_same,
        of_two_writers_one_wins,
    )
    return {check.__name__.replace("_", " "): check for check in checks}


# ----------------------------------------------------------------------- builders

_TIME = "2026-01-01T00:00:00+00:00"


def _point(name: str, values: dict[str, Any], parent: Checkpoint | None = None, **others: Any) -> Checkpoint:
    fields: dict[str, Any] = {"source": "loop", "created_at": _TIME, "due": (Task(f"{name}-task", "node"),)}
    step = -1 if parent is None else parent.step + 1
    return Checkpoint(name, parent.id if parent else None, step=step, values=values, **{**fields, **others})


class _Thread:
    """Writes one checkpoint after another."""

    def __init__(self, saver: Saver, thread_id: str = "t", namespace: str = "") -> None:
        self.saver, self.thread_id, self.namespace = saver, thread_id, namespace
        self.revision = 0
        self.head: Checkpoint | None = None

    def add(self, values: dict[str, Any], parent: Checkpoint | None = None, **others: Any) -> Checkpoint:
        before = parent or self.head
        new = _point(others.pop("name", f"c{self.revision}"), values, before, **others)
        self.write((NewCheckpoint(new, before),))
        self.head = new
        return new

    def write(self, new: tuple[NewCheckpoint, ...] = (), *results: tuple[str, Result], **others: Any) -> None:
        write = Write(self.thread_id, self.namespace, self.revision, new, results, **others)
        self.revision = self.saver.put(write)

    def history(self, **options: Any) -> list[Stored]:
        return list(self.saver.history(self.thread_id, self.namespace, **options))

    def names(self, **options: Any) -> list[str]:
        return [stored.checkpoint.id for stored in self.history(**options)]


def _stored(saver: Saver, *place: str) -> Stored:
    found = saver.get(*place)
    _equal(found is not None, True, f"get{place} finds what was stored")
    assert found is not None
    return found


def _equal(found: Any, wanted: Any, what: str) -> None:
    """The same value of the same types, all the way down."""
    if found != wanted or repr(found) != repr(wanted):
        raise ConformanceError(what, f"got {found!r}, expected {wanted!r}")


@contextmanager
def _refused(kind: type[Exception], what: str) -> Iterator[None]:
    try:
        yield
    except kind:
        return
    except Exception as error:
        raise ConformanceError(what, f"expected {kind.__name__}, got {type(error).__name__}: {error}") from error
    raise ConformanceError(what, f"expected {kind.__name__}, and nothing was raised")


# ------------------------------------------------------------------------- checks


def every_field_comes_back(saver: Saver) -> None:
    """A checkpoint with every field set is read as it was written."""
    full = Checkpoint(
        id="full",
        parent_id=None,
        step=3,
        source="update",
        created_at=_TIME,
        values={"a": [1, (2,), 2**70], "b": {"c": {1}, "d": b"x"}, "e": None, "f": 1.5},
        due=(Task("1", "x"), Task("2", "y", 3, None), Task("3", "z", 0, {"arg": (1,)})),
        deferred=("d", "e"),
        joins={"a+b:c": ("a",), "x+y:z": ()},
        ran=("p", "q"),
        written=(("a", [1]), ("b", (2,))),
        owner="owner",
        metadata={"who": "x", "n": 1, "yes": True},
    )
    _equal(saver.put(Write("t", "ns", 0, (NewCheckpoint(full, None),))), 1, "put returns the new revision")
    stored = _stored(saver, "t", "ns")
    _equal(stored.checkpoint, full, "every field of a checkpoint comes back")
    _equal((stored.head_id, stored.revision, stored.results), ("full", 1, ()), "head, revision and results come back")
    _equal(saver.get("t", "ns", "full"), stored, "get by id finds the head too")


def every_kind_of_result_comes_back(saver: Saver) -> None:
    """Finished, paused and failed tasks are read as they were written."""
    finished = Finished("c0-task", "node", (("n", 1), ("m", [1, (2,)])), ("a", Send("b", {"x": 1})), False, True)
    asked = (Interrupt("a?", "1"), Interrupt({"q": (1,)}, "2"))
    results: tuple[Result, ...] = (
        finished,
        Finished("c0-task", "node"),
        Paused("c0-task", "node", asked, ((1,),), (Interrupt("c?", "3"),), (("3", {"x"}),)),
        Failed("c0-task", "node", "ValueError", "no", True, asked, (None,)),
        Failed("c0-task", "node", "E", "m", kept=Finished("c0-task", "node", (("n", (1,)),), ("x",))),
    )
    thread = _Thread(saver)
    thread.add({"n": 0})
    for result in results:
        thread.write((), ("c0", result))
        _equal(_stored(saver, "t", "").results, (result,), f"a {type(result).__name__} result comes back")


def reads_create_nothing(saver: Saver) -> None:
    """Reading what is not there gives nothing and leaves nothing behind."""
    what = "reads of what is not there"
    _equal((saver.get("t", ""), saver.get("t", "", "c0"), list(saver.history("t", ""))), (None, None, []), what)
    _equal((list(saver.history("t", "", before="c0")), saver.namespaces("t")), ([], []), what)
    _equal((saver.recorded("t", "", "task"), list(saver.list())), ((), []), what)


def another_revision_is_refused(saver: Saver) -> None:
    """A write on another revision of the head raises ThreadConflictError and stores nothing."""
    thread = _Thread(saver)
    thread.add({"n": 1})
    done = ("c0", Finished("c0-task", "node", (("n", 2),)))
    for revision in (0, 2, -1):
        with _refused(ThreadConflictError, "a write on another revision"):
            saver.put(Write("t", "", revision, (NewCheckpoint(_point("x", {}), None),), (done,)))
    stored = _stored(saver, "t", "")
    _equal((stored.head_id, stored.revision, stored.results), ("c0", 1, ()), "a refused write stores nothing")
    _equal(saver.get("t", "", "x"), None, "a refused write stores nothing")
    _equal(saver.put(Write("t", "ns", 0, (NewCheckpoint(_point("x", {}), None),))), 1, "namespaces have own revisions")


def results_are_replaced_by_task(saver: Saver) -> None:
    """A later result of a task replaces the earlier one; results come in the order of the due tasks."""
    thread = _Thread(saver)
    thread.add({}, due=(Task("z", "n"), Task("a", "n"), Task("m", "n")))
    thread.write((), ("c0", Finished("m", "n")), ("c0", Failed("a", "n", "E", "first")))
    thread.write((), ("c0", Finished("a", "n", (("k", 1),))), ("c0", Finished("z", "n")))
    wanted = (Finished("z", "n"), Finished("a", "n", (("k", 1),)), Finished("m", "n"))
    _equal(_stored(saver, "t", "").results, wanted, "results are replaced, in task order")
    thread.write(removed=(("c0", "a"), ("c0", "never there")))
    _equal(_stored(saver, "t", "").results, (wanted[0], wanted[2]), "removed results are gone")
    with _refused(StorageError, "a result of a checkpoint that is not there"):
        thread.write((), ("nowhere", Finished("a", "n")))


def a_write_is_all_or_nothing(saver: Saver) -> None:
    """Several checkpoints and results go in together, or, where a value cannot be stored, not at all."""
    thread = _Thread(saver)
    one = _point("one", {"l": [1]})
    two = _point("two", {"l": [1, 2]}, one)
    result = Finished("one-task", "node", (("l", [2]),))
    thread.write((NewCheckpoint(one, None), NewCheckpoint(two, one)), ("one", result))
    _equal(thread.names(), ["two", "one"], "several checkpoints in one write")
    _equal([stored.results for stored in thread.history()], [(), (result,)], "several checkpoints in one write")
    good, bad = _point("good", {"l": []}, two), _point("bad", {"l": [{"x": object()}]}, two)
    with _refused(UnstorableValueError, "a value without a stored form"):
        thread.write((NewCheckpoint(good, two), NewCheckpoint(bad, good)), ("two", Finished("two-task", "node")))
    with _refused(StorageError, "an id that is stored already"):
        thread.write((NewCheckpoint(good, two), NewCheckpoint(one, None)))
    _equal((thread.names(), _stored(saver, "t", "").revision), (["two", "one"], 1), "a refused write stores nothing")
    _equal(_stored(saver, "t", "").results, (), "a refused write stores nothing")


def stored_values_are_safe_from_edits(saver: Saver) -> None:
    """Editing what was written, or what was read, does not reach what is stored."""
    thread, items = _Thread(saver), [{"n": 1}]
    thread.add({"items": items})
    thread.add({"items": [*items, {"n": 2}]})
    items[0]["n"] = 99
    for stored in thread.history():
        stored.checkpoint.values["items"][0]["n"] = 77
    found = [stored.checkpoint.values for stored in thread.history()]
    _equal(found, [{"items": [{"n": 1}, {"n": 2}]}, {"items": [{"n": 1}]}], "stored values are safe from edits")


def every_state_of_a_long_history_can_be_read(saver: Saver) -> None:
    """100 states that grow, shrink, gain and lose keys are all read as they were."""
    thread, states = _Thread(saver), []
    for number in range(100):
        state: dict[str, Any] = {"m": [(n, "x" * 20) for n in range(number % 30)], "d": {f"k{number % 7}": number}}
        if number % 3:
            state["sometimes"] = {number}
        states.append(state)
        thread.add(state)
    found = [stored.checkpoint.values for stored in thread.history()]
    _equal(found, states[::-1], "every state of a long history can be read")
    _equal(_stored(saver, "t", "", "c50").checkpoint.values, states[50], "a state in the middle can be read")


def branches_have_states_of_their_own(saver: Saver) -> None:
    """Two branches from one checkpoint do not mix; the newest write is the head."""
    thread = _Thread(saver)
    root = thread.add({"l": [1]})
    left = thread.add({"l": [1, 2]})
    right = thread.add({"l": [1, 3]}, root, source="fork")
    thread.add({"l": [1, 2, 4]}, left)
    thread.add({"l": [1, 3, 5]}, right)
    found = [stored.checkpoint.values["l"] for stored in thread.history()]
    _equal(found, [[1, 3, 5], [1, 2, 4], [1, 3], [1, 2], [1]], "branches have states of their own")
    stored = _stored(saver, "t", "", "c3")
    _equal((stored.head_id, stored.checkpoint.parent_id), ("c4", "c1"), "an older checkpoint knows parent and head")


def lineages_follow_parents(saver: Saver) -> None:
    """A lineage is one branch, newest first, up to where a parent is not stored."""
    thread = _Thread(saver)
    root = thread.add({"l": [1]}, source="input")
    left = thread.add({"l": [1, 2]}, root, ran=("b", "a"))
    right = thread.add({"l": [1, 3]}, root, source="fork", due=(Task("t", "node", 0, {"x": (1,)}),))
    thread.add({"l": [1, 2, 4]}, left)
    ids = [a.id for a in saver.lineage("t", "")]
    _equal(ids, ["c3", "c1", "c0"], "the lineage of the head")
    first, second = Ancestor("c1", left.step, "loop", ("b", "a")), Ancestor("c0", -1, "input")
    _equal(saver.lineage("t", "", "c1"), [first, second], "what a lineage says of each checkpoint")
    _equal(saver.lineage("t", "", "c2")[0], Ancestor("c2", right.step, "fork"), "the lineage of a branch")
    _equal((saver.lineage("t", "", "c9"), saver.lineage("u", "")), ([], []), "the lineage of what is not there")
    saver.prune("t", keep=3)
    for name, wanted in (("c3", ["c3", "c1"]), ("c2", ["c2"])):
        _equal([a.id for a in saver.lineage("t", "", name)], wanted, "the lineage of a pruned thread")
        _equal(asyncio.run(saver.alineage("t", "", name)), Saver.lineage(saver, "t", "", name), "alineage")


def history_can_be_limited_and_filtered(saver: Saver) -> None:
    """`before`, `limit` and `filter` select; values are compared with their types."""
    thread = _Thread(saver)
    for number in range(6):
        labels: dict[str, Any] = {"n": number, "even": number % 2 == 0}
        thread.add({}, metadata=labels, source="input" if number == 0 else "loop")
    wanted: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["c5", "c4", "c3", "c2", "c1", "c0"]),
        ({"limit": 2}, ["c5", "c4"]),
        ({"limit": 0}, []),
        ({"before": "c2"}, ["c1", "c0"]),
        ({"before": "unknown"}, []),
        ({"before": "c4", "limit": 1}, ["c3"]),
        ({"filter": {"source": "input"}}, ["c0"]),
        ({"filter": {"step": 2}}, ["c3"]),
        ({"filter": {"even": True, "n": 2}}, ["c2"]),
        ({"filter": {"n": True}}, []),
        ({"filter": {"even": 1}}, []),
        ({"filter": {"missing": None}}, []),
    ]
    for options, names in wanted:
        _equal(thread.names(**options), names, f"history({options})")
    with _refused(ValueError, "a negative limit"):
        thread.names(limit=-1)


def list_shows_threads(saver: Saver) -> None:
    """`list` shows every thread and namespace, newest first, with configs that address them."""
    _Thread(saver, "a").add({"x": 1}, metadata={"who": "me"})
    thread = _Thread(saver, "b")
    thread.add({}, name="b0")
    thread.add({}, name="b1")
    _Thread(saver, "a", "child").add({}, name="inner")
    every = list(saver.list())
    _equal([item.checkpoint.id for item in every], ["inner", "b1", "b0", "c0"], "list(None) shows everything")
    place = {"thread_id": "b", "checkpoint_ns": "", "checkpoint_id": "b0"}
    _equal(every[1].parent_config, {"configurable": place}, "list gives the parent's config")
    _equal([i.checkpoint.id for i in saver.list({"configurable": {"thread_id": "a"}})], ["c0"], "list of a thread")
    _equal([i.checkpoint.id for i in saver.list({"configurable": place})], ["b0"], "list of a checkpoint")
    _equal(saver.namespaces("a"), ["", "child"], "namespaces of a thread")


def threads_are_deleted_alone(saver: Saver) -> None:
    """Deleting a thread forgets all of it and nothing else; twice is fine."""
    for name in ("a", "b"):
        _Thread(saver, name).add({"n": 1})
        saver.record(name, "", "task", Recorded("k", True, 1))
    saver.delete_thread("a")
    saver.delete_thread("a")
    _equal((saver.get("a", ""), saver.recorded("a", "", "task")), (None, ()), "a deleted thread is gone")
    _stored(saver, "b", "")
    _equal(saver.recorded("b", "", "task"), (Recorded("k", True, 1),), "other threads stay")
    _Thread(saver, "a").add({"n": 2})
    _equal(_stored(saver, "a", "").revision, 1, "a deleted thread begins again")


def copies_are_threads_of_their_own(saver: Saver) -> None:
    """A copy has the whole history, and outlives its source."""
    thread = _Thread(saver)
    for number in range(40):
        thread.add({"m": list(range(number))})
    thread.write((), ("c39", Finished("c39-task", "node", (("m", [1]),))))
    _Thread(saver, "t", "child").add({"c": 1})
    before = [(s.checkpoint, s.results, s.head_id, s.revision) for s in thread.history()]
    saver.copy_thread("t", "copy")
    saver.delete_thread("t")
    found = [(s.checkpoint, s.results, s.head_id, s.revision) for s in saver.history("copy", "")]
    _equal(found, before, "a copy has the whole history")
    _equal(saver.namespaces("copy"), ["", "child"], "a copy has every namespace")
    with _refused(StorageError, "copying a thread that is not there"):
        saver.copy_thread("gone", "new")
    _Thread(saver, "other").add({})
    with _refused(StorageError, "copying onto a thread that is there"):
        saver.copy_thread("other", "copy")


def pruning_keeps_the_newest(saver: Saver) -> None:
    """Pruning keeps the newest checkpoints readable, and always the head."""
    thread = _Thread(saver)
    for number in range(40):
        thread.add({"m": list(range(number))})
    wanted = thread.history()
    for keep in (100, 40, 17, 1, 0):
        saver.prune("t", keep=keep)
        _equal(thread.history(), wanted[: max(keep, 1)], f"prune(keep={keep})")
    thread.add({"m": []})
    _equal(_stored(saver, "t", "").checkpoint.values, {"m": []}, "a pruned thread goes on")
    with _refused(StorageError, "pruning a thread that is not there"):
        saver.prune("gone", keep=1)
    with _refused(ValueError, "prune(keep=-1)"):
        saver.prune("t", keep=-1)


def once_records_are_replaced_by_key(saver: Saver) -> None:
    """Records of once() calls keep the order in which they began, and make no thread."""
    place, begun = ("t", "ns", "task"), Recorded("b", False, None, "", 2, 1)
    _equal(saver.record_start(*place, begun), None, "a once call that begins")
    _equal(saver.record_start(*place, Recorded("a", False)), None, "another key")
    _equal(saver.record_start(*place, Recorded("b", False)), begun, "a once call that began before")
    saver.record(*place, Recorded("a", False, None, "E: no", 0, 0))
    saver.record(*place, Recorded("b", True, {"sent": (1,)}, "", 2, 1))
    wanted = (Recorded("b", True, {"sent": (1,)}, "", 2, 1), Recorded("a", False, None, "E: no", 0, 0))
    _equal(saver.recorded(*place), wanted, "once records are replaced by key")
    _equal((saver.recorded("t", "ns", "other"), saver.get("t", "ns")), ((), None), "records make no thread")
    _equal(saver.recorded("t", "", "task"), (), "records of another namespace are others")
    with _refused(UnstorableValueError, "a result without a stored form"):
        saver.record(*place, Recorded("a", True, object()))
    _equal(saver.recorded(*place), wanted, "a refused record changes nothing")
    for _ in range(2):
        saver.remove_record(*place, "b")
        _equal(saver.recorded(*place), wanted[1:], "a removed record is gone, alone")
    _equal(saver.record_start(*place, begun), None, "a once call whose record was removed begins again")
    _equal([recorded.key for recorded in saver.recorded(*place)], ["a", "b"], "it is the last one then")


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
        _equal(sorted(found is None for found in begun), [False, False, False, True], "of several calls one begins")


def once_records_go_with_their_tasks(saver: Saver) -> None:
    """A copy of a thread has its records; pruning forgets those of tasks that no checkpoint lists any more."""
    thread = _Thread(saver)
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
    _equal(saver.recorded("t", "", "t2"), (), "a deleted thread has no records")

    def found() -> list[Any]:
        return [[r.value for r in saver.recorded("copy", "", f"t{n}")] for n in range(3)]

    _equal(found(), [[0], [1], [2]], "a copy has the records")
    saver.prune("copy", keep=2)
    _equal(found(), [[], [1], [2]], "pruning forgets the records of tasks that are gone")
    _equal(saver.recorded("copy", "", "t0|0:1:n"), (), "and those of the child graphs that they called")
    _equal(saver.recorded("copy", "", "t1|0:1:n"), (Recorded("k", True, (1,)),), "and no others")
    _equal(saver.recorded("copy", "ns", "t2"), (), "a task is known by its namespace too")
    wanted = (Recorded("a", True, 1), Recorded("b", False))
    _equal(saver.recorded("copy", "", "kept"), wanted, "what several checkpoints list stays, in its order")


def once_records_are_carried_to_a_branch(saver: Saver) -> None:
    """A write copies records to tasks of its namespace: all of them, or those from before a question or a child."""
    thread = _Thread(saver)
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
        _equal(saver.recorded("t", "", f"y{number}"), calls[:count], f"carried up to {questions}, {children}")
        _equal(saver.recorded("t", "", f"y{number}|0:1:n"), calls[:1], "what child graphs recorded goes with it")
    _equal(saver.recorded("t", "old", "x"), calls, "carrying copies")
    refused = Write("t", "", 0, carried=(Carried("old", "x", "z"),))
    with _refused(ThreadConflictError, "a write on another revision"):
        saver.put(refused)
    _equal(saver.recorded("t", "", "z"), (), "a refused write carries nothing")


def async_methods_do_the_same(saver: Saver) -> None:
    """The async twins store and read the same."""

    async def work() -> None:
        _equal(await saver.aput(Write("t", "", 0, (NewCheckpoint(_point("c0", {"n": 1}), None),))), 1, "aput")
        stored = await saver.aget("t", "")
        _equal(stored, _stored(saver, "t", ""), "aget")
        _equal(await saver.ahistory("t", "", limit=5), [stored], "ahistory")
        _equal(await saver.arecord_start("t", "", "task", Recorded("k", False)), None, "arecord_start")
        await saver.arecord("t", "", "task", Recorded("k", True, 1))
        _equal(await saver.arecorded("t", "", "task"), (Recorded("k", True, 1),), "arecorded")
        await saver.aremove_record("t", "", "task", "k")
        _equal(await saver.arecorded("t", "", "task"), (), "aremove_record")
        await saver.acopy_thread("t", "u")
        await saver.aprune("u", keep=1)
        await saver.adelete_thread("t")
        _equal((await saver.aget("t", ""), (await saver.aget("u", "")) is None), (None, False), "adelete_thread")

    asyncio.run(work())


def of_two_writers_one_wins(saver: Saver) -> None:
    """Of four threads that write on the same revision exactly one wins, in each of 10 rounds."""
    _Thread(saver).add({})
    for revision in range(1, 11):
        ended: list[str] = []

        def write(number: int, revision: int = revision, ended: list[str] = ended) -> None:
            new = NewCheckpoint(_point(f"r{revision}-{number}", {}), None)
            try:
                saver.put(Write("t", "", revision, (new,)))
                ended.append("won")
            except ThreadConflictError:
                ended.append("lost")
            except Exception as error:
                ended.append(repr(error))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        _equal(sorted(ended), ["lost", "lost", "lost", "won"], "of several writers exactly one wins")
