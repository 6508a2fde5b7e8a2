import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import tools.storage
from tools import (
    AuditLog,
    DocumentIndex,
    Mailer,
    StorageBusyError,
    ToolCall,
    ToolContext,
    ToolResult,
    ToolStorageError,
    execute,
    tool,
)

OPENERS = [AuditLog, DocumentIndex, Mailer]


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("content", [b"not a database at all, but long enough", b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_file_that_is_no_database(tmp_path: Path, opener: Callable[[Path], object], content: bytes) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(content)
    with pytest.raises(ToolStorageError) as caught:
        opener(path)
    assert caught.value.path == str(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("opener", OPENERS)
def test_a_place_without_a_folder(tmp_path: Path, opener: Callable[[Path], object]) -> None:
    with pytest.raises(ToolStorageError, match="unable to open"):
        opener(tmp_path / "none" / "x.db")
    with pytest.raises(ToolStorageError):
        opener(tmp_path)


@pytest.mark.parametrize(
    ("opener", "table"), [(AuditLog, "tool_calls"), (DocumentIndex, "documents"), (Mailer, "outbox")]
)
def test_a_table_of_somebody_else(tmp_path: Path, opener: Callable[[Path], object], table: str) -> None:
    path = tmp_path / "x.db"
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE {table} (a, b)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ToolStorageError, match="belongs to something else"):
        opener(path)
    assert path.read_bytes() == before


def test_one_file_may_hold_everything_in_wal_mode(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with AuditLog(path), DocumentIndex(path), Mailer(path):
        pass
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_closed_file_says_so(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "x.db")
    log.close()
    log.close()
    with pytest.raises(ToolStorageError, match="closed"):
        log.rows()


def test_a_writer_in_the_way_is_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools.storage, "BUSY_SECONDS", 0.05)
    path = tmp_path / "x.db"
    with AuditLog(path) as log:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")

        @tool
        def write() -> str:
            """Write a row."""
            log.record(ToolCall("c", "t", {}), ToolResult("c", "t", "", False, "ok"), ToolContext())
            return "written"

        began = time.monotonic()
        with pytest.raises(StorageBusyError):
            write()
        assert time.monotonic() - began < 2
        assert execute(ToolCall("c", "write", {}), [write]).kind == "temporary"
        other.execute("ROLLBACK")
        other.close()
        assert execute(ToolCall("c", "write", {}), [write]).content == "written"


def test_a_failed_transaction_leaves_nothing(tmp_path: Path) -> None:
    database = tools.storage.Database(tmp_path / "x.db", ["CREATE TABLE IF NOT EXISTS t (a)"], {"t": ["a"]})

    def insert_and_fail() -> None:
        with database.transaction() as connection:
            connection.execute("INSERT INTO t VALUES (1)")
            raise KeyError("after the insert")

    with pytest.raises(KeyError):
        insert_and_fail()
    with database.read() as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone()[0] == 0
    database.close()


def test_processes_may_open_a_new_file_together(tmp_path: Path) -> None:
    program = "import sys; from tools import AuditLog; AuditLog(sys.argv[1]).close()"
    running = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "x.db")]) for _ in range(3)]
    assert [process.wait(timeout=60) for process in running] == [0, 0, 0]
