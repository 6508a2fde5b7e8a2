"""A real SMTP server on this machine that keeps what it gets and answers as told."""

from __future__ import annotations

import email
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from email import policy
from email.message import EmailMessage
from typing import cast

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from tools import SmtpTransport


class Sink:
    """What came in, and how to answer. Answers are by command; an empty one is the usual 250.

    ``drop_after_data`` takes the mail and closes the connection without a word.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.envelopes: list[Envelope] = []
        self.answers = {"MAIL": "", "RCPT": "", "DATA": ""}
        self.drop_after_data = False

    @property
    def messages(self) -> list[EmailMessage]:
        """The mails that came in, read."""
        contents = [cast("bytes", item.content) for item in self.envelopes]
        return [email.message_from_bytes(item, policy=policy.default) for item in contents]

    def transport(self) -> SmtpTransport:
        """The way to this server."""
        return SmtpTransport("127.0.0.1", self.port, timeout=5, local_hostname="localhost")

    async def handle_MAIL(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        envelope.mail_from = address
        return self.answers["MAIL"] or "250 OK"

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        envelope.rcpt_tos.append(address)
        return self.answers["RCPT"] or "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if not self.answers["DATA"]:
            self.envelopes.append(envelope)
        if self.drop_after_data:
            assert server.transport is not None
            server.transport.close()
        return self.answers["DATA"] or "250 taken"


def free_port() -> int:
    """A port nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def smtp_sink() -> Iterator[Sink]:
    """A running sink."""
    handler = Sink(free_port())
    controller = Controller(handler, hostname="127.0.0.1", port=handler.port, enable_SMTPUTF8=True)
    controller.start()
    try:
        yield handler
    finally:
        controller.stop()
