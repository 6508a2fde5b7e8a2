"""Where threads are stored: in memory, or in a SQLite file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minigraph.checkpoint.base import CheckpointTuple, Saver
from minigraph.checkpoint.memory import InMemorySaver

if TYPE_CHECKING:
    from minigraph.checkpoint.sqlite import SqliteSaver

__all__ = ["CheckpointTuple", "InMemorySaver", "Saver", "SqliteSaver"]


def __getattr__(name: str) -> object:
    if name == "SqliteSaver":
        from minigraph.checkpoint.sqlite import SqliteSaver

        return SqliteSaver
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
