"""One suite for every saver, then what only SQLite promises."""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from minigraph.checkpoint import InMemorySaver, Saver, SqliteSaver, schema
from minigraph.checkpoint.rows import read_body
from minigraph.checkpoint.saver import TableSaver
from minigraph.checkpoint.schema import APPLICATION_ID, SCHEMA_VERSION
from minigraph.errors import DecodeError, StorageError, ThreadConflictError, UnstorableValueError
from minigraph.records import Checkpoint, Failed, Finished, NewCheckpoint, Paused, Recorded, Result, Task, Write
from minigraph.testing.saver_parts import name_of, named_id
from minigraph.types import Interrupt, Send


@pytest.fixture(params=["memory", "file", "connection", ":memory:", "postgres"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TableSaver]:
    if request.param == "memory":
        yield InMemorySaver()
    elif request.param == "postgres":
        yield request.getfixturevalue("postgres")
    elif request.param == "connection":
        connection = sqlite3.connect(tmp_path / "given.db", check_same_thread=False)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA synchronous = OFF")
        with SqliteSaver(connection) as made:
            yield made
        connection.close()
    else:
        with SqliteSaver(":memory:" if request.param == ":memory:" else tmp_path / "threads.db") as made:
            yield made


def point(
    revision: int, name: str, values: dict[str, Any], parent: Checkpoint | None = None, **others: Any
) -> Checkpoint:
    step = -1 if parent is None else parent.step + 1
    fields = {"source": "loop", "created": 1_767_225_600_123, "due": (Task(f"{name}-task", "node"),)}
    place = (named_id(revision, name), parent.id if parent else None)
    return Checkpoint(*place, step=step, values=values, **{**fields, **others})


def c(number: int) -> str:
    """The id of the checkpoint number `number` (from 0) of a thread without other writes."""
    return named_id(number + 1, f"c{number}")


class Thread:
    """Writes one checkpoint after another to a thread."""

    def __init__(self, saver: Saver, thread_id: str = "t", namespace: str = "") -> None:
        self.saver, self.place, self.revision = saver, (thread_id, namespace), 0
        self.head: Checkpoint | None = None

    def add(
        self, values: dict[str, Any], *results: tuple[str, Result], parent: Any = "head", **others: Any
    ) -> Checkpoint:
        before = self.head if parent == "head" else parent
        others.setdefault("name", f"c{self.revision}")
        new = point(self.revision + 1, others.pop("name"), values, before, **others)
        write = Write(*self.place, self.revision, (NewCheckpoint(new, before),), results)
        self.revision = self.saver.put(write)
        self.head = new
        return new

    def put(self, *results: tuple[str, Result], removed: tuple[tuple[str, str], ...] = ()) -> None:
        self.revision = self.saver.put(Write(*self.place, self.revision, (), results, removed))

    def values(self) -> list[Any]:
        return [stored.checkpoint.values for stored in self.saver.history(*self.place)]


def done(head: Checkpoint | None, *writes: tuple[str, Any]) -> tuple[tuple[str, Result], ...]:
    """The result of the one task of a checkpoint."""
    return () if head is None else ((head.id, Finished(f"{name_of(head.id)}-task", "node", writes)),)


FULL = Checkpoint(
    id=named_id(1, "full"),
    parent_id=None,
    step=3,
    source="update",
    created=1_767_225_600_123,
    values={"a": [1, (2,)], "b": {"c": {1}}},
    due=(Task("1", "x"), Task("2", "y", 3, None), Task("3", "z", 0, {"arg": (1,)})),
    deferred=("d", "e"),
    joins={"a+b:c": ("a",), "x+y:z": ()},
    ran=("p", "q"),
    written=(("a", [1]), ("b", (2,))),
    owner="owner",
    metadata={"source_file": "x", "n": 1, "deep": {"list": [1, None, True, 1.5]}},
)


def test_every_field_of_a_checkpoint_comes_back(saver: TableSaver) -> None:
    assert saver.put(Write("t", "ns", 0, (NewCheckpoint(FULL, None),))) == 1
    stored = saver.get("t", "ns")
    assert stored is not None
    assert stored.checkpoint == FULL
    assert repr(stored.checkpoint) == repr(FULL)
    assert (stored.head_id, stored.revision, stored.results) == (FULL.id, 1, ())
    assert saver.get("t", "ns", FULL.id) == stored


def test_reads_of_what_is_not_there_create_nothing(saver: TableSaver) -> None:
    assert saver.get("t", "") is None
    assert saver.get("t", "", c(0)) is None
    assert list(saver.history("t", "")) == []
    assert list(saver.history("t", "", before=c(0))) == []
    assert list(saver.list({"configurable": {"thread_id": "t"}})) == []
    assert saver.namespaces("t") == []
    assert saver.recorded("t", "", "task") == ()
    Thread(saver, "other").add({})
    assert saver.get("t", "") is None
    assert [item.config["configurable"]["thread_id"] for item in saver.list()] == ["other"]


def test_a_write_on_another_revision_is_refused_and_stores_nothing(saver: TableSaver) -> None:
    thread = Thread(saver)
    first = thread.add({"n": 1})
    for revision in (0, 2, -1):
        with pytest.raises(ThreadConflictError, match=r"'t'.*revision 1"):
            saver.put(
                Write("t", "", revision, (NewCheckpoint(point(revision + 1, "x", {}), None),), ((first.id, DONE),))
            )
    stored = saver.get("t", "")
    assert stored is not None
    assert (stored.head_id, stored.revision, stored.results) == (c(0), 1, ())
    assert saver.get("t", "", named_id(2, "x")) is None
    assert saver.put(Write("t", "other", 0, (NewCheckpoint(point(1, "x", {}), None),))) == 1


DONE = Finished("c0-task", "node", (("n", 1), ("m", [1, (2,)])), ("a", Send("b", {"x": 1})), False, True)
ALL_RESULTS: list[Result] = [
    DONE,
    Finished("c0-task", "node"),
    Finished("c0-task", "node", answers=("yes",), asked=(Interrupt({"q": (1,)}, "0" * 32),)),
    Paused(
        "c0-task",
        "node",
        asked=(Interrupt("a?", "1"), Interrupt("b?", "2")),
        answers=((1,),),
        inner=(Interrupt("c?", "3"),),
        given=(("3", {"x"}),),
    ),
    Paused("c0-task", "node"),
    Failed("c0-task", "node", "ValueError", "no \ud800", True, answers=(None,)),
    Failed("c0-task", "node", "E", "m", kept=Finished("c0-task", "node", (("n", (1,)),), ("x",))),
]


@pytest.mark.parametrize("result", ALL_RESULTS, ids=lambda result: type(result).__name__)
def test_every_field_of_a_result_comes_back(saver: TableSaver, result: Result) -> None:
    thread = Thread(saver)
    thread.add({"n": 0})
    thread.put((c(0), result))
    stored = saver.get("t", "")
    assert stored is not None
    assert stored.results == (result,)
    assert repr(stored.results) == repr((result,))
    assert stored.revision == 2


def test_results_are_replaced_by_task_removed_and_in_task_order(saver: TableSaver) -> None:
    thread = Thread(saver)
    thread.add({}, due=(Task("z", "n"), Task("a", "n"), Task("m", "n")))
    thread.put((c(0), Finished("m", "n")), (c(0), Failed("a", "n", "E", "first")))
    thread.put((c(0), Finished("a", "n", (("k", 1),))), (c(0), Finished("z", "n")))
    stored = saver.get("t", "")
    assert stored is not None
    assert [result.task_id for result in stored.results] == ["z", "a", "m"]
    assert stored.results[1] == Finished("a", "n", (("k", 1),))
    thread.put(removed=((c(0), "a"), (c(0), "never there")))
    stored = saver.get("t", "")
    assert stored is not None
    assert [result.task_id for result in stored.results] == ["z", "m"]
    with pytest.raises(StorageError, match="nor comes with the write"):
        thread.put((named_id(1, "nowhere"), Finished("a", "n")))


def test_several_checkpoints_in_one_write(saver: TableSaver) -> None:
    one = point(1, "one", {"l": [1]})
    two = point(2, "two", {"l": [*one.values["l"], 2]}, one)
    result = Finished("one-task", "node", (("l", [2]),))
    write = Write("t", "", 0, (NewCheckpoint(one, None), NewCheckpoint(two, one)), ((one.id, result),))
    assert saver.put(write) == 2
    assert [stored.checkpoint for stored in saver.history("t", "")] == [two, one]
    assert [stored.results for stored in saver.history("t", "")] == [(), (result,)]
    new = point(3, "new", {}, two)
    for wrong in ("one", one.id, named_id(3, "x"), named_id(5, "x"), new.id.upper(), new.id + "00", ""):
        other = msgspec.structs.replace(one, id=wrong)
        with pytest.raises(StorageError, match="would be stored as revision 4"):
            saver.put(Write("t", "", 2, (NewCheckpoint(new, two), NewCheckpoint(other, None))))
    assert saver.get("t", "", new.id) is None
    assert saver.put(Write("t", "", 2, (NewCheckpoint(new, two),))) == 3


def test_a_refused_value_stores_nothing(saver: TableSaver) -> None:
    thread = Thread(saver)
    thread.add({"n": 1})
    with pytest.raises(UnstorableValueError) as caught:
        thread.add({"n": 2, "l": [1, {"x": object()}]})
    assert (caught.value.key, caught.value.path) == ("l", "$[1].x")
    with pytest.raises(UnstorableValueError) as caught:
        thread.put((c(0), Finished("c0-task", "node", (("k", {"f": print}),))))
    assert (caught.value.key, caught.value.path) == ("k", "$.f")
    with pytest.raises(UnstorableValueError, match="metadata"):
        thread.add({"n": 2}, metadata={"when": (1,)})
    stored = saver.get("t", "")
    assert stored is not None
    assert (stored.revision, stored.results) == (1, ())
    assert len(thread.values()) == 1


def test_values_are_safe_from_edits_before_and_after_reading(saver: TableSaver) -> None:
    thread = Thread(saver)
    items = [{"n": 1}]
    thread.add({"items": items})
    thread.add({"items": [*items, {"n": 2}]})
    items[0]["n"] = 99
    for stored in saver.history("t", ""):
        stored.checkpoint.values["items"][0]["n"] = 77
    assert thread.values() == [{"items": [{"n": 1}, {"n": 2}]}, {"items": [{"n": 1}]}]


def grow(saver: Saver, steps: int, change: Callable[[dict[str, Any], int], dict[str, Any]]) -> list[dict[str, Any]]:
    thread, found = Thread(saver), []
    values: dict[str, Any] = {"m": [], "d": {}, "n": 0}
    for number in range(steps):
        values = change(values, number)
        thread.add(values)
        found.append(values)
    return found


CHANGES: dict[str, Callable[[dict[str, Any], int], dict[str, Any]]] = {
    "append": lambda old, n: {**old, "m": [*old["m"], {"n": n}]},
    "put": lambda old, n: {**old, "d": {**old["d"], f"k{n % 50}": "x" * n}},
    "replace": lambda old, n: {**old, "n": "y" * (n % 7)},
    "window": lambda old, n: {**old, "m": [*old["m"], n][-5:]},
    "clear": lambda old, n: {**old, "m": [] if n % 40 == 39 else [*old["m"], "z" * 50]},
    "come and go": lambda old, n: {**old, "x": [n]} if n % 3 else {"n": n, **{k: old[k] for k in ("m", "d")}},
    "all": lambda old, n: {"n": n, "m": [*old["m"], (n,)], "d": {**old["d"], n: True}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_state_of_a_long_history_can_be_read(saver: TableSaver, change: str) -> None:
    states = grow(saver, 150, CHANGES[change])
    found = list(saver.history("t", ""))
    assert [repr(stored.checkpoint.values) for stored in found] == [repr(state) for state in reversed(states)]
    middle = saver.get("t", "", c(70))
    assert middle is not None
    assert repr(middle.checkpoint.values) == repr(states[70])
    with saver._reading() as tables:
        log = tables.log("t", "")
        assert log is not None
        number = log.number
        chain = tables.chain(number, 150)
        assert len(chain) <= 150 // 32 + 33
        numbers = read_body(chain[-1]).numbers
        assert numbers.chain_bytes <= 2 * (numbers.state_bytes + 100)


def test_branches_have_states_of_their_own(saver: TableSaver) -> None:
    thread = Thread(saver)
    root = thread.add({"l": [1]})
    left = thread.add({"l": [1, 2]})
    right = thread.add({"l": [1, 3]}, parent=root, source="fork")
    thread.add({"l": [1, 2, 4]}, parent=left)
    thread.add({"l": [1, 3, 5]}, parent=right)
    assert [state["l"] for state in thread.values()] == [[1, 3, 5], [1, 2, 4], [1, 3], [1, 2], [1]]
    stored = saver.get("t", "", c(3))
    assert stored is not None
    assert (stored.head_id, stored.checkpoint.parent_id) == (c(4), c(1))


def test_written_of_child_graphs_is_kept(saver: TableSaver) -> None:
    thread = Thread(saver, namespace="child:1")
    written: tuple[tuple[str, Any], ...] = ()
    for number in range(80):
        written = (*written, ("k", {"n": (number,)}))
        thread.add({"n": number}, written=written)
    lengths = [len(stored.checkpoint.written) for stored in saver.history("t", "child:1")]
    assert lengths == list(range(80, 0, -1))
    head = saver.get("t", "child:1")
    assert head is not None
    assert head.checkpoint.written == written


def test_results_of_a_finished_step_come_back_from_the_state_they_led_to(saver: TableSaver) -> None:
    thread = Thread(saver)
    long, message, entry, plain = "s" * 100, {"who": "user", "text": "x" * 300}, {"k": ["y" * 50]}, ("t" * 50,)
    start = thread.add({"m": [0], "d": {"a": 1}, "s": "", "p": (), "i": []})
    writes = (("m", [message, 7]), ("d", entry), ("s", long), ("p", plain), ("i", message), ("n", 1), ("s", "other"))
    done = Finished("c0-task", "node", writes)
    state = {"m": [0, message, 7], "d": {"a": 1, **entry}, "s": long, "p": plain, "i": [message], "n": 5}
    thread.add(state, (start.id, done))
    thread.add({**state, "m": []})
    first = saver.get("t", "", c(0))
    assert first is not None
    assert first.results == (done,)
    with saver._reading() as tables:
        log = tables.log("t", "")
        assert log is not None
        number = log.number
        (row,) = tables.rows(number, 2, 2)
        assert sum(map(len, read_body(row).results)) < 100


def test_history_before_limit_and_filter(saver: TableSaver) -> None:
    thread = Thread(saver)
    for number in range(6):
        labels: dict[str, Any] = {"even": number % 2 == 0, "n": number, "who": f"u{number % 3}", "l": [number % 2]}
        thread.add({"n": number}, metadata=labels, source="input" if number == 0 else "loop")
    Thread(saver, namespace="ns").add({}, name="other", metadata={"n": 3})

    def names(**arguments: Any) -> list[str]:
        return [name_of(stored.checkpoint.id) for stored in saver.history("t", "", **arguments)]

    assert names() == ["c5", "c4", "c3", "c2", "c1", "c0"]
    assert names(limit=2) == ["c5", "c4"]
    assert names(limit=0) == []
    assert names(before=c(2)) == ["c1", "c0"]
    assert names(before=c(0)) == []
    assert names(before="unknown") == []
    assert names(before=c(4), limit=1) == ["c3"]
    assert names(filter={"source": "input"}) == ["c0"]
    assert names(filter={"step": 2}) == ["c3"]
    assert names(filter={"step": True}) == []
    assert names(filter={"source": 1}) == []
    assert names(filter={"even": True, "who": "u2"}) == ["c2"]
    assert names(filter={"even": 1}) == []
    assert names(filter={"n": 1}) == ["c1"]
    assert names(filter={"n": 1.0}) == []
    assert names(filter={"n": True}) == []
    assert names(filter={"l": [1]}, limit=2) == ["c5", "c3"]
    assert names(filter={"l": "[1]"}) == []
    assert names(filter={"missing": None}) == []
    assert names(filter={"n' OR 1=1 --": 1}) == []
    with pytest.raises(ValueError, match="limit=-1"):
        names(limit=-1)
    with pytest.raises(UnstorableValueError):
        names(filter={"n": (1,)})


def test_list_shows_threads_and_namespaces(saver: TableSaver) -> None:
    first = Thread(saver, "a").add({"x": 1}, metadata={"who": "me"})
    thread = Thread(saver, "b")
    thread.add({}, name="b0")
    thread.add({}, name="b1")
    Thread(saver, "a", "child").add({}, name="inner")
    every = list(saver.list())
    assert [name_of(item.config["configurable"]["checkpoint_id"]) for item in every] == ["inner", "b1", "b0", "c0"]
    assert every[3].checkpoint == first
    assert every[3].metadata == {"source": "loop", "step": -1, "who": "me"}
    assert every[3].parent_config is None
    assert every[1].parent_config == {
        "configurable": {"thread_id": "b", "checkpoint_ns": "", "checkpoint_id": named_id(1, "b0")},
    }

    def names(place: dict[str, Any] | None, **arguments: Any) -> list[str]:
        config = None if place is None else {"configurable": place}
        return [name_of(item.checkpoint.id) for item in saver.list(config, **arguments)]

    assert names({"thread_id": "a"}) == ["c0"]
    assert names({"thread_id": "a", "checkpoint_ns": "child"}) == ["inner"]
    assert names({"thread_id": "b", "checkpoint_id": named_id(1, "b0")}) == ["b0"]
    assert names({"thread_id": "b"}, before={"configurable": {"checkpoint_id": named_id(2, "b1")}}) == ["b0"]
    assert names(None, limit=2) == ["inner", "b1"]
    assert names(None, filter={"who": "me"}) == ["c0"]
    assert saver.namespaces("a") == ["", "child"]


@pytest.mark.parametrize(
    ("config", "options", "error", "says"),
    [
        ({}, {}, ValueError, "names no thread"),
        ({"configurable": {}}, {}, ValueError, "names no thread"),
        ({"configurable": {"thread_id": 5}}, {}, TypeError, "thread id"),
        (None, {"before": {"configurable": {}}}, ValueError, r"before=.*names no checkpoint_id"),
        (None, {"before": {}}, ValueError, r"before=.*names no checkpoint_id"),
        (None, {"before": {"configurable": {"checkpoint_id": "x"}}}, ValueError, r"before=.*names no thread_id"),
        (None, {"limit": "1"}, TypeError, "limit='1'"),
        (None, {"limit": True}, TypeError, "limit=True"),
        (None, {"limit": -1}, ValueError, "limit=-1"),
    ],
)
def test_list_says_what_is_missing_or_wrong(
    saver: TableSaver, config: Any, options: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        list(saver.list(config, **options))


def test_delete_forgets_one_thread_only(saver: TableSaver) -> None:
    for name in ("a", "b"):
        thread = Thread(saver, name)
        thread.add({"n": 1}, name=f"{name}0")
        thread.put((named_id(1, f"{name}0"), Finished(f"{name}0-task", "node")))
        saver.record(name, "", f"{name}0-task", Recorded("k", True, 1))
    saver.delete_thread("a")
    saver.delete_thread("a")
    assert saver.get("a", "") is None
    assert saver.recorded("a", "", "a0-task") == ()
    kept = saver.get("b", "")
    assert kept is not None
    assert len(kept.results) == 1
    assert saver.recorded("b", "", "b0-task") == (Recorded("k", True, 1),)
    Thread(saver, "a").add({"n": 2}, name="a0")
    again = saver.get("a", "")
    assert again is not None
    assert (again.revision, again.results) == (1, ())


@pytest.mark.parametrize(
    ("wrong", "error"), [("", ValueError), ("\ud800", ValueError), (5, TypeError), (None, TypeError)]
)
def test_methods_that_take_a_thread_refuse_what_is_no_thread_id(
    saver: TableSaver, wrong: Any, error: type[Exception]
) -> None:
    Thread(saver, "a").add({"n": 1})
    exported = saver.export_thread("a")
    attempts: dict[str, Callable[[], object]] = {
        "delete_thread": lambda: saver.delete_thread(wrong),
        "copy_thread": lambda: saver.copy_thread(wrong, "b"),
        "prune": lambda: saver.prune(wrong, keep=1),
        "export_thread": lambda: saver.export_thread(wrong),
    }
    for method, attempt in attempts.items():
        with pytest.raises(error, match=rf"^{method}: "):
            attempt()
    with pytest.raises(error, match=r"^copy_thread: "):
        saver.copy_thread("a", wrong)
    if wrong is not None:
        with pytest.raises(error, match=r"^import_thread: "):
            saver.import_thread(exported, thread_id=wrong)
    Thread(saver, "new").add({"n": 2})
    assert [item.config["configurable"]["thread_id"] for item in saver.list()] == ["new", "a"]


def test_nothing_reaches_the_row_that_holds_the_next_number(tmp_path: Path) -> None:
    with SqliteSaver(tmp_path / "threads.db") as made:
        Thread(made, "a").add({"n": 1})
        with made._writing() as tables:
            assert (tables.log("", ""), tables.logs(""), tables.idle(2**62, "")) == (None, [], [])
            tables.delete("")
        assert made.namespaces("") == []
        Thread(made, "b").add({"n": 2})
        with made._reading() as tables:
            assert [(log.number, log.thread_id) for log in tables.logs(None)] == [(2, "b"), (1, "a")]


def test_a_childs_log_begins_only_under_the_log_of_its_caller(saver: TableSaver) -> None:
    def first(under: str | None) -> Write:
        return Write("t", "child", 0, (NewCheckpoint(point(1, "c0", {}), None),), under=under)

    with pytest.raises(ThreadConflictError, match=r"'t'.*'child'.*deleted"):
        saver.put(first(""))
    Thread(saver, "t", "other").add({})
    with pytest.raises(ThreadConflictError, match="deleted"):
        saver.put(first(""))
    assert saver.namespaces("t") == ["other"]
    assert saver.put(first("other")) == 1
    saver.delete_thread("t")
    assert saver.put(first(None)) == 1


def test_copy_is_a_thread_of_its_own(saver: TableSaver) -> None:
    thread = Thread(saver)
    values: dict[str, Any] = {"m": []}
    for number in range(70):
        message = {"n": number, "text": "x" * 40}
        values = {"m": [*values["m"], message]}
        thread.add(values, *done(thread.head, ("m", [message])))
    Thread(saver, "t", "child").add({"c": 1})
    saver.record("t", "", "c69-task", Recorded("k", False))
    saver.copy_thread("t", "copy")

    def seen(name: str) -> list[Any]:
        return [(s.checkpoint, s.results, s.head_id, s.revision) for s in saver.history(name, "")]

    before = seen("t")
    assert seen("copy") == before
    assert saver.namespaces("copy") == ["", "child"]
    assert saver.recorded("copy", "", "c69-task") == (Recorded("k", False),)
    saver.delete_thread("t")
    assert seen("copy") == before
    with pytest.raises(StorageError, match="no thread 'gone'"):
        saver.copy_thread("gone", "new")
    Thread(saver, "other").add({})
    with pytest.raises(StorageError, match="'copy' already exists"):
        saver.copy_thread("other", "copy")


@pytest.mark.parametrize("keep", [0, 1, 2, 40, 69, 70, 1000])
def test_prune_keeps_the_newest_readable(saver: TableSaver, keep: int) -> None:
    thread = Thread(saver)
    values: dict[str, Any] = {"m": [], "d": {}}
    for number in range(70):
        message = {"n": number, "text": "x" * 40}
        values = {"m": [*values["m"], message], "d": {**values["d"], number: (number,)}}
        thread.add(values, *done(thread.head, ("m", [message])))
        saver.record("t", "", f"c{number}-task", Recorded("k", True, number))
    Thread(saver, "t", "child").add({"c": 1})
    Thread(saver, "other").add({"c": 1})
    expected = list(saver.history("t", ""))[: max(keep, 1)]
    orphan = msgspec.structs.replace(expected[-1].checkpoint, parent_id=None)
    expected[-1] = msgspec.structs.replace(expected[-1], checkpoint=orphan)
    saver.prune("t", keep=keep)
    assert list(saver.history("t", "")) == expected
    assert saver.get("t", "") == expected[0]
    assert (saver.recorded("t", "", "c0-task") == ()) == (keep < 70)
    assert saver.recorded("t", "", "c69-task") == (Recorded("k", True, 69),)
    assert saver.get("t", "child") is not None
    assert saver.get("other", "") is not None
    thread.add({**values, "m": [*values["m"], "more"]})
    head = saver.get("t", "")
    assert head is not None
    assert head.checkpoint.values["m"][-2:] == [{"n": 69, "text": "x" * 40}, "more"]
    with pytest.raises(StorageError, match="no such thread"):
        saver.prune("gone", keep=1)
    with pytest.raises(ValueError, match="keep=-1"):
        saver.prune("t", keep=-1)
    with pytest.raises(TypeError, match=r"keep=1\.5"):
        saver.prune("t", keep=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="keep=True"):
        saver.prune("t", keep=True)


def test_once_records_are_stored_at_once_and_replaced_by_key(saver: TableSaver) -> None:
    place = ("t", "ns", "task")
    saver.record(*place, Recorded("b", False))
    saver.record(*place, Recorded("a", False))
    saver.record(*place, Recorded("b", True, {"sent": (1,)}))
    assert saver.recorded(*place) == (Recorded("b", True, {"sent": (1,)}), Recorded("a", False))
    assert saver.recorded("t", "ns", "other") == ()
    assert saver.get("t", "ns") is None
    with pytest.raises(UnstorableValueError) as caught:
        saver.record(*place, Recorded("c", True, object()))
    assert caught.value.key == "c"


def test_async_twins_do_what_the_plain_methods_do(saver: TableSaver) -> None:
    async def work() -> None:
        new = point(1, "c0", {"n": 1})
        assert await saver.aput(Write("t", "", 0, (NewCheckpoint(new, None),))) == 1
        stored = await saver.aget("t", "")
        assert stored is not None
        assert await saver.ahistory("t", "", limit=5) == [stored]
        await saver.arecord("t", "", "task", Recorded("k", True, 1))
        assert await saver.arecorded("t", "", "task") == (Recorded("k", True, 1),)
        await saver.acopy_thread("t", "u")
        await saver.aprune("u", keep=1)
        await saver.adelete_thread("t")
        assert await saver.aget("t", "") is None
        assert await saver.aget("u", "", c(0)) is not None
        with pytest.raises(ThreadConflictError):
            await saver.aput(Write("u", "", 0))

    asyncio.run(work())


def test_a_cancelled_write_ends_before_the_cancellation_is_felt(tmp_path: Path) -> None:
    class Slow(SqliteSaver):
        def put(self, write: Write) -> int:
            started.set()
            assert go_on.wait(5)
            return super().put(write)

    started, go_on = threading.Event(), threading.Event()

    async def work() -> None:
        task = asyncio.ensure_future(slow.aput(Write("t", "", 0, (NewCheckpoint(point(1, "c0", {}), None),))))
        await asyncio.to_thread(started.wait, 5)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert slow.get("t", "") is not None

    with Slow(tmp_path / "x.db") as slow:
        asyncio.run(work())


def in_threads(count: int, work: Callable[[int], object]) -> list[BaseException]:
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def test_many_threads_write_threads_of_their_own(saver: TableSaver) -> None:
    def work(number: int) -> None:
        thread = Thread(saver, f"t{number}")
        values: dict[str, Any] = {"m": []}
        for step in range(20):
            values = {"m": [*values["m"], (number, step)]}
            thread.add(values)

    assert in_threads(8, work) == []
    for number in range(8):
        stored = saver.get(f"t{number}", "")
        assert stored is not None
        assert stored.checkpoint.values == {"m": [(number, step) for step in range(20)]}
        assert stored.revision == 20


def test_of_two_writers_exactly_one_wins_each_round(saver: TableSaver) -> None:
    rounds, barrier = 15, threading.Barrier(2)
    won: list[list[int]] = [[] for _ in range(rounds)]

    def work(number: int) -> None:
        for revision in range(rounds):
            new = NewCheckpoint(point(revision + 1, f"{revision}-{number}", {"by": number}), None)
            barrier.wait(10)
            try:
                assert saver.put(Write("t", "", revision, (new,))) == revision + 1
                won[revision].append(number)
            except ThreadConflictError:
                pass

    assert in_threads(2, work) == []
    assert [len(winners) for winners in won] == [1] * rounds
    assert [s.checkpoint.values["by"] for s in saver.history("t", "")] == [winners[0] for winners in reversed(won)]


def appended_bytes(saver: TableSaver, steps: int) -> int:
    thread = Thread(saver)
    values: dict[str, Any] = {"m": []}
    for number in range(steps):
        message = {"who": "user", "number": number, "text": "x" * 270}
        values = {"m": [*values["m"], message]}
        thread.add(values, *done(thread.head, ("m", [message])))
    with saver._reading() as tables:
        log = tables.log("t", "")
        assert log is not None
        return sum(len(row.body) for row in tables.rows(log.number, 1, steps))


def test_stored_bytes_grow_with_what_was_written() -> None:
    message = len(msgspec.msgpack.encode({"who": "user", "number": 500, "text": "x" * 270}))
    half, whole = (appended_bytes(InMemorySaver(), steps) for steps in (400, 800))
    assert whole / half < 2.1
    assert whole < 2.2 * 800 * message


@dataclass(frozen=True)
class Ticket:
    number: int
    tags: tuple[str, ...] = ()


def test_classes_are_learnt_in_memory_and_must_be_registered_on_disk(tmp_path: Path) -> None:
    memory = InMemorySaver()
    Thread(memory).add({"t": Ticket(1, ("a",))})
    assert Thread(memory).values() == [{"t": Ticket(1, ("a",))}]
    path = tmp_path / "x.db"
    with SqliteSaver(path) as saver:
        with pytest.raises(UnstorableValueError, match=r"saver\.register\(Ticket\)"):
            Thread(saver).add({"t": Ticket(1)})
        saver.register(Ticket, name="ticket")
        Thread(saver).add({"t": Ticket(1)})
    with SqliteSaver(path) as saver:
        with pytest.raises(DecodeError, match="'ticket', which is not known here"):
            saver.get("t", "")
        saver.register(Ticket, name="ticket")
        assert Thread(saver).values() == [{"t": Ticket(1)}]


def test_the_file_keeps_threads_between_programs_and_reads_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        Thread(saver).add({"n": 1}, metadata={"who": "me"})
    assert [item.name for item in tmp_path.iterdir()] == ["x.db"]
    with SqliteSaver(path) as saver:
        assert Thread(saver).values() == [{"n": 1}]
    connection = sqlite3.connect(path)
    row = connection.execute(
        "SELECT thread_id, checkpoint_id, step, source, metadata ->> 'who' FROM checkpoints"
    ).fetchone()
    assert row == ("t", c(0), -1, "loop", "me")
    time = connection.execute("SELECT created_at, parent_id, revision FROM checkpoints").fetchone()
    assert time == ("2026-01-01T00:00:00.123+00:00", None, 1)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


@pytest.mark.parametrize("attempt", range(5))
def test_many_threads_open_one_new_file_at_once(tmp_path: Path, attempt: int) -> None:
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        barrier.wait(10)
        with SqliteSaver(tmp_path / "new.db") as saver:
            Thread(saver, f"t{number}").add({"n": number})

    assert in_threads(8, work) == []
    with SqliteSaver(tmp_path / "new.db") as saver:
        assert len(list(saver.list())) == 8


def test_errors_say_what_is_wrong_with_the_file(tmp_path: Path) -> None:
    def refuse(database: Any, match: str) -> None:
        with pytest.raises(StorageError, match=match):
            SqliteSaver(database)

    text = tmp_path / "text.txt"
    text.write_text("no database at all, but long enough to have a header of its own " * 20)
    refuse(text, "no SQLite database")
    foreign = sqlite3.connect(tmp_path / "foreign.db")
    foreign.execute("CREATE TABLE mine (x)")
    foreign.close()
    refuse(tmp_path / "foreign.db", "belongs to something else")
    newer = sqlite3.connect(tmp_path / "newer.db")
    newer.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    newer.close()
    refuse(tmp_path / "newer.db", "newer release")
    refuse(tmp_path / "no folder" / "x.db", "folder must exist")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with SqliteSaver(path) as saver:
        grow(saver, 60, CHANGES["append"])
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)
    with SqliteSaver(path) as saver, pytest.raises(StorageError, match="damaged"):
        list(saver.list())


def test_a_read_only_database_can_be_read_and_refuses_writes(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with SqliteSaver(path) as saver:
        Thread(saver).add({"n": 1})
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    with SqliteSaver(connection) as saver:
        assert Thread(saver).values() == [{"n": 1}]
        with pytest.raises(StorageError, match="read-only"):
            saver.put(Write("t", "", 1, (NewCheckpoint(point(2, "c1", {}), None),)))
        assert not connection.in_transaction
    connection.close()


def test_a_locked_file_is_an_error_after_the_time_out(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with SqliteSaver(path, timeout=0.05) as saver:
        Thread(saver).add({"n": 1})
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="locked"):
            saver.put(Write("t", "", 1, (NewCheckpoint(point(2, "c1", {}), None),)))
        assert Thread(saver).values() == [{"n": 1}]
        other.execute("ROLLBACK")
        other.close()
        assert saver.put(Write("t", "", 1, (NewCheckpoint(point(2, "c1", {}), None),))) == 2


def test_a_given_connection_must_be_free_and_stays_open(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "x.db")
    saver = SqliteSaver(connection)
    connection.execute("BEGIN")
    with pytest.raises(StorageError, match="transaction of its own"):
        Thread(saver).add({})
    connection.execute("ROLLBACK")
    Thread(saver).add({})
    (error,) = in_threads(1, lambda number: saver.delete_thread("t"))
    assert isinstance(error, StorageError)
    assert "check_same_thread=False" in str(error)
    saver.close()
    with pytest.raises(StorageError, match="closed"):
        saver.get("t", "")
    assert connection.execute("SELECT count(*) FROM checkpoints").fetchone() == (1,)
    connection.close()


def test_closing_leaves_nothing_open(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        saver = SqliteSaver(tmp_path / "x.db")
        assert in_threads(4, lambda number: Thread(saver, f"t{number}").add({})) == []
        saver.close()
        saver.close()
        gc.collect()
    assert [item.name for item in tmp_path.iterdir()] == ["x.db"]
    with pytest.raises(StorageError, match="closed"):
        saver.get("t0", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_opens_connections_of_its_own(tmp_path: Path) -> None:
    with SqliteSaver(tmp_path / "x.db") as saver:
        parent = Thread(saver)
        parent.add({"n": 1})
        child = os.fork()
        if child == 0:
            code = 1
            try:
                Thread(saver, "child").add({"n": 2})
                code = 0 if Thread(saver).values() == [{"n": 1}] else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert status == 0
        parent.add({"n": 3})
        assert Thread(saver, "child").values() == [{"n": 2}]
        assert len(parent.values()) == 2


def test_a_row_that_lost_its_base_is_a_decode_error(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with SqliteSaver(path) as saver:
        grow(saver, 40, CHANGES["append"])
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM writes WHERE base IS NULL")
    connection.commit()
    connection.close()
    with SqliteSaver(path) as saver, pytest.raises(DecodeError, match="builds on is missing"):
        saver.get("t", "")


def test_an_older_file_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "old.db"
    with SqliteSaver(path) as made:
        Thread(made).add({"n": 1})
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"ALTER TABLE writes RENAME TO rows; PRAGMA user_version = {SCHEMA_VERSION - 2}")
    steps = {SCHEMA_VERSION - 2: "ALTER TABLE rows RENAME TO halfway", SCHEMA_VERSION - 1: "broken"}
    monkeypatch.setattr(schema, "MIGRATIONS", steps)
    with pytest.raises(StorageError, match="syntax error"):
        SqliteSaver(path)
    with closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert "rows" in names, "a migration that fails changes nothing"
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION - 2,)
    steps[SCHEMA_VERSION - 1] = "ALTER TABLE halfway RENAME TO writes"
    for _ in range(2):
        with SqliteSaver(path) as opened:
            assert Thread(opened).values() == [{"n": 1}]
    del steps[SCHEMA_VERSION - 2]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION - 2}")
    with pytest.raises(StorageError, match=f"version {SCHEMA_VERSION - 2}, which this release .* cannot"):
        SqliteSaver(path)


def test_checkpoints_far_apart_are_read_one_by_one(saver: TableSaver) -> None:
    thread = Thread(saver)
    for number in range(80):
        source = "update" if number in (4, 78) else "loop"
        values = {"n": [*range(number)], "text": "x" * 200}
        thread.add(values, *done(thread.head, ("n", [number])), source=source)
    found = [*saver.history("t", "", filter={"source": "update"})]
    for stored, number in zip(found, (78, 4), strict=True):
        assert stored.checkpoint.values["n"] == [*range(number)]
        assert stored.results == (done(stored.checkpoint, ("n", [number + 1]))[0][1],)


VERSION_3 = """
DROP VIEW checkpoints;
CREATE TABLE older_logs (number INTEGER PRIMARY KEY, thread_id TEXT NOT NULL, namespace TEXT NOT NULL,
    UNIQUE (thread_id, namespace));
INSERT INTO older_logs SELECT number, thread_id, namespace FROM logs;
DROP TABLE logs;
ALTER TABLE older_logs RENAME TO logs;
CREATE TABLE older_recorded (thread_id TEXT NOT NULL, namespace TEXT NOT NULL, task_id TEXT NOT NULL,
    key TEXT NOT NULL, done INTEGER NOT NULL, value BLOB NOT NULL, error TEXT NOT NULL, questions INTEGER NOT NULL,
    children INTEGER NOT NULL, UNIQUE (thread_id, namespace, task_id, key));
INSERT INTO older_recorded SELECT thread_id, namespace, task_id, key, done, value, error, questions, children
    FROM recorded ORDER BY place;
DROP TABLE recorded;
ALTER TABLE older_recorded RENAME TO recorded;
CREATE VIEW checkpoints AS SELECT l.thread_id, w.revision FROM writes w JOIN logs l ON l.number = w.thread_id;
PRAGMA user_version = 3;
"""


def test_a_file_of_version_3_is_read_and_written_on(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    calls = tuple(Recorded(key, True, key) for key in ("z", "y", "x"))
    with SqliteSaver(path) as made:
        grow(made, 40, CHANGES["append"])
        for call in calls:
            made.record("t", "", "task", call)
        before = [*made.history("t", "")]
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(VERSION_3)
    with SqliteSaver(path) as opened:
        assert [*opened.history("t", "")] == before
        assert opened.recorded("t", "", "task") == calls
        Thread(opened, "new").add({"n": 1})
        opened.copy_thread("t", "copy")
        assert [stored.checkpoint for stored in opened.history("copy", "")] == [stored.checkpoint for stored in before]
        assert opened.recorded("copy", "", "task") == calls
    with closing(sqlite3.connect(path)) as connection, closing(sqlite3.connect(":memory:")) as fresh:
        schema.prepare_schema(fresh, "new")
        tables = "SELECT name, type FROM sqlite_master ORDER BY name"
        assert connection.execute(tables).fetchall() == fresh.execute(tables).fetchall()
        names = [name for name, kind in fresh.execute(tables) if kind in ("table", "view")]
        for name in names:
            columns = f"SELECT name, type, pk FROM pragma_table_xinfo('{name}')"
            assert connection.execute(columns).fetchall() == fresh.execute(columns).fetchall(), name
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_the_start_of_a_once_call_waits_for_the_disk(tmp_path: Path) -> None:
    """And nothing else does: the connection is as it was afterwards, in an error too."""
    statements: list[str] = []
    connection = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    with closing(connection), SqliteSaver(connection) as made:
        connection.set_trace_callback(statements.append)
        made.record_start("t", "", "task", Recorded("k", False))
        begin, end = statements.index("PRAGMA synchronous = 2"), statements.index("PRAGMA synchronous = 1")
        assert begin < statements.index("BEGIN IMMEDIATE") < statements.index("COMMIT") < end
        statements.clear()
        made.record("t", "", "task", Recorded("k", True))
        assert not any("synchronous" in statement for statement in statements)
        connection.execute("DROP TABLE recorded")
        with pytest.raises(StorageError):
            made.record_start("t", "", "task", Recorded("l", False))
        assert connection.execute("PRAGMA synchronous").fetchone() == (1,)
