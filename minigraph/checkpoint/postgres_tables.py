"""The rows of a PostgreSQL schema, through one connection and inside one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
import psycopg
from psycopg.rows import tuple_row

from minigraph.checkpoint.postgres_text import address, held, held_json, read, read_json
from minigraph.checkpoint.tables import End, Log, Query, RecordedRow, Row
from minigraph.errors import ThreadConflictError

_SELECT: Final = "SELECT revision, mark, parent, base, step, source, created_at, metadata::text, body"
_COLUMNS: Final = "revision, mark, parent, base, step, source, created_at, metadata, body"
_RECORDED: Final = "namespace, task_id, key, done, value, error, questions, children"
_TASK: Final = "task_id = %s AND thread_id = %s AND namespace = %s"
_APPEND: Final = (
    f"INSERT INTO {{schema}}.writes (log, {_COLUMNS}) SELECT number, %s::bigint, %s::bytea, %s::bigint, %s::bigint, "
    "%s::bigint, %s::text, %s::bigint, %s::json, %s::bytea FROM {schema}.logs WHERE number = %s::bigint AND "
    "(%s::bigint = 0 OR EXISTS (SELECT FROM {schema}.writes WHERE log = %s::bigint AND revision = %s::bigint)) "
    "FOR KEY SHARE OF logs ON CONFLICT DO NOTHING"
)
"""Adds a row, unless its place is taken, the row before it is missing, or the log was deleted meanwhile.

The log's row in `logs` is its lock: appends share it, and whatever looks first and writes then has it alone.
"""
_END: Final = (
    "WITH RECURSIVE head AS (SELECT number, graphs, last.* FROM {schema}.logs CROSS JOIN LATERAL (SELECT revision, "
    "parent, base FROM {schema}.writes WHERE log = number AND mark IS NOT NULL ORDER BY revision DESC LIMIT 1) last "
    "WHERE address = %s), chain AS (SELECT number, revision, base FROM head UNION ALL SELECT number, earlier.* "
    "FROM chain CROSS JOIN LATERAL (SELECT revision, base FROM {schema}.writes WHERE log = chain.number "
    "AND revision = chain.revision - chain.base OFFSET 0) earlier WHERE chain.base > 0), "
    "wanted AS (SELECT number, revision FROM chain UNION SELECT number, revision - parent FROM head UNION "
    "SELECT number, later.revision FROM head CROSS JOIN LATERAL (SELECT revision FROM {schema}.writes "
    "WHERE log = head.number AND revision > head.revision OFFSET 0) later) "
    "SELECT head.number, head.graphs, found.* FROM head CROSS JOIN wanted CROSS JOIN LATERAL "
    f"({_SELECT} FROM {{schema}}.writes WHERE log = wanted.number AND revision = wanted.revision OFFSET 0) found "
    "ORDER BY revision DESC"
)
"""The newest checkpoint of a log, the rows that its state builds on, its parent, and the rows after it.

OFFSET 0 keeps each row a look into the primary key, whatever the planner thinks of the numbers.
"""


class PostgresTables:
    """`Tables` over a connection. With `lock` nobody else changes the logs that are looked at until it ends."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str, *, lock: bool) -> None:
        self._cursor = psycopg.Cursor(connection, row_factory=tuple_row)
        self._schema, self._lock = schema, lock

    def _run(self, statement: str, *values: object) -> psycopg.Cursor[tuple[Any, ...]]:
        return self._cursor.execute(_bytes(statement, self._schema), values, binary=True)

    def _all(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return self._run(statement, *values).fetchall()

    def _rows(self, condition: str, *values: object) -> list[Row]:
        return [_row(fields) for fields in self._all(f"{_SELECT} FROM {{schema}}.writes {condition}", *values)]

    def log(self, thread_id: str, namespace: str) -> Log | None:
        locked = " FOR UPDATE" if self._lock else ""
        statement = f"SELECT number, graphs FROM {{schema}}.logs WHERE address = %s{locked}"
        found = self._all(statement, address(thread_id, namespace))
        return Log(found[0][0], thread_id, namespace, found[0][1]) if found else None

    def end(self, thread_id: str, namespace: str) -> End | None:
        """The end of a log with all that a read of its newest checkpoint takes; None where there is none."""
        found = self._all(_END, address(thread_id, namespace))
        if not found:
            return None
        number, graphs = found[0][:2]
        return End(Log(number, thread_id, namespace, graphs), [_row(fields[2:]) for fields in found])

    def logs(self, thread_id: str | None) -> list[Log]:
        condition, values = ("", ()) if thread_id is None else ("WHERE thread_id = %s ", (held(thread_id),))
        locked = " FOR UPDATE" if self._lock else ""
        found = self._all(
            f"SELECT number, thread_id, namespace, graphs FROM {{schema}}.logs {condition}ORDER BY number DESC{locked}",
            *values,
        )
        return [Log(number, read(thread), read(namespace), graphs) for number, thread, namespace, graphs in found]

    def idle(self, before: int, thread_id: str | None = None) -> list[str]:
        condition, values = ("", ()) if thread_id is None else ("WHERE thread_id = %s ", (held(thread_id),))
        found = self._all(
            "SELECT thread_id FROM (SELECT thread_id, number, (SELECT created_at FROM {schema}.writes "
            "WHERE log = number AND created_at IS NOT NULL ORDER BY revision DESC LIMIT 1) AS written "
            f"FROM {{schema}}.logs {condition}) AS last GROUP BY thread_id "
            "HAVING max(written) < %s ORDER BY max(written), min(number)",
            *values,
            before,
        )
        return [read(name) for (name,) in found]

    def begin(self, thread_id: str, namespace: str, graphs: str = "") -> int:
        found = self._all(
            "INSERT INTO {schema}.logs (address, thread_id, namespace, graphs) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT DO NOTHING RETURNING number",
            address(thread_id, namespace),
            held(thread_id),
            held(namespace),
            graphs,
        )
        if not found:
            raise ThreadConflictError(
                f"thread {thread_id!r}, namespace {namespace!r}: another run began it meanwhile and nothing was stored"
            )
        return int(found[0][0])

    def label(self, log: Log, graphs: str) -> None:
        self._run("UPDATE {schema}.logs SET graphs = %s WHERE number = %s", graphs, log.number)

    def fill(self, number: int, rows: Sequence[Row]) -> None:
        statement = f"INSERT INTO {{schema}}.writes (log, {_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
        self._cursor.executemany(_bytes(statement, self._schema), [(number, *_fields(row)) for row in rows])

    def revision(self, number: int) -> int:
        ((last,),) = self._all("SELECT max(revision) FROM {schema}.writes WHERE log = %s", number)
        return int(last or 0)

    def newest(self, number: int) -> Row | None:
        found = self._rows("WHERE log = %s AND mark IS NOT NULL ORDER BY revision DESC LIMIT 1", number)
        return found[0] if found else None

    def rows(self, number: int, first: int, last: int) -> list[Row]:
        return self._rows("WHERE log = %s AND revision BETWEEN %s AND %s ORDER BY revision", number, first, last)

    def after(self, number: int, revision: int) -> list[Row]:
        return self._rows(
            "WHERE log = %s AND revision > %s AND revision <= coalesce((SELECT min(revision) FROM {schema}.writes "
            "WHERE log = %s AND revision > %s AND mark IS NOT NULL), 9223372036854775807) ORDER BY revision",
            *(number, revision) * 2,
        )

    def chain(self, number: int, revision: int) -> list[Row]:
        found = self._all(
            "WITH RECURSIVE chain AS (SELECT * FROM {schema}.writes WHERE log = %s AND revision = %s UNION ALL "
            "SELECT earlier.* FROM chain CROSS JOIN LATERAL (SELECT * FROM {schema}.writes WHERE log = chain.log "
            "AND revision = chain.revision - chain.base OFFSET 0) earlier WHERE chain.base > 0) "
            f"{_SELECT} FROM chain ORDER BY revision",
            number,
            revision,
        )
        return [_row(fields) for fields in found]

    def matching(self, query: Query) -> list[tuple[int, int]]:
        conditions: list[str] = ["mark IS NOT NULL"]
        values: list[object] = []
        if query.number is not None:
            conditions.append("log = %s")
            values.append(query.number)
        if query.before is not None:
            conditions.append("(log, revision) < (%s, %s)")
            values += query.before
        for key, wanted in query.filter.items():
            condition, bound = _condition(key, wanted)
            conditions.append(condition)
            values += bound
        found = self._all(
            f"SELECT log, revision FROM {{schema}}.writes WHERE {' AND '.join(conditions)} "
            "ORDER BY log DESC, revision DESC LIMIT %s",
            *values,
            query.limit,
        )
        return [(log, revision) for log, revision in found]

    def append(self, number: int, row: Row) -> bool:
        before = row.revision - 1
        return self._run(_APPEND, *_fields(row), number, before, number, before).rowcount == 1

    def replace(self, number: int, row: Row) -> None:
        change = "UPDATE {schema}.writes SET base = %s, body = %s WHERE log = %s AND revision = %s"
        self._run(change, row.base, row.body, number, row.revision)

    def forget(self, number: int, before: int) -> None:
        self._run("DELETE FROM {schema}.writes WHERE log = %s AND revision < %s", number, before)

    def copy(self, source: int, target: int) -> None:
        self._run(
            f"INSERT INTO {{schema}}.writes (log, {_COLUMNS}) SELECT %s, {_COLUMNS} FROM {{schema}}.writes "
            "WHERE log = %s ORDER BY revision",
            target,
            source,
        )

    def delete(self, thread_id: str) -> None:
        # Looked at again until nothing is left: a child graph may have begun its log while the first look waited.
        while numbers := [log.number for log in self.logs(thread_id)]:
            self._run("DELETE FROM {schema}.writes WHERE log = ANY(%s)", numbers)
            self._run("DELETE FROM {schema}.logs WHERE number = ANY(%s)", numbers)
        self._run("DELETE FROM {schema}.recorded WHERE thread_id = %s", held(thread_id))

    def recorded(self, thread_id: str, namespace: str, task_id: str) -> list[RecordedRow]:
        if self._lock:
            digest = address(thread_id, namespace, task_id)
            self._run("SELECT pg_advisory_xact_lock(%s)", int.from_bytes(digest[:8], "big", signed=True))
        return self._recorded(_TASK, *map(held, (task_id, thread_id, namespace)))

    def all_recorded(self, thread_id: str) -> list[RecordedRow]:
        return self._recorded("thread_id = %s", held(thread_id))

    def _recorded(self, condition: str, *values: str) -> list[RecordedRow]:
        statement = f"SELECT {_RECORDED} FROM {{schema}}.recorded WHERE {condition} ORDER BY number"
        return [
            RecordedRow(read(namespace), read(task_id), read(key), done, value, read(error), *numbers)
            for namespace, task_id, key, done, value, error, *numbers in self._all(statement, *values)
        ]

    def add_recorded(self, thread_id: str, row: RecordedRow) -> None:
        place = (thread_id, row.namespace, row.task_id, row.key)
        self._run(
            f"INSERT INTO {{schema}}.recorded (address, thread_id, {_RECORDED}) VALUES (%s, %s, %s, %s, %s, "
            "%s::boolean, %s, %s, %s, %s) ON CONFLICT (address) DO UPDATE SET done = excluded.done, "
            "value = excluded.value, error = excluded.error, questions = excluded.questions, "
            "children = excluded.children",
            address(*place),
            *map(held, place),
            bool(row.done),
            row.value,
            held(row.error),
            row.questions,
            row.children,
        )

    def remove_recorded(self, thread_id: str, namespace: str, task_id: str, key: str | None = None) -> None:
        if key is not None:
            self._run("DELETE FROM {schema}.recorded WHERE address = %s", address(thread_id, namespace, task_id, key))
            return
        values = map(held, (task_id, thread_id, namespace))
        self._run(f"DELETE FROM {{schema}}.recorded WHERE {_TASK}", *values)


def _fields(row: Row) -> tuple[object, ...]:
    """What is bound to `_COLUMNS`."""
    metadata = None if row.metadata is None else held_json(row.metadata)
    return (row.revision, row.mark, row.parent, row.base, row.step, row.source, row.created, metadata, row.body)


def _row(fields: tuple[Any, ...]) -> Row:
    row = Row(*fields)
    return row if row.metadata is None else msgspec.structs.replace(row, metadata=read_json(row.metadata))


@lru_cache(256)
def _bytes(statement: str, schema: str) -> bytes:
    return statement.replace("{schema}", f'"{schema}"').encode()


def _condition(key: str, wanted: object) -> tuple[str, list[object]]:
    """The condition, with bound values, that a checkpoint's source, step or metadata equals a value exactly.

    Metadata is JSON text as it was written, so a value is equal if its text is: 1 is not 1.0, "1" or true.
    """
    if key == "source":
        return ("source = %s", [held(wanted)]) if type(wanted) is str else ("false", [])
    if key == "step":
        return ("step = %s", [wanted]) if type(wanted) is int else ("false", [])
    return "(metadata -> %s::text)::text = %s", [held(key), held_json(msgspec.json.encode(wanted).decode())]
