"""PostgreSQL connections for a saver: lent out from a pool that no child process shares, and errors in plain words."""

from __future__ import annotations

import os
import re
import select
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from minigraph.checkpoint.postgres_schema import prepare_schema
from minigraph.errors import StorageError

Connection = psycopg.Connection[Any]
Pool = ConnectionPool[Any]

CONNECT_SECONDS: Final = 10
"""How long an attempt to connect may take where the connection string does not say."""
_WORDS: Final = {
    "22P05": "the text has characters that the encoding of the database or connection lacks; use UTF8 for both",
    "25006": "the server is a standby or the session is read-only, and a saver writes; connect to the primary",
    "3F000": "the schema is gone; it was dropped while it was in use",
    "40001": "another transaction changed the same rows; nothing of this one was stored, do it again",
    "40P01": "two transactions waited for each other; nothing of this one was stored, do it again",
    "42501": "the role lacks a privilege: it needs USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on its "
    "tables; the first set-up needs CREATE",
    "42P01": "a table is gone; it was dropped while it was in use",
    "53100": "the server's disk is full",
    "53300": "the server has no connection left; lower max_size or raise the server's max_connections",
    "55P03": "a lock was not free within lock_timeout; nothing was stored",
    "57014": "the statement was cancelled, by statement_timeout or by somebody; nothing of it was stored",
}
"""What is said of an error by its SQLSTATE."""
_abandoned: list[object] = []
"""Pools that a fork carried over from the parent process: they must be neither used nor closed here."""


class LostConnectionError(StorageError):
    """The connection ended while a statement was under way: whether it was carried out is not known."""


def translated(name: str, error: psycopg.Error, connection: Connection | None = None) -> StorageError:
    """The StorageError for an error of PostgreSQL; LostConnectionError where it ended the connection."""
    if connection is not None and connection.closed:
        return LostConnectionError(
            f"{name}: the connection was lost; whether what was under way was stored is not known, so look at the "
            f"thread before you go on ({_line(error)})"
        )
    return StorageError(f"{name}: {_WORDS.get(error.sqlstate or '', 'PostgreSQL refused')} ({_line(error)})")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


class Connections:
    """Lends the connections of a pool, each to one thread at a time, in autocommit mode and outside a transaction.

    The pool is opened, and the schema prepared, when the first connection is taken. `executor` has a thread for each
    connection.
    """

    def __init__(self, name: str, schema: str, size: int, opened: Callable[[], Pool], *, owned: bool) -> None:
        self.name, self.schema, self.size = name, schema, size
        self._opened, self._owned = opened, owned
        self._pool: Pool | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._autocommit = True
        self._lock, self._brief = threading.Lock(), threading.Lock()
        """The first is held while the server is reached and the schema prepared, which may take long."""
        self._closed = self._forked = False
        _known.add(self)

    def take(self) -> Connection:
        """A connection that nobody else has until it is given back; StorageError if none is to be had."""
        self._check_open()
        pool = self._pool or self._start()
        while True:
            connection = self._lent(pool)
            if not connection.closed:
                connection.autocommit = True
                if not _was_dropped(connection):
                    return connection
            pool.putconn(connection)

    def give_back(self, connection: Connection) -> None:
        """Ends what `take` began; a transaction that is still open is taken back."""
        if self._pool is None:  # a fork within a transaction
            _abandoned.append(connection)
            return
        _end(connection)
        if not self._autocommit and not connection.closed:
            connection.autocommit = False
        self._pool.putconn(connection)

    def close(self) -> None:
        """Waits for the threads and closes the pool if the saver opened it; a given one stays open."""
        with self._brief:
            self._closed = True
            executor = self._executor
        if executor is not None:
            executor.shutdown()
        with self._lock:
            pool = self._pool
        if pool is not None and self._owned:
            pool.close()

    def executor(self) -> ThreadPoolExecutor:
        """Threads for calls that must not wait for anything but a connection."""
        with self._brief:
            self._check_open()
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self.size, thread_name_prefix="minigraph-postgres")
            return self._executor

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError(f"{self.name}: the saver was closed")

    def _lent(self, pool: Pool) -> Connection:
        try:
            connection: Connection = pool.getconn()
        except PoolClosed as error:
            raise StorageError(f"{self.name}: the pool is not open ({error})") from error
        except PoolTimeout as error:
            raise StorageError(
                f"{self.name}: no connection was free within {pool.timeout:g} seconds: all {self.size} are at work "
                f"(raise max_size), or the server cannot be reached ({error})"
            ) from error
        return connection

    def _start(self) -> Pool:
        with self._lock:
            if self._forked:
                raise StorageError(
                    f"{self.name}: the pool was made in another process and cannot be used after a fork; give the "
                    "saver a connection string instead"
                )
            self._check_open()
            if self._pool is None:
                pool = self._opened()
                try:
                    self._prepare(pool)
                except BaseException:
                    if self._owned:
                        pool.close()
                    raise
                self._pool = pool
            return self._pool

    def _prepare(self, pool: Pool) -> None:
        connection = self._lent(pool)
        try:
            self._autocommit = connection.autocommit
            connection.autocommit = True
            prepare_schema(connection, self.name, self.schema)
        except psycopg.Error as error:
            raise translated(self.name, error) from error
        finally:
            _end(connection)
            if not connection.closed:
                connection.autocommit = self._autocommit
            pool.putconn(connection)

    def after_fork(self) -> None:
        """In a child process: forgets what belongs to the parent."""
        if self._pool is not None:
            _abandoned.append(self._pool)
        self._pool, self._executor = None, None
        self._lock, self._brief = threading.Lock(), threading.Lock()
        self._forked = not self._owned


_known: weakref.WeakSet[Connections] = weakref.WeakSet()


def connections(
    database: str | Pool,
    schema: str,
    *,
    sizes: tuple[int, int],
    timeout: float,
    prepare_threshold: int | None,
) -> Connections:
    """The connections for what a saver was given; ValueError for a connection string that cannot be read."""
    if isinstance(database, ConnectionPool):
        name = f"PostgreSQL schema {schema!r} of the given pool"
        return Connections(name, schema, database.max_size or sizes[1], lambda: database, owned=False)
    if not isinstance(database, str):
        raise TypeError(
            f"PostgresSaver({type(database).__name__}): a connection string, or a psycopg_pool.ConnectionPool (the "
            "async methods use its connections as well, in threads)"
        )
    if not 0 <= sizes[0] <= sizes[1] or not sizes[1]:
        raise ValueError(f"min_size={sizes[0]}, max_size={sizes[1]}: at least one connection, and min_size of them")
    parsed = _read(database)
    host = f"{parsed.get('host') or 'the local server'}" + (f":{parsed['port']}" if parsed.get("port") else "")
    name = f"PostgreSQL schema {schema!r} in {parsed.get('dbname') or 'the default database'} on {host}"
    options: dict[str, Any] = {
        "autocommit": True,
        "prepare_threshold": prepare_threshold,
        "client_encoding": "UTF8",
        "connect_timeout": parsed.get("connect_timeout") or CONNECT_SECONDS,
        "fallback_application_name": "minigraph",
    }

    def opened() -> Pool:
        """A first connection apart from the pool says at once what is wrong; the pool would only try again."""
        try:
            psycopg.connect(database, **options).close()
        except psycopg.Error as error:
            raise StorageError(f"{name}: it cannot be reached, or refused the log-in ({_line(error)})") from error
        least, most = sizes
        return ConnectionPool(
            database, kwargs=options, min_size=least, max_size=most, timeout=timeout, open=True, name="minigraph"
        )

    return Connections(name, schema, sizes[1], opened, owned=True)


def _read(conninfo: str) -> dict[str, Any]:
    """The parts of a connection string. What libpq says of a wrong one may quote the password, so it is not shown."""
    try:
        parsed = None if _has_stray_at_sign(conninfo) else conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        parsed = None
    if parsed is None:
        raise ValueError(
            "the connection string cannot be read (it is not shown, for it may hold a password): write it as "
            "'postgresql://user:password@host:port/database' with '@', ':', '/', '?' and '%' of the password as %40, "
            "%3A, %2F, %3F and %25, or as 'host=... dbname=... user=... password=...'"
        )
    return dict(parsed)


def _has_stray_at_sign(conninfo: str) -> bool:
    """Whether a URI has an '@' that can only be a password's: a part of it would be taken for a host or database."""
    found = re.match(r"postgres(?:ql)?://([^/?]*)([^?]*)", conninfo)
    return found is not None and (found[1].count("@") > 1 or "@" in found[2])


def _end(connection: Connection) -> None:
    """Takes back a transaction that is still open; closes a connection on which that fails."""
    if connection.pgconn.transaction_status != TransactionStatus.IDLE:
        try:
            connection.rollback()
        except psycopg.Error:
            connection.close()


def _was_dropped(connection: Connection) -> bool:
    """Whether the server ended a connection that nobody used. It looks at the socket and asks only if that has news."""
    if not _has_news(connection.fileno()):
        return False
    try:
        connection.execute("")
    except psycopg.OperationalError:
        connection.close()
    return connection.closed


def _has_news(socket: int) -> bool:
    if not hasattr(select, "poll"):
        return bool(select.select([socket], [], [], 0)[0])
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return bool(poll.poll(0))


def _after_fork() -> None:
    for each in list(_known):
        each.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
