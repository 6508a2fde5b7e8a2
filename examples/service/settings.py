"""What the environment says about the service, and the saver that it asks for."""

from __future__ import annotations

import os

import msgspec

from minigraph.checkpoint import Saver, SqliteSaver


class Settings(msgspec.Struct, frozen=True):
    """What the environment says, as SERVICE_THREADS and so on."""

    threads: str = "threads.db"
    """A SQLite file, or postgresql://..."""
    orders: str = "orders.txt"
    key: str = ""
    """What clients send as a bearer token; "" lets everybody in."""
    step_seconds: float = 0.1
    store_seconds: float = 10
    """How long a write waits for a lock, or a call for a connection."""
    silence_seconds: float = 30
    """After how much silence a worker counts as dead; longer than any node may take."""
    look_seconds: float = 10
    """How often a worker looks for threads that were left."""
    drain_seconds: float = 30
    """How long the runs under way have to reach the end of their step; they are cancelled after it."""
    notice_seconds: float = 1
    """How long a worker that stops still answers, so that the load balancer notices."""

    @classmethod
    def read(cls) -> Settings:
        """The settings of this process; msgspec.ValidationError names a wrong one."""
        found = {name: os.environ[f"SERVICE_{name.upper()}"] for name in cls.__struct_fields__
                 if f"SERVICE_{name.upper()}" in os.environ}  # fmt: skip
        return msgspec.convert(found, cls, strict=False)


def open_saver(settings: Settings) -> Saver:
    """The saver of one worker. It is made in the worker itself: connections do not survive a fork."""
    if "://" not in settings.threads:
        return SqliteSaver(settings.threads, timeout=settings.store_seconds)
    from minigraph.checkpoint.postgres import PostgresSaver

    return PostgresSaver(settings.threads, max_size=8, timeout=settings.store_seconds)
