"""Hand one message to an SMTP server and say what is known of it afterwards."""

from __future__ import annotations

import smtplib
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias

OutcomeState: TypeAlias = Literal["sent", "unknown", "failed"]

_DETAIL_LIMIT: Final = 300


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is known of a message: ``failed`` means surely not delivered, ``unknown`` that nobody can tell."""

    state: OutcomeState
    may_retry: bool
    detail: str


class Transport(Protocol):
    """Carries one finished message to one recipient."""

    @property
    def name(self) -> str:
        """What the outbox notes as the way the message went."""
        ...

    def deliver(self, message: bytes, sender: str, recipient: str) -> Outcome:
        """Hand the message over once. Whatever this raises counts as an unknown outcome."""
        ...


@dataclass(frozen=True, slots=True)
class SmtpTransport:
    """An SMTP server. ``timeout`` is in seconds and holds for each exchange."""

    host: str
    port: int = 25
    timeout: float = 10.0
    starttls: bool = False
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    local_hostname: str | None = None

    @property
    def name(self) -> str:
        return f"smtp://{self.host}:{self.port}"

    def deliver(self, message: bytes, sender: str, recipient: str) -> Outcome:
        """Send to exactly this recipient.

        A refusal before the server took the text is ``failed``, worth a retry for a 4xx answer or a lost
        connection. Once the text is under way, a lost connection is ``unknown``: the server may have the message.
        """
        try:
            client = smtplib.SMTP(self.host, self.port, self.local_hostname, self.timeout)
        except (OSError, smtplib.SMTPException) as error:
            return _not_accepted("connect", error)
        try:
            return self._exchange(client, message, sender, recipient)
        finally:
            # The outcome is known by now; a server that does not say goodbye changes nothing.
            with suppress(OSError, smtplib.SMTPException):
                client.quit()
            client.close()

    def _exchange(self, client: smtplib.SMTP, message: bytes, sender: str, recipient: str) -> Outcome:
        try:
            if self.starttls:
                client.starttls(context=ssl.create_default_context())
            if self.username is not None:
                client.login(self.username, self.password or "")
            client.ehlo_or_helo_if_needed()
            options = [] if sender.isascii() and recipient.isascii() else ["SMTPUTF8", "BODY=8BITMIME"]
            if options and not client.has_extn("smtputf8"):
                return Outcome("failed", False, "the server does not take addresses beyond ASCII")
            code, answer = client.mail(sender, options)
            if code != 250:
                return _refused("MAIL", code, answer)
            code, answer = client.rcpt(recipient)
            if code not in (250, 251):
                return _refused("RCPT", code, answer)
        except (OSError, smtplib.SMTPException) as error:
            return _not_accepted("before DATA", error)
        try:
            code, answer = client.data(message)
        except smtplib.SMTPDataError as error:  # the server did not ask for the text
            return _refused("DATA", error.smtp_code, error.smtp_error)
        except (OSError, smtplib.SMTPException) as error:
            return Outcome("unknown", False, _bounded(f"connection lost after DATA: {type(error).__name__}: {error}"))
        if code == 250:
            return Outcome("sent", False, _bounded(f"250 {_text(answer)}"))
        return _refused("end of DATA", code, answer)


def _refused(stage: str, code: int, answer: bytes | str) -> Outcome:
    detail = _bounded(f"{stage}: {code} {_text(answer)}")
    if 400 <= code < 600:
        return Outcome("failed", code < 500, detail)
    return Outcome("unknown" if stage == "end of DATA" else "failed", False, detail)


def _not_accepted(stage: str, error: Exception) -> Outcome:
    code = error.smtp_code if isinstance(error, smtplib.SMTPResponseException) else 0
    lasting = code >= 500 or isinstance(error, smtplib.SMTPNotSupportedError | ssl.SSLCertVerificationError)
    return Outcome("failed", not lasting, _bounded(f"{stage}: {type(error).__name__}: {error}"))


def _text(answer: bytes | str) -> str:
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer


def _bounded(text: str) -> str:
    return text[:_DETAIL_LIMIT]
