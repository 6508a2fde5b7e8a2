"""The database of the desk: what a new one holds, what it refuses, and files that are not one."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from desk.database import checked_address, create_database
from desk.errors import BadInputError, DeskStorageError, UnknownEventError, UnknownRegistrationError, UnknownThreadError
from desk.policy import Case, Registration, facts
from desk.records import DeskRecords, Entry
from desk.seed import EVENTS, POISONED_PAGES, REGISTRATIONS
from minigraph.checkpoint.sqlite import SqliteSaver


@pytest.fixture
def path(tmp_path: Path) -> Path:
    create_database(tmp_path / "desk.db")
    return tmp_path / "desk.db"


def test_a_new_database_holds_the_seed(path: Path) -> None:
    with DeskRecords(path) as records:
        assert records.today == date(2026, 3, 2)
        assert [event.id for event in records.events()] == ["E1", "E2", "E3", "E4", "E5", "E6", "E7", "E8"]
        assert len(records.registrations()) == 15
        assert records.event("E2").start_date == date(2026, 3, 12)
        assert records.event("E3").remote is True
        entry = records.registration("R108")
        assert entry == Entry(
            "R108", "E5", Registration("Etienne Moreau", "etienne.moreau@example.org", "confirmed", 1250)
        )


def test_the_seed_covers_the_borders_of_the_policy(path: Path) -> None:
    days = {event.id: (event.start_date - date(2026, 3, 2)).days for event in EVENTS}
    assert days == {"E1": 20, "E2": 10, "E3": 43, "E4": 5, "E5": 77, "E6": 7, "E7": 14, "E8": 1}
    assert [event.id for event in EVENTS if event.registered == event.seats] == ["E2", "E6"]
    assert {event.id for event in EVENTS if event.remote} == {"E3", "E6"}
    with DeskRecords(path) as records:
        due = {
            entry.id: facts(Case(records.today, records.event(entry.event_id), entry.registration, "x")).refund_due
            for entry in records.registrations()
        }
    assert (due["R101"], due["R103"], due["R107"], due["R108"], due["R109"], due["R112"]) == (
        240,
        90,
        0,
        1250,
        500,
        500,
    )
    assert due["R104"] is None


def test_every_address_and_event_of_the_seed_is_valid() -> None:
    events = {event.id for event in EVENTS}
    for _, event, _, address, _, _ in REGISTRATIONS:
        assert event in events
        assert checked_address(address) == address
        assert address.endswith("@example.org")


def test_the_pages_hold_every_rule_and_event_and_no_poison(path: Path) -> None:
    with DeskRecords(path) as records:
        ids = {id for id, _, _ in records.pages()}
    assert ids == {f"P{n}" for n in range(1, 9)} | {f"E{n}" for n in range(1, 9)} | {"Q1", "Q2"}
    assert not ids & {id for id, _, _ in POISONED_PAGES}


def test_unknown_ids_are_named(path: Path) -> None:
    with DeskRecords(path) as records:
        with pytest.raises(UnknownRegistrationError, match="R999") as caught:
            records.registration("R999")
        assert (caught.value.kind, caught.value.name) == ("registration", "R999")
        with pytest.raises(UnknownEventError, match="E1, E2"):
            records.event("E99")
        with pytest.raises(UnknownThreadError):
            records.thread("none")
        with pytest.raises(UnknownRegistrationError):
            records.registration("R101' OR 1=1 --")


@pytest.mark.parametrize(
    "address",
    ["", "no-at", "a@b@example.org", "Ana <ana@example.org>", "ana@example.org, b@example.org", "ana@example.org\n",
     "ana @example.org", "x" * 65 + "@example.org", "ana@-example.org", '"a b"@example.org', "ana@\u200bexample.org"],
)  # fmt: skip
def test_bad_addresses_are_refused_at_entry(path: Path, address: str) -> None:
    with DeskRecords(path) as records:
        with pytest.raises(BadInputError):
            records.add_registration(Entry("R200", "E1", Registration("Ana", address, "confirmed", 0)))
        with pytest.raises(UnknownRegistrationError):
            records.registration("R200")


def test_a_registration_can_be_added_once_and_to_a_known_event(path: Path) -> None:
    entry = Entry("R200", "E1", Registration("Ana", "Ana@EXAMPLE.org", "confirmed", 10))
    with DeskRecords(path) as records:
        assert records.add_registration(entry).registration.email == "Ana@example.org"
        with pytest.raises(BadInputError, match="R200"):
            records.add_registration(entry)
        with pytest.raises(UnknownEventError):
            records.add_registration(Entry("R201", "E99", entry.registration))


def test_conversations_are_listed_until_they_end(path: Path) -> None:
    with DeskRecords(path) as records:
        for name in ("a", "b"):
            records.note_thread(name, "running", registration_id="R101", event_id="E1", request="hello")
        records.note_status("b", "waiting")
        assert [(thread.id, thread.status) for thread in records.open_threads()] == [("a", "running"), ("b", "waiting")]
        records.note_status("a", "ended")
        assert [thread.id for thread in records.open_threads()] == ["b"]
        assert records.thread("a").request == "hello"


def test_an_existing_file_is_never_replaced(path: Path) -> None:
    with DeskRecords(path) as records:
        records.note_thread("kept", "running", registration_id=None, event_id=None, request="x")
    create_database(path)
    with DeskRecords(path) as records:
        assert records.thread("kept").id == "kept"


def test_several_makers_leave_one_whole_database(tmp_path: Path) -> None:
    threads = [threading.Thread(target=create_database, args=(tmp_path / "desk.db",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [item.name for item in tmp_path.iterdir()] == ["desk.db"]
    with DeskRecords(tmp_path / "desk.db") as records:
        assert len(records.registrations()) == 15


def test_files_that_are_no_desk_are_refused_and_left_alone(tmp_path: Path) -> None:
    text, other, empty, engine = (tmp_path / name for name in ("text", "other", "empty", "engine"))
    text.write_text("not a database, but long enough to be looked at " * 20)
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE events (id TEXT)")
        connection.commit()
    empty.write_bytes(b"")
    with SqliteSaver(engine) as saver:
        saver.namespaces("")
    for file in (text, other, empty, engine):
        before = file.read_bytes()
        with pytest.raises(DeskStorageError, match=file.name) as caught:
            DeskRecords(file)
        assert caught.value.path == str(file)
        assert file.read_bytes() == before


def test_a_damaged_database_is_refused(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:40960] = b"\xff" * (40960 - 4096)
    path.write_bytes(bytes(content))
    with pytest.raises(DeskStorageError):
        DeskRecords(path)


def test_a_missing_file_folder_or_another_version(tmp_path: Path, path: Path) -> None:
    with pytest.raises(DeskStorageError, match="no such file"):
        DeskRecords(tmp_path / "none.db")
    with pytest.raises(DeskStorageError, match="folder"):
        create_database(tmp_path / "none" / "desk.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE desk_settings SET value = '99' WHERE key = 'version'")
        connection.commit()
    with pytest.raises(DeskStorageError, match="version 99"):
        DeskRecords(path)


@pytest.mark.parametrize("name", ["", ":memory:"])
def test_a_database_is_a_file(name: str) -> None:
    with pytest.raises(DeskStorageError, match="is a file"):
        create_database(name)


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(DeskStorageError, match="it is a folder"):
        create_database(tmp_path)
    assert list(tmp_path.iterdir()) == []
