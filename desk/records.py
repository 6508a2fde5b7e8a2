"""The desk's records in one SQLite file: events, registrations, pages, today's date and a list of conversations.

The same file also holds the checkpoints of the conversations, the outbox and the log of tool calls, each in tables of
their own, so that one file is one desk. A new file is written aside and put in place when it is complete.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

from desk.database import BUSY_SECONDS, VERSION, check_not_foreign, registration_row
from desk.errors import BadInputError, DeskStorageError, UnknownEventError, UnknownRegistrationError, UnknownThreadError
from desk.policy import Event, Registration
from desk.seed import Page

ThreadStatus: TypeAlias = Literal["running", "waiting", "ended"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A registration with its id and the id of its event."""

    id: str
    event_id: str
    registration: Registration


@dataclass(frozen=True, slots=True)
class Thread:
    """One conversation as the list knows it; ``updated_at`` is ISO 8601 in UTC.

    ``running`` is what a run writes before it starts; a thread that keeps it was stopped from outside.
    """

    id: str
    status: ThreadStatus
    registration_id: str | None
    event_id: str | None
    request: str
    updated_at: str


class DeskRecords:
    """An open database of the desk. Safe to share between threads and processes. Close it, or use ``with``."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open an existing database.

        Raises:
            DeskStorageError: there is no such file, or it is damaged, foreign, or of another version.
        """
        self.path: Final = os.fspath(path)
        self._lock = threading.RLock()
        if not Path(self.path).is_file():
            raise DeskStorageError(self.path, "there is no such file; `desk ask` makes a new one")
        check_not_foreign(self.path)
        with self._errors():
            self._connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._connection.row_factory = sqlite3.Row
        try:
            self.today: Final = self._today()
        except DeskStorageError:
            self._connection.close()
            raise

    def __enter__(self) -> DeskRecords:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; closing twice does no harm."""
        with self._lock:
            self._connection.close()

    def registration(self, id: str) -> Entry:
        """Give the registration with this id, or raise ``UnknownRegistrationError``."""
        rows = self._rows("SELECT * FROM registrations WHERE id = ?", id)
        if not rows:
            raise UnknownRegistrationError("registration", id)
        return _entry(rows[0])

    def event(self, id: str) -> Event:
        """Give the event with this id, or raise ``UnknownEventError``."""
        rows = self._rows("SELECT * FROM events WHERE id = ?", id)
        if not rows:
            raise UnknownEventError("event", id, [event.id for event in self.events()])
        return _event(rows[0])

    def events(self) -> list[Event]:
        """Give all events by id."""
        return [_event(row) for row in self._rows("SELECT * FROM events ORDER BY id")]

    def registrations(self) -> list[Entry]:
        """Give all registrations by id."""
        return [_entry(row) for row in self._rows("SELECT * FROM registrations ORDER BY id")]

    def pages(self) -> list[Page]:
        """Give the pages the desk can look things up in: rules, events, frequent questions."""
        rows = self._rows("SELECT id, title, text FROM pages ORDER BY id")
        return [(str(row["id"]), str(row["title"]), str(row["text"])) for row in rows]

    def add_registration(self, entry: Entry) -> Entry:
        """Store a registration and give it as stored, with its address in normal form.

        Raises:
            BadInputError: the address is not a deliverable form, or the id is taken.
            UnknownEventError: there is no such event.
        """
        self.event(entry.event_id)
        row = registration_row(entry.id, entry.event_id, entry.registration)
        with self._lock, self._errors():
            try:
                self._connection.execute(
                    "INSERT INTO registrations (id, event_id, name, email, status, paid_eur) VALUES (?, ?, ?, ?, ?, ?)",
                    tuple(row.values()),
                )
            except sqlite3.IntegrityError as error:
                raise BadInputError("registration", f"{entry.id!r} cannot be added: {error}") from error
        return self.registration(entry.id)

    # ------------------------------------------------------------ conversations

    def note_thread(
        self, id: str, status: ThreadStatus, *, registration_id: str | None, event_id: str | None, request: str
    ) -> None:
        """Write what the list of conversations says of one."""
        with self._lock, self._errors():
            self._connection.execute(
                """INSERT INTO threads (id, status, registration_id, event_id, request, updated_at)
                   VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET status = excluded.status,
                   registration_id = excluded.registration_id, event_id = excluded.event_id,
                   request = excluded.request, updated_at = excluded.updated_at""",
                (id, status, registration_id, event_id, request, _now()),
            )

    def note_status(self, id: str, status: ThreadStatus) -> None:
        """Write the status of a conversation that is in the list."""
        with self._lock, self._errors():
            self._connection.execute("UPDATE threads SET status = ?, updated_at = ? WHERE id = ?", (status, _now(), id))

    def thread(self, id: str) -> Thread:
        """Give one conversation of the list, or raise ``UnknownThreadError``."""
        rows = self._rows("SELECT * FROM threads WHERE id = ?", id)
        if not rows:
            raise UnknownThreadError("thread", id)
        return _thread(rows[0])

    def open_threads(self) -> list[Thread]:
        """Give the conversations that have not ended, oldest first."""
        return [_thread(row) for row in self._rows("SELECT * FROM threads WHERE status <> 'ended' ORDER BY updated_at")]

    # ------------------------------------------------------------------ within

    def _rows(self, statement: str, *values: str) -> list[sqlite3.Row]:
        with self._lock, self._errors():
            return list(self._connection.execute(statement, values))

    def _today(self) -> date:
        with self._errors():
            rows = {str(row["key"]): str(row["value"]) for row in self._rows("SELECT key, value FROM desk_settings")}
        if rows.get("version") != VERSION:
            raise DeskStorageError(self.path, f"it has version {rows.get('version')}, and this release reads {VERSION}")
        try:
            return date.fromisoformat(rows.get("today", ""))
        except ValueError as error:
            raise DeskStorageError(self.path, f"its date of today cannot be read: {error}") from error

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise DeskStorageError(self.path, f"SQLite cannot use this file: {error}") from error


def _event(row: sqlite3.Row) -> Event:
    return Event(
        id=row["id"],
        topic=row["topic"],
        city=row["city"],
        start_date=date.fromisoformat(row["start_date"]),
        seats=row["seats"],
        registered=row["registered"],
        remote=bool(row["remote"]),
        fee_eur=row["fee_eur"],
    )


def _entry(row: sqlite3.Row) -> Entry:
    person = Registration(row["name"], row["email"], row["status"], row["paid_eur"])
    return Entry(row["id"], row["event_id"], person)


def _thread(row: sqlite3.Row) -> Thread:
    return Thread(row["id"], row["status"], row["registration_id"], row["event_id"], row["request"], row["updated_at"])


def _now() -> str:
    return datetime.now(UTC).isoformat()
