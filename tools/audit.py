"""One row for every tool call, written once and never changed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, cast

from tools.errors import Kind, ToolStorageError
from tools.execute import ToolCall, ToolResult, error_result, execute
from tools.storage import Database, storable
from tools.tool import Tool, ToolContext, tools_by_name

ARGUMENT_LIMIT: Final = 1_000
"""Characters kept of any one text inside the arguments."""

JSON_LIMIT: Final = 20_000
"""Characters that arguments may have in all; beyond that only their beginning is kept."""

DEPTH_LIMIT: Final = 20
"""Levels of nested arguments that are kept."""

CONTENT_LIMIT: Final = 4_000
"""Characters kept of a result's content."""

_COLUMNS: Final = (
    "id", "at", "thread_id", "step", "call_id", "tool", "arguments", "fingerprint", "kind", "is_error",
    "content", "approved_by", "decision", "thresholds", "dry_run",
)  # fmt: skip

_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS tool_calls (
        id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, thread_id TEXT NOT NULL, step INTEGER NOT NULL,
        call_id TEXT NOT NULL, tool TEXT NOT NULL, arguments TEXT NOT NULL, fingerprint TEXT NOT NULL,
        kind TEXT NOT NULL, is_error INTEGER NOT NULL, content TEXT NOT NULL, approved_by TEXT,
        decision TEXT, thresholds TEXT, dry_run INTEGER NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS tool_calls_by_thread ON tool_calls (thread_id, step)",
    """CREATE TRIGGER IF NOT EXISTS tool_calls_no_update BEFORE UPDATE ON tool_calls
       BEGIN SELECT RAISE(ABORT, 'tool_calls is append-only'); END""",
    """CREATE TRIGGER IF NOT EXISTS tool_calls_no_delete BEFORE DELETE ON tool_calls
       BEGIN SELECT RAISE(ABORT, 'tool_calls is append-only'); END""",
    # INSERT OR REPLACE deletes without running a delete trigger.
    """CREATE TRIGGER IF NOT EXISTS tool_calls_no_replace BEFORE INSERT ON tool_calls
       WHEN EXISTS (SELECT 1 FROM tool_calls WHERE id = NEW.id)
       BEGIN SELECT RAISE(ABORT, 'tool_calls is append-only'); END""",
)


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One call as it was logged; ``at`` is ISO 8601 in UTC, and long texts are cut."""

    id: int
    at: str
    thread_id: str
    step: int
    call_id: str
    tool: str
    arguments: object
    fingerprint: str
    kind: Kind
    is_error: bool
    content: str
    approved_by: str | None
    decision: object
    thresholds: object
    dry_run: bool


def _now() -> datetime:
    return datetime.now(UTC)


class AuditLog:
    """The table ``tool_calls`` of one SQLite file; triggers in the file refuse changes by anybody."""

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], datetime] = _now) -> None:
        self._database = Database(path, _SCHEMA, {"tool_calls": _COLUMNS})
        self._clock = clock

    def __enter__(self) -> AuditLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def record(
        self,
        call: ToolCall,
        result: ToolResult,
        context: ToolContext,
        *,
        decision: Mapping[str, object] | None = None,
        thresholds: Mapping[str, object] | None = None,
        dry_run: bool = False,
    ) -> int:
        """Write the row of one call and return its number. Raises ``ToolStorageError`` when it cannot be written."""
        arguments = call.raw_arguments if call.arguments is None else call.arguments
        values = (
            self._clock().astimezone(UTC).isoformat(),
            storable(context.thread_id),
            context.step,
            storable(call.id),
            storable(call.name),
            _json(arguments),
            call.fingerprint,
            result.kind,
            int(result.is_error),
            _cut(storable(result.content), CONTENT_LIMIT),
            None if context.approved_by is None else storable(context.approved_by),
            None if decision is None else _json(decision),
            None if thresholds is None else _json(thresholds),
            int(dry_run),
        )
        places = ", ".join("?" * len(values))
        with self._database.transaction() as connection:
            cursor = connection.execute(f"INSERT INTO tool_calls ({', '.join(_COLUMNS[1:])}) VALUES ({places})", values)
        return int(cursor.lastrowid or 0)

    def rows(
        self, *, thread_id: str | None = None, tool: str | None = None, kind: Kind | None = None
    ) -> list[AuditRow]:
        """The logged calls that match everything given, oldest first."""
        wanted = {"thread_id": thread_id, "tool": tool, "kind": kind}
        given = {column: value for column, value in wanted.items() if value is not None}
        condition = " AND ".join(f"{column} = ?" for column in given) or "1"
        with self._database.read() as connection:
            found = connection.execute(
                f"SELECT * FROM tool_calls WHERE {condition} ORDER BY id", tuple(given.values())
            ).fetchall()
        return [_row(dict(row)) for row in found]

    def check_writable(self) -> None:
        """Raise ``ToolStorageError`` if no row could be written now."""
        with self._database.transaction():
            pass


class AuditedTools:
    """Tools whose every call is logged, the refused ones included."""

    def __init__(self, tools: Iterable[Tool], log: AuditLog) -> None:
        self.tools: Final[Mapping[str, Tool]] = tools_by_name(tools)
        self.log: Final = log

    def execute(
        self,
        call: ToolCall,
        context: ToolContext,
        *,
        decision: Mapping[str, object] | None = None,
        thresholds: Mapping[str, object] | None = None,
        dry_run: bool = False,
    ) -> ToolResult:
        """Run the call as ``tools.execute`` does and log it.

        Raises ``ToolStorageError`` when the log cannot be written: before a dangerous tool is entered, so that
        nothing dangerous goes unlogged; for a safe one, after it ran.
        """
        found = self.tools.get(call.name)
        if found is not None and found.tier == "dangerous":
            self.log.check_writable()
        try:
            result = execute(call, self.tools, context, dry_run=dry_run)
        except BaseException as error:  # a stop from outside: logged, and on its way
            stopped = error_result(call, "failed", f"The call was stopped by {type(error).__name__}.")
            try:
                self.log.record(call, stopped, context, decision=decision, thresholds=thresholds, dry_run=dry_run)
            except ToolStorageError as second:
                error.add_note(f"The call could not be logged: {second}")
            raise
        self.log.record(call, result, context, decision=decision, thresholds=thresholds, dry_run=dry_run)
        return result


def _shortened(value: object, depth: int = 0) -> object:
    if isinstance(value, str):
        return _cut(value, ARGUMENT_LIMIT)
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if depth >= DEPTH_LIMIT:
        return f"(nested deeper than {DEPTH_LIMIT})"
    if isinstance(value, Mapping):
        return {_cut(str(key), ARGUMENT_LIMIT): _shortened(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shortened(item, depth + 1) for item in value]
    return _cut(repr(value), ARGUMENT_LIMIT)


def _json(value: object) -> str:
    text = json.dumps(_shortened(value), ensure_ascii=False)
    if len(text) > JSON_LIMIT:
        text = json.dumps({"cut": text[:ARGUMENT_LIMIT], "characters": len(text)}, ensure_ascii=False)
    return storable(text)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def _row(values: dict[str, object]) -> AuditRow:
    for column in ("arguments", "decision", "thresholds"):
        text = values[column]
        values[column] = None if text is None else json.loads(cast("str", text))
    values["is_error"] = bool(values["is_error"])
    values["dry_run"] = bool(values["dry_run"])
    return AuditRow(**values)  # type: ignore[arg-type]  # the columns are checked when the file is opened
