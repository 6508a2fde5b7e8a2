"""The tables of a SQLite database, and how a file comes to have them: made anew, or migrated from an older version."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from minigraph.errors import StorageError

APPLICATION_ID: Final = 0x6D677068
"""Marks a file as one of ours in its header (the letters "mgph")."""
SCHEMA_VERSION: Final = 4
REVISION_BITS: Final = 32
"""How many bits of a row's place are its revision."""

_LOGS: Final = """
CREATE TABLE logs (
    thread_id  TEXT NOT NULL,
    namespace  TEXT NOT NULL,        -- "" for the graph itself, otherwise the place of a child graph
    number     INTEGER NOT NULL,     -- given once, deleted or not: the log of the thread "" holds the next one
    graphs     TEXT NOT NULL DEFAULT '', -- which graphs wrote it: "1:FINGERPRINT 120:FINGERPRINT", by first revision
    PRIMARY KEY (thread_id, namespace)
) WITHOUT ROWID;
"""
_WRITES: Final = """
CREATE TABLE writes (
    place      INTEGER PRIMARY KEY,  -- the log's number * 4294967296 + the revision
    thread_id  INTEGER AS (place >> 32) VIRTUAL,        -- the number of the log, which names the thread
    revision   INTEGER AS (place & 4294967295) VIRTUAL, -- grows by one with each write
    mark       BLOB,                 -- the second half of the checkpoint's id; NULL: the write holds results only
    parent     INTEGER,              -- how many revisions back the checkpoint stands that it came from; NULL: none
    base       INTEGER,              -- how many revisions back the state stands that `body` changes; NULL: it is whole
    step       INTEGER,
    source     TEXT,                 -- input, loop, update or fork
    created_at INTEGER,              -- milliseconds since 1970, a label only
    metadata   TEXT,                 -- JSON, NULL if there is none
    body       BLOB NOT NULL         -- MessagePack: results, due tasks, what each key became
);
"""
_RECORDED: Final = """
CREATE TABLE recorded (
    thread_id     TEXT NOT NULL,
    namespace     TEXT NOT NULL,
    task_id       TEXT NOT NULL,        -- for a child graph that stores nothing: its caller's, and the way down
    key           TEXT NOT NULL,        -- the key of the once() call
    place         INTEGER NOT NULL,     -- orders the calls of a task by when they began
    done          INTEGER NOT NULL,     -- 0: it began, and whether it did anything is not known
    value         BLOB NOT NULL,        -- MessagePack: its result
    error         TEXT NOT NULL,        -- the exception that ended it, "" where none is known
    questions     INTEGER NOT NULL,     -- how many questions of the task came before it
    children      INTEGER NOT NULL,     -- how many calls of child graphs came before it
    PRIMARY KEY (thread_id, namespace, task_id, key)
) WITHOUT ROWID;
"""
_CHECKPOINTS: Final = """
CREATE VIEW checkpoints AS
SELECT
    l.thread_id,
    l.namespace,
    w.revision,
    printf('%016x', w.revision) || lower(hex(w.mark)) AS checkpoint_id,
    (SELECT printf('%016x', p.revision) || lower(hex(p.mark))
        FROM writes p WHERE p.place = w.place - w.parent) AS parent_id,
    w.step,
    w.source,
    strftime('%Y-%m-%dT%H:%M:%f', w.created_at / 1000.0, 'unixepoch') || '+00:00' AS created_at,
    w.metadata,
    w.revision - w.base AS base,
    length(w.body) AS bytes
FROM writes w JOIN logs l ON l.number = w.thread_id
WHERE w.mark IS NOT NULL;
"""
_FIRST: Final = "INSERT INTO logs (number, thread_id, namespace) VALUES (1, '', '');\n"
SCHEMA: Final = _LOGS + _WRITES + _RECORDED + _CHECKPOINTS + _FIRST

MIGRATIONS: Final[Mapping[int, str]] = {
    3: "DROP VIEW checkpoints;\n"
    "ALTER TABLE logs RENAME TO older_logs;\n"
    f"{_LOGS}"
    "INSERT INTO logs (number, thread_id, namespace) SELECT number, thread_id, namespace FROM older_logs;\n"
    "DROP TABLE older_logs;\n"
    "ALTER TABLE recorded RENAME TO older_recorded;\n"
    f"{_RECORDED}"
    "INSERT INTO recorded SELECT thread_id, namespace, task_id, key, rowid, done, value, error, questions, children "
    "FROM older_recorded;\n"
    "DROP TABLE older_recorded;\n"
    f"{_CHECKPOINTS}",
}
"""For each older version that can be brought up to date the statements that lead to the next one."""


def prepare_schema(connection: sqlite3.Connection, name: str) -> None:
    """Makes the tables in an empty database, or brings older ones up to date.

    StorageError, and nothing is changed, for a database that is foreign, newer than this release, or of a version that
    it cannot read any more.
    """
    with _transaction(connection, "BEGIN"):
        ready = _is_ready(connection, name)
    if ready:
        return
    with _transaction(connection, "BEGIN IMMEDIATE"):
        if not _is_ready(connection, name):
            version = _number(connection, "PRAGMA user_version")
            for number in range(version, SCHEMA_VERSION) if version else ():
                _run(connection, MIGRATIONS[number])
            if not version:
                _run(connection, SCHEMA)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION:d}")


def _run(connection: sqlite3.Connection, script: str) -> None:
    for statement in script.split(";\n"):
        if statement.strip():
            connection.execute(statement)


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _number(connection: sqlite3.Connection, statement: str) -> int:
    cursor = connection.cursor()
    cursor.row_factory = None
    return int(cursor.execute(statement).fetchone()[0])


def _is_ready(connection: sqlite3.Connection, name: str) -> bool:
    application, version = _number(connection, "PRAGMA application_id"), _number(connection, "PRAGMA user_version")
    if application == APPLICATION_ID:
        if version > SCHEMA_VERSION:
            raise StorageError(
                f"SQLite database {name}: its tables have version {version}, this release knows {SCHEMA_VERSION}; "
                "a newer release wrote it, so open it with that one"
            )
        lost = next((n for n in range(version, SCHEMA_VERSION) if n not in MIGRATIONS), None)
        if lost is not None:
            raise StorageError(
                f"SQLite database {name}: its tables have version {version}, which this release (version "
                f"{SCHEMA_VERSION}) cannot bring up to date; open it with the release that wrote it, or give the saver "
                "a new file"
            )
        return version == SCHEMA_VERSION
    count = _number(connection, "SELECT count(*) FROM sqlite_master")
    if application or version or count:
        raise StorageError(
            f"SQLite database {name}: it belongs to something else (application id {application}, version {version}, "
            f"{count} tables and indexes); give the saver a file of its own"
        )
    return False
