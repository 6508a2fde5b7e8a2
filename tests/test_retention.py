"""Old threads: which are deleted, when, and what is left to people."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import warnings
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict

import pytest

from minigraph import START, Command, StateGraph, interrupt
from minigraph.checkpoint import InMemorySaver, SqliteSaver, retention
from minigraph.checkpoint.base import Saver
from minigraph.checkpoint.retention import RetentionWarning
from minigraph.checkpoint.saver import TableSaver
from minigraph.errors import StorageError, ThreadConflictError
from minigraph.identifiers import now
from minigraph.records import Finished, Recorded
from minigraph.testing.saver_parts import TIME, SavedThread

START_OF_2026 = datetime(2026, 1, 1, 0, 0, 0, 123_000, UTC)
FAR = datetime(2999, 1, 1, tzinfo=UTC)


class State(TypedDict):
    n: int


def asking(state: State) -> dict[str, int]:
    return {"n": interrupt("how many?")}


def broken(state: State) -> dict[str, int]:
    raise ValueError("no")


def config(name: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": name}}


def test_what_waits_or_failed_is_spared_until_it_ends(saver: Saver) -> None:
    waits = StateGraph(State).add_node(asking).add_edge(START, "asking").compile(checkpointer=saver)
    fails = StateGraph(State).add_node(broken).add_edge(START, "broken").compile(checkpointer=saver)
    stops = StateGraph(State).add_node("end", lambda state: {"n": 1}).add_edge(START, "end").compile(checkpointer=saver)
    waits.invoke({"n": 0}, config("waits"))
    with pytest.raises(ValueError, match="no"):
        fails.invoke({"n": 0}, config("fails"))
    stops.invoke({"n": 0}, config("breakpoint"), interrupt_before=["end"])
    stops.invoke({"n": 0}, config("ended"))
    assert saver.delete_before(FAR) == ["ended"]
    waits.invoke(Command(resume=3), config("waits"))
    assert saver.delete_before(FAR) == ["waits"]
    assert sorted(saver.delete_before(FAR, unfinished=True)) == ["breakpoint", "fails"]
    assert list(saver.list()) == []


def test_a_run_whose_thread_was_deleted_meanwhile_gets_a_conflict(saver: Saver) -> None:
    def slow(state: State) -> dict[str, int]:
        assert saver.delete_before(FAR, unfinished=True) == ["t"]
        return {"n": 1}

    graph = StateGraph(State).add_node(slow).add_edge(START, "slow").compile(checkpointer=saver)
    with pytest.raises(ThreadConflictError):
        graph.invoke({"n": 0}, config("t"))
    assert saver.get("t", "") is None


def test_a_thread_that_is_written_to_meanwhile_is_spared(saver: TableSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    old = {name: SavedThread(saver, name) for name in ("a", "b")}
    for thread in old.values():
        thread.add({}, due=())
    find = saver._idle_threads

    def then_write(*arguments: Any, **options: Any) -> list[str]:
        found = find(*arguments, **options)
        old["a"].add({}, due=(), created=TIME + 10_000)
        return found

    monkeypatch.setattr(saver, "_idle_threads", then_write)
    assert saver.delete_before(START_OF_2026 + timedelta(seconds=1)) == ["b"]
    assert saver.get("a", "") is not None


def test_deleting_and_writing_at_once_loses_no_young_thread(saver: Saver) -> None:
    failed: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for turn in range(20):
                SavedThread(saver, f"young-{number}-{turn}").add({"n": turn}, due=(), created=TIME + 10_000)
                SavedThread(saver, f"old-{number}-{turn}").add({"n": turn}, due=())
        except BaseException as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    deleted: list[str] = []
    while any(writer.is_alive() for writer in writers):
        deleted += saver.delete_before(START_OF_2026 + timedelta(seconds=1))
    deleted += saver.delete_before(START_OF_2026 + timedelta(seconds=1))
    assert failed == []
    assert sorted(deleted) == sorted(f"old-{number}-{turn}" for number in range(3) for turn in range(20))
    left = {item.config["configurable"]["thread_id"] for item in saver.list()}
    assert left == {f"young-{number}-{turn}" for number in range(3) for turn in range(20)}


def test_only_a_moment_will_do(saver: Saver) -> None:
    with pytest.raises(ValueError, match=r"has no zone.*datetime\.now\(timezone\.utc\)"):
        saver.delete_before(datetime(2026, 1, 1))
    for wrong in (date(2026, 1, 1), 3, "2026-01-01", None):
        with pytest.raises(TypeError, match="a datetime with a zone"):
            saver.delete_before(wrong)  # type: ignore[arg-type]


def test_records_alone_have_no_age(saver: Saver) -> None:
    saver.record("t", "", "task", Recorded("k", True, 1))
    assert saver.delete_before(FAR, unfinished=True) == []
    assert saver.recorded("t", "", "task") == (Recorded("k", True, 1),)


def test_rows_without_a_time_count_as_old_as_the_checkpoint_before_them(tmp_path: Path) -> None:
    with SqliteSaver(tmp_path / "x.db") as saver:
        thread = SavedThread(saver)
        first = thread.add({})
        thread.write((), (first.id, Finished("c0-task", "node")))
        connection = sqlite3.connect(tmp_path / "x.db")
        connection.execute("UPDATE writes SET created_at = NULL WHERE mark IS NULL")
        connection.commit()
        connection.close()
        assert saver.delete_before(START_OF_2026, unfinished=True) == []
        assert saver.delete_before(START_OF_2026 + timedelta(milliseconds=1), unfinished=True) == ["t"]


# ---------------------------------------------------------------------- time to live


def threads(saver: Saver) -> set[str]:
    return {item.config["configurable"]["thread_id"] for item in saver.list()}


def test_old_threads_are_deleted_as_new_ones_begin(tmp_path: Path) -> None:
    for saver in (
        InMemorySaver(time_to_live=timedelta(days=30)),
        SqliteSaver(tmp_path / "x.db", time_to_live=timedelta(days=30)),
    ):
        with saver if isinstance(saver, SqliteSaver) else warnings.catch_warnings():
            time = now()
            assert saver._time_to_live is not None
            saver._time_to_live._next_look = float("inf")
            for number in range(retention.BATCH + 3):
                SavedThread(saver, f"old-{number}").add({}, due=(), created=time - 31 * 86_400_000 + number)
            SavedThread(saver, "waits").add({}, created=time - 31 * 86_400_000)
            saver._time_to_live._next_look = 0.0  # as if an hour had passed
            young = SavedThread(saver, "young")
            young.add({}, due=(), created=time)
            assert len(threads(saver)) == 3 + 2
            young.add({}, due=(), created=time)
            assert len(threads(saver)) == 3 + 2, "only a thread that begins deletes others"
            SavedThread(saver, "young", "child:1").add({}, due=(), created=time)
            assert len(threads(saver)) == 3 + 2, "a child graph's namespace is no new thread"
            SavedThread(saver, "another").add({}, due=(), created=time)
            assert threads(saver) == {"waits", "young", "another"}


def test_it_is_not_looked_for_old_threads_each_time() -> None:
    saver = InMemorySaver(time_to_live=timedelta(days=1))
    SavedThread(saver, "young").add({}, due=(), created=now())
    SavedThread(saver, "old").add({}, due=())
    assert threads(saver) == {"young", "old"}, "the look as the first thread began was the only one so far"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_sweep_that_fails_warns_and_the_step_is_stored(asynchronous: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = InMemorySaver(time_to_live=timedelta(days=1))
    graph = StateGraph(State).add_node("end", lambda state: {"n": 1}).add_edge(START, "end").compile(checkpointer=saver)

    def full(*arguments: Any) -> Any:
        raise StorageError("the disk is full")

    assert saver._time_to_live is not None
    monkeypatch.setattr(saver._time_to_live, "_find", full)
    run = (lambda *given: asyncio.run(graph.ainvoke(*given))) if asynchronous else graph.invoke
    with pytest.warns(RetentionWarning, match="the disk is full"):
        run({"n": 0}, config("t"))
    assert graph.get_state(config("t")).values == {"n": 1}


@pytest.mark.parametrize("wrong", [timedelta(0), timedelta(days=-1), 30, "30 days"])
def test_a_time_to_live_is_a_length_of_time(wrong: Any) -> None:
    with pytest.raises(ValueError, match="a timedelta greater than zero"):
        InMemorySaver(time_to_live=wrong)
    with pytest.raises(ValueError, match="a timedelta greater than zero"):
        SqliteSaver(":memory:", time_to_live=wrong)
