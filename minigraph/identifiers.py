"""Identifiers: a checkpoint's id begins with its revision; task and interrupt ids are derived, the same on a re-run."""

from __future__ import annotations

import os
import random
import re
import time
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b

_ID = re.compile(r"[0-9a-f]{32}")
_PLACES = tuple([f"{place:02x}" for place in range(256)])
_from_hex = bytes.fromhex
_chance = random.Random()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_chance.seed)


def new_checkpoint_id(revision: int) -> str:
    """A fresh id for the checkpoint of a write: 16 hexadecimal digits of its revision, so that it sorts by age in its
    thread and is found there without an index, and 16 of chance."""
    return (revision << 64 | _chance.getrandbits(64)).to_bytes(16, "big").hex()


def derived_checkpoint_id(owner: str, number: int) -> str:
    """The id of the checkpoint `number` of a run that stores nothing and may start over."""
    return f"{number:016x}{_digest(owner)[:16]}"


def parts_of_checkpoint_id(checkpoint_id: str) -> tuple[int, bytes] | None:
    """The revision and the random half of an id; None for a text that is none."""
    try:
        packed = _from_hex(checkpoint_id)
    except ValueError:
        return None
    if len(packed) != 16 or packed.hex() != checkpoint_id:
        return None
    return int.from_bytes(packed[:8], "big"), packed[8:]


def revision_of(checkpoint_id: str) -> int:
    """The revision that an id of ours begins with."""
    return int(checkpoint_id[:16], 16)


def mark_of(checkpoint_id: str, revision: int) -> bytes | None:
    """The random half of an id; None for one that does not begin with the revision."""
    parts = parts_of_checkpoint_id(checkpoint_id)
    return parts[1] if parts is not None and parts[0] == revision else None


def joined_checkpoint_id(revision: int, mark: bytes) -> str:
    """The id with this revision and random half."""
    return (revision.to_bytes(8, "big") + mark).hex()


def now() -> int:
    """Milliseconds since 1970. A label for people; nothing is ordered by it."""
    return time.time_ns() // 1_000_000


def time_text(milliseconds: int) -> str:
    """A time in milliseconds since 1970 as ISO 8601, UTC."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_second_text(seconds)}.{str(rest + 1000)[1:]}+00:00"


@lru_cache(64)
def _second_text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:-6]


def task_id(checkpoint_id: str, place: int) -> str:
    """The id of a task first listed by a checkpoint: its place (0, 1, ...) among the tasks that are listed first there.

    It is the same on every re-run and another one on a fork.
    """
    return checkpoint_id + (_PLACES[place] if place < 256 else f"{place:x}")


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


def has_lone_surrogate(text: str) -> bool:
    """Whether a text holds half a character, which no saver can store."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def looks_like_answers(value: object) -> bool:
    """Whether a resume value is a map of answers: a non-empty dict whose keys all have the form of interrupt ids."""
    return isinstance(value, dict) and bool(value) and all(isinstance(key, str) and _ID.fullmatch(key) for key in value)


def _digest(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
