"""Runs an ASGI application on a free port of this machine, on a thread, for as long as a block lasts."""

from __future__ import annotations

import socket
import threading
import time
from types import TracebackType

import uvicorn
from starlette.types import ASGIApp


class LoopbackServer:
    """`with LoopbackServer(app) as server:` serves at `server.url`; leaving the block stops it as SIGTERM would."""

    def __init__(self, app: ASGIApp, grace_seconds: int = 10) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        config = uvicorn.Config(
            app, log_level="critical", server_header=False, timeout_graceful_shutdown=grace_seconds, lifespan="on"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    def stop(self) -> None:
        """Ask the server to stop, without waiting for it."""
        self._server.should_exit = True

    def join(self, seconds: float = 30) -> bool:
        """Wait for the server to end; return whether it did."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def __enter__(self) -> LoopbackServer:
        self._thread.start()
        until = time.monotonic() + 30
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                raise RuntimeError("the server did not start")
            time.sleep(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if not self.join():
            raise RuntimeError("the server did not stop")
