"""The table of the audit log: rows that are only ever added, each holding a hash of itself and of the row before.

A hash is SHA-256 over the canonical JSON of every other column, the hash of the row before among them. So no row can be
changed, taken out or put in without breaking the chain from there on. Who can write the file can also write a new
chain; that is noticed where a hash was kept elsewhere (``verify`` takes it), and triggers keep honest programs from
changing anything.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

COLUMNS: Final = (
    "id", "at", "thread_id", "step", "call_id", "tool", "arguments", "fingerprint", "kind", "is_error",
    "content", "approved_by", "decision", "thresholds", "dry_run", "grounds", "previous_hash", "hash",
)  # fmt: skip
"""The columns of ``tool_calls``, in order."""

FIRST: Final = "0" * 64
"""What stands for the hash of the row before the first."""

_OLD_COLUMNS: Final = COLUMNS[:15]

_CREATE: Final = """CREATE TABLE IF NOT EXISTS tool_calls (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, thread_id TEXT NOT NULL, step INTEGER NOT NULL,
    call_id TEXT NOT NULL, tool TEXT NOT NULL, arguments TEXT NOT NULL, fingerprint TEXT NOT NULL,
    kind TEXT NOT NULL, is_error INTEGER NOT NULL, content TEXT NOT NULL, approved_by TEXT,
    decision TEXT, thresholds TEXT, dry_run INTEGER NOT NULL, grounds TEXT,
    previous_hash TEXT NOT NULL, hash TEXT NOT NULL)"""

SCHEMA: Final = (
    _CREATE,
    "CREATE INDEX IF NOT EXISTS tool_calls_by_thread ON tool_calls (thread_id, step)",
    """CREATE TRIGGER IF NOT EXISTS tool_calls_no_update BEFORE UPDATE ON tool_calls
       BEGIN SELECT RAISE(ABORT, 'tool_calls is append-only'); END""",
    """CREATE TRIGGER IF NOT EXISTS tool_calls_no_delete BEFORE DELETE ON tool_calls
       BEGIN SELECT RAISE(ABORT, 'tool_calls is append-only'); END""",
    # INSERT OR REPLACE deletes without running a delete trigger.
    """CREATE TRIGGER IF NOT EXISTS tool_calls_no_replace BEFORE INSERT ON tool_calls
       WHEN EXISTS (SELECT 1 FROM tool_calls WHERE id = NEW.id)
       BEGIN SELECT RAISE(ABORT, 'tool_calls is append-only'); END""",
    f"""CREATE TRIGGER IF NOT EXISTS tool_calls_in_chain BEFORE INSERT ON tool_calls
       WHEN NEW.previous_hash IS NOT coalesce((SELECT hash FROM tool_calls ORDER BY id DESC LIMIT 1), '{FIRST}')
       BEGIN SELECT RAISE(ABORT, 'the row does not continue the chain of tool_calls'); END""",
)
"""What makes the table, its index and its triggers where they are missing."""


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """What a check of the chain found: the rows read, the hash of the last one, and the first broken row, if any."""

    rows: int
    head: str
    broken_row: int | None
    problem: str | None


def append(connection: sqlite3.Connection, values: Mapping[str, object]) -> int:
    """Add one row, given without id and hashes, and return its number. To be called inside a write transaction."""
    last = connection.execute("SELECT hash FROM tool_calls ORDER BY id DESC LIMIT 1").fetchone()
    # Not max(id): a number is never given twice, not even after the end of the table was torn off.
    used = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'tool_calls'").fetchone()
    number = 1 + (0 if used is None else int(used[0]))
    _insert(connection, {**values, "id": number, "previous_hash": FIRST if last is None else last[0]})
    return number


def check(rows: Iterable[Mapping[str, object]], last_number: int, known_head: str | None = None) -> AuditCheck:
    """Read the rows in order and name the first that is missing, changed or does not follow the one before.

    ``last_number`` is the highest number ever given; ``known_head`` a hash noted earlier, which some row must have.
    """
    previous, count, seen = FIRST, 0, known_head in (None, FIRST)
    for row in rows:
        number = row["id"]
        problem = None
        if number != count + 1:
            number, problem = count + 1, "it is missing"
        elif row["previous_hash"] != previous:
            problem = "it does not follow the row before"
        elif row["hash"] != row_hash(row):
            problem = "its content was changed"
        if problem is not None:
            return AuditCheck(count, previous, int(str(number)), problem)
        previous, count = str(row["hash"]), count + 1
        seen = seen or previous == known_head
    if count < last_number:
        return AuditCheck(count, previous, count + 1, "it is missing, and so is every row after it")
    if not seen:
        return AuditCheck(count, previous, count or 1, f"no row has the hash {known_head} that was noted earlier")
    return AuditCheck(count, previous, None, None)


def row_hash(row: Mapping[str, object]) -> str:
    """The hash (hex) of a row: over every column but the hash, as canonical JSON."""
    content = {column: row[column] for column in COLUMNS[:-1]}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":"), default=repr).encode()).hexdigest()


def upgrade(connection: sqlite3.Connection) -> None:
    """Bring a table of an earlier release, which had no chain, into this form: the same rows under the same numbers."""
    found = [row[0] for row in connection.execute("SELECT name FROM pragma_table_info('tool_calls')")]
    if found != list(_OLD_COLUMNS):
        return
    connection.execute("ALTER TABLE tool_calls RENAME TO tool_calls_before")
    connection.execute(_CREATE)
    previous = FIRST
    old = connection.execute("SELECT * FROM tool_calls_before ORDER BY id")
    for row in old.fetchall():
        values = {**dict(zip(_OLD_COLUMNS, row, strict=True)), "grounds": None, "previous_hash": previous}
        previous = _insert(connection, values)
    connection.execute("DROP TABLE tool_calls_before")


def _insert(connection: sqlite3.Connection, values: Mapping[str, object]) -> str:
    found = row_hash(values)
    row = tuple({**values, "hash": found}[column] for column in COLUMNS)
    connection.execute(f"INSERT INTO tool_calls VALUES ({', '.join('?' * len(COLUMNS))})", row)
    return found
