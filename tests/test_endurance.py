"""The trials of `benchmarks/endurance.py`, made small, and that they notice what they are for."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import endurance
import psycopg
import pytest
from conftest import build, chain, thread
from pages import marks, replaced
from postgres_server import conninfo, schema
from trials import crowd, faults
from trials.faults import FAULTS, Fault, suffer
from trials.journey import HITS, MAILS, Ledger, Whereabouts
from trials.kill import KillTrial, Left, hits
from trials.race import Outcome, RaceTally, What, Where, judge, race
from trials.store import PostgresStore, SqliteStore, Store

from minigraph.checkpoint import Saver, SqliteSaver
from minigraph.errors import StorageError
from minigraph.records import Recorded
from minigraph.testing.crashing import PassingSaver

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture
def file(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "threads.db")


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, file: SqliteStore) -> Iterator[Store]:
    """Every kind of store; a schema is dropped afterwards, and those made from it."""
    if request.param == "sqlite":
        yield file
        return
    with schema() as name, psycopg.connect(conninfo(), autocommit=True) as connection:
        yield PostgresStore(conninfo(), name)
        made = "SELECT nspname FROM pg_namespace WHERE nspname LIKE %s"
        for (each,) in connection.execute(made, [f"{name}%"]).fetchall():
            connection.execute(f"DROP SCHEMA {each} CASCADE".encode())


class Forgetful(PassingSaver):
    """A saver that forgets that once() calls begin."""

    def record_start(self, thread_id: str, namespace: str, task_id: str, recorded: Recorded) -> Recorded | None:
        return None

    def close(self) -> None:
        self.inner.close()


@dataclass(frozen=True)
class ForgetfulStore:
    """A store of such savers."""

    inner: Store

    @property
    def name(self) -> str:
        return "forgetful"

    def fresh(self, number: int) -> Store:
        return ForgetfulStore(self.inner.fresh(number))

    def open(self) -> Saver:
        return Forgetful(self.inner.open())

    def as_left(self) -> Any:
        return self.inner.as_left()

    def damage(self) -> str:
        return self.inner.damage()


# ------------------------------------------------------------------------------- crowd


def test_a_crowd_of_processes(store: Store) -> None:
    tally = crowd.processes(store, workers=4, runs=10, steps=3)
    assert (tally.wrong, tally.runs, tally.killed) == ([], 40, 0)


def test_a_crowd_of_threads(store: Store) -> None:
    assert crowd.threads(store, workers=8, runs=3, steps=10).wrong == []


def test_a_crowd_of_which_workers_are_killed(store: Store) -> None:
    tally = crowd.processes(store, workers=3, runs=20, steps=20, kill_every=0.15, most=4)
    assert tally.wrong == []
    assert 1 <= tally.killed <= 4


def test_runs_that_did_not_end_as_they_must_are_noticed(file: SqliteStore) -> None:
    assert crowd.processes(file, workers=1, runs=4, steps=3).wrong == []
    with file.open() as saver:
        graph = crowd.counting(3, saver)
        edited, longer, gone = (thread(crowd.thread_of(0, run)) for run in range(3))
        graph.update_state(edited, {"count": 7}, as_node="step")
        graph.update_state(longer, {"log": []}, as_node="step")
        saver.delete_thread(gone["configurable"]["thread_id"])
    first, second, third = crowd.unfinished(file, 1, 4, 3)
    assert first.startswith("worker-0-run-0 ended at Checkpoint(")
    assert second == "worker-0-run-1: 6 checkpoints, of [3, 3, 2, 1, 0]"
    assert third == "worker-0-run-2 ended at None"


def test_a_worker_that_fails_is_noticed(file: SqliteStore, capfd: pytest.CaptureFixture[str]) -> None:
    crowd.processes(file, workers=1, runs=1, steps=1)
    path = file.path
    path.write_bytes(b"no database any more" * 100)
    with pytest.raises(StorageError):
        crowd.threads(file, workers=1, runs=1, steps=1)
    with pytest.raises(sqlite3.DatabaseError):
        crowd.processes(file, workers=2, runs=1, steps=1)
    assert "it is no SQLite database" in capfd.readouterr().err


# -------------------------------------------------------------------------------- kill


def test_killed_workers_lose_nothing_and_do_nothing_twice(store: Store, tmp_path: Path) -> None:
    tally = KillTrial(store, tmp_path, seed=1).run(20)
    assert tally.wrong == []
    assert tally.kills == tally.resumed == sum(tally.hits.values()) == 20
    assert set(tally.hits) <= set(HITS)
    assert len(hits(tally)) == 3


@pytest.mark.slow
def test_many_killed_workers_lose_nothing_and_do_nothing_twice(
    store: Store, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if "slow" not in str(request.config.getoption("markexpr")):
        pytest.skip("a long trial: -m slow runs it")
    tally = KillTrial(store, tmp_path, seed=2).run(500)
    assert tally.wrong == []
    assert all(tally.hits[place] > 5 for place in HITS)
    assert tally.unknown > 0


def test_a_mail_that_goes_out_twice_is_noticed(file: SqliteStore, tmp_path: Path) -> None:
    trial = KillTrial(ForgetfulStore(file), tmp_path, seed=3)
    trial.measure()
    while not trial.tally.repeated and trial.tally.kills < 200:
        trial.run_one(trial.tally.runs, 200)
        trial.tally.runs += 1
    assert [what for what in trial.tally.repeated if not re.search(r": \d times (mail|reservation)", what)] == []
    assert trial.tally.repeated


def test_what_is_lost_or_done_again_is_noticed(file: SqliteStore, tmp_path: Path) -> None:
    trial = KillTrial(file, tmp_path, seed=0)
    trial.measure()
    ended, notes = trial.place(-1)[0], Ledger(tmp_path / "-1.ledger")
    left = trial.look(-1, Left(frozenset(), frozenset()), ended, notes, 0)
    assert len(left.checkpoints) == 8 + 4
    assert len(left.finished) == 1 + 1 + 4 + 1 + 1 + 1 + 1 + 1 + 2
    trial.judge(-1, ended, notes)
    assert trial.tally.wrong == []
    task, start = min(left.finished), len(notes)
    notes.note("began", task)
    notes.note("stored", "0123")
    notes.note("mail", MAILS[1])
    trial.look(-1, Left(left.checkpoints | {"4567"}, left.finished | {"lost"}), ended, notes, start)
    trial.path = trial.path[1:]
    trial.judge(-1, ended, notes)
    *stored, path = trial.tally.lost
    assert stored == [f"run -1: {what} was stored and is not there" for what in ("0123", "4567", "lost")]
    assert path.startswith("run -1: it went by [(6, {")
    assert trial.tally.repeated == [f"run -1: task {task} ran again", f"run -1: 2 times {MAILS[1]}"]
    notes.close()


def test_where_a_process_is_can_be_read() -> None:
    places = Whereabouts()
    assert places.read() == "start"
    with places.within("node"):
        assert places.read() == "node"
        with places.within("once"), places.within("node"):
            assert places.read() == "once"
            with places.within("save"):
                assert places.read() == "once"
        with places.within("save"):
            assert places.read() == "save"
    assert places.read() == "after"
    with places.within("save"):
        assert places.read() == "save"
    assert places.read() == "before"
    places.reset()
    assert places.read() == "start"


# -------------------------------------------------------------------------------- race


@pytest.mark.parametrize("where", ["processes", "threads"])
@pytest.mark.parametrize(("what", "contenders"), [("answer", 2), ("input", 8)])
def test_one_wins_and_the_others_leave_nothing(store: Store, what: What, contenders: int, where: Where) -> None:
    tally = race(store, what, contenders=contenders, rounds=6, where=where)
    assert tally.wrong == []
    assert (tally.won, sum(tally.refused.values())) == (6, 6 * (contenders - 1))
    after = {"UnknownInterruptError"} if what == "answer" else set()  # where one came after the other
    assert {"ThreadConflictError"} <= set(tally.refused) <= {"ThreadConflictError"} | after


def test_two_winners_and_what_losers_leave_is_noticed(file: SqliteStore) -> None:
    assert race(file, "input", contenders=2, rounds=1, where="threads").wrong == []
    with file.as_left() as saver:
        (head, *_) = saver.history("race-input-0", "")
        log = head.checkpoint.values["log"]
        winner, loser = ("contender 0", "contender 1") if "0" in log[0] else ("contender 1", "contender 0")

        def judged(*outcomes: Outcome) -> list[str]:
            tally = RaceTally("", "", 2)
            judge(tally, saver, "input", 0, list(outcomes))
            return tally.wrong

        won, lost = Outcome(0, winner, log, "", 2), Outcome(0, loser, [], "ThreadConflictError: moved", 0)
        assert judged(won, lost) == []
        assert judged(won, lost._replace(nodes=1)) == [f"round 0: {loser} lost and ran 1 nodes"]
        assert judged(won, lost._replace(error="KeyError: 'x'")) == ["round 0: KeyError: 'x'"]
        assert judged(won, won) == ["round 0: 2 won"]
        assert judged(lost._replace(name=winner), won) == [f"round 0: {winner} lost and is stored"]
        (other,) = judged(won._replace(log=["another"]), lost)
        assert other.startswith("round 0: the winner was given ['another'], stored is ")


# ------------------------------------------------------------------------------ faults


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder to which everybody has a way."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=[fault.name for fault in FAULTS])
def test_a_fault_is_named_and_harms_nothing(open_folder: Path, number: int) -> None:
    tally = faults.in_process(number, open_folder)
    if tally.skipped:
        assert tally.name == "the disk is full"
        pytest.skip(tally.skipped)
    assert tally.wrong == []
    assert tally.error.startswith("SQLite database FILE: ")


def test_what_is_wrong_with_an_error_is_noticed(tmp_path: Path) -> None:
    tally = suffer(Fault("nothing", "", lambda path: nullcontext()), tmp_path / "a.db")
    assert tally.wrong == ["nothing was raised", "afterwards the state is 8 steps, due ()"]
    silent = Fault("a lock", "unlock it", faults.locked, midway=True)
    (wrong,) = suffer(silent, tmp_path / "b.db").wrong
    assert wrong.startswith("the error names no 'unlock it': SQLite database ")


def test_a_full_database_is_named_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
    saver = SqliteSaver(connection)
    ran: list[str] = []

    def fill(state: Any) -> dict[str, Any]:
        ran.append("fill")
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages if ran.count('fill') == 1 else 10_000}")
        return {"log": ["x" * 50_000]}

    def first(state: Any) -> dict[str, Any]:
        ran.append("first")
        return {"log": ["first"]}

    graph = build({"first": first, "fill": fill}, chain("first", "fill"), saver)
    with pytest.raises(StorageError, match="the disk is full; make room and go on") as caught:
        graph.invoke({}, thread())
    assert "of the given connection" in str(caught.value)
    found = graph.get_state(thread())
    assert (found.values["log"], found.next) == (["first"], ("fill",))
    assert graph.invoke(None, thread())["log"] == ["first", "x" * 50_000]
    assert ran == ["first", "fill", "fill"]
    connection.close()


# ----------------------------------------------------------------------------- command


def test_the_command_prints_a_table_and_writes_it_to_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    begin, closing = marks("endurance")
    page.write_text(f"before\n{begin}old\n{closing}\nafter\n")
    command = [sys.executable, str(ROOT / "benchmarks" / "endurance.py"), "--trials", "kill", "race"]
    command += ["--kills", "2", "--rounds", "2", "--write", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    table = done.stdout.splitlines()
    assert table[2].startswith("| kill: one worker after another | SQLite | 2 kills in ")
    assert [
        line for line in table if line.startswith("| race: 8 inputs at once, in processes | SQLite | 2 rounds | 2 won")
    ]
    before, *written, end, after = page.read_text().splitlines()
    assert (before, end, after) == ("before", closing, "after")
    assert written[0] == begin.strip()
    assert [line for line in written if line and line not in table] == [begin.strip()]


def test_what_is_wrong_is_counted_in_the_table() -> None:
    row = endurance.Row("race", "SQLite", "2 rounds", "see below", ["round 1: 2 won"], 0.0)
    assert row.text() == "| race | SQLite | 2 rounds | see below | 1 |"
    with pytest.raises(ValueError, match="the page has no table"):
        replaced("a page", "endurance", "table")
