"""One SQLite file shared by threads and processes: short transactions, clear errors, one place that closes it."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from tools.errors import StorageBusyError, ToolStorageError

BUSY_SECONDS: Final = 5.0
"""How long a writer waits for another one before ``StorageBusyError``."""

_BUSY_CODES: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class Database:
    """An open file with the tables this object was told to expect.

    Missing tables are made; a table of the same name with other columns, a damaged file or one that is no SQLite
    file is a ``ToolStorageError``. ``upgrade`` is called first, in a transaction of its own, and may bring tables of
    an earlier release into their new form. One connection is used by all threads, one at a time. Close it, or use
    ``with``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Sequence[str],
        tables: Mapping[str, Sequence[str]],
        upgrade: Callable[[sqlite3.Connection], None] | None = None,
    ) -> None:
        self.path: Final = os.fspath(path)
        self._lock = threading.RLock()
        with self._errors():
            self._connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            with self._errors():
                self._connection.row_factory = sqlite3.Row
                self._connection.execute("PRAGMA synchronous = FULL")
            if upgrade is not None:
                with self.transaction() as connection:
                    upgrade(connection)
            with self._errors():
                self._check_tables(tables)
                self._use_write_ahead_log()
            with self.transaction() as connection:
                for statement in schema:
                    connection.execute(statement)
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """The connection, for reading; other threads wait."""
        with self._lock, self._errors():
            yield self._connection

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """The connection inside one write transaction: kept when the block ends, undone when it raises."""
        with self._lock, self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file; further use is a ``ToolStorageError``. Closing twice does no harm."""
        with self._lock:
            self._connection.close()

    def _use_write_ahead_log(self) -> None:
        # SQLite answers "locked" at once, without waiting, when two openers switch the mode of a new file.
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    # Before anything is written, so that a file of somebody else stays as it is.
    def _check_tables(self, tables: Mapping[str, Sequence[str]]) -> None:
        for table, columns in tables.items():
            rows = self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
            found = [row[0] for row in rows]
            if found and found != list(columns):
                raise ToolStorageError(
                    self.path,
                    f"its table {table!r} has the columns {found}, not {list(columns)}; it belongs to something else",
                )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if _is_busy(error):
                problem = f"another writer holds it for longer than {BUSY_SECONDS:g} s"
                raise StorageBusyError(self.path, problem) from error
            raise ToolStorageError(self.path, f"SQLite cannot use this file: {error}") from error


def storable(text: str) -> str:
    """The text with lone surrogates written out, which SQLite cannot store."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _is_busy(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(code, int) and (code & 0xFF) in _BUSY_CODES
