"""What a run asks of the world. `run.py` and `snapshots.py` yield these; the drivers in `execute.py` carry them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from minigraph.context import Event
from minigraph.records import Write
from minigraph.work import Job


@dataclass(frozen=True, slots=True)
class Load:
    """Read a checkpoint (None: the head) of a namespace. Answered with Stored or None."""

    thread_id: str
    namespace: str
    checkpoint_id: str | None = None


@dataclass(frozen=True, slots=True)
class History:
    """Read checkpoints, newest first. Answered with a list of Stored."""

    thread_id: str
    namespace: str
    before: str | None = None
    limit: int | None = None
    filter: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lineage:
    """Read a checkpoint (None: the head) and its ancestors without their states. Answered with a list of Ancestors,
    newest first; empty if there is no such checkpoint."""

    thread_id: str
    namespace: str
    checkpoint_id: str | None = None


@dataclass(frozen=True, slots=True)
class Namespaces:
    """List the namespaces of a thread. Answered with a list of str."""

    thread_id: str


@dataclass(frozen=True, slots=True)
class Save:
    """Store a write; `background` allows it to finish later, but before the next one begins."""

    write: Write
    background: bool = False


@dataclass(frozen=True, slots=True)
class Settle:
    """Wait for a save in the background; its error is raised here."""


@dataclass(frozen=True, slots=True)
class Start:
    """Begin to run jobs."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until something happened. Answered with a list of Outcomes and Events, at least one, in their order."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End what was started: running jobs are waited for (threads) or cancelled (asyncio).

    Answered with a list of the Outcomes and Events that were still to come; a cancelled job's result says so.
    """


@dataclass(frozen=True, slots=True)
class Emit:
    """Show an event to whoever streams the run."""

    event: Event


Found = TypeVar("Found")
"""What a generator of effects returns at its end."""
Effect = Load | History | Lineage | Namespaces | Save | Settle | Start | Wait | Stop | Emit
