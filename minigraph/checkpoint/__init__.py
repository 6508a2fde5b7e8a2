"""Where threads are stored: in memory, in a SQLite file, or in PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minigraph.checkpoint.base import CheckpointTuple, Saver
from minigraph.checkpoint.memory import InMemorySaver

if TYPE_CHECKING:
    from minigraph.checkpoint.postgres import PostgresSaver
    from minigraph.checkpoint.sqlite import SqliteSaver

__all__ = ["CheckpointTuple", "InMemorySaver", "PostgresSaver", "Saver", "SqliteSaver"]


def __getattr__(name: str) -> object:
    if name == "SqliteSaver":
        from minigraph.checkpoint.sqlite import SqliteSaver

        return SqliteSaver
    if name == "PostgresSaver":
        from minigraph.checkpoint.postgres import PostgresSaver

        return PostgresSaver
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
