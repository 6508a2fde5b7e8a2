import hashlib
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from tools import AuditedTools, AuditLog, ToolCall, ToolContext, ToolResult, ToolStorageError, execute, tool
from tools.audit import CONTENT_LIMIT
from tools.audit_table import FIRST
from tools.redact import TEXT_LIMIT

SOME_COLUMNS = (
    "at, thread_id, step, call_id, tool, arguments, fingerprint, kind, is_error, content, approved_by, decision, "
    "thresholds, dry_run, grounds, previous_hash, hash"
)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CONTEXT = ToolContext("t1", "c1", 3, "Ada")


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


@tool(tier="dangerous")
def stop() -> str:
    """Be interrupted."""
    raise KeyboardInterrupt


def test_every_call_is_one_row(tmp_path: Path) -> None:
    with AuditLog(tmp_path / "a.db", clock=lambda: NOON) as log:
        tools = AuditedTools([echo], log)
        good = ToolCall("c1", "echo", {"text": "hé"}, '{"text": "hé"}')
        result = tools.execute(good, CONTEXT, decision={"act": "act", "p": 0.99}, thresholds={"tau_act": 0.96875})
        assert result == execute(good, [echo], CONTEXT)
        tools.execute(ToolCall("c2", "echo", {"text": 1}), CONTEXT)
        tools.execute(ToolCall("c3", "echo", None, "{"), CONTEXT)
        tools.execute(ToolCall("c4", "gone", {}), ToolContext("t2"))
        first, *others = log.rows()
        assert first.fingerprint == good.fingerprint
        assert (first.id, first.at, first.thread_id, first.step, first.call_id, first.tool) == (
            1, "2026-03-01T12:00:00+00:00", "t1", 3, "c1", "echo",
        )  # fmt: skip
        assert (first.arguments, first.kind, first.is_error, first.content) == ({"text": "hé"}, "ok", False, "hé")
        assert (first.approved_by, first.decision, first.thresholds) == (
            "Ada",
            {"act": "act", "p": 0.99},
            {"tau_act": 0.96875},
        )
        assert [(row.call_id, row.kind) for row in others] == [
            ("c2", "invalid_arguments"),
            ("c3", "invalid_arguments"),
            ("c4", "unknown_tool"),
        ]
        assert others[1].arguments == "{"
        assert others[2].decision is None
        assert [row.call_id for row in log.rows(thread_id="t1", kind="invalid_arguments")] == ["c2", "c3"]
        assert [row.call_id for row in log.rows(tool="gone")] == ["c4"]
        assert log.rows(thread_id="' OR 1=1 --") == []


def test_long_fields_are_cut() -> None:
    with AuditLog(":memory:") as log:
        call = ToolCall("c", "echo", {"text": "x" * 5000, "in": [{"deep": "y" * 5000}]})
        log.record(call, ToolResult("c", "echo", "z" * 5000, False, "ok"), CONTEXT)
        row = log.rows()[0]
    many_x, many_y, many_z = (hashlib.sha256(letter.encode() * 5000).hexdigest() for letter in "xyz")
    assert row.arguments == {
        "text": "x" * TEXT_LIMIT + f"... (5000 characters, sha256 {many_x})",
        "in": [{"deep": "y" * TEXT_LIMIT + f"... (5000 characters, sha256 {many_y})"}],
    }
    assert row.content == "z" * CONTENT_LIMIT + f"... (5000 characters, sha256 {many_z})"


def test_strange_values_are_logged_as_json(tmp_path: Path) -> None:
    nested: object = 1
    for _ in range(5000):
        nested = [nested]
    arguments = {"nan": float("nan"), "set": {1}, "lone": "\ud800", "deep": nested, "many": ["abc"] * 10_000}
    with AuditLog(tmp_path / "a.db") as log:
        tools = AuditedTools([echo], log)
        assert tools.execute(ToolCall("\ud800", "\ud800", arguments), CONTEXT).kind == "unknown_tool"
        del arguments["many"]
        tools.execute(ToolCall("c", "echo", arguments), CONTEXT, decision={"p": float("inf")})
        first, second = log.rows()
    assert set(first.arguments) == {"cut", "characters", "sha256"}  # type: ignore[call-overload]
    assert first.tool == "\\ud800"
    assert second.arguments["nan"] == "nan"  # type: ignore[index]
    assert second.arguments["lone"] == "\ud800"  # type: ignore[index]
    assert "nested deeper" in json.dumps(second.arguments)
    assert second.decision == {"p": "inf"}


def test_nobody_changes_the_log(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with AuditLog(path) as log:
        log.record(ToolCall("c", "echo", {}), ToolResult("c", "echo", "x", False, "ok"), CONTEXT)
        connection = sqlite3.connect(path)
        try:
            for statement in (
                "UPDATE tool_calls SET content = 'y'",
                "DELETE FROM tool_calls",
                "INSERT OR REPLACE INTO tool_calls SELECT * FROM tool_calls",
                f"INSERT INTO tool_calls SELECT 2, {SOME_COLUMNS} FROM tool_calls",
            ):
                with pytest.raises(sqlite3.IntegrityError, match=r"append-only|does not continue the chain"):
                    connection.execute(statement)
        finally:
            connection.close()
        assert [row.content for row in log.rows()] == ["x"]


def test_an_interrupted_call_is_logged_and_interrupts() -> None:
    with AuditLog(":memory:") as log:
        with pytest.raises(KeyboardInterrupt):
            AuditedTools([stop], log).execute(ToolCall("c", "stop", {}), CONTEXT)
        assert [(row.kind, row.content) for row in log.rows()] == [
            ("failed", "The call was stopped by KeyboardInterrupt.")
        ]


def test_nothing_dangerous_runs_when_it_cannot_be_logged() -> None:
    log = AuditLog(":memory:")
    tools = AuditedTools([stop], log)
    log.close()
    with pytest.raises(ToolStorageError):
        tools.execute(ToolCall("c", "stop", {}), CONTEXT)


def test_the_log_goes_on_in_the_same_file(tmp_path: Path) -> None:
    for number in (1, 2):
        with AuditLog(tmp_path / "a.db") as log:
            call = ToolCall("c", "echo", {})
            assert log.record(call, ToolResult("c", "echo", "x", False, "ok"), CONTEXT) == number


def test_rows_open_in_sqlite_utils(tmp_path: Path) -> None:
    sqlite_utils = pytest.importorskip("sqlite_utils")
    with AuditLog(tmp_path / "a.db") as log:
        log.record(ToolCall("c", "echo", {"text": "x"}), ToolResult("c", "echo", "x", False, "ok"), CONTEXT)
    database = sqlite_utils.Database(tmp_path / "a.db")
    try:
        assert [row["tool"] for row in database["tool_calls"].rows_where("thread_id = ?", ["t1"])] == ["echo"]
    finally:
        database.conn.close()


# ------------------------------------------------------------------------ chain


def written(path: Path, calls: int = 3) -> list[str]:
    """A log of that many calls; gives the hashes of its rows."""
    with AuditLog(path, clock=lambda: NOON) as log:
        for number in range(calls):
            call = ToolCall(f"c{number}", "echo", {"text": f"hé {number}"})
            log.record(call, ToolResult(call.id, "echo", "x", False, "ok"), CONTEXT, grounds={"request": "Please."})
        return [row.hash for row in log.rows()]


def tampered(path: Path, *statements: str) -> None:
    """Does what the triggers refuse, as somebody with the file in hand can."""
    with closing(sqlite3.connect(path)) as connection, connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
        for name in names:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)


def test_each_row_holds_the_hash_of_itself_and_of_the_one_before(tmp_path: Path) -> None:
    hashes = written(tmp_path / "a.db")
    with AuditLog(tmp_path / "a.db") as log:
        rows = log.rows()
        assert [row.previous_hash for row in rows] == [FIRST, *hashes[:2]]
        found = log.verify()
        assert (found.rows, found.head, found.broken_row, found.problem) == (3, hashes[2], None, None)
        for known in (*hashes, FIRST):
            assert log.verify(known).problem is None
        wrong = log.verify("f" * 64)
        assert (wrong.broken_row, wrong.problem) == (3, f"no row has the hash {'f' * 64} that was noted earlier")
    # By hand: every column but the hash, as JSON with sorted keys.
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.row_factory = sqlite3.Row
        row = dict(connection.execute("SELECT * FROM tool_calls WHERE id = 2").fetchone())
    said = row.pop("hash")
    assert hashlib.sha256(json.dumps(row, sort_keys=True, separators=(",", ":")).encode()).hexdigest() == said


def test_an_empty_log_is_whole() -> None:
    with AuditLog(":memory:") as log:
        assert (log.verify().rows, log.verify().head, log.verify().problem) == (0, FIRST, None)


@pytest.mark.parametrize(
    ("statement", "broken", "words"),
    [
        ("UPDATE tool_calls SET approved_by = 'Eve' WHERE id = 2", 2, "changed"),
        ("UPDATE tool_calls SET approved_by = NULL WHERE id = 1", 1, "changed"),
        ("UPDATE tool_calls SET grounds = NULL WHERE id = 3", 3, "changed"),
        ("UPDATE tool_calls SET step = '3' || '' WHERE id = 2", None, ""),
        ("UPDATE tool_calls SET content = x'78' WHERE id = 2", 2, "changed"),
        ("UPDATE tool_calls SET hash = 'x' WHERE id = 2", 2, "changed"),
        ("UPDATE tool_calls SET previous_hash = 'x' WHERE id = 2", 2, "does not follow"),
        ("DELETE FROM tool_calls WHERE id = 1", 1, "missing"),
        ("DELETE FROM tool_calls WHERE id = 2", 2, "missing"),
        ("DELETE FROM tool_calls WHERE id = 3", 3, "missing, and so is every row after it"),
        ("DELETE FROM tool_calls", 1, "missing, and so is every row after it"),
        ("UPDATE tool_calls SET id = 4 WHERE id = 2", 2, "missing"),
    ],
)
def test_the_first_broken_row_is_named(tmp_path: Path, statement: str, broken: int | None, words: str) -> None:
    path = tmp_path / "a.db"
    hashes = written(path)
    tampered(path, statement)
    with AuditLog(path) as log:
        found = log.verify()
        assert found.broken_row == broken
        assert words in (found.problem or "")
        assert found.head == (hashes[2] if broken is None else FIRST if broken == 1 else hashes[broken - 2])


def test_after_an_end_torn_off_no_number_is_given_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    written(path)
    tampered(path, "DELETE FROM tool_calls WHERE id = 3")
    with AuditLog(path) as log:
        assert log.record(ToolCall("n", "echo", {}), ToolResult("n", "echo", "x", False, "ok"), CONTEXT) == 4
        assert (log.verify().broken_row, log.verify().problem) == (3, "it is missing")


def test_a_chain_written_anew_shows_against_a_hash_kept_elsewhere(tmp_path: Path) -> None:
    known = written(tmp_path / "a.db")[-1]
    written(tmp_path / "forged.db", calls=4)
    with AuditLog(tmp_path / "forged.db") as log:
        assert log.verify().problem is None
    with AuditLog(tmp_path / "a.db") as log:
        assert log.verify(known).problem is None
    tampered(tmp_path / "a.db", "DELETE FROM tool_calls", "DELETE FROM sqlite_sequence")
    written(tmp_path / "a.db", calls=5)
    with AuditLog(tmp_path / "a.db") as log:
        log.record(ToolCall("n", "echo", {}), ToolResult("n", "echo", "x", False, "ok"), CONTEXT)
        assert log.verify().problem is None
        assert log.verify("0" * 63 + "1").problem is not None


def test_two_processes_and_their_threads_write_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    program = (
        "import sys\nfrom tools import AuditLog, ToolCall, ToolContext, ToolResult\n"
        "with AuditLog(sys.argv[1]) as log:\n"
        "    for number in range(40):\n"
        "        log.record(ToolCall('c', 't', {}), ToolResult('c', 't', 'x', False, 'ok'), ToolContext(sys.argv[2]))\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, str(path), name]) for name in ("one", "two")]
    with AuditLog(path) as log:

        def work() -> None:
            for _ in range(20):
                log.record(ToolCall("c", "t", {}), ToolResult("c", "t", "x", False, "ok"), ToolContext("here"))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [process.wait(timeout=60) for process in running] == [0, 0]
        assert (log.verify().rows, log.verify().problem) == (120, None)
        assert [row.id for row in log.rows()] == list(range(1, 121))


OLD_SCHEMA = """CREATE TABLE tool_calls (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, thread_id TEXT NOT NULL, step INTEGER NOT NULL,
    call_id TEXT NOT NULL, tool TEXT NOT NULL, arguments TEXT NOT NULL, fingerprint TEXT NOT NULL,
    kind TEXT NOT NULL, is_error INTEGER NOT NULL, content TEXT NOT NULL, approved_by TEXT,
    decision TEXT, thresholds TEXT, dry_run INTEGER NOT NULL);
    CREATE INDEX tool_calls_by_thread ON tool_calls (thread_id, step);
    CREATE TRIGGER tool_calls_no_update BEFORE UPDATE ON tool_calls
       BEGIN SELECT RAISE(ABORT, 'tool_calls is append-only'); END;
    CREATE TRIGGER tool_calls_no_delete BEFORE DELETE ON tool_calls
       BEGIN SELECT RAISE(ABORT, 'tool_calls is append-only'); END;"""


def test_a_log_of_an_earlier_release_keeps_every_row(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    old = [
        (1, "2026-03-01T12:00:00+00:00", "t1", 3, "c1", "echo", '{"password": "kept"}', "f1", "ok", 0, "x", "Ada", None,
         '{"tau_act": 0.9}', 0),
        (2, "2026-03-01T12:00:01+00:00", "t2", 0, "c2", "gone", '"{"', "f2", "unknown_tool", 1, "é", None,
         '{"p": 0.5}', None, 1),
    ]  # fmt: skip
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(OLD_SCHEMA)
        connection.executemany(f"INSERT INTO tool_calls VALUES ({', '.join('?' * 15)})", old)
    program = "import sys; from tools import AuditLog; AuditLog(sys.argv[1]).close()"
    running = [subprocess.Popen([sys.executable, "-c", program, str(path)]) for _ in range(2)]
    assert [process.wait(timeout=60) for process in running] == [0, 0]
    with AuditLog(path) as log:
        assert log.verify().rows == 2
        assert log.verify().problem is None
        first, second = log.rows()
        assert (first.arguments, first.approved_by, first.grounds) == ({"password": "kept"}, "Ada", None)
        assert (second.arguments, second.decision, second.dry_run) == ("{", {"p": 0.5}, True)
        assert log.record(ToolCall("c", "echo", {}), ToolResult("c", "echo", "x", False, "ok"), CONTEXT) == 3
    with closing(sqlite3.connect(path)) as connection:
        columns = (
            "id, at, thread_id, step, call_id, tool, arguments, fingerprint, kind, is_error, content, approved_by, "
        )
        kept = connection.execute(
            f"SELECT {columns} decision, thresholds, dry_run FROM tool_calls WHERE id < 3"
        ).fetchall()
        assert kept == old
        assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name LIKE '%before'").fetchone() == (0,)
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute("DELETE FROM tool_calls")


# ---------------------------------------------------------------------- filters


@pytest.fixture
def filled() -> Iterator[AuditLog]:
    times = iter([NOON + timedelta(hours=hour) for hour in range(4)])
    with AuditLog(":memory:", clock=lambda: next(times)) as log:
        for call, person, grounds in (
            ("c1", "Ada", None),
            ("c2", None, {"review": {"by": "Ben", "verdict": "reject"}}),
            ("c3", None, {"request": "Ada"}),
            ("c4", "' OR 1=1 --", None),
        ):
            context = ToolContext("t", call, approved_by=person)
            log.record(ToolCall(call, "echo", {}), ToolResult(call, "echo", "x", False, "ok"), context, grounds=grounds)
        yield log


def found(log: AuditLog, **given: object) -> list[str]:
    return [row.call_id for row in log.rows(**given)]  # type: ignore[arg-type]


def test_filters(filled: AuditLog) -> None:
    assert found(filled) == ["c1", "c2", "c3", "c4"]
    assert found(filled, call_id="c2") == ["c2"]
    assert found(filled, person="Ada") == ["c1"]
    assert found(filled, person="Ben") == ["c2"]
    assert found(filled, person="' OR 1=1 --") == ["c4"]
    assert found(filled, person="ada") == []
    assert found(filled, since=NOON + timedelta(hours=1), until=NOON + timedelta(hours=3)) == ["c2", "c3"]
    east = timezone(timedelta(hours=5))
    assert found(filled, since=(NOON + timedelta(hours=3)).astimezone(east)) == ["c4"]
    assert found(filled, until=NOON + timedelta(microseconds=1)) == ["c1"]
    assert found(filled, kind="failed") == found(filled, tool="other") == found(filled, thread_id="\ud800") == []
