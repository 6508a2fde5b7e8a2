"""What callers give to a saver, checked before anything is looked up or stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minigraph.checkpoint.rows import metadata_text
from minigraph.identifiers import has_lone_surrogate


def check_thread_id(method: str, thread_id: object) -> None:
    """TypeError for a thread id that is no str; ValueError for an empty one and for one that no saver can store."""
    if not isinstance(thread_id, str):
        raise TypeError(f"{method}: a thread id is a non-empty str; got {thread_id!r}")
    if not thread_id:
        raise ValueError(f"{method}: a thread id is a non-empty str; got ''")
    if has_lone_surrogate(thread_id):
        raise ValueError(
            f"{method}: the thread id {thread_id!r} holds half a character (a lone surrogate), which no saver can store"
        )


def check_keep(method: str, keep: object) -> None:
    """TypeError for a number of checkpoints to keep that is no int, ValueError for one below 0."""
    if not isinstance(keep, int) or isinstance(keep, bool):
        raise TypeError(f"{method}: keep={keep!r}: a whole number of checkpoints")
    if keep < 0:
        raise ValueError(f"{method}: keep={keep}: keep at least 0 checkpoints")


def checked_filter(filter: Mapping[str, Any] | None) -> dict[str, Any]:
    """A filter whose values metadata could hold; UnstorableValueError otherwise."""
    chosen = dict(filter or {})
    metadata_text(chosen)
    return chosen


def checked_limit(limit: int | None) -> int | None:
    """A limit that is None or not negative; TypeError or ValueError otherwise."""
    if limit is None:
        return None
    given: object = limit
    if not isinstance(given, int) or isinstance(given, bool):
        raise TypeError(f"limit={limit!r}: a whole number, at least 0, or None for all")
    if limit < 0:
        raise ValueError(f"limit={limit}: at least 0, or None for all")
    return limit


def place_of(config: Mapping[str, Any], method: str = "list(config)") -> Mapping[str, Any]:
    """What a config holds under "configurable"; ValueError where it names no thread."""
    place = config.get("configurable") or {}
    if "thread_id" not in place:
        raise ValueError(
            f"{method}: the config {config!r} names no thread: give {{'configurable': {{'thread_id': ...}}}}, or None"
            " for every thread"
        )
    check_thread_id(method, place["thread_id"])
    return place


def place_before(before: Mapping[str, Any], named: Mapping[str, Any]) -> Mapping[str, Any]:
    """The checkpoint that `before` names; its thread and namespace may stand in `named`. ValueError where one lacks."""
    own = before.get("configurable") or {}
    place = {**named, **own}
    for key, found in (("checkpoint_id", own), ("thread_id", place)):
        if found.get(key) is None:
            raise ValueError(
                f"list(before={before!r}): it names no {key}: give"
                " {'configurable': {'thread_id': ..., 'checkpoint_id': ...}}, such as the config of a snapshot"
            )
    check_thread_id("list(before=...)", place["thread_id"])
    return place
