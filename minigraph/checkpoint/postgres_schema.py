"""The tables of a PostgreSQL schema, and how it comes to have them: made anew, or migrated from an older version."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row

from minigraph.errors import StorageError

SCHEMA_VERSION: Final = 1
_TABLES: Final = frozenset({"logs", "writes", "recorded", "checkpoints"})
_NAME: Final = re.compile(r"(?!pg_)[A-Za-z_][A-Za-z0-9_]{0,62}")

SCHEMA: Final = """
CREATE TABLE {schema}.logs (
    number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- given once, deleted or not
    address    bytea NOT NULL UNIQUE,         -- SHA-256 of thread and namespace: an index holds no long text
    thread_id  text COLLATE "C" NOT NULL,
    namespace  text COLLATE "C" NOT NULL,     -- "" for the graph itself, otherwise the place of a child graph
    graphs     text COLLATE "C" NOT NULL DEFAULT ''  -- which graphs wrote it: "1:FINGERPRINT 120:FINGERPRINT"
);
CREATE INDEX logs_thread ON {schema}.logs USING hash (thread_id);
CREATE TABLE {schema}.writes (
    log        bigint NOT NULL,               -- the number of the log, which names the thread
    revision   bigint NOT NULL,               -- grows by one with each write
    parent     bigint,                        -- how many revisions back the checkpoint stands that it came from
    base       bigint,                        -- how many revisions back the state stands that body changes
    step       bigint,
    created_at bigint,                        -- milliseconds since 1970, a label only
    mark       bytea,                         -- the second half of the checkpoint's id; NULL: results only
    source     text COLLATE "C",              -- input, loop, update or fork
    metadata   json,                          -- NULL if there is none; json keeps every number as it was written
    body       bytea NOT NULL,                -- MessagePack: results, due tasks, what each key became
    PRIMARY KEY (log, revision)
);
CREATE TABLE {schema}.recorded (
    number     bigint GENERATED ALWAYS AS IDENTITY,  -- the order in which the calls began
    address    bytea PRIMARY KEY,             -- SHA-256 of thread, namespace, task and key
    thread_id  text COLLATE "C" NOT NULL,
    namespace  text COLLATE "C" NOT NULL,
    task_id    text COLLATE "C" NOT NULL,     -- for a child graph that stores nothing: its caller's, and the way down
    key        text COLLATE "C" NOT NULL,     -- the key of the once() call
    done       boolean NOT NULL,              -- false: it began, and whether it did anything is not known
    value      bytea NOT NULL,                -- MessagePack: its result
    error      text COLLATE "C" NOT NULL,     -- the exception that ended it, "" where none is known
    questions  bigint NOT NULL,               -- how many questions of the task came before it
    children   bigint NOT NULL                -- how many calls of child graphs came before it
);
CREATE INDEX recorded_thread ON {schema}.recorded USING hash (thread_id);
CREATE INDEX recorded_task ON {schema}.recorded USING hash (task_id);
CREATE VIEW {schema}.checkpoints AS
SELECT
    l.thread_id,
    l.namespace,
    w.revision,
    lpad(to_hex(w.revision), 16, '0') || encode(w.mark, 'hex') AS checkpoint_id,
    (SELECT lpad(to_hex(p.revision), 16, '0') || encode(p.mark, 'hex')
        FROM {schema}.writes p WHERE p.log = w.log AND p.revision = w.revision - w.parent) AS parent_id,
    w.step,
    w.source,
    to_timestamp(w.created_at / 1000.0) AS created_at,
    w.metadata::jsonb AS metadata,
    w.revision - w.base AS base,
    octet_length(w.body) AS bytes
FROM {schema}.writes w JOIN {schema}.logs l ON l.number = w.log
WHERE w.mark IS NOT NULL;
CREATE TABLE {schema}.minigraph_version (version bigint NOT NULL);
"""

MIGRATIONS: Final[Mapping[int, str]] = {}
"""For each older version that can be brought up to date the statements that lead to the next one."""


def checked_name(schema: str) -> str:
    """A schema's name; ValueError for one that would have to be quoted with care wherever it is typed."""
    if _NAME.fullmatch(schema) is None:
        raise ValueError(
            f"schema={schema!r}: letters, digits and underscores of ASCII, no digit first, not pg_..., at most 63"
        )
    return schema


def prepare_schema(connection: psycopg.Connection[Any], name: str, schema: str) -> None:
    """Makes the tables in a schema that lacks them, or brings older ones up to date.

    Many may call it at once: one does the work and the others wait for it. StorageError, and nothing is changed, for
    tables that are foreign, newer than this release, or of a version that it cannot read any more.
    """
    if connection.info.parameter_status("server_encoding") not in ("UTF8", None):
        raise StorageError(
            f"{name}: the database has the encoding {connection.info.parameter_status('server_encoding')}, which "
            "cannot hold every text; make it with ENCODING 'UTF8'"
        )
    if _version(connection, name, schema) == SCHEMA_VERSION:
        return
    connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_lock_number(schema),))
    version = _version(connection, name, schema)
    for number in range(version, SCHEMA_VERSION) if version else ():
        _run(connection, MIGRATIONS[number], schema)
    if not version:
        _check_empty(connection, name, schema)
        _run(connection, SCHEMA, schema)
        _run(connection, "INSERT INTO {schema}.minigraph_version VALUES (0)", schema)
    _run(connection, f"UPDATE {{schema}}.minigraph_version SET version = {SCHEMA_VERSION}", schema)
    connection.execute("COMMIT")


def _run(connection: psycopg.Connection[Any], script: str, schema: str) -> None:
    connection.execute(script.replace("{schema}", f'"{schema}"').encode(), prepare=False)


def _lock_number(schema: str) -> int:
    digest = hashlib.sha256(f"minigraph schema {schema}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _names(connection: psycopg.Connection[Any], schema: str) -> set[str] | None:
    """The tables and views of a schema; None if it is not there.

    It reads the catalogue itself: functions such as to_regclass may remember what was there before a wait.
    """
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    found = cursor.execute(
        "SELECT c.relname::text FROM pg_catalog.pg_namespace n LEFT JOIN pg_catalog.pg_class c "
        "ON c.relnamespace = n.oid AND c.relkind IN ('r', 'p', 'v', 'm', 'f') WHERE n.nspname = %s",
        (schema,),
    ).fetchall()
    return {name for (name,) in found if name is not None} if found else None


def _version(connection: psycopg.Connection[Any], name: str, schema: str) -> int:
    """The version of the tables, 0 where there are none."""
    if "minigraph_version" not in (_names(connection, schema) or ()):
        return 0
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    (found,) = cursor.execute(f'SELECT max(version) FROM "{schema}".minigraph_version'.encode()).fetchall()
    version = int(found[0] or 0)
    if version > SCHEMA_VERSION:
        raise StorageError(
            f"{name}: its tables have version {version}, this release knows {SCHEMA_VERSION}; a newer release wrote "
            "them, so use that one"
        )
    lost = next((n for n in range(version, SCHEMA_VERSION) if n not in MIGRATIONS), None)
    if lost is not None:
        raise StorageError(
            f"{name}: its tables have version {version}, which this release (version {SCHEMA_VERSION}) cannot bring up "
            "to date; use the release that wrote them, or give the saver another schema"
        )
    return version


def _check_empty(connection: psycopg.Connection[Any], name: str, schema: str) -> None:
    """Makes the schema where it is not there; StorageError where one of our names is taken in it."""
    names = _names(connection, schema)
    if names is None:
        _run(connection, "CREATE SCHEMA {schema}", schema)
    taken = sorted(_TABLES & (names or set()))
    if taken:
        raise StorageError(
            f"{name}: it has a table or view {taken[0]!r} that is none of a saver's; give the saver another schema"
        )
