"""One store and several processes: killed in the middle of writes, and writing at the same time."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from postgres_server import conninfo, schema

from minigraph.checkpoint import PostgresSaver, Saver, SqliteSaver

WRITER = textwrap.dedent(
    """
    import sys
    from minigraph.checkpoint import PostgresSaver, SqliteSaver
    from minigraph.errors import ThreadConflictError
    from minigraph.identifiers import new_checkpoint_id
    from minigraph.records import Checkpoint, Finished, NewCheckpoint, Task, Write

    who, count, path, server = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    saver = PostgresSaver(server, schema=path) if server else SqliteSaver(path, timeout=120)


    def step(thread, number, together):
        stored = saver.get(thread, "")
        before, revision = (None, 0) if stored is None else (stored.checkpoint, stored.revision)
        results = () if before is None else ((before.id, Finished("x" * 32, "node", (("m", [number]),))),)
        if number % 5 == 4:
            saver.put(Write(thread, "", revision, (), results))
            return revision + 1
        new = []
        for _ in range(2 if together else 1):
            count = 0 if before is None else before.values["n"]
            values = {"n": count + 1, "m": [*([] if before is None else before.values["m"]), count], "by": who}
            name = new_checkpoint_id(revision + 1 + len(new))
            made = Checkpoint(name, before and before.id, count, "loop", 0, values, (Task("x" * 32, "node"),))
            new.append(NewCheckpoint(made, before))
            before = made
        return saver.put(Write(thread, "", revision, tuple(new), results))


    won = number = 0
    while won < count:
        try:
            revision = step("shared", number, number % 3 == 0)
        except ThreadConflictError:
            print("lost", flush=True)
        else:
            won += 1
            print(revision, flush=True)
        step(who, number, number % 4 == 0)
        if number % 20 == 10:
            saver.prune(who, keep=5)
            saver.delete_thread("copy of " + who)
            saver.copy_thread(who, "copy of " + who)
        number += 1
    """
)


class File:
    """A SQLite file."""

    most, rounds = 120, 25
    """How many writes one process makes before it is killed, and each of several."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def arguments(self) -> list[str]:
        return [str(self.path), ""]

    def saver(self) -> Saver:
        return SqliteSaver(self.path)

    def revisions(self) -> list[int]:
        """Those of the shared thread; the file is looked over as well."""
        with closing(sqlite3.connect(self.path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            shared = "SELECT number FROM logs WHERE thread_id = 'shared'"
            found = connection.execute(f"SELECT place & 4294967295 FROM writes WHERE place >> 32 = ({shared})")
            return [number for (number,) in found]


class Schema:
    """A PostgreSQL schema."""

    most, rounds = 40, 8

    def __init__(self, name: str) -> None:
        self.name = name

    def arguments(self) -> list[str]:
        return [self.name, conninfo()]

    def saver(self) -> Saver:
        return PostgresSaver(conninfo(), schema=self.name)

    def revisions(self) -> list[int]:
        """Those of the shared thread; no row may be without a thread."""
        with psycopg.connect(conninfo(), options=f"-c search_path={self.name}") as connection:
            (without,) = connection.execute("SELECT count(*) FROM writes WHERE log NOT IN (SELECT number FROM logs)")
            assert without == (0,)
            shared = "SELECT number FROM logs WHERE thread_id = 'shared'"
            found = connection.execute(f"SELECT revision FROM writes WHERE log = ({shared}) ORDER BY revision".encode())
            return [number for (number,) in found]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[File | Schema]:
    """Where the processes write."""
    if request.param == "sqlite":
        yield File(tmp_path / "t.db")
    else:
        with schema() as name:
            yield Schema(name)


def writer(place: File | Schema, who: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, who, str(count), *place.arguments()]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def check(place: File | Schema, revision: int) -> None:
    """The store is whole, the shared thread has every write up to a revision, and every state of it can be read."""
    found = place.revisions()
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= revision
    with closing(place.saver()) as saver:
        for thread in {item.config["configurable"]["thread_id"] for item in saver.list()}:
            states = [stored.checkpoint.values for stored in saver.history(thread, "")]
            newest = states[0]["n"]
            assert [state["n"] for state in states] == list(range(newest, newest - len(states), -1))
            assert all(state["m"] == list(range(state["n"])) for state in states)
            if thread == "shared":
                assert len(states) == newest


@pytest.mark.parametrize("seed", range(2))
def test_a_killed_process_leaves_every_write_that_ended_and_no_half_one(place: File | Schema, seed: int) -> None:
    chance, revision = random.Random(seed), 0
    for _ in range(4):
        process = writer(place, "alone", 10**6)
        assert process.stdout is not None
        for _ in range(chance.randrange(5, place.most)):
            revision = int(process.stdout.readline())
        time.sleep(chance.random() / 200)
        process.kill()
        rest, _ = process.communicate()
        assert process.returncode == -signal.SIGKILL
        ended = [int(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        revision = max([revision, *ended])
        check(place, revision)


def test_eight_processes_share_a_store(place: File | Schema) -> None:
    processes = [writer(place, f"process {number}", place.rounds) for number in range(8)]
    outputs = [process.communicate(timeout=300)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * 8
    won = [int(line) for output in outputs for line in output if line != "lost"]
    assert len(set(won)) == len(won) == 8 * place.rounds, "no two writes got the same revision"
    check(place, max(won))
    with closing(place.saver()) as saver:
        head = saver.get("shared", "")
        assert head is not None
        assert head.revision == max(won)
