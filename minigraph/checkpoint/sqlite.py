"""A saver that keeps threads in one SQLite file, which any SQLite tool can open.

Tables (see `connections.SCHEMA` for every column): `checkpoints`, one row for each state a thread went through;
`heads`, where each thread and namespace stands; `results`, what the tasks of a checkpoint gave; `recorded`, the
`once()` calls of tasks. Text, numbers and metadata are readable as they are; values are MessagePack:

    SELECT thread_id, step, source, created_at, length(changes) FROM checkpoints ORDER BY sequence;
    SELECT thread_id, checkpoint_id, revision FROM heads;

A state is stored as what changed since `base`. `chain_rows` and `chain_bytes` say what reading it takes, and stay
near the size of the state itself.

A file is used in write-ahead-log mode with synchronous=NORMAL: readers never wait for a writer, a write costs no disk
flush, and a killed process loses nothing that was saved. A power cut may lose the last writes, never the file: who
needs those as well gives the saver a connection with `PRAGMA synchronous = FULL`, at one disk flush a step. That a
`once()` call begins is always flushed, since what it does to the world would otherwise be done again.
"""

from __future__ import annotations

import os
import sqlite3
from types import TracebackType
from typing import Any, Final

import msgspec

from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.connections import Pool, Single, connections, translated
from minigraph.checkpoint.rows import AncestorRow, Chain, CheckpointRow, ResultRow
from minigraph.checkpoint.saver import TableSaver
from minigraph.checkpoint.tables import Head, Query, RecordedRow, Tables, duplicate
from minigraph.errors import DecodeError

_ROW = (
    "sequence, thread_id, namespace, checkpoint_id, parent_id, step, source, created_at, metadata, body, changes, "
    "base, chain_rows, chain_links, chain_bytes, state_bytes"
)
_FULL: Final = 2
"""The level of `PRAGMA synchronous` at which a commit waits for the disk."""


class SqliteSaver(TableSaver):
    """Stores threads in a SQLite database: a path, ":memory:" or a connection of your own.

    With a path every thread of the program gets a connection of its own, also after a fork, and several processes may
    share the file; `timeout` is how many seconds a write waits for another one. A given connection is used as it is,
    by one thread at a time, and must not have a transaction open. Classes that the schema of a graph does not name
    must be registered before they are read. Use it in a `with` block or call `close()`.
    """

    def __init__(self, database: sqlite3.Connection | str | os.PathLike[str], *, timeout: float = 30.0) -> None:
        super().__init__(Codec())
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


class _Transaction:
    """A with block that is one transaction: committed at its end, taken back when an error leaves it.

    With `flush` the commit waits until the disk has it, and all that was committed before.
    """

    __slots__ = ("_begin", "_connection", "_connections", "_flush", "_lent", "_usual")

    def __init__(self, lender: Pool | Single, begin: str, *, flush: bool = False) -> None:
        self._connections, self._begin, self._flush = lender, begin, flush
        self._usual = _FULL

    def __enter__(self) -> Tables:
        self._lent = self._connections.lend()
        self._connection = connection = self._lent.__enter__()
        try:
            if self._flush:
                self._usual = connection.execute("PRAGMA synchronous").fetchone()[0]
                if self._usual < _FULL:
                    connection.execute(f"PRAGMA synchronous = {_FULL}")
            connection.execute(self._begin)
            cursor = connection.cursor()
        except BaseException as error:
            self._lent.__exit__(None, None, None)
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
                self._lent.__exit__(None, None, None)
        if isinstance(error, sqlite3.Error):
            raise translated(self._connections.name, error) from error


class _SqliteTables:
    """The rows of a database, through one cursor inside one transaction."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    def _all(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return self._cursor.execute(statement, values).fetchall()

    def head(self, thread_id: str, namespace: str) -> Head | None:
        found = self._cursor.execute(
            "SELECT h.checkpoint_id, h.revision, c.sequence, c.chain_links, c.chain_rows, c.chain_bytes, c.state_bytes "
            "FROM heads h JOIN checkpoints c ON c.sequence = h.sequence WHERE h.thread_id = ? AND h.namespace = ?",
            (thread_id, namespace),
        ).fetchone()
        return None if found is None else Head(found[0], found[1], Chain(*found[2:]))

    def find(self, thread_id: str, namespace: str, checkpoint_id: str) -> CheckpointRow | None:
        return self._row("thread_id = ? AND namespace = ? AND checkpoint_id = ?", thread_id, namespace, checkpoint_id)

    def at(self, sequence: int) -> CheckpointRow | None:
        return self._row("sequence = ?", sequence)

    def _row(self, condition: str, *values: object) -> CheckpointRow | None:
        found = self._cursor.execute(f"SELECT {_ROW} FROM checkpoints WHERE {condition}", values).fetchone()
        if found is None:
            return None
        if type(found[9]) is not bytes or type(found[10]) is not bytes:
            raise DecodeError(f"the stored checkpoint {found[3]!r} holds text where bytes belong")
        return CheckpointRow(*found)

    def chain(self, row: CheckpointRow) -> list[bytes]:
        if row.base is None:
            return [row.changes]
        found = self._all(
            "WITH RECURSIVE chain (sequence, base) AS (SELECT sequence, base FROM checkpoints WHERE sequence = ? "
            "UNION ALL SELECT c.sequence, c.base FROM chain JOIN checkpoints c "
            "ON c.sequence = chain.base AND c.sequence < chain.sequence) "
            "SELECT c.base, c.changes FROM chain JOIN checkpoints c ON c.sequence = chain.sequence "
            "ORDER BY chain.sequence",
            row.sequence,
        )
        if found[0][0] is not None:
            raise DecodeError(f"the row that the stored checkpoint {row.checkpoint_id!r} builds on is missing")
        return [changes for _, changes in found]

    def links(self, sequence: int) -> tuple[int, list[bytes]]:
        found = self._all(
            "WITH RECURSIVE run (sequence, base, links) AS "
            "(SELECT sequence, base, chain_links FROM checkpoints WHERE sequence = ? "
            "UNION ALL SELECT c.sequence, c.base, c.chain_links FROM run JOIN checkpoints c "
            "ON c.sequence = run.base AND c.sequence < run.sequence WHERE run.links > 0) "
            "SELECT c.sequence, c.changes FROM run JOIN checkpoints c ON c.sequence = run.sequence "
            "ORDER BY run.sequence",
            sequence,
        )
        return found[0][0], [changes for _, changes in found[1:]]

    def matching(self, query: Query) -> list[int]:
        conditions, values = ["1"], []
        for column in ("thread_id", "namespace", "checkpoint_id"):
            if (wanted := getattr(query, column)) is not None:
                conditions.append(f"{column} = ?")
                values.append(wanted)
        if query.before is not None:
            conditions.append("sequence < ?")
            values.append(query.before)
        for key, wanted in query.filter.items():
            condition, bound = _condition(key, wanted)
            conditions.append(condition)
            values += bound
        where = " AND ".join(conditions)
        found = self._all(f"SELECT sequence FROM checkpoints c WHERE {where} ORDER BY sequence DESC", *values)
        return [sequence for (sequence,) in found]

    def lineage(self, thread_id: str, namespace: str, checkpoint_id: str) -> list[AncestorRow]:
        place = (thread_id, namespace)
        found = self._all(
            "WITH RECURSIVE line (sequence, parent_id) AS (SELECT sequence, parent_id FROM checkpoints "
            "WHERE thread_id = ? AND namespace = ? AND checkpoint_id = ? "
            "UNION ALL SELECT c.sequence, c.parent_id FROM line JOIN checkpoints c ON c.thread_id = ? "
            "AND c.namespace = ? AND c.checkpoint_id = line.parent_id AND c.sequence < line.sequence) "
            "SELECT c.checkpoint_id, c.step, c.source, c.body FROM line JOIN checkpoints c "
            "ON c.sequence = line.sequence ORDER BY line.sequence DESC",
            *place,
            checkpoint_id,
            *place,
        )
        return [AncestorRow(*fields) for fields in found]

    def results(self, sequence: int) -> list[ResultRow]:
        found = self._all("SELECT sequence, task_id, child, body FROM results WHERE sequence = ?", sequence)
        return [ResultRow(*fields) for fields in found]

    def recorded(self, thread_id: str, namespace: str, task_id: str) -> list[RecordedRow]:
        return self._recorded("thread_id = ? AND namespace = ? AND task_id = ?", thread_id, namespace, task_id)

    def all_recorded(self, thread_id: str) -> list[RecordedRow]:
        return self._recorded("thread_id = ?", thread_id)

    def _recorded(self, condition: str, *values: str) -> list[RecordedRow]:
        found = self._all(
            "SELECT namespace, task_id, key, done, value, error, questions, children FROM recorded "
            f"WHERE {condition} ORDER BY rowid",
            *values,
        )
        return [RecordedRow(*fields) for fields in found]

    def namespaces(self, thread_id: str) -> list[str]:
        found = self._all("SELECT namespace FROM heads WHERE thread_id = ? ORDER BY namespace", thread_id)
        return [namespace for (namespace,) in found]

    def holds(self, thread_id: str) -> bool:
        heads = self._all("SELECT 1 FROM heads WHERE thread_id = ? LIMIT 1", thread_id)
        return bool(heads or self._all("SELECT 1 FROM recorded WHERE thread_id = ? LIMIT 1", thread_id))

    def add(self, row: CheckpointRow) -> int:
        values = msgspec.structs.astuple(row)[1:]
        try:
            self._cursor.execute(
                f"INSERT INTO checkpoints ({_ROW}) VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values
            )
        except sqlite3.IntegrityError:
            raise duplicate(row.thread_id, row.checkpoint_id) from None
        sequence = self._cursor.lastrowid
        assert sequence is not None
        return sequence

    def add_result(self, thread_id: str, row: ResultRow) -> None:
        self._cursor.execute(
            "INSERT OR REPLACE INTO results (sequence, task_id, thread_id, child, body) VALUES (?, ?, ?, ?, ?)",
            (row.sequence, row.task_id, thread_id, row.child, row.body),
        )

    def remove_result(self, sequence: int, task_id: str) -> None:
        self._cursor.execute("DELETE FROM results WHERE sequence = ? AND task_id = ?", (sequence, task_id))

    def set_head(self, thread_id: str, namespace: str, checkpoint_id: str, sequence: int, revision: int) -> None:
        self._cursor.execute(
            "INSERT OR REPLACE INTO heads (thread_id, namespace, checkpoint_id, sequence, revision) "
            "VALUES (?, ?, ?, ?, ?)",
            (thread_id, namespace, checkpoint_id, sequence, revision),
        )

    def add_recorded(self, thread_id: str, row: RecordedRow) -> None:
        self._cursor.execute(
            "INSERT INTO recorded (thread_id, namespace, task_id, key, done, value, error, questions, children) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET done = excluded.done, "
            "value = excluded.value, error = excluded.error, questions = excluded.questions, "
            "children = excluded.children",
            (thread_id, *msgspec.structs.astuple(row)),
        )

    def remove_recorded(self, thread_id: str, namespace: str, task_id: str, key: str | None = None) -> None:
        self._cursor.execute(
            "DELETE FROM recorded WHERE thread_id = ? AND namespace = ? AND task_id = ? AND key = ifnull(?, key)",
            (thread_id, namespace, task_id, key),
        )

    def delete(self, thread_id: str) -> None:
        self._cursor.execute(
            "DELETE FROM results WHERE sequence IN (SELECT sequence FROM checkpoints WHERE thread_id = ?)", (thread_id,)
        )
        for table in ("checkpoints", "heads", "recorded"):
            self._cursor.execute(f"DELETE FROM {table} WHERE thread_id = ?", (thread_id,))

    def replace(self, row: CheckpointRow) -> None:
        self._cursor.execute(
            "UPDATE checkpoints SET base = ?, chain_rows = ?, chain_links = ?, chain_bytes = ?, changes = ? "
            "WHERE sequence = ?",
            (row.base, row.rows, row.links, row.chain_bytes, row.changes, row.sequence),
        )

    def forget(self, thread_id: str, namespace: str, before: int) -> None:
        place = (thread_id, namespace, before)
        gone = "FROM checkpoints WHERE thread_id = ? AND namespace = ? AND sequence < ?"
        self._cursor.execute(f"DELETE FROM results WHERE sequence IN (SELECT sequence {gone})", place)
        self._cursor.execute(f"DELETE {gone}", place)


def _condition(key: str, wanted: Any) -> tuple[str, list[Any]]:
    """The condition, with bound values, that a checkpoint's source, step or metadata equals a value exactly."""
    column = {"source": str, "step": int}.get(key)
    if column is not None:
        return (f"{key} = ?", [wanted]) if type(wanted) is column else ("0", [])
    names = {str: "text", int: "integer", float: "real", type(None): "null", list: "array", dict: "object"}
    kind = ("true" if wanted else "false") if type(wanted) is bool else names[type(wanted)]
    condition = "EXISTS (SELECT 1 FROM json_each(c.metadata) j WHERE j.key = ? AND j.type = ?"
    if kind in ("true", "false", "null"):
        return condition + ")", [key, kind]
    value = msgspec.json.encode(wanted).decode() if kind in ("array", "object") else wanted
    return condition + " AND j.value = ?)", [key, kind, value]


__all__ = ["SqliteSaver"]
