"""Finds nodes, routers and reducers that edit in place what they were given, and names where."""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from minigraph.channels import Channel, Reduced
from minigraph.checkpoint.sameness import same
from minigraph.testing.instrument import CompiledT, Found, Seen, watched, with_channels


class MutationError(Found):
    """Something was edited in place; `where` says by whom and `path` says what, as in "$.items[0].name"."""

    def __init__(self, where: str, path: str) -> None:
        super().__init__(
            f"{where} edited {path} in place. What it is given is shared with other nodes and with stored states:"
            " build a new value and return it as an update"
        )
        self.where, self.path = where, path


def detect_mutation(graph: CompiledT) -> CompiledT:
    """A copy of a graph that raises MutationError as soon as a node, router or reducer edits shared values in place.

    A node's own shallow copies (the lists, dicts and sets right in its state) may be edited freely: nobody else sees
    them. The argument of a Send and a reducer's write are shared as a whole. The copy keeps the checkpointer. An edit
    is found as well where the function then raises (a note of the error names its exception) or asks a question.

    Raises TypeError for a graph that is not compiled.
    """
    return watched(with_channels(graph, _checked_channel), _watch, also_raised=True)


def _watch(seen: Seen) -> Callable[[], None]:
    before = snapshot(seen.argument, own=seen.own)

    def after() -> None:
        if (path := changed(before)) is not None:
            raise MutationError(seen.what, path)

    return after


def _checked_channel(key: str, channel: Channel) -> Channel:
    if not isinstance(channel, Reduced):
        return channel
    reducer = channel.reducer

    def reduce(old: Any, write: Any) -> Any:
        kept = [("the old value", snapshot(old, own=1)), ("the write", snapshot(write))]
        result = reducer(old, write)
        for name, before in kept:
            if (path := changed(before)) is not None:
                raise MutationError(f"the reducer of key {key!r}", f"{path} of {name}")
        return result

    made = copy.copy(channel)
    made.reducer = reduce
    return made


Parts = tuple[tuple[Any, Any], ...]
Snapshot = list[tuple[str, Any, Parts]]
"""The mutable objects inside a value: the path to each, the object, and its parts at that time."""


def snapshot(value: Any, *, own: int = 0) -> Snapshot:
    """What a value consists of now.

    Lists, dicts and sets less than `own` levels deep are left out, since they are their holder's own copies; so is a
    state itself (`own` is 2), which is made for each call.
    """
    found: Snapshot = []
    seen: set[int] = set()

    def walk(item: Any, path: str, depth: int) -> None:
        parts = _parts(item)
        if parts is None or id(item) in seen:
            return
        seen.add(id(item))
        copied = depth < own and (type(item) in (list, dict, set) or (depth == 0 and own == 2))
        if not copied and not isinstance(item, tuple | frozenset):
            found.append((path, item, parts))
        for place, part in parts:
            walk(part, f"{path}{place}", depth + 1)

    walk(value, "$", 0)
    return found


def changed(before: Snapshot) -> str | None:
    """The path of the first object that no longer has the parts it had, or None."""
    for path, item, parts in before:
        now = _parts(item)
        if now is None or len(now) != len(parts):
            return path
        for (place, part), (now_place, now_part) in zip(parts, now, strict=True):
            if place != now_place or not same(part, now_part):
                return f"{path}{now_place}"
    return None


def _parts(item: Any) -> Parts | None:
    """The parts of an object with their places in it, or None for something without parts (or unknown)."""
    if isinstance(item, Mapping):
        return tuple((_key(key), value) for key, value in item.items())
    if isinstance(item, list | tuple | deque):
        return tuple((f"[{index}]", value) for index, value in enumerate(item))
    if isinstance(item, set | frozenset):
        return tuple((f"{{{value!r}}}", value) for value in sorted(item, key=repr))
    if isinstance(item, bytearray):
        return (("[:]", bytes(item)),)
    if hasattr(item, "tobytes") and hasattr(item, "dtype"):  # an array
        return (("[:]", item.tobytes()),)
    if isinstance(item, type) or callable(item):
        return None
    return tuple((f".{name}", value) for name, value in _fields(item)) or None


def _fields(item: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(item, "__struct_fields__"):
        names = item.__struct_fields__
    elif dataclasses.is_dataclass(item):
        names = [field.name for field in dataclasses.fields(item)]
    elif hasattr(item, "__dict__"):
        names = list(vars(item))
    else:
        return
    for name in names:
        if hasattr(item, name):
            yield name, getattr(item, name)


def _key(key: Any) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"
