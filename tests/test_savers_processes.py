"""One SQLite file and several processes: killed in the middle of writes, and writing at the same time."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from contextlib import closing
from pathlib import Path

import pytest

from minigraph.checkpoint import SqliteSaver

WRITER = textwrap.dedent(
    """
    import sys
    from minigraph.checkpoint import SqliteSaver
    from minigraph.errors import ThreadConflictError
    from minigraph.identifiers import new_checkpoint_id
    from minigraph.records import Checkpoint, Finished, NewCheckpoint, Task, Write

    path, who, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    saver = SqliteSaver(path, timeout=120)


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


def writer(path: Path, who: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, path, who, str(count)], stdout=subprocess.PIPE, text=True)


def check(path: Path, revision: int) -> None:
    """The file is whole, the shared thread has every write up to a revision, and every state of it can be read."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        shared = "SELECT number FROM logs WHERE thread_id = 'shared'"
        found = connection.execute(f"SELECT place & 4294967295 FROM writes WHERE place >> 32 = ({shared})").fetchall()
        assert [number for (number,) in found] == list(range(1, len(found) + 1))
        assert len(found) >= revision
    with SqliteSaver(path) as saver:
        for thread in {item.config["configurable"]["thread_id"] for item in saver.list()}:
            states = [stored.checkpoint.values for stored in saver.history(thread, "")]
            newest = states[0]["n"]
            assert [state["n"] for state in states] == list(range(newest, newest - len(states), -1))
            assert all(state["m"] == list(range(state["n"])) for state in states)
            if thread == "shared":
                assert len(states) == newest


@pytest.mark.parametrize("seed", range(2))
def test_a_killed_process_leaves_every_write_that_ended_and_no_half_one(tmp_path: Path, seed: int) -> None:
    chance, path, revision = random.Random(seed), tmp_path / "t.db", 0
    for _ in range(4):
        process = writer(path, "alone", 10**6)
        assert process.stdout is not None
        for _ in range(chance.randrange(5, 120)):
            revision = int(process.stdout.readline())
        time.sleep(chance.random() / 200)
        process.kill()
        rest, _ = process.communicate()
        assert process.returncode == -signal.SIGKILL
        ended = [int(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        revision = max([revision, *ended])
        check(path, revision)


def test_eight_processes_share_a_file(tmp_path: Path) -> None:
    path, rounds = tmp_path / "t.db", 25
    processes = [writer(path, f"process {number}", rounds) for number in range(8)]
    outputs = [process.communicate(timeout=300)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * 8
    won = [int(line) for output in outputs for line in output if line != "lost"]
    assert len(set(won)) == len(won) == 8 * rounds, "no two writes got the same revision"
    check(path, max(won))
    with SqliteSaver(path) as saver:
        head = saver.get("shared", "")
        assert head is not None
        assert head.revision == max(won)
