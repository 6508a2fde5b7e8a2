"""Identifiers: checkpoint ids sort by age along a chain; task and interrupt ids are derived, the same on a re-run."""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime
from hashlib import blake2b

_INTERRUPT_ID = re.compile(r"[0-9a-f]{32}")


def new_checkpoint_id(parent_id: str | None) -> str:
    """A fresh id of 32 hexadecimal digits that sorts after its parent's, even where the clock went backwards."""
    stamp = time.time_ns()
    if parent_id is not None:
        stamp = max(stamp, int(parent_id[:16], 16) + 1)
    return f"{stamp:016x}{os.urandom(8).hex()}"


def derived_checkpoint_id(owner: str, number: int) -> str:
    """The id of the checkpoint `number` of a run that stores nothing and may start over."""
    return f"{number:016x}{_digest(owner)[:16]}"


def timestamp() -> str:
    """Now, as ISO 8601 in UTC. A label for people; nothing is ordered by it."""
    return datetime.now(UTC).isoformat()


def task_id(checkpoint_id: str, node: str, index: int, is_send: bool) -> str:
    """The id of a task first listed by a checkpoint: the same on every re-run, another one on a fork."""
    return _digest(checkpoint_id, node, "send" if is_send else "edge", str(index))


def interrupt_id(namespace: str, task: str, index: int) -> str:
    """The id of the question number `index` of a task."""
    return _digest(namespace, task, str(index))


def child_namespace(namespace: str, node: str, task: str) -> str:
    """Where the child graph of a task stores: the parent's namespace and "node:task" ("node" for one with a memory)."""
    part = f"{node}:{task}" if task else node
    return f"{namespace}|{part}" if namespace else part


def child_call(task: str, number: int, questions: int) -> str:
    """The name of a task's call of a child graph: its number in the node, and how many questions came before it."""
    return f"{task}#{number}@{questions}"


def same_call(name: str) -> str:
    """What a call of a child graph is known by when the node runs again: the task and the call's number."""
    return name.partition("@")[0]


def questions_before(name: str) -> int:
    """How many questions of the task came before a call of a child graph."""
    return int(name.partition("@")[2] or 0)


def looks_like_answers(value: object) -> bool:
    """Whether a resume value is a map of answers: a non-empty dict whose keys all have the form of interrupt ids."""
    return (
        isinstance(value, dict)
        and bool(value)
        and all(isinstance(key, str) and _INTERRUPT_ID.fullmatch(key) for key in value)
    )


def _digest(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
