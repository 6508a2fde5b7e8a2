"""A saver that keeps threads in one SQLite file, which any SQLite tool can open.

Tables (see `schema.SCHEMA` for every column): `logs`, one row for each thread and namespace; `writes`, one row for each
write to a log; `recorded`, the `once()` calls of tasks. The view `checkpoints` shows them by hand:

    SELECT thread_id, step, source, created_at FROM checkpoints ORDER BY thread_id, namespace, revision;

A row of `writes` is found by `place`, its log's number and its revision in one integer, so a thread's rows lie side by
side, a checkpoint's id needs no index, and that revision + 1 is free is what a write claims: one INSERT, which is a
transaction of its own, is a step.

A file is used in write-ahead-log mode with synchronous=NORMAL: readers never wait for a writer, a write costs no disk
flush, and a killed process loses nothing that was saved. A power cut may lose the last writes, never the file: who
needs those as well gives the saver a connection with `PRAGMA synchronous = FULL`, at one disk flush a step. That a
`once()` call begins is always flushed, since what it does to the world would otherwise be done again.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Final

import msgspec

from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.connections import Pool, Single, connections, translated
from minigraph.checkpoint.filtering import matches
from minigraph.checkpoint.rows import read_metadata
from minigraph.checkpoint.saver import TableSaver
from minigraph.checkpoint.schema import REVISION_BITS
from minigraph.checkpoint.tables import End, Log, Query, RecordedRow, Row, Tables
from minigraph.errors import DecodeError

_FULL: Final = 2
"""The level of `PRAGMA synchronous` at which a commit waits for the disk."""
_WITHIN: Final = "cannot start a transaction within a transaction"
_MASK: Final = (1 << REVISION_BITS) - 1
_COLUMNS: Final = "mark, parent, base, step, source, created_at, metadata, body"
_SELECT: Final = f"SELECT place & {_MASK}, {_COLUMNS} FROM writes"
_PLACES: Final = f"SELECT place >> {REVISION_BITS}, place & {_MASK} FROM writes"
_LABEL_COLUMNS: Final = {"source": str, "step": int}
_HAS_NUL: Final = r"instr(metadata, '\u0000')"
"""Whether metadata may hold a NUL character, at which SQLite ends a text that it takes out of JSON."""
_END: Final = (
    f"SELECT number, graphs, place & {_MASK}, {_COLUMNS} FROM logs JOIN writes ON place BETWEEN number << "
    f"{REVISION_BITS} AND number << {REVISION_BITS} | {_MASK} WHERE logs.thread_id = ? AND namespace = ? "
    "ORDER BY place DESC"
)
_ADD: Final = f"INSERT INTO writes (place, {_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
_ADD_AFTER: Final = (
    f"WITH before AS (SELECT 1 FROM writes WHERE place = ?1 - 1) INSERT INTO writes (place, {_COLUMNS}) "
    "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, (SELECT ?9 FROM before))"
)
"""Adds a row if the one before it is there: otherwise the body would be NULL, which the table refuses.

It begins with WITH, so that the sqlite3 module opens no transaction around it, whatever a connection's isolation level.
"""


class SqliteSaver(TableSaver):
    """Stores threads in a SQLite database: a path, ":memory:" or a connection of your own.

    With a path every thread of the program gets a connection of its own, also after a fork, and several processes may
    share the file; `timeout` is how many seconds a write waits for another one. A given connection is used as it is,
    by one thread at a time, and must not have a transaction open. With a `time_to_live`, threads that nobody wrote to
    for so long and that have nothing due are deleted as new ones begin. Classes that the schema of a graph does not
    name must be registered before they are read. Use it in a `with` block or call `close()`.
    """

    def __init__(
        self,
        database: sqlite3.Connection | str | os.PathLike[str],
        *,
        timeout: float = 30.0,
        time_to_live: timedelta | None = None,
    ) -> None:
        super().__init__(Codec(), time_to_live)
        self._connections: Pool | Single = connections(database, timeout)

    @classmethod
    def from_conn_string(cls, path: str | os.PathLike[str]) -> SqliteSaver:
        """The saver for a path, for use in a `with` block."""
        return cls(path)

    def __enter__(self) -> SqliteSaver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that the saver opened. Closing twice is fine."""
        self._connections.close()

    def _reading(self) -> _Transaction:
        return _Transaction(self._connections, "BEGIN")

    def _writing(self) -> _Transaction:
        return _Transaction(self._connections, "BEGIN IMMEDIATE")

    def _lasting(self) -> _Transaction:
        return _Transaction(self._connections, "BEGIN IMMEDIATE", flush=True)

    def _end(self, thread_id: str, namespace: str) -> End | None:
        connection = self._connections.take()
        try:
            if connection.in_transaction:
                raise sqlite3.OperationalError(_WITHIN)
            cursor = connection.cursor()
            cursor.row_factory = None
            log: Log | None = None
            found: list[Row] = []
            checkpoints = 0
            for fields in cursor.execute(_END, (thread_id, namespace)):
                log = log or Log(fields[0], thread_id, namespace, fields[1])
                row = _row(fields[2:])
                found.append(row)
                checkpoints += row.mark is not None
                if checkpoints == 2:
                    break
            cursor.close()
        except sqlite3.Error as error:
            raise translated(self._connections.name, error) from error
        finally:
            self._connections.give_back(connection)
        return None if log is None else End(log, found)

    def _append(self, number: int, row: Row) -> bool:
        connection = self._connections.take()
        try:
            if connection.in_transaction:
                raise sqlite3.OperationalError(_WITHIN)
            connection.execute(_ADD_AFTER, _values(number, row))
        except sqlite3.IntegrityError:
            return False
        except sqlite3.Error as error:
            raise translated(self._connections.name, error) from error
        finally:
            self._connections.give_back(connection)
        return True


class _Transaction:
    """A with block that is one transaction: committed at its end, taken back when an error leaves it.

    With `flush` the commit waits until the disk has it, and all that was committed before.
    """

    __slots__ = ("_begin", "_connection", "_connections", "_flush", "_usual")

    def __init__(self, lender: Pool | Single, begin: str, *, flush: bool = False) -> None:
        self._connections, self._begin, self._flush = lender, begin, flush
        self._usual = _FULL

    def __enter__(self) -> Tables:
        self._connection = connection = self._connections.take()
        try:
            if self._flush:
                self._usual = connection.execute("PRAGMA synchronous").fetchone()[0]
                if self._usual < _FULL:
                    connection.execute(f"PRAGMA synchronous = {_FULL}")
            connection.execute(self._begin)
            cursor = connection.cursor()
        except BaseException as error:
            self._connections.give_back(self._connection)
            if isinstance(error, sqlite3.Error):
                raise translated(self._connections.name, error) from error
            raise
        cursor.row_factory = None
        return _SqliteTables(cursor)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._connection.execute("COMMIT")
        except sqlite3.Error as refused:
            error = refused
        finally:
            try:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if self._usual < _FULL:
                    self._connection.execute(f"PRAGMA synchronous = {self._usual}")
            finally:
                self._connections.give_back(self._connection)
        if isinstance(error, sqlite3.Error):
            raise translated(self._connections.name, error) from error


class _SqliteTables:
    """The rows of a database, through one cursor inside one transaction.

    The row of `logs` whose thread id is "" holds the next number. It is no log: nothing finds or deletes it.
    """

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    def _all(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return self._cursor.execute(statement, values).fetchall()

    def _rows(self, condition: str, *values: object) -> list[Row]:
        return [_row(fields) for fields in self._all(f"{_SELECT} {condition}", *values)]

    def log(self, thread_id: str, namespace: str) -> Log | None:
        condition = "WHERE thread_id = ? AND thread_id <> '' AND namespace = ?"
        found = self._all(f"SELECT number, graphs FROM logs {condition}", thread_id, namespace)
        return Log(found[0][0], thread_id, namespace, found[0][1]) if found else None

    def logs(self, thread_id: str | None) -> list[Log]:
        condition, values = ("> ''", ()) if thread_id is None else ("> '' AND thread_id = ?", (thread_id,))
        chosen = f"WHERE thread_id {condition} ORDER BY number DESC"
        found = self._all(f"SELECT number, thread_id, namespace, graphs FROM logs {chosen}", *values)
        return [Log(*fields) for fields in found]

    def idle(self, before: int, thread_id: str | None = None) -> list[str]:
        last = (
            f"SELECT created_at FROM writes WHERE place BETWEEN number << {REVISION_BITS} AND number << {REVISION_BITS}"
            f" | {_MASK} AND created_at IS NOT NULL ORDER BY place DESC LIMIT 1"
        )
        condition, values = ("> ''", ()) if thread_id is None else ("> '' AND l.thread_id = ?", (thread_id,))
        found = self._all(
            f"SELECT l.thread_id, max(({last})) AS written FROM logs l WHERE l.thread_id {condition} "
            "GROUP BY l.thread_id HAVING written < ? ORDER BY written, min(number)",
            *values,
            before,
        )
        return [name for name, _ in found]

    def begin(self, thread_id: str, namespace: str, graphs: str = "") -> int:
        ((number,),) = self._all("SELECT number FROM logs WHERE thread_id = ''")
        self._cursor.execute("UPDATE logs SET number = number + 1 WHERE thread_id = ''")
        values = (number, thread_id, namespace, graphs)
        self._cursor.execute("INSERT INTO logs (number, thread_id, namespace, graphs) VALUES (?, ?, ?, ?)", values)
        return int(number)

    def label(self, log: Log, graphs: str) -> None:
        place = (log.thread_id, log.namespace)
        self._cursor.execute("UPDATE logs SET graphs = ? WHERE thread_id = ? AND namespace = ?", (graphs, *place))

    def fill(self, number: int, rows: Sequence[Row]) -> None:
        self._cursor.executemany(_ADD, [_values(number, row) for row in rows])

    def revision(self, number: int) -> int:
        place = number << REVISION_BITS
        found = self._all("SELECT max(place) FROM writes WHERE place BETWEEN ? AND ?", place, place | _MASK)
        return 0 if found[0][0] is None else int(found[0][0]) & _MASK

    def newest(self, number: int) -> Row | None:
        place = number << REVISION_BITS
        condition = "WHERE place BETWEEN ? AND ? AND mark IS NOT NULL ORDER BY place DESC LIMIT 1"
        found = self._rows(condition, place, place | _MASK)
        return found[0] if found else None

    def rows(self, number: int, first: int, last: int) -> list[Row]:
        place = number << REVISION_BITS
        return self._rows("WHERE place BETWEEN ? AND ? ORDER BY place", place | first, place | last)

    def after(self, number: int, revision: int) -> list[Row]:
        place = number << REVISION_BITS
        return self._rows(
            "WHERE place BETWEEN ?1 + 1 AND ifnull((SELECT place FROM writes WHERE place BETWEEN ?1 + 1 AND ?2 "
            "AND mark IS NOT NULL ORDER BY place LIMIT 1), ?2) ORDER BY place",
            place | revision,
            place | _MASK,
        )

    def chain(self, number: int, revision: int) -> list[Row]:
        return self._rows(
            "WHERE place IN (WITH RECURSIVE chain (place, base) AS (SELECT place, base FROM writes WHERE place = ? "
            "UNION ALL SELECT w.place, w.base FROM chain JOIN writes w ON w.place = chain.place - chain.base "
            "WHERE chain.base > 0) SELECT place FROM chain) ORDER BY place",
            number << REVISION_BITS | revision,
        )

    def matching(self, query: Query) -> list[tuple[int, int]]:
        conditions, values = ["mark IS NOT NULL"], []
        labels = {key: value for key, value in query.filter.items() if key not in _LABEL_COLUMNS}
        if query.number is not None:
            conditions.append("place BETWEEN ? AND ?")
            values += [query.number << REVISION_BITS, query.number << REVISION_BITS | _MASK]
        if query.before is not None:
            conditions.append("place < ?")
            values.append(query.before[0] << REVISION_BITS | query.before[1])
        for key, wanted in query.filter.items():
            condition, bound = _condition(key, wanted)
            conditions.append(condition)
            values += bound
        limit = -1 if query.limit is None else query.limit
        if not labels:
            return self._all(f"{_PLACES} WHERE {' AND '.join(conditions)} ORDER BY place DESC LIMIT ?", *values, limit)
        unsure = "1" if any(type(value) is float and not value for value in labels.values()) else _HAS_NUL
        found = self._cursor.execute(
            f"SELECT place >> {REVISION_BITS}, place & {_MASK}, CASE WHEN {unsure} THEN metadata END FROM writes "
            f"WHERE {' AND '.join(conditions)} ORDER BY place DESC",
            values,
        )
        sure = (row[:2] for row in found if row[2] is None or matches(read_metadata(row[2]), labels))
        return list(itertools.islice(sure, query.limit))

    def append(self, number: int, row: Row) -> bool:
        statement = _ADD if row.revision == 1 else _ADD_AFTER
        try:
            self._cursor.execute(statement, _values(number, row))
        except sqlite3.IntegrityError:
            return False
        return True

    def replace(self, number: int, row: Row) -> None:
        place = number << REVISION_BITS | row.revision
        self._cursor.execute("UPDATE writes SET base = ?, body = ? WHERE place = ?", (row.base, row.body, place))

    def forget(self, number: int, before: int) -> None:
        place = number << REVISION_BITS
        self._cursor.execute("DELETE FROM writes WHERE place BETWEEN ? AND ?", (place, place + before - 1))

    def copy(self, source: int, target: int) -> None:
        place, moved = source << REVISION_BITS, target - source << REVISION_BITS
        self._cursor.execute(
            f"INSERT INTO writes (place, {_COLUMNS}) SELECT place + ?, {_COLUMNS} FROM writes "
            "WHERE place BETWEEN ? AND ? ORDER BY place",
            (moved, place, place | _MASK),
        )

    def delete(self, thread_id: str) -> None:
        for log in self.logs(thread_id):
            self.forget(log.number, _MASK + 1)
        self._cursor.execute("DELETE FROM logs WHERE thread_id = ? AND thread_id <> ''", (thread_id,))
        self._cursor.execute("DELETE FROM recorded WHERE thread_id = ?", (thread_id,))

    def recorded(self, thread_id: str, namespace: str, task_id: str) -> list[RecordedRow]:
        return self._recorded("thread_id = ? AND namespace = ? AND task_id = ?", thread_id, namespace, task_id)

    def all_recorded(self, thread_id: str) -> list[RecordedRow]:
        return self._recorded("thread_id = ?", thread_id)

    def _recorded(self, condition: str, *values: str) -> list[RecordedRow]:
        found = self._all(
            "SELECT namespace, task_id, key, done, value, error, questions, children FROM recorded "
            f"WHERE {condition} ORDER BY namespace, task_id, place",
            *values,
        )
        return [RecordedRow(*fields) for fields in found]

    def add_recorded(self, thread_id: str, row: RecordedRow) -> None:
        self._cursor.execute(
            "INSERT INTO recorded (thread_id, namespace, task_id, key, done, value, error, questions, children, "
            "place) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, (SELECT ifnull(max(place), 0) + 1 FROM recorded "
            "WHERE thread_id = ?1 AND namespace = ?2 AND task_id = ?3)) ON CONFLICT DO UPDATE SET "
            "done = excluded.done, value = excluded.value, error = excluded.error, questions = excluded.questions, "
            "children = excluded.children",
            (thread_id, *msgspec.structs.astuple(row)),
        )

    def remove_recorded(self, thread_id: str, namespace: str, task_id: str, key: str | None = None) -> None:
        self._cursor.execute(
            "DELETE FROM recorded WHERE thread_id = ? AND namespace = ? AND task_id = ? AND key = ifnull(?, key)",
            (thread_id, namespace, task_id, key),
        )


def _row(fields: Sequence[Any]) -> Row:
    """The row from the columns of `_SELECT`."""
    row = Row(*fields)
    if type(row.body) is not bytes or not (row.mark is None or type(row.mark) is bytes):
        raise DecodeError(f"the stored row of revision {row.revision} holds text where bytes belong")
    return row


def _values(number: int, row: Row) -> tuple[object, ...]:
    """What is bound to `_ADD`."""
    place = number << REVISION_BITS | row.revision
    times = (row.created, row.metadata, row.body)
    return (place, row.mark, row.parent, row.base, row.step, row.source, *times)


def _condition(key: str, wanted: Any) -> tuple[str, list[Any]]:
    """The condition, with bound values, that a checkpoint's source, step or metadata equals a value exactly."""
    column = _LABEL_COLUMNS.get(key)
    if column is not None:
        return (f"{key} = ?", [wanted]) if type(wanted) is column else ("0", [])
    names = {str: "text", int: "integer", float: "real", type(None): "null", list: "array", dict: "object"}
    kind = ("true" if wanted else "false") if type(wanted) is bool else names[type(wanted)]
    condition = f"({_HAS_NUL} OR EXISTS (SELECT 1 FROM json_each(metadata) j WHERE j.key = ? AND j.type = ?"
    if kind in ("true", "false", "null"):
        return condition + "))", [key, kind]
    value = msgspec.json.encode(wanted).decode() if kind in ("array", "object") else wanted
    return condition + " AND j.value = ?))", [key, kind, value]


__all__ = ["SqliteSaver"]
