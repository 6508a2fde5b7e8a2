import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tools import AuditedTools, AuditLog, ToolCall, ToolContext, ToolResult, ToolStorageError, execute, tool
from tools.audit import ARGUMENT_LIMIT, CONTENT_LIMIT

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
    assert row.arguments == {
        "text": "x" * ARGUMENT_LIMIT + "... (5000 characters)",
        "in": [{"deep": "y" * ARGUMENT_LIMIT + "... (5000 characters)"}],
    }
    assert row.content == "z" * CONTENT_LIMIT + "... (5000 characters)"


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
    assert set(first.arguments) == {"cut", "characters"}  # type: ignore[call-overload]
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
            ):
                with pytest.raises(sqlite3.IntegrityError, match="append-only"):
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
