"""The table of mails: one row a (thread, call id), written before anything is sent and never sent twice.

A second table keeps every state a mail was in; triggers in the file write it, and nobody changes it.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

from tools.errors import KeyConflictError
from tools.smtp import Outcome
from tools.storage import Database

DeliveryState: TypeAlias = Literal["sending", "sent", "unknown", "failed"]
"""What is known of a mail: on its way, delivered, nobody can say, or refused."""

_COLUMNS: Final = (
    "thread_id", "call_id", "message_id", "recipient", "subject", "body", "state", "may_retry",
    "attempts", "transport", "detail", "approved_by", "created_at", "updated_at",
)  # fmt: skip

_CHANGE: Final = "thread_id, call_id, at, state, attempt, transport, detail, approved_by"

_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS outbox (
        thread_id TEXT NOT NULL, call_id TEXT NOT NULL, message_id TEXT NOT NULL,
        recipient TEXT NOT NULL, subject TEXT NOT NULL, body TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('sending', 'sent', 'unknown', 'failed')),
        may_retry INTEGER NOT NULL CHECK (may_retry IN (0, 1)),
        attempts INTEGER NOT NULL, transport TEXT NOT NULL, detail TEXT NOT NULL, approved_by TEXT,
        created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
        PRIMARY KEY (thread_id, call_id))""",
    "CREATE INDEX IF NOT EXISTS outbox_by_message ON outbox (message_id)",
    """CREATE TABLE IF NOT EXISTS outbox_changes (
        id INTEGER PRIMARY KEY AUTOINCREMENT, thread_id TEXT NOT NULL, call_id TEXT NOT NULL, at TEXT NOT NULL,
        state TEXT NOT NULL, attempt INTEGER NOT NULL, transport TEXT NOT NULL, detail TEXT NOT NULL,
        approved_by TEXT)""",
    "CREATE INDEX IF NOT EXISTS outbox_changes_by_call ON outbox_changes (thread_id, call_id)",
    # Mails of an outbox that kept no changes yet: what is known of them now is the first.
    f"""INSERT INTO outbox_changes ({_CHANGE})
        SELECT thread_id, call_id, updated_at, state, attempts, transport, detail, approved_by FROM outbox
        WHERE NOT EXISTS (SELECT 1 FROM outbox_changes) ORDER BY rowid""",
    *(
        f"""CREATE TRIGGER IF NOT EXISTS outbox_after_{verb} AFTER {verb} ON outbox
            BEGIN INSERT INTO outbox_changes ({_CHANGE}) VALUES (NEW.thread_id, NEW.call_id, NEW.updated_at, NEW.state,
            NEW.attempts, NEW.transport, NEW.detail, NEW.approved_by); END"""
        for verb in ("insert", "update")
    ),
    *(
        f"""CREATE TRIGGER IF NOT EXISTS outbox_changes_no_{verb} BEFORE {verb} ON outbox_changes
            BEGIN SELECT RAISE(ABORT, 'outbox_changes is append-only'); END"""
        for verb in ("update", "delete")
    ),
)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One mail and what is known of it. Times are ISO 8601 in UTC.

    ``sending`` is a mail somebody began to send; ``sent`` was taken by the transport; ``unknown`` may or may not have
    been and is never sent again by itself; ``failed`` was surely not, and may be sent again if ``may_retry``.
    """

    thread_id: str
    call_id: str
    message_id: str
    recipient: str
    subject: str
    body: str
    state: DeliveryState
    may_retry: bool
    attempts: int
    transport: str
    detail: str
    approved_by: str | None
    created_at: str
    updated_at: str


@dataclass(frozen=True, slots=True)
class DeliveryChange:
    """One state a mail was in: since when (ISO 8601 in UTC), in which attempt, and what the server or a person said."""

    at: str
    state: DeliveryState
    attempt: int
    transport: str
    detail: str
    approved_by: str | None


@dataclass(frozen=True, slots=True)
class Letter:
    """A mail to be sent once: its key and its content."""

    thread_id: str
    call_id: str
    message_id: str
    recipient: str
    subject: str
    body: str
    approved_by: str | None


def message_id(thread_id: str, call_id: str, domain: str) -> str:
    """The Message-ID of a key, the same on every attempt, by which a receiver can tell a repeat."""
    digest = hashlib.sha256(json.dumps([thread_id, call_id]).encode()).hexdigest()
    return f"<{digest[:40]}@{domain}>"


class Outbox:
    """The rows of the mails in one SQLite file. Every method is one transaction."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        changes = ("id", *_CHANGE.split(", "))
        self._database = Database(path, _SCHEMA, {"outbox": _COLUMNS, "outbox_changes": changes})

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def claim(
        self, letter: Letter, state: Literal["sending", "sent"], transport: str, now: str
    ) -> tuple[Delivery, bool]:
        """The row of the letter, and whether the caller is the one to send it.

        A new letter is written with ``state``; a failed one that may be retried is taken up again. Raises
        ``KeyConflictError`` when the key holds another mail.
        """
        with self._database.transaction() as connection:
            cursor = connection.execute(
                """INSERT INTO outbox VALUES (?, ?, ?, ?, ?, ?, ?, 0, 1, ?, '', ?, ?, ?)
                   ON CONFLICT (thread_id, call_id) DO NOTHING""",
                (letter.thread_id, letter.call_id, letter.message_id, letter.recipient, letter.subject, letter.body,
                 state, transport, letter.approved_by, now, now),
            )  # fmt: skip
            mine = cursor.rowcount == 1
            found = connection.execute(_SELECT_ONE, (letter.thread_id, letter.call_id)).fetchone()
            stored = (found["recipient"], found["subject"], found["body"])
            if stored != (letter.recipient, letter.subject, letter.body):
                raise KeyConflictError(
                    f"call {letter.call_id!r} of thread {letter.thread_id!r} is already a mail with other content "
                    f"({found['state']}); nothing was sent. A different mail needs a call of its own."
                )
            if not mine and found["state"] == "failed" and found["may_retry"]:
                connection.execute(
                    """UPDATE outbox SET state = ?, may_retry = 0, attempts = attempts + 1, transport = ?, detail = '',
                       approved_by = ?, updated_at = ? WHERE thread_id = ? AND call_id = ?""",
                    (state, transport, letter.approved_by, now, letter.thread_id, letter.call_id),
                )
                mine = True
                found = connection.execute(_SELECT_ONE, (letter.thread_id, letter.call_id)).fetchone()
            return _delivery(found), mine

    def finish(self, thread_id: str, call_id: str, outcome: Outcome, now: str) -> Delivery:
        """Write what became of the attempt and return the row."""
        with self._database.transaction() as connection:
            connection.execute(
                """UPDATE outbox SET state = ?, may_retry = ?, detail = ?, updated_at = ?
                   WHERE thread_id = ? AND call_id = ?""",
                (outcome.state, int(outcome.may_retry), outcome.detail, now, thread_id, call_id),
            )
            return _delivery(connection.execute(_SELECT_ONE, (thread_id, call_id)).fetchone())

    def find(self, thread_id: str, call_id: str) -> Delivery | None:
        """The mail of this key, or None."""
        with self._database.read() as connection:
            row = connection.execute(_SELECT_ONE, (thread_id, call_id)).fetchone()
        return None if row is None else _delivery(row)

    def find_message(self, message_id: str) -> Delivery | None:
        """The mail with this Message-ID, or None."""
        with self._database.read() as connection:
            row = connection.execute("SELECT * FROM outbox WHERE message_id = ?", (message_id,)).fetchone()
        return None if row is None else _delivery(row)

    def changes(self, thread_id: str, call_id: str) -> list[DeliveryChange]:
        """Every state the mail of this key was in, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(
                """SELECT at, state, attempt, transport, detail, approved_by FROM outbox_changes
                   WHERE thread_id = ? AND call_id = ? ORDER BY id""",
                (thread_id, call_id),
            ).fetchall()
        return [DeliveryChange(*row) for row in rows]

    def rows(self, thread_id: str | None = None) -> list[Delivery]:
        """All mails, or those of one thread, in the order they were first asked for."""
        with self._database.read() as connection:
            found = connection.execute(
                "SELECT * FROM outbox WHERE ? IS NULL OR thread_id = ? ORDER BY rowid", (thread_id, thread_id)
            ).fetchall()
        return [_delivery(row) for row in found]


_SELECT_ONE: Final = "SELECT * FROM outbox WHERE thread_id = ? AND call_id = ?"


def _delivery(row: object) -> Delivery:
    values = dict(cast("dict[str, object]", row))
    values["may_retry"] = bool(values["may_retry"])
    return Delivery(**values)  # type: ignore[arg-type]  # the columns are checked when the file is opened
