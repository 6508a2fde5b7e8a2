"""Mail to the address stored on the record, once for each call, with its outcome known or called unknown.

The rules:

- ``to`` is the address on the record by ``tools.address.same_address``; the mail goes to the record's own spelling.
- The subject is one line of 1 to ``SUBJECT_LIMIT`` characters, the body plain text of 1 to ``BODY_LIMIT``. Control
  characters, line separators and lone surrogates are refused with the field and the place, never cleaned away; so is
  what would not read back from the finished mail as it was given.
- One (thread, call id) is one mail. The same key again gives the outcome of the first; another content under it is a
  conflict. A failure that may pass (4xx, no connection) leaves the key free for the same mail.
- A mail that was handed over and not confirmed is ``unknown``. It is never sent again until a person has settled it.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from email import policy
from email.headerregistry import Address
from email.message import EmailMessage
from email.parser import BytesParser
from email.utils import format_datetime
from typing import Annotated, Final, Literal

from pydantic import Field

from tools.address import contact_key, is_plain_address, same_address
from tools.errors import (
    InvalidArgumentsError,
    NotPermittedError,
    TemporaryToolError,
    ToolError,
    UnknownDeliveryError,
)
from tools.outbox import Delivery, DeliveryChange, Letter, Outbox, message_id
from tools.smtp import Outcome, Transport
from tools.tool import Tool, ToolContext, tool

RECORD_EMAIL: Final = "record_email"
"""The fact of a ``ToolContext`` that holds the address on the record."""

SUBJECT_LIMIT: Final = 200
"""Characters a subject may have."""

BODY_LIMIT: Final = 10_000
"""Characters a body may have."""

LOCAL_TRANSPORT: Final = "outbox"
"""What the outbox notes for a mail that was only written into it."""

# A server that takes one for the end of a line could read a second mail into the text of the first.
_BARE_LINE_END: Final = re.compile(rb"\r(?!\n)|(?<!\r)\n")


def _now() -> datetime:
    return datetime.now(UTC)


class Mailer:
    """Sends mails and remembers each under its (thread, call id).

    Without a transport the outbox itself is where mails go. With one, a row is written before sending: the same key
    is sent at most once, by one process, and an outcome that nobody can know stays ``unknown`` until a person
    settles it. A receiver that drops repeated Message-IDs makes that exactly once.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        transport: Transport | None = None,
        sender: str = "desk@localhost",
        clock: Callable[[], datetime] = _now,
    ) -> None:
        if not is_plain_address(sender) or not sender.isascii():
            raise ValueError(f"sender {sender!r} is not one plain ASCII address; write it as name@domain")
        self._outbox = Outbox(path)
        self._transport = transport
        self._sender = sender
        self._clock = clock

    def __enter__(self) -> Mailer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the outbox."""
        self._outbox.close()

    def send(self, *, to: object, subject: str, body: str, context: ToolContext) -> Delivery:
        """Send one mail to the record's address, or return what became of it when its key was used before.

        The address on the record is ``context.facts["record_email"]``. Raises ``NotPermittedError`` when ``to`` is
        not that address or the context names no thread and call, ``InvalidArgumentsError`` for a subject or body
        out of bounds, and ``KeyConflictError`` when the key holds another mail. Nothing is sent then.
        """
        letter = self.letter(to=to, subject=subject, body=body, context=context)
        if not context.thread_id or not context.call_id:
            raise NotPermittedError("a mail needs the thread and the call it belongs to; this context names none")
        if self._transport is None:
            return self._outbox.claim(letter, "sent", LOCAL_TRANSPORT, self._time())[0]
        delivery, mine = self._outbox.claim(letter, "sending", self._transport.name, self._time())
        return self._deliver(self._transport, letter, delivery) if mine else delivery

    def letter(self, *, to: object, subject: str, body: str, context: ToolContext) -> Letter:
        """The mail as it would be sent; nothing is. Raises as ``send`` does for what may not or cannot be written."""
        recipient = checked_recipient(to, context)
        check_text("subject", subject, SUBJECT_LIMIT, allowed="")
        check_text("body", body, BODY_LIMIT, allowed="\n\r\t")
        identity = message_id(context.thread_id, context.call_id, self._sender.partition("@")[2])
        letter = Letter(context.thread_id, context.call_id, identity, recipient, subject, body, context.approved_by)
        message_bytes(letter, self._sender, self._clock())  # a mail that cannot be written takes no key
        return letter

    def find(self, thread_id: str, call_id: str) -> Delivery | None:
        """The mail of this thread and call, or None."""
        return self._outbox.find(thread_id, call_id)

    def find_message(self, message_id: str) -> Delivery | None:
        """The mail with this Message-ID, with or without its angle brackets, or None."""
        return self._outbox.find_message(f"<{message_id.strip('<>')}>")

    def changes(self, thread_id: str, call_id: str) -> list[DeliveryChange]:
        """Every state a mail was in, oldest first."""
        return self._outbox.changes(thread_id, call_id)

    def deliveries(self, thread_id: str | None = None) -> list[Delivery]:
        """All mails, or those of one thread, oldest first."""
        return self._outbox.rows(thread_id)

    def settle(self, thread_id: str, call_id: str, state: Literal["sent", "failed"], *, by: str) -> Delivery:
        """Write what a person found out about an unknown mail; ``failed`` allows it to be sent again.

        Raises ValueError when there is no such mail or its outcome is already known.
        """
        found = self._outbox.find(thread_id, call_id)
        if found is None or found.state not in ("sending", "unknown"):
            raise ValueError(f"call {call_id!r} of thread {thread_id!r} has no mail with an unknown outcome")
        outcome = Outcome(state, state == "failed", f"settled by {by}")
        return self._outbox.finish(thread_id, call_id, outcome, self._time())

    def _deliver(self, transport: Transport, letter: Letter, delivery: Delivery) -> Delivery:
        written = message_bytes(letter, self._sender, datetime.fromisoformat(delivery.created_at))
        try:
            outcome = transport.deliver(written, self._sender, letter.recipient)
        except BaseException as error:
            outcome = Outcome("unknown", False, f"the transport raised {type(error).__name__}")
            delivery = self._outbox.finish(letter.thread_id, letter.call_id, outcome, self._time())
            if isinstance(error, Exception):
                return delivery
            raise
        return self._outbox.finish(letter.thread_id, letter.call_id, outcome, self._time())

    def _time(self) -> str:
        return self._clock().astimezone(UTC).isoformat()


def send_email_tool(mailer: Mailer, *, name: str = "send_email") -> Tool:
    """A dangerous tool by which a model writes to the participant on the record, and to nobody else."""

    def preview(to: str, subject: str, body: str, context: ToolContext) -> str:
        letter = mailer.letter(to=to, subject=subject, body=body, context=context)
        return f"Dry run: would send to {letter.recipient}, subject {subject!r}, body of {len(body)} characters."

    def send(
        to: Annotated[str, Field(description="The bare address on the record, such as name@example.org")],
        subject: Annotated[str, Field(max_length=SUBJECT_LIMIT, description="One line")],
        body: Annotated[str, Field(max_length=BODY_LIMIT, description="Plain text")],
        context: ToolContext,
    ) -> str:
        """Send one e-mail to the participant. It goes only to the address stored on the registration record.

        Give that address alone, as it is stored: no name, list, comment or second address. The subject is one line
        and the body plain text, both without control characters. One call is one mail; a mail whose fate is unknown
        is not sent again.
        """
        return report(mailer.send(to=to, subject=subject, body=body, context=context))

    return tool(name=name, tier="dangerous", dry_run=preview)(send)


def report(delivery: Delivery) -> str:
    """What a model is told of a mail that was sent; for any other state the error that says what may be done."""
    match delivery.state:
        case "sent":
            return f"Sent to {delivery.recipient} (Message-ID {delivery.message_id})."
        case "sending" | "unknown":
            raise UnknownDeliveryError(
                f"It is not known whether the mail to {delivery.recipient} was delivered; it is not sent again. "
                f"Do not write another one; a person has to look. {delivery.detail}".strip()
            )
        case "failed" if delivery.may_retry:
            raise TemporaryToolError(f"The mail was not delivered: {delivery.detail}.")
        case "failed":
            raise ToolError(f"The mail was refused and not delivered: {delivery.detail}.")


def checked_recipient(to: object, context: ToolContext) -> str:
    """The address on the record, if ``to`` is the same one; else ``NotPermittedError``."""
    record = context.facts.get(RECORD_EMAIL)
    if not is_plain_address(record):
        raise NotPermittedError("there is no usable address on the record, so no mail can be sent")
    if same_address(to, record):
        return record
    # In ASCII, so that a look-alike or an invisible character shows.
    shown = f"the address given, {ascii(to)[:80]}, is not the one on the record"
    if not is_plain_address(to):
        raise NotPermittedError(f"{shown}: it is not one bare address such as name@example.org")
    if contact_key(to) == contact_key(record):
        raise NotPermittedError(f"{shown}: upper and lower case differ before the @; write it as it is stored")
    raise NotPermittedError(f"{shown}; mail goes to no other address")


def check_text(field: str, text: str, limit: int, *, allowed: str) -> None:
    """Raise ``InvalidArgumentsError`` unless the text has 1 to ``limit`` characters and no control characters.

    Line and paragraph separators and lone surrogates count as control characters; those in ``allowed`` do not.
    """
    if not text.strip():
        raise InvalidArgumentsError(f"{field}: it is empty")
    if len(text) > limit:
        raise InvalidArgumentsError(f"{field}: it has {len(text)} characters and {limit} are allowed")
    for place, character in enumerate(text):
        if character not in allowed and unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
            raise InvalidArgumentsError(f"{field}: character U+{ord(character):04X} at {place} is not allowed")


def message_bytes(letter: Letter, sender: str, date: datetime) -> bytes:
    """The mail as it goes over the wire. Raises ``InvalidArgumentsError`` if it would not read back the same."""
    # A body of 7-bit lines is one that every server takes without an extension.
    chosen = policy.SMTP if letter.recipient.isascii() else policy.SMTPUTF8
    written = EmailMessage(chosen.clone(cte_type="7bit"))
    local, _, domain = letter.recipient.partition("@")
    headers = {
        "From": Address(addr_spec=sender),
        "To": Address(username=local, domain=domain),
        "Subject": letter.subject,
        "Date": format_datetime(date),
        "Message-ID": letter.message_id,
    }
    for name, value in headers.items():
        written[name] = value
    written.set_content(letter.body)
    content = written.as_bytes()
    read = BytesParser(policy=chosen).parsebytes(content)
    expected = {"From": sender, "To": letter.recipient, "Message-ID": letter.message_id}
    same = all(str(read[name]) == value for name, value in expected.items())
    same = same and _BARE_LINE_END.search(content) is None
    if not same or read.keys() != written.keys() or str(read["Subject"]).split() != letter.subject.split():
        raise InvalidArgumentsError("the mail would not read back as it was written; use a plainer subject")
    return content
