"""What a run asks of the world. `run.py` and `snapshots.py` yield these; the drivers in `execute.py` carry them out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from minigraph.context import Event
from minigraph.records import Write
from minigraph.work import Job


class Load(msgspec.Struct, frozen=True):
    """Read a checkpoint (None: the head) of a namespace. Answered with Stored or None."""

    thread_id: str
    namespace: str
    checkpoint_id: str | None = None


class History(msgspec.Struct, frozen=True):
    """Read checkpoints, newest first. Answered with a list of Stored."""

    thread_id: str
    namespace: str
    before: str | None = None
    limit: int | None = None
    filter: Mapping[str, Any] = {}


class Lineage(msgspec.Struct, frozen=True):
    """Read a checkpoint (None: the head) and its ancestors without their states. Answered with a list of Ancestors,
    newest first; empty if there is no such checkpoint."""

    thread_id: str
    namespace: str
    checkpoint_id: str | None = None


class Namespaces(msgspec.Struct, frozen=True):
    """List the namespaces of a thread. Answered with a list of str."""

    thread_id: str


class Save(msgspec.Struct, frozen=True):
    """Store a write; `background` allows it to finish later, but before the next one begins.

    The error of an earlier save in the background may be raised here, before this one begins.
    """

    write: Write
    background: bool = False


class Settle(msgspec.Struct, frozen=True):
    """Wait for a save in the background; its error is raised here."""


class Start(msgspec.Struct, frozen=True):
    """Begin to run jobs, and wait until something happened. Answered as `Wait` is."""

    jobs: tuple[Job, ...]


class Wait(msgspec.Struct, frozen=True):
    """Wait until something happened. Answered with a list of Outcomes and Events, at least one, in their order."""


class Stop(msgspec.Struct, frozen=True):
    """End what was started: running jobs are waited for (threads) or cancelled (asyncio).

    Answered with a list of the Outcomes and Events that were still to come; a cancelled job's result says so.
    """


Found = TypeVar("Found")
"""What a generator of effects returns at its end."""
Effect = Load | History | Lineage | Namespaces | Save | Settle | Start | Wait | Stop | Event
"""An Event is an effect too: show it to whoever streams the run."""
