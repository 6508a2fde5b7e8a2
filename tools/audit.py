"""One row for every tool call, written once and never changed, each chained to the one before by its hash."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, cast

from tools.audit_table import COLUMNS, SCHEMA, AuditCheck, append, check, upgrade
from tools.errors import Kind, ToolStorageError
from tools.execute import ToolCall, ToolResult, error_result, execute
from tools.redact import Redaction
from tools.storage import Database, storable
from tools.tool import Tool, ToolContext, tools_by_name

CONTENT_LIMIT: Final = 4_000
"""Characters kept of a result's content."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One call as it was logged: secrets redacted, long texts cut, ``at`` in ISO 8601 and UTC.

    ``fingerprint`` is the SHA-256 of the name and the arguments as they were; ``grounds`` is what the decision rested
    on, as the application gave it; ``previous_hash`` and ``hash`` chain the rows.
    """

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
    grounds: object
    previous_hash: str
    hash: str


def _now() -> datetime:
    return datetime.now(UTC)


class AuditLog:
    """The table ``tool_calls`` of one SQLite file; triggers in the file refuse changes by anybody.

    Safe to share between threads and processes: rows are numbered and chained in the order in which they are written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], datetime] = _now,
        redaction: Redaction | None = None,
    ) -> None:
        self._database = Database(path, SCHEMA, {"tool_calls": COLUMNS}, upgrade)
        self._clock = clock
        self._redaction = redaction or Redaction()

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
        grounds: Mapping[str, object] | None = None,
    ) -> int:
        """Write the row of one call and return its number. Raises ``ToolStorageError`` when it cannot be written."""
        plain = self._redaction

        def optional(value: Mapping[str, object] | None) -> str | None:
            return None if value is None else storable(plain.json(value))

        arguments = call.raw_arguments if call.arguments is None else call.arguments
        values = {
            "thread_id": storable(context.thread_id),
            "step": context.step,
            "call_id": storable(call.id),
            "tool": storable(call.name),
            "arguments": storable(plain.json(arguments)),
            "fingerprint": call.fingerprint,
            "kind": result.kind,
            "is_error": int(result.is_error),
            "content": storable(plain.text(result.content, CONTENT_LIMIT)),
            "approved_by": None if context.approved_by is None else storable(context.approved_by),
            "decision": optional(decision),
            "thresholds": optional(thresholds),
            "dry_run": int(dry_run),
            "grounds": optional(grounds),
        }
        with self._database.transaction() as connection:
            return append(connection, {**values, "at": _utc(self._clock())})

    def rows(
        self,
        *,
        thread_id: str | None = None,
        call_id: str | None = None,
        tool: str | None = None,
        kind: Kind | None = None,
        person: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[AuditRow]:
        """The logged calls that match everything given, oldest first.

        ``person`` approved or reviewed the call; ``since`` is included and ``until`` is not.
        """
        wanted = {
            "thread_id = ?": thread_id,
            "call_id = ?": call_id,
            "tool = ?": tool,
            "kind = ?": kind,
            "? IN (approved_by, json_extract(grounds, '$.review.by'))": person,
            "at >= ?": None if since is None else _utc(since),
            "at < ?": None if until is None else _utc(until),
        }
        given = {condition: value for condition, value in wanted.items() if value is not None}
        with self._database.read() as connection:
            found = connection.execute(
                f"SELECT * FROM tool_calls WHERE {' AND '.join(given) or '1'} ORDER BY id",
                tuple(storable(str(value)) for value in given.values()),
            ).fetchall()
        return [_row(dict(row)) for row in found]

    def verify(self, known_head: str | None = None) -> AuditCheck:
        """Check the chain from the first row to the last, and that a hash noted earlier is still in it."""
        with self._database.read() as connection:
            used = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'tool_calls'").fetchone()
            rows = connection.execute("SELECT * FROM tool_calls ORDER BY id")
            return check((dict(row) for row in rows), 0 if used is None else int(used[0]), known_head)

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
        grounds: Mapping[str, object] | None = None,
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
                self.log.record(
                    call, stopped, context, decision=decision, thresholds=thresholds, dry_run=dry_run, grounds=grounds
                )
            except ToolStorageError as second:
                error.add_note(f"The call could not be logged: {second}")
            raise
        self.log.record(
            call, result, context, decision=decision, thresholds=thresholds, dry_run=dry_run, grounds=grounds
        )
        return result


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()


def _row(values: dict[str, object]) -> AuditRow:
    for column in ("arguments", "decision", "thresholds", "grounds"):
        text = values[column]
        values[column] = None if text is None else json.loads(cast("str", text))
    values["is_error"] = bool(values["is_error"])
    values["dry_run"] = bool(values["dry_run"])
    return AuditRow(**values)  # type: ignore[arg-type]  # the columns are checked when the file is opened
