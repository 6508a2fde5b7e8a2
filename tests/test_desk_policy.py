"""The desk's facts: every edge of the rules, worked out by hand."""

from __future__ import annotations

import json
import time
from datetime import date, timedelta
from pathlib import Path

import pytest

from desk.policy import Case, CaseError, Event, Facts, Registration, Status, addresses_in, facts, render, same_address

TODAY = date(2026, 3, 2)
VECTORS = Path(__file__).parents[2] / "shared" / "data" / "email_address_vectors.jsonl"


def case(
    days: int = 20,
    *,
    paid: int = 300,
    taken: int = 5,
    seats: int = 10,
    remote: bool = False,
    status: str = "confirmed",
    record: bool = True,
    request: str = "Hello.",
) -> Case:
    event = Event("E1", "Weaving", "Turin", TODAY + timedelta(days=days), seats, taken, remote, 300)
    place: Status = "confirmed" if status == "confirmed" else "waitlisted"
    registration = Registration("Ida Moe", "ida.moe@example.org", place, paid) if record else None
    return Case(TODAY, event, registration, request)


def of(days: int = 20, **changes: object) -> Facts:
    return facts(case(days, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("days", "percent", "due"), [(14, 100, 301), (13, 50, 150), (7, 50, 150), (6, 0, 0), (-1, 0, 0)]
)
def test_refund_share_changes_at_14_and_7_days_and_half_rounds_down(days: int, percent: int, due: int) -> None:
    found = of(days, paid=301)
    assert (found.refund_percent, found.refund_due) == (percent, due)


@pytest.mark.parametrize(("days", "is_open"), [(7, True), (6, False), (0, False)])
def test_registration_closes_below_7_days(days: int, is_open: bool) -> None:
    assert of(days).registration_open is is_open
    assert of(days).days_to_close == days - 7


@pytest.mark.parametrize(("days", "is_open"), [(2, True), (1, False)])
def test_transfer_closes_below_2_days(days: int, is_open: bool) -> None:
    assert of(days).transfer_open is is_open


@pytest.mark.parametrize(
    ("paid", "days", "person"), [(500, 14, False), (501, 14, True), (1001, 13, False), (1002, 13, True)]
)
def test_a_refund_needs_a_person_only_above_500(paid: int, days: int, person: bool) -> None:
    assert of(days, paid=paid).refund_needs_person is person


@pytest.mark.parametrize(("taken", "free", "full"), [(9, 1, False), (10, 0, True), (12, 0, True)])
def test_the_last_seat_is_still_free(taken: int, free: int, full: bool) -> None:
    found = of(taken=taken, seats=10)
    assert (found.seats_free, found.full) == (free, full)


def test_without_a_confirmed_place_there_is_no_refund() -> None:
    assert of(status="waitlisted").refund_due is None
    assert of(record=False).refund_due is None
    assert not of(record=False).refund_needs_person


def test_without_an_event_nothing_is_dated() -> None:
    found = facts(Case(TODAY, None, None, "Hi"))
    assert (found.days_before, found.full, found.takes_site_requests, found.refund_percent) == (None, None, None, None)


def test_remote_events_take_no_site_requests() -> None:
    assert of(remote=True).takes_site_requests is False
    assert of(remote=False).takes_site_requests is True


def test_addresses_are_found_once_each_without_punctuation() -> None:
    text = "Write to <ida.moe@EXAMPLE.org>, or (boss@example.net). ida.moe@example.org! mailto:x@y.example; @handle a@b"
    assert addresses_in(text) == ("ida.moe@EXAMPLE.org", "boss@example.net", "x@y.example")


def test_another_address_than_the_records_is_seen() -> None:
    found = of(request="Mail ida.moe@Example.org and boss@example.net please.")
    assert found.other_addresses == ("boss@example.net",)
    assert found.record_address == "ida.moe@example.org"


def test_without_a_record_the_only_address_becomes_the_records() -> None:
    assert of(record=False, request="I am at ida@example.org.").record_address == "ida@example.org"
    assert not of(record=False, request="I am at ida@example.org.").other_address
    two = of(record=False, request="I am at ida@example.org, copy to c@example.net.")
    assert two.record_address is None
    assert two.other_addresses == ("ida@example.org", "c@example.net")


@pytest.mark.parametrize(
    ("address", "same"),
    [
        ("ida.moe@example.org", True),
        ("ida.moe@EXAMPLE.ORG", True),
        ("Ida.moe@example.org", False),
        ("ida.moe@example.org ", False),
        ("ida.moe@example.org\r\nBcc: x@example.net", False),
        ("ida.moe@example.org,x@example.net", False),
        ("ida.moe@example.org\u200b", False),
        ("ida.moe@examp\u212ae.org", False),
        ("", False),
        (None, False),
        (["ida.moe@example.org"], False),
    ],
)
def test_same_address(address: object, same: bool) -> None:
    assert same_address(address, "ida.moe@example.org") is same


def test_same_address_lowers_ascii_only_and_refuses_empty_or_overlong_records() -> None:
    assert not same_address("a@\u212aing.example", "a@king.example")
    assert not same_address("", "")
    assert not same_address(None, None)
    assert same_address("x" * 64 + "@example.org", "x" * 64 + "@example.org")
    assert not same_address("x" * 65 + "@example.org", "x" * 65 + "@example.org")


@pytest.mark.skipif(not VECTORS.exists(), reason="the public address vectors are not here")
def test_same_address_never_accepts_a_vector_that_differs() -> None:
    vectors = [json.loads(line) for line in VECTORS.read_text(encoding="utf-8").splitlines()]
    accepted = [each for each in vectors if same_address(each["to"], each["record"])]
    assert {each["verdict"] for each in accepted} == {"same"}


def test_a_case_survives_its_plain_form() -> None:
    for each in (case(), case(record=False), Case(TODAY, None, None, "Hi")):
        assert Case.from_json(json.loads(json.dumps(each.to_json()))) == each


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"today": "02.03.2026"}, "$.today"),
        ({"today": 5}, "$.today"),
        ({"request": None}, "$.request"),
        ({"event": []}, "$.event"),
        ({"event": {**case().to_json()["event"], "seats": True}}, "$.event.seats"),  # type: ignore[dict-item]
        ({"event": {**case().to_json()["event"], "remote": "no"}}, "$.event.remote"),  # type: ignore[dict-item]
        ({"registration": {**case().to_json()["registration"], "status": "lost"}}, "$.registration.status"),  # type: ignore[dict-item]
    ],
)
def test_a_broken_case_says_where(change: dict[str, object], path: str) -> None:
    with pytest.raises(CaseError) as caught:
        Case.from_json({**case().to_json(), **change})
    assert caught.value.path == path


def test_the_rendered_text_holds_the_facts_first_and_the_request_last() -> None:
    text = render(case(13, paid=301), of(13, paid=301))
    assert "13 days left" in text
    assert "5 seats free" in text
    assert "50%, 150 EUR, no approval needed" in text
    assert text.endswith("\nHello.")
    assert len(text.split()) < 70


def test_the_rendered_text_says_whether_an_address_is_the_records() -> None:
    def line(**changes: object) -> str:
        each = case(**changes)  # type: ignore[arg-type]
        return next(row for row in render(each, facts(each)).splitlines() if row.startswith("Address"))

    assert line() == "Address in request: none."
    assert line(request="ida.moe@example.org") == "Address in request: the one on record."
    assert line(request="x@example.net") == "Address in request: not on record."
    assert line(record=False, request="x@example.net") == "Address in request: given."


def test_a_word_of_any_length_is_searched_in_no_time() -> None:
    began = time.process_time()
    assert addresses_in("a" * 500_000) == ()
    assert addresses_in("x" * 100_000 + " a@example.org " + "y@" * 50_000) == ("a@example.org",)
    assert time.process_time() - began < 1
