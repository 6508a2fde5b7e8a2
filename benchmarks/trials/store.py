"""What the trials run on: where threads are stored, how a process opens it, and what another one left there."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from minigraph.checkpoint import Saver, SqliteSaver


class Store(Protocol):
    """A place for threads that several processes share."""

    @property
    def name(self) -> str:
        """What it is called in a table."""
        ...

    def fresh(self, number: int) -> Store:
        """The place for the threads of one more part of a trial; where it can be, one that is not there yet."""
        ...

    def open(self) -> Saver:
        """A saver of this process's own; close it."""
        ...

    def as_left(self) -> AbstractContextManager[Saver]:
        """A with block that reads what is stored, without taking part in it."""
        ...

    def damage(self) -> str:
        """What is wrong with the whole of it; "" if nothing is."""
        ...


@dataclass(frozen=True, slots=True)
class SqliteStore:
    """A SQLite file."""

    path: Path

    @property
    def name(self) -> str:
        """What it is called in a table."""
        return "SQLite"

    def fresh(self, number: int) -> SqliteStore:
        """A new file beside this one."""
        return SqliteStore(self.path.with_name(f"{self.path.stem}-{number}.db"))

    def open(self) -> SqliteSaver:
        """A saver of this process's own; close it."""
        return SqliteSaver(self.path, timeout=120)

    @contextmanager
    def as_left(self) -> Iterator[Saver]:
        """A saver over a copy of the file and its log: the next process finds both as the last one left them."""
        copy = self.path.with_name(f"copy of {self.path.name}")
        while True:  # again where a process that is still dying wrote meanwhile: the two files belong together
            before = self._written()
            for end in ("", "-wal", "-shm"):
                copy.with_name(copy.name + end).unlink(missing_ok=True)
            for end in before:
                shutil.copy(self.path.with_name(self.path.name + end), copy.with_name(copy.name + end))
            if self._written() == before:
                break
        with SqliteSaver(copy) as saver:
            yield saver
        copy.unlink()

    def _written(self) -> dict[str, tuple[int, int]]:
        """When the file and its log were last written, in nanoseconds, and their sizes; by the ends of their names."""
        files = {end: self.path.with_name(self.path.name + end) for end in ("", "-wal")}
        return {end: (file.stat().st_mtime_ns, file.stat().st_size) for end, file in files.items() if file.exists()}

    def damage(self) -> str:
        """What `PRAGMA integrity_check` finds wrong; "" if nothing is."""
        with closing(sqlite3.connect(self.path)) as connection:
            found = connection.execute("PRAGMA integrity_check").fetchall()
        return "" if found == [("ok",)] else f"integrity_check of {self.path}: {found}"


@dataclass(frozen=True, slots=True)
class PostgresStore:
    """A schema of a PostgreSQL database."""

    url: str
    schema: str = "trial"

    @property
    def name(self) -> str:
        """What it is called in a table."""
        return "PostgreSQL"

    def fresh(self, number: int) -> PostgresStore:
        """One of twenty schemas, since making one takes longer than most parts of a trial."""
        return PostgresStore(self.url, f"{self.schema}_{number % 20}")

    def open(self) -> Saver:
        """A saver of this process's own; close it."""
        from minigraph.checkpoint.postgres import PostgresSaver

        return PostgresSaver(self.url, schema=self.schema, timeout=120)

    @contextmanager
    def as_left(self) -> Iterator[Saver]:
        """A saver: reading changes nothing."""
        saver = self.open()
        try:
            yield saver
        finally:
            saver.close()

    def damage(self) -> str:
        """A server looks after its own files."""
        return ""
