"""A pooler as PgBouncer is in transaction mode: each transaction may get another session of the server."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from abc import ABC, abstractmethod

import psycopg
from postgres_server import conninfo
from psycopg.conninfo import make_conninfo

SESSIONS = 3
_ENCRYPTION = (80877103, 80877104)
"""Requests for TLS and GSSAPI, which are declined."""


def server_socket(place: tuple[str, int]) -> socket.socket:
    """A connection to the server that psycopg knows by this host and port."""
    host, port = place
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    server = socket.socket(socket.AF_UNIX)
    server.connect(f"{host}/.s.PGSQL.{port}")
    return server


def server_place() -> tuple[str, int]:
    """Host and port of the server of the tests."""
    with psycopg.connect(conninfo()) as connection:
        return connection.info.host, connection.info.port


class BeforeTheServer(ABC):
    """Listens on `conninfo` in the server's place, and serves each client in a thread of its own."""

    def __init__(self) -> None:
        self._place = server_place()
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.conninfo = make_conninfo(conninfo(), host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    @abstractmethod
    def _serve(self, client: socket.socket) -> None:
        """Passes on what a client and the server say to each other."""


class Pooler(BeforeTheServer):
    """Each client has `SESSIONS` sessions, and its transactions take them in turn."""

    def __init__(self) -> None:
        self.transactions = 0
        super().__init__()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.ExitStack() as stack, contextlib.suppress(EOFError, ConnectionError):
            stack.enter_context(client)
            start = _start(client)
            sessions = [stack.enter_context(server_socket(self._place)) for _ in range(SESSIONS)]
            for session in sessions:
                session.sendall(start)
            greetings = [_until_ready(session) for session in sessions]
            client.sendall(greetings[0])
            turns = itertools.cycle(sessions)
            session, within = next(turns), False
            while True:
                request = _request(client)
                if not within:
                    session = next(turns)
                    self.transactions += 1
                session.sendall(request)
                answer = _until_ready(session)
                within = answer[-1:] != b"I"
                client.sendall(answer)


def _exactly(source: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = source.recv(count - len(found))
        if not part:
            raise EOFError
        found += part
    return found


def _start(client: socket.socket) -> bytes:
    while True:
        head = _exactly(client, 8)
        length, code = struct.unpack("!II", head)
        if code not in _ENCRYPTION:
            return head + _exactly(client, length - 8)
        client.sendall(b"N")


def _message(source: socket.socket) -> bytes:
    head = _exactly(source, 5)
    (length,) = struct.unpack("!I", head[1:])
    return head + _exactly(source, length - 4)


def _request(client: socket.socket) -> bytes:
    """What a client sends up to the point where it waits for an answer."""
    request = b""
    while True:
        message = _message(client)
        if message[:1] == b"X":
            raise EOFError
        request += message
        if message[:1] in (b"S", b"Q"):
            return request


def _until_ready(session: socket.socket) -> bytes:
    """What a session answers; the last byte says whether a transaction is open."""
    answer = b""
    while True:
        message = _message(session)
        answer += message
        if message[:1] == b"Z":
            return answer
