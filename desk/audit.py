"""What the log says: one line a call, and why a mail was sent, from the request to what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, cast, get_args

from desk.errors import BadInputError, NotFoundError
from desk.trace import compared, number
from tools import AuditLog, AuditRow, Delivery, DeliveryChange, Kind, Mailer

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Explanation:
    """A mail with what led to it and what became of it.

    ``call`` is the logged call that sent it, None where the log holds none; ``attempts`` are all logged calls under
    the same key, in order; ``changes`` are the states the mail was in.
    """

    mail: Delivery
    call: AuditRow | None
    attempts: tuple[AuditRow, ...]
    changes: tuple[DeliveryChange, ...]

    def as_dict(self) -> dict[str, Any]:
        """Give the explanation as plain data."""
        return asdict(self)


def explain(log: AuditLog, mailer: Mailer, message_id: str) -> Explanation:
    """Say why a mail was sent.

    Raises:
        NotFoundError: the outbox has no mail with this Message-ID.
    """
    mail = mailer.find_message(message_id)
    if mail is None:
        raise NotFoundError("mail", message_id)
    attempts = tuple(log.rows(thread_id=mail.thread_id, call_id=mail.call_id))
    ran = [row for row in attempts if row.decision is not None and not row.dry_run]
    # The first that went through; a replay of it finds the mail sent and is another row.
    call = next((row for row in ran if row.kind == "ok"), ran[-1] if ran else None)
    return Explanation(mail, call, attempts, tuple(mailer.changes(mail.thread_id, mail.call_id)))


def explanation_lines(found: Explanation) -> Iterator[str]:
    """Give an explanation as lines of text."""
    mail, call = found.mail, found.call
    yield f"Mail {mail.message_id}: {mail.state}, to {mail.recipient}"
    yield f"Thread {mail.thread_id}, call {mail.call_id}, subject {mail.subject!r}"
    if call is None:
        yield "The log holds no call that sent it."
    else:
        yield from _grounds_lines(call)
        yield f"Arguments: sha256 {call.fingerprint}"
    yield "States:"
    for change in found.changes:
        said = f": {change.detail}" if change.detail else ""
        yield f"  {change.at}  {change.state}, attempt {change.attempt}, {change.transport}{said}"
    yield "Calls in the log:"
    for row in found.attempts:
        yield f"  {row_line(row)}"


def row_line(row: AuditRow) -> str:
    """Give the line in which a logged call is shown."""
    person = row.approved_by or reviewer(row) or "nobody"
    content = " ".join(row.content.split())
    shown = content if len(content) <= _SHOWN else f"{content[: _SHOWN - 3]}..."
    return f"{row.id}  {row.at}  {row.thread_id}  {row.tool} {row.call_id}  {row.kind}  {person}  {shown}"


def reviewer(row: AuditRow) -> str | None:
    """Give who answered about the call, None where nobody was asked."""
    review = _mapping(_mapping(row.grounds).get("review"))
    return None if review.get("by") is None else str(review["by"])


def outcome_named(name: str) -> Kind:
    """Give the kind of result with this name, or raise ``BadInputError``."""
    kinds = get_args(Kind)
    if name not in kinds:
        raise BadInputError("--outcome", f"{name!r} is no outcome; there are {', '.join(kinds)}")
    return cast("Kind", name)


def moment(option: str, text: str) -> datetime:
    """Read a date or a time in ISO 8601; without a zone it is UTC. The date of ``--until`` means the end of that day.

    Raises:
        BadInputError: the text is neither.
    """
    try:
        day = date.fromisoformat(text)
    except ValueError:
        try:
            read = datetime.fromisoformat(text)
        except ValueError:
            problem = f"{text!r} is no time; write for example 2026-03-01 or 2026-03-01T12:30"
            raise BadInputError(option, problem) from None
        return read if read.tzinfo is not None else read.replace(tzinfo=UTC)
    start = datetime.combine(day, time(), UTC)
    return start + timedelta(days=1) if option == "--until" else start


def _grounds_lines(call: AuditRow) -> Iterator[str]:
    grounds, decision = _mapping(call.grounds), _mapping(call.decision)
    reading, review = _mapping(grounds.get("reading")), _mapping(grounds.get("review"))
    yield f"Request: {grounds.get('request', 'not logged')}"
    p_route, tau_route = reading.get("p_route"), reading.get("tau_route")
    if isinstance(p_route, float) and isinstance(tau_route, float):
        sure = compared("p_route", p_route, "tau_route", tau_route)
        yield f"Reading: {reading.get('intent')}, route {reading.get('route')}, {sure}"
        likely = sorted(_mapping(reading.get("distribution")).items(), key=lambda item: -cast("float", item[1]))
        yield "  " + ", ".join(f"{route} {number(cast('float', p))}" for route, p in likely)
    yield f"Decision: {decision.get('region')} (rule: {decision.get('rule')})"
    yield f"  {decision.get('reason')}"
    source = _mapping(decision.get("source"))
    if source:
        yield f"  by {source.get('model')}, on {source.get('provider')}, calibration {source.get('calibration')}"
    yield f"Released by {call.approved_by}" + (f" ({review['verdict']})" if review else "")
    yield f"  at {review.get('at', call.at)}"


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
