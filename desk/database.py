"""The desk's database file: made whole or not at all, and told from any other file before it is used."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from datetime import date
from pathlib import Path
from typing import Final, cast

from desk.errors import BadInputError, DeskStorageError
from desk.policy import Event, Registration, Status
from desk.seed import EVENTS, POLICY_PAGES, QUESTION_PAGES, REGISTRATIONS, TODAY, event_pages

VERSION: Final = "1"
"""The version of the tables, as the file states it."""

BUSY_SECONDS: Final = 10.0
"""How long a writer waits for another one."""

_FIXED_TABLES: Final = ("desk_settings", "events", "registrations", "pages")
_TABLES: Final = (*_FIXED_TABLES, "threads")


def check_not_foreign(path: str) -> None:
    """Raise ``DeskStorageError`` if the file is not a complete database of a desk; it is only read."""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
            found = {str(row[0]) for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            # The tables that grow with use are not read here; damage there is found, and named, when they are.
            checks = [connection.execute(f"PRAGMA quick_check({table})") for table in _FIXED_TABLES if table in found]
            verdicts = [str(check.fetchone()[0]) for check in checks]
    except sqlite3.Error as error:
        raise DeskStorageError(path, f"SQLite cannot read it ({error}); restore it or name another file") from error
    damaged = [verdict for verdict in verdicts if verdict != "ok"]
    if damaged:
        raise DeskStorageError(path, f"it is damaged ({damaged[0]}); restore it from a copy or name another file")
    missing = [table for table in _TABLES if table not in found]
    if missing:
        problem = f"it is not a desk's database, the tables {', '.join(missing)} are missing; name another file"
        raise DeskStorageError(path, problem)


def create_database(path: str | os.PathLike[str], *, today: date = TODAY) -> None:
    """Write a new database with the events, registrations and pages of ``desk.seed``; an existing file is kept.

    Raises:
        DeskStorageError: the folder does not exist or cannot be written.
    """
    target = os.fspath(path)
    if os.path.isdir(target):
        raise DeskStorageError(target, "it is a folder; name a file in it")
    if target in ("", ":memory:"):
        raise DeskStorageError(target, "a database of the desk is a file, so that another process can answer; name one")
    if os.path.exists(target):
        return
    if not os.path.isdir(os.path.dirname(os.path.abspath(target))):
        raise DeskStorageError(target, "its folder does not exist; make it first or name another file")
    aside = f"{target}.{os.getpid()}.{threading.get_ident()}.new"
    try:
        _write_database(aside, today)
        with contextlib.suppress(FileExistsError):  # somebody else made it meanwhile
            os.link(aside, target)
    except (sqlite3.Error, OSError) as error:
        raise DeskStorageError(target, f"it cannot be made: {error}") from error
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(aside + suffix).unlink(missing_ok=True)


def _write_database(path: str, today: date) -> None:
    from sqlite_utils import Database

    from minigraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver(path) as saver:  # first, because it takes a file only when that is empty or already its own
        saver.namespaces("")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        database = Database(connection)
        database.table("desk_settings").insert_all(
            [{"key": "version", "value": VERSION}, {"key": "today", "value": today.isoformat()}], pk="key"
        )
        database.table("events").insert_all([_event_row(event) for event in EVENTS], pk="id")
        database.table("registrations").create(
            {"id": str, "event_id": str, "name": str, "email": str, "status": str, "paid_eur": int},
            pk="id",
            not_null={"event_id", "name", "email", "status", "paid_eur"},
            foreign_keys=[("event_id", "events", "id")],
        )
        database.table("registrations").insert_all(
            [
                registration_row(id, event, Registration(name, email, cast("Status", status), paid))
                for id, event, name, email, status, paid in REGISTRATIONS
            ]
        )
        pages = [*POLICY_PAGES, *event_pages(EVENTS), *QUESTION_PAGES]
        rows = [{"id": id, "title": title, "text": text} for id, title, text in pages]
        database.table("pages").insert_all(rows, pk="id")
        names = ("id", "status", "registration_id", "event_id", "request", "updated_at")
        threads = database.table("threads")
        threads.create(dict.fromkeys(names, str), pk="id", not_null={"status", "request", "updated_at"})
        threads.create_index(["status", "updated_at"])
        connection.commit()


def _event_row(event: Event) -> dict[str, object]:
    return {
        "id": event.id,
        "topic": event.topic,
        "city": event.city,
        "start_date": event.start_date.isoformat(),
        "seats": event.seats,
        "registered": event.registered,
        "remote": int(event.remote),
        "fee_eur": event.fee_eur,
    }


def registration_row(id: str, event_id: str, person: Registration) -> dict[str, object]:
    """Give a registration as a row, or raise ``BadInputError`` for an address or status that cannot be stored."""
    if person.status not in ("confirmed", "waitlisted"):
        raise BadInputError("status", f"{person.status!r} is no status; write 'confirmed' or 'waitlisted'")
    return {
        "id": id,
        "event_id": event_id,
        "name": person.name,
        "email": checked_address(person.email),
        "status": person.status,
        "paid_eur": person.paid_eur,
    }


def checked_address(address: str) -> str:
    """Give an address in the form in which it is stored, or raise ``BadInputError``.

    Syntax only, by email-validator in strict mode; no name server is asked. What passes there and could not be
    compared or put into a header later, as a plain address, is refused too.
    """
    from email_validator import EmailNotValidError, validate_email

    from tools.address import is_plain_address

    try:
        normal = validate_email(address, check_deliverability=False, strict=True).normalized
    except EmailNotValidError as error:
        raise BadInputError("address", f"{address!r} cannot be stored: {error}") from error
    if not is_plain_address(normal):
        raise BadInputError("address", f"{address!r} cannot be stored: it is not one bare name@domain")
    return normal
