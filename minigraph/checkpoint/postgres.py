"""A saver that keeps threads in PostgreSQL, so that workers on many machines share them.

The tables (see `postgres_schema.SCHEMA` for every column) are those of a SQLite file: `logs`, one row for each thread
and namespace; `writes`, one row for each write to a log; `recorded`, the `once()` calls of tasks. The view
`checkpoints` shows them by hand:

    SELECT thread_id, step, source, created_at FROM minigraph.checkpoints ORDER BY thread_id, namespace, revision;

A row of `writes` is found by its log's number and its revision. That revision + 1 is free is what a write claims: one
INSERT, in one round trip and as a transaction of its own, is a step.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar

import psycopg
from psycopg_pool import ConnectionPool

from minigraph.checkpoint.base import to_its_end
from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.postgres_connections import Connections, LostConnectionError, connections, translated
from minigraph.checkpoint.postgres_schema import checked_name
from minigraph.checkpoint.postgres_tables import PostgresTables
from minigraph.checkpoint.saver import TableSaver, find
from minigraph.checkpoint.tables import End, Row, Tables
from minigraph.errors import StorageError
from minigraph.records import Write

P = ParamSpec("P")
T = TypeVar("T")

_READ: Final = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED"
_FLUSH: Final = (
    b"BEGIN ISOLATION LEVEL READ COMMITTED; SELECT set_config('synchronous_commit', 'on', true) "
    b"WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')"
)
"""A commit then waits for the disk, of a synchronous standby too, whatever the session's setting is."""


class PostgresSaver(TableSaver):
    """Stores threads in a schema of a PostgreSQL database: a connection string, or a `ConnectionPool` of your own.

    The schema and its tables are made on first use (or by `setup()`); many workers may start at once. With a
    connection string the saver has a pool of `min_size` to `max_size` connections, also after a fork, and a call waits
    up to `timeout` seconds for a free one. `prepare_threshold` is psycopg's: None prepares no statement, for poolers
    that cannot. A given pool is used as it is and stays open. With a `time_to_live`, threads that nobody wrote to for
    so long and that have nothing due are deleted as new ones begin. Classes that the schema of a graph does not name
    must be registered before they are read. Use it in a `with` block or call `close()`.

    ValueError for a connection string that cannot be read, or a schema's name with odd characters.
    """

    def __init__(
        self,
        database: str | ConnectionPool[Any],
        *,
        schema: str = "minigraph",
        min_size: int = 1,
        max_size: int = 8,
        timeout: float = 30.0,
        prepare_threshold: int | None = 5,
        time_to_live: timedelta | None = None,
    ) -> None:
        super().__init__(Codec(), time_to_live)
        self._connections: Connections = connections(
            database,
            checked_name(schema),
            sizes=(min_size, max_size),
            timeout=timeout,
            prepare_threshold=prepare_threshold,
        )

    @classmethod
    def from_conn_string(cls, conninfo: str, *, schema: str = "minigraph") -> PostgresSaver:
        """The saver for a connection string, for use in a `with` block."""
        return cls(conninfo, schema=schema)

    def __enter__(self) -> PostgresSaver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def setup(self) -> None:
        """Makes the schema and its tables if they are not there, which otherwise happens on first use."""
        self._connections.give_back(self._connections.take())

    def close(self) -> None:
        """Waits for the async calls under way and closes the pool that the saver opened. Closing twice is fine."""
        self._connections.close()

    def put(self, write: Write) -> int:
        """Stores everything of `write` in one transaction and returns the new revision.

        Raises ThreadConflictError, storing nothing, if the head's revision is not `write.revision`. Where the
        connection is lost meanwhile, it looks with another one whether the write was stored.
        """
        try:
            return super().put(write)
        except LostConnectionError as lost:
            try:
                stored = self._was_stored(write)
            except StorageError as unreachable:
                raise lost from unreachable
            if not stored:
                raise
        return write.end

    def _was_stored(self, write: Write) -> bool:
        """Whether the last checkpoint of a write is there, which the random half of its id tells from any other."""
        if not write.checkpoints:
            return False
        with self._reading() as tables:
            log = tables.log(write.thread_id, write.namespace)
            return log is not None and find(tables, log.number, write.checkpoints[-1].checkpoint.id) is not None

    def _reading(self) -> _Transaction:
        return _Transaction(self._connections, _READ)

    def _writing(self) -> _Transaction:
        return _Transaction(self._connections, _WRITE)

    def _lasting(self) -> _Transaction:
        return _Transaction(self._connections, _FLUSH)

    def _end(self, thread_id: str, namespace: str) -> End | None:
        connection = self._connections.take()
        try:
            return PostgresTables(connection, self._connections.schema, lock=False).end(thread_id, namespace)
        except psycopg.Error as error:
            raise translated(self._connections.name, error, connection) from error
        finally:
            self._connections.give_back(connection)

    def _append(self, number: int, row: Row) -> bool:
        connection = self._connections.take()
        try:
            return PostgresTables(connection, self._connections.schema, lock=False).append(number, row)
        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
            return False
        except psycopg.Error as error:
            raise translated(self._connections.name, error, connection) from error
        finally:
            self._connections.give_back(connection)

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a method in a thread of the saver's own: as many as connections, and never behind slow nodes."""
        call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
        return await to_its_end(asyncio.get_running_loop().run_in_executor(self._connections.executor(), call))


class _Transaction:
    """A with block that is one transaction: committed at its end, taken back when an error leaves it."""

    __slots__ = ("_begin", "_connection", "_connections")

    def __init__(self, lender: Connections, begin: bytes) -> None:
        self._connections, self._begin = lender, begin

    def __enter__(self) -> Tables:
        self._connection = self._connections.take()
        try:
            self._connection.execute(self._begin, prepare=False)
            return PostgresTables(self._connection, self._connections.schema, lock=self._begin is not _READ)
        except BaseException as error:
            self._connections.give_back(self._connection)
            if isinstance(error, psycopg.Error):
                raise translated(self._connections.name, error, self._connection) from error
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None and self._connection.execute(b"COMMIT").statusmessage != "COMMIT":
                raise StorageError(f"{self._connections.name}: the transaction had failed and was taken back")
        except psycopg.Error as refused:
            error = refused
        finally:
            self._connections.give_back(self._connection)
        if isinstance(error, psycopg.Error):
            raise translated(self._connections.name, error, self._connection) from error


__all__ = ["PostgresSaver"]
