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

from minigraph.checkpoint.schema import prepare_schema
from minigraph.errors import StorageError

_abandoned: list[sqlite3.Connection] = []
"""Connections that a fork carried over from the parent process: they must be neither used nor closed here."""
_process: object = object()
"""What stands for this process: another one after a fork."""


def _forked() -> None:
    global _process
    _process = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


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
        text = "the disk is full; make room and go on, what was stored is still there"
    elif code.startswith("SQLITE_IOERR"):
        text = "the system could not read or write it; look for a limit on the size of files, a quota, a failing disk"
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
        self._process = _process
        self._closed = False
        self._idle.append(self._open(prepare=True))

    def give_back(self, connection: sqlite3.Connection) -> None:
        """Ends what `take` began."""
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)

    def close(self) -> None:
        """Closes what is idle now, and what is lent out when it comes back."""
        self._closed = True
        while self._idle and self._process is _process:
            self._idle.pop().close()

    def take(self) -> sqlite3.Connection:
        """A connection that nobody else has until it is given back."""
        if self._closed:
            raise StorageError(f"SQLite database {self.name}: the saver was closed")
        if self._process is not _process:
            _abandoned.extend(self._idle)
            self._idle, self._process = deque(), _process
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
        self._process = _process
        self._closed = False
        with in_words(self.name):
            prepare_schema(connection, self.name)

    def take(self) -> sqlite3.Connection:
        """The connection, which nobody else has until it is given back."""
        if self._process is not _process:
            raise StorageError(
                f"SQLite database {self.name}: the connection was opened in another process and cannot be used after "
                "a fork; give the saver a path instead"
            )
        self._lock.acquire()
        if self._closed:
            self._lock.release()
            raise StorageError(f"SQLite database {self.name}: the saver was closed")
        return self._connection

    def give_back(self, connection: sqlite3.Connection) -> None:
        """Ends what `take` began."""
        self._lock.release()

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
