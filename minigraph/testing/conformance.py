"""What every saver must do, as checks over the Saver contract alone."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from minigraph.checkpoint.base import Saver
from minigraph.errors import StorageError, ThreadConflictError, UnstorableValueError
from minigraph.records import (
    Ancestor,
    Checkpoint,
    Failed,
    Finished,
    NewCheckpoint,
    Paused,
    Recorded,
    Result,
    Task,
    Write,
)
from minigraph.testing import (
    async_checks,
    class_checks,
    exchange_checks,
    filter_checks,
    label_checks,
    record_checks,
    retention_checks,
)
from minigraph.testing.async_side import AsyncSide
from minigraph.testing.saver_parts import (
    TIME,
    ConformanceError,
    SavedThread,
    demand,
    name_of,
    named_id,
    point,
    refused,
    stored_in,
)
from minigraph.types import Interrupt, Send


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
    """The checks by name; each takes an empty saver. Those that end in ", async" go through the async methods."""
    both = {check.__name__.replace("_", " "): check for check in _CHECKS}
    through = {f"{name}, async": functools.partial(_through_async, check) for name, check in both.items()}
    return both | through | {check.__name__.replace("_", " "): check for check in _ASYNC_CHECKS}


def _through_async(check: Callable[[Saver], None], saver: Saver) -> None:
    with AsyncSide(saver) as side:
        try:
            check(side)
        except ConformanceError as error:
            raise ConformanceError(f"{error.check}, with the async methods", error.what) from error


# ------------------------------------------------------------------------- checks


def every_field_comes_back(saver: Saver) -> None:
    """A checkpoint with every field set is read as it was written."""
    full = Checkpoint(
        id=named_id(1, "full"),
        parent_id=None,
        step=3,
        source="update",
        created=TIME,
        values={"a": [1, (2,), 2**70], "b": {"c": {1}, "d": b"x"}, "e": None, "f": 1.5},
        due=(Task("1", "x"), Task("2", "y", 3, None), Task("3", "z", 0, {"arg": (1,)})),
        deferred=("d", "e"),
        joins={"a+b:c": ("a",), "x+y:z": ()},
        ran=("p", "q"),
        written=(("a", [1]), ("b", (2,))),
        owner="owner",
        metadata={"who": "x", "n": 1, "yes": True},
    )
    demand(saver.put(Write("t", "ns", 0, (NewCheckpoint(full, None),))), 1, "put returns the new revision")
    stored = stored_in(saver, "t", "ns")
    demand(stored.checkpoint, full, "every field of a checkpoint comes back")
    demand((stored.head_id, stored.revision, stored.results), (full.id, 1, ()), "head, revision and results come back")
    demand(saver.get("t", "ns", full.id), stored, "get by id finds the head too")


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
    thread = SavedThread(saver)
    first = thread.add({"n": 0})
    for result in results:
        thread.write((), (first.id, result))
        demand(stored_in(saver, "t", "").results, (result,), f"a {type(result).__name__} result comes back")


def reads_create_nothing(saver: Saver) -> None:
    """Reading what is not there gives nothing and leaves nothing behind."""
    what = "reads of what is not there"
    demand((saver.get("t", ""), saver.get("t", "", named_id(1)), list(saver.history("t", ""))), (None, None, []), what)
    demand((list(saver.history("t", "", before=named_id(1))), saver.namespaces("t")), ([], []), what)
    demand((saver.recorded("t", "", "task"), list(saver.list())), ((), []), what)


def another_revision_is_refused(saver: Saver) -> None:
    """A write on another revision of the head raises ThreadConflictError and stores nothing."""
    thread = SavedThread(saver)
    first = thread.add({"n": 1})
    done = (first.id, Finished("c0-task", "node", (("n", 2),)))
    for revision in (0, 2, -1):
        with refused(ThreadConflictError, "a write on another revision"):
            saver.put(Write("t", "", revision, (NewCheckpoint(point(revision + 1, "x", {}), None),), (done,)))
    stored = stored_in(saver, "t", "")
    demand((stored.head_id, stored.revision, stored.results), (first.id, 1, ()), "a refused write stores nothing")
    demand(saver.get("t", "", named_id(1, "x")), None, "a refused write stores nothing")
    write = Write("t", "ns", 0, (NewCheckpoint(point(1, "x", {}), None),))
    demand(saver.put(write), 1, "namespaces have own revisions")
    child = Write("gone", "ns", 0, (NewCheckpoint(point(1, "x", {}), None),), under="")
    with refused(ThreadConflictError, "a child graph's first write where its caller's log is missing"):
        saver.put(child)
    demand(saver.namespaces("gone"), [], "a refused first write begins no log")


def results_are_replaced_by_task(saver: Saver) -> None:
    """A later result of a task replaces the earlier one; results come in the order of the due tasks."""
    thread = SavedThread(saver)
    head = thread.add({}, due=(Task("z", "n"), Task("a", "n"), Task("m", "n"))).id
    thread.write((), (head, Finished("m", "n")), (head, Failed("a", "n", "E", "first")))
    thread.write((), (head, Finished("a", "n", (("k", 1),))), (head, Finished("z", "n")))
    wanted = (Finished("z", "n"), Finished("a", "n", (("k", 1),)), Finished("m", "n"))
    demand(stored_in(saver, "t", "").results, wanted, "results are replaced, in task order")
    thread.write(removed=((head, "a"), (head, "never there")))
    demand(stored_in(saver, "t", "").results, (wanted[0], wanted[2]), "removed results are gone")
    with refused(StorageError, "a result of a checkpoint that is not there"):
        thread.write((), (named_id(1, "nowhere"), Finished("a", "n")))
    thread.add({"n": 2})
    with refused(StorageError, "a result of a checkpoint that is not the head any more"):
        thread.write((), (head, Finished("a", "n")))
    demand(thread.names(), ["c4", "c0"], "refused results leave nothing behind")


def a_write_is_all_or_nothing(saver: Saver) -> None:
    """Several checkpoints and results go in together, or, where a value cannot be stored, not at all."""
    thread = SavedThread(saver)
    one = point(1, "one", {"l": [1]})
    two = point(2, "two", {"l": [1, 2]}, one)
    result = Finished("one-task", "node", (("l", [2]),))
    thread.write((NewCheckpoint(one, None), NewCheckpoint(two, one)), (one.id, result))
    demand((thread.names(), thread.revision), (["two", "one"], 2), "several checkpoints in one write")
    demand([stored.results for stored in thread.history()], [(), (result,)], "several checkpoints in one write")
    good, bad = point(3, "good", {"l": []}, two), point(4, "bad", {"l": [{"x": object()}]}, two)
    with refused(UnstorableValueError, "a value without a stored form"):
        thread.write((NewCheckpoint(good, two), NewCheckpoint(bad, good)), (two.id, Finished("two-task", "node")))
    for wrong in (one, point(3, "again", {}), msgspec.structs.replace(good, id="four")):
        with refused(StorageError, "an id that does not begin with its revision"):
            thread.write((NewCheckpoint(good, two), NewCheckpoint(wrong, None)))
    with refused(StorageError, "a parent that is no earlier checkpoint"):
        thread.write((NewCheckpoint(good, two), NewCheckpoint(point(4, "x", {}, point(4, "y", {})), None)))
    demand((thread.names(), stored_in(saver, "t", "").revision), (["two", "one"], 2), "a refused write stores nothing")
    demand(stored_in(saver, "t", "").results, (), "a refused write stores nothing")


def stored_values_are_safe_from_edits(saver: Saver) -> None:
    """Editing what was written, or what was read, does not reach what is stored."""
    thread, items = SavedThread(saver), [{"n": 1}]
    thread.add({"items": items})
    thread.add({"items": [*items, {"n": 2}]})
    items[0]["n"] = 99
    for stored in thread.history():
        stored.checkpoint.values["items"][0]["n"] = 77
    found = [stored.checkpoint.values for stored in thread.history()]
    demand(found, [{"items": [{"n": 1}, {"n": 2}]}, {"items": [{"n": 1}]}], "stored values are safe from edits")


def every_state_of_a_long_history_can_be_read(saver: Saver) -> None:
    """100 states that grow, shrink, gain and lose keys are all read as they were."""
    thread, states = SavedThread(saver), []
    for number in range(100):
        state: dict[str, Any] = {"m": [(n, "x" * 20) for n in range(number % 30)], "d": {f"k{number % 7}": number}}
        if number % 3:
            state["sometimes"] = {number}
        states.append(state)
        thread.add(state)
    found = [stored.checkpoint.values for stored in thread.history()]
    demand(found, states[::-1], "every state of a long history can be read")
    middle = stored_in(saver, "t", "", named_id(51, "c50"))
    demand(middle.checkpoint.values, states[50], "a state in the middle can be read")


def branches_have_states_of_their_own(saver: Saver) -> None:
    """Two branches from one checkpoint do not mix; the newest write is the head."""
    thread = SavedThread(saver)
    root = thread.add({"l": [1]})
    left = thread.add({"l": [1, 2]})
    right = thread.add({"l": [1, 3]}, root, source="fork")
    thread.add({"l": [1, 2, 4]}, left)
    thread.add({"l": [1, 3, 5]}, right)
    found = [stored.checkpoint.values["l"] for stored in thread.history()]
    demand(found, [[1, 3, 5], [1, 2, 4], [1, 3], [1, 2], [1]], "branches have states of their own")
    stored = stored_in(saver, "t", "", named_id(4, "c3"))
    wanted = (named_id(5, "c4"), named_id(2, "c1"))
    demand((stored.head_id, stored.checkpoint.parent_id), wanted, "an older checkpoint knows parent and head")


def lineages_follow_parents(saver: Saver) -> None:
    """A lineage is one branch, newest first, up to where a parent is not stored."""
    thread = SavedThread(saver)
    root = thread.add({"l": [1]}, source="input")
    left = thread.add({"l": [1, 2]}, root, ran=("b", "a"))
    right = thread.add({"l": [1, 3]}, root, source="fork", due=(Task("t", "node", 0, {"x": (1,)}),))
    thread.add({"l": [1, 2, 4]}, left)
    ids = [name_of(a.id) for a in saver.lineage("t", "")]
    demand(ids, ["c3", "c1", "c0"], "the lineage of the head")
    first, second = Ancestor(left.id, left.step, "loop", ("b", "a")), Ancestor(root.id, -1, "input")
    demand(saver.lineage("t", "", left.id), [first, second], "what a lineage says of each checkpoint")
    demand(saver.lineage("t", "", right.id)[0], Ancestor(right.id, right.step, "fork"), "the lineage of a branch")
    unknown = (saver.lineage("t", "", named_id(4, "c9")), saver.lineage("u", ""))
    demand(unknown, ([], []), "the lineage of what is not there")
    saver.prune("t", keep=3)
    for name, wanted in ((named_id(4, "c3"), ["c3", "c1"]), (right.id, ["c2"])):
        demand([name_of(a.id) for a in saver.lineage("t", "", name)], wanted, "the lineage of a pruned thread")
        demand(saver.lineage("t", "", name), Saver.lineage(saver, "t", "", name), "a lineage is made of parents")


def history_can_be_limited_and_filtered(saver: Saver) -> None:
    """`before`, `limit` and `filter` select; values are compared with their types."""
    thread = SavedThread(saver)
    for number in range(6):
        labels: dict[str, Any] = {"n": number, "even": number % 2 == 0}
        thread.add({}, metadata=labels, source="input" if number == 0 else "loop")
    wanted: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["c5", "c4", "c3", "c2", "c1", "c0"]),
        ({"limit": 2}, ["c5", "c4"]),
        ({"limit": 0}, []),
        ({"before": named_id(3, "c2")}, ["c1", "c0"]),
        ({"before": named_id(3, "c3")}, []),
        ({"before": named_id(5, "c4"), "limit": 1}, ["c3"]),
        ({"filter": {"source": "input"}}, ["c0"]),
        ({"filter": {"step": 2}}, ["c3"]),
        ({"filter": {"even": True, "n": 2}}, ["c2"]),
        ({"filter": {"n": True}}, []),
        ({"filter": {"even": 1}}, []),
        ({"filter": {"missing": None}}, []),
    ]
    for options, names in wanted:
        demand(thread.names(**options), names, f"history({options})")
    with refused(ValueError, "a negative limit"):
        thread.names(limit=-1)


def list_shows_threads(saver: Saver) -> None:
    """`list` shows every thread and namespace, newest first, with configs that address them."""
    SavedThread(saver, "a").add({"x": 1}, metadata={"who": "me"})
    thread = SavedThread(saver, "b")
    thread.add({}, name="b0")
    thread.add({}, name="b1")
    SavedThread(saver, "a", "child").add({}, name="inner")
    every = list(saver.list())
    demand([name_of(item.checkpoint.id) for item in every], ["inner", "b1", "b0", "c0"], "list(None) shows everything")
    place = {"thread_id": "b", "checkpoint_ns": "", "checkpoint_id": named_id(1, "b0")}
    demand(every[1].parent_config, {"configurable": place}, "list gives the parent's config")
    for config, name in (({"thread_id": "a"}, "c0"), (place, "b0")):
        found = [name_of(item.checkpoint.id) for item in saver.list({"configurable": config})]
        demand(found, [name], f"list({config})")
    demand(saver.namespaces("a"), ["", "child"], "namespaces of a thread")


def threads_are_deleted_alone(saver: Saver) -> None:
    """Deleting a thread forgets all of it and nothing else; twice is fine."""
    for name in ("a", "b"):
        SavedThread(saver, name).add({"n": 1})
        saver.record(name, "", "task", Recorded("k", True, 1))
    saver.delete_thread("a")
    saver.delete_thread("a")
    demand((saver.get("a", ""), saver.recorded("a", "", "task")), (None, ()), "a deleted thread is gone")
    stored_in(saver, "b", "")
    demand(saver.recorded("b", "", "task"), (Recorded("k", True, 1),), "other threads stay")
    SavedThread(saver, "a").add({"n": 2})
    demand(stored_in(saver, "a", "").revision, 1, "a deleted thread begins again")


def copies_are_threads_of_their_own(saver: Saver) -> None:
    """A copy has the whole history, and outlives its source."""
    thread = SavedThread(saver)
    for number in range(40):
        thread.add({"m": list(range(number))})
    thread.write((), (named_id(40, "c39"), Finished("c39-task", "node", (("m", [1]),))))
    SavedThread(saver, "t", "child").add({"c": 1})
    before = [(s.checkpoint, s.results, s.head_id, s.revision) for s in thread.history()]
    saver.copy_thread("t", "copy")
    saver.delete_thread("t")
    found = [(s.checkpoint, s.results, s.head_id, s.revision) for s in saver.history("copy", "")]
    demand(found, before, "a copy has the whole history")
    demand(saver.namespaces("copy"), ["", "child"], "a copy has every namespace")
    with refused(StorageError, "copying a thread that is not there"):
        saver.copy_thread("gone", "new")
    SavedThread(saver, "other").add({})
    with refused(StorageError, "copying onto a thread that is there"):
        saver.copy_thread("other", "copy")


def pruning_keeps_the_newest(saver: Saver) -> None:
    """Pruning keeps the newest checkpoints readable, and always the head."""
    thread = SavedThread(saver)
    for number in range(40):
        thread.add({"m": list(range(number))})
    wanted = thread.history()
    for keep in (100, 40, 17, 1, 0):
        saver.prune("t", keep=keep)
        kept = wanted[: max(keep, 1)]
        orphan = msgspec.structs.replace(kept[-1].checkpoint, parent_id=None)
        kept[-1] = msgspec.structs.replace(kept[-1], checkpoint=orphan)
        demand(thread.history(), kept, f"prune(keep={keep})")
    thread.add({"m": []})
    demand(stored_in(saver, "t", "").checkpoint.values, {"m": []}, "a pruned thread goes on")
    with refused(StorageError, "pruning a thread that is not there"):
        saver.prune("gone", keep=1)
    with refused(ValueError, "prune(keep=-1)"):
        saver.prune("t", keep=-1)


def of_two_writers_one_wins(saver: Saver) -> None:
    """Of four threads that write on the same revision exactly one wins, in each of 10 rounds."""
    SavedThread(saver).add({})
    for revision in range(1, 11):
        ended: list[str] = []

        def write(number: int, revision: int = revision, ended: list[str] = ended) -> None:
            new = NewCheckpoint(point(revision + 1, f"r{revision}-{number}", {}), None)
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
        demand(sorted(ended), ["lost", "lost", "lost", "won"], "of several writers exactly one wins")


_CHECKS: tuple[Callable[[Saver], None], ...] = (
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
    class_checks.registered_classes_come_back,
    retention_checks.old_threads_are_deleted,
    retention_checks.old_threads_with_something_due_are_spared,
    retention_checks.a_result_makes_a_thread_younger,
    retention_checks.moments_without_a_zone_are_refused,
    exchange_checks.exported_threads_come_back,
    exchange_checks.imports_are_whole_or_refused,
    filter_checks.filters_compare_exactly,
    label_checks.graphs_are_noted_with_what_they_wrote,
    record_checks.once_records_are_replaced_by_key,
    record_checks.of_two_once_calls_one_begins,
    record_checks.once_records_go_with_their_tasks,
    record_checks.once_records_are_carried_to_a_branch,
    of_two_writers_one_wins,
)
_ASYNC_CHECKS: tuple[Callable[[Saver], None], ...] = (
    async_checks.sync_and_async_methods_see_the_same,
    async_checks.cancelled_writes_have_ended,
)


__all__ = ["ConformanceError", "saver_checks", "saver_conformance"]
