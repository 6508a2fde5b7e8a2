"""SQLite connections for a saver: opening a file safely, lending connections out, and errors in plain words."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from minigraph.errors import StorageError

APPLICATION_ID: Final = 0x6D677068
"""Marks a file as one of ours in its header (the letters "mgph")."""
SCHEMA_VERSION: Final = 2

SCHEMA: Final = """
CREATE TABLE checkpoints (
    sequence      INTEGER PRIMARY KEY,  -- the order in which checkpoints were stored
    thread_id     TEXT NOT NULL,
    namespace     TEXT NOT NULL,        -- "" for the graph itself, otherwise the place of a child graph
    checkpoint_id TEXT NOT NULL,
    parent_id     TEXT,                 -- the checkpoint it came from, NULL for the first
    step          INTEGER NOT NULL,
    source        TEXT NOT NULL,        -- input, loop, update or fork
    created_at    TEXT NOT NULL,        -- ISO 8601, a label only
    metadata      TEXT,                 -- JSON, NULL if there is none
    base          INTEGER,              -- the row whose state `changes` are applied to, NULL: they are the whole state
    chain_rows    INTEGER NOT NULL,     -- rows that a read of this state takes
    chain_links   INTEGER NOT NULL,     -- rows since the last one that was whole or spanned several steps
    chain_bytes   INTEGER NOT NULL,     -- bytes that a read of this state takes
    state_bytes   INTEGER NOT NULL,     -- bytes of the state itself, about
    body          BLOB NOT NULL,        -- MessagePack: due tasks, nodes that ran, deferred nodes, joins, owner
    changes       BLOB NOT NULL         -- MessagePack: what each key became
);
CREATE UNIQUE INDEX checkpoint_ids ON checkpoints (thread_id, namespace, checkpoint_id);
CREATE TABLE heads (
    thread_id     TEXT NOT NULL,
    namespace     TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,        -- where the thread stands
    sequence      INTEGER NOT NULL,     -- the row of that checkpoint
    revision      INTEGER NOT NULL,     -- grows by one with each write
    PRIMARY KEY (thread_id, namespace)
) WITHOUT ROWID;
CREATE TABLE results (
    sequence      INTEGER NOT NULL,     -- the checkpoint that listed the task
    task_id       TEXT NOT NULL,
    thread_id     TEXT NOT NULL,
    child         INTEGER,              -- the checkpoint whose state holds the values, if the body refers to it
    body          BLOB NOT NULL,        -- MessagePack: finished, paused or failed, and what belongs to it
    PRIMARY KEY (sequence, task_id)
) WITHOUT ROWID;
"""

RECORDED: Final = """
CREATE TABLE recorded (
    thread_id     TEXT NOT NULL,
    namespace     TEXT NOT NULL,
    task_id       TEXT NOT NULL,        -- for a child graph that stores nothing: its caller's, and the way down
    key           TEXT NOT NULL,        -- the key of the once() call
    done          INTEGER NOT NULL,     -- 0: it began, and whether it did anything is not known
    value         BLOB NOT NULL,        -- MessagePack: its result
    error         TEXT NOT NULL,        -- the exception that ended it, "" where none is known
    questions     INTEGER NOT NULL,     -- how many questions of the task came before it
    children      INTEGER NOT NULL,     -- how many calls of child graphs came before it
    UNIQUE (thread_id, namespace, task_id, key)
);
"""

UPGRADE: Final = "DROP TABLE recorded;\n" + RECORDED
"""From version 1, which never wrote into that table."""

_abandoned: list[sqlite3.Connection] = []
"""Connections that a fork carried over from the parent process: they must be neither used nor closed here."""


@contextmanager
def in_words(name: str) -> Iterator[None]:
    """Turns SQLite's errors into StorageErrors that name the file and say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise translated(name, error) from error


def translated(name: str, error: sqlite3.Error) -> StorageError:
    """The StorageError for an error of SQLite."""
    code = getattr(error, "sqlite_errorname", "") or ""
    if code.startswith("SQLITE_NOTADB"):
        text = "it is no SQLite database; give the path of a new file or of one that a saver made"
    elif code.startswith("SQLITE_CORRUPT"):
        text = "the file is damaged; restore it from a copy (`sqlite3 FILE .recover` may save some of it)"
    elif code.startswith("SQLITE_READONLY"):
        text = "the file or its folder is read-only; a saver writes to the file and makes two more beside it"
    elif code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        text = "another connection kept it locked for the whole time-out; keep transactions short or raise `timeout`"
    elif code.startswith("SQLITE_CANTOPEN"):
        text = "it cannot be opened; the folder must exist and be writable"
    elif code.startswith("SQLITE_FULL"):
        text = "the disk is full"
    elif "same thread" in str(error):
        text = "the connection is used from several threads; open it with check_same_thread=False or give a path"
    elif "within a transaction" in str(error):
        text = "the connection has a transaction of its own open; end it first, or give the saver a path"
    else:
        text = "SQLite refused"
    return StorageError(f"SQLite database {name}: {text} ({error})")


class Pool:
    """Connections to one file: each is used by one thread at a time and kept for the next."""

    def __init__(self, path: str, timeout: float) -> None:
        self.name = path
        self._timeout = timeout
        self._idle: deque[sqlite3.Connection] = deque()
        self._process = os.getpid()
        self._closed = False
        self._idle.append(self._open(prepare=True))

    @contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        """A connection for the length of a with block."""
        connection = self._take()
        try:
            yield connection
        finally:
            if self._closed:
                connection.close()
            else:
                self._idle.append(connection)

    def close(self) -> None:
        """Closes what is idle now, and what is lent out when it comes back."""
        self._closed = True
        while self._idle and self._process == os.getpid():
            self._idle.pop().close()

    def _take(self) -> sqlite3.Connection:
        if self._closed:
            raise StorageError(f"SQLite database {self.name}: the saver was closed")
        if self._process != os.getpid():
            _abandoned.extend(self._idle)
            self._idle, self._process = deque(), os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return self._open(prepare=False)

    def _open(self, *, prepare: bool) -> sqlite3.Connection:
        deadline = time.monotonic() + self._timeout
        with in_words(self.name):
            connection = sqlite3.connect(
                self.name, timeout=self._timeout, isolation_level=None, check_same_thread=False
            )
            try:
                if prepare:
                    _patiently(deadline, lambda: prepare_schema(connection, self.name))
                    _patiently(deadline, lambda: _use_write_ahead_log(connection))
                connection.execute("PRAGMA synchronous = NORMAL")
            except BaseException:
                connection.close()
                raise
        return connection


class Single:
    """One connection that somebody gave us, or a database that lives in memory: one lock around it."""

    def __init__(self, connection: sqlite3.Connection, *, owned: bool) -> None:
        self.name = "of the given connection" if not owned else "in memory"
        self._connection = connection
        self._owned = owned
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._closed = False
        with in_words(self.name):
            prepare_schema(connection, self.name)

    @contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        """The connection, while nobody else has it."""
        if self._process != os.getpid():
            raise StorageError(
                f"SQLite database {self.name}: the connection was opened in another process and cannot be used after "
                "a fork; give the saver a path instead"
            )
        with self._lock:
            if self._closed:
                raise StorageError(f"SQLite database {self.name}: the saver was closed")
            yield self._connection

    def close(self) -> None:
        """Closes the connection if the saver opened it; a given one stays open."""
        with self._lock:
            self._closed = True
            if self._owned:
                self._connection.close()


def connections(database: sqlite3.Connection | str | os.PathLike[str], timeout: float) -> Pool | Single:
    """The connections for what a saver was given."""
    if isinstance(database, sqlite3.Connection):
        return Single(database, owned=False)
    path = os.fspath(database)
    if path in ("", ":memory:"):
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        return Single(connection, owned=True)
    return Pool(str(Path(path).absolute()), timeout)


def _patiently(deadline: float, action: object) -> None:
    """Repeats what fails because another connection is setting the file up; SQLite does not always wait by itself."""
    assert callable(action)
    while True:
        try:
            action()
            return
        except sqlite3.OperationalError as error:
            busy = (getattr(error, "sqlite_errorname", "") or "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode != "wal":
        connection.execute("PRAGMA journal_mode = WAL").fetchone()


def prepare_schema(connection: sqlite3.Connection, name: str) -> None:
    """Makes the tables in an empty database; StorageError for one that is foreign or newer than this release."""
    with _transaction(connection, "BEGIN"):
        ready = _is_ready(connection, name)
    if ready:
        return
    with _transaction(connection, "BEGIN IMMEDIATE"):
        if not _is_ready(connection, name):
            older = connection.execute("PRAGMA user_version").fetchone()[0]
            script = UPGRADE if older else SCHEMA + RECORDED
            for statement in script.split(";\n"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION:d}")


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _is_ready(connection: sqlite3.Connection, name: str) -> bool:
    cursor = connection.cursor()
    cursor.row_factory = None
    (application,) = cursor.execute("PRAGMA application_id").fetchone()
    (version,) = cursor.execute("PRAGMA user_version").fetchone()
    if application == APPLICATION_ID:
        if version > SCHEMA_VERSION:
            raise StorageError(
                f"SQLite database {name}: its tables have version {version}, this release knows {SCHEMA_VERSION}; "
                "a newer release wrote it, so open it with that one"
            )
        return bool(version == SCHEMA_VERSION)
    (count,) = cursor.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application or version or count:
        raise StorageError(
            f"SQLite database {name}: it belongs to something else (application id {application}, version {version}, "
            f"{count} tables and indexes); give the saver a file of its own"
        )
    return False
