"""Reads JSON and refuses what would be read by luck: NaN, and an object that has one key twice.

Of two values under one key readers keep the first or the last, as they like, so a question or a probability that
stands there twice means nothing. Used for whatever comes from elsewhere: requests, responses, files of questions.
"""

from __future__ import annotations

import json

import msgspec


class RepeatedKeyError(ValueError):
    """An object with one key twice; `path` leads to it, the key last, from the whole of the text on."""

    def __init__(self, path: tuple[str | int, ...]) -> None:
        self.path = path
        where = "".join(f"[{part!r}]" for part in path[:-1])
        super().__init__(f"the key {path[-1]!r} stands twice in {where or 'the outermost object'}; leave one out")


class _Pairs(list[tuple[str, object]]):
    """An object as its keys and values in the order of the text."""


def read_json(text: bytes) -> object:
    """Return what the JSON holds.

    Raises ValueError for what is not JSON, RepeatedKeyError for what is but for a key, RecursionError for deep nesting.
    """
    value: object = msgspec.json.decode(text)
    _refuse_repeated(json.loads(text.decode(), object_pairs_hook=_Pairs, parse_int=str, parse_float=str))
    return value


def _refuse_repeated(value: object) -> None:
    todo: list[tuple[tuple[str | int, ...], object]] = [((), value)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, _Pairs):
            seen: set[str] = set()
            for key, item in value:
                if key in seen:
                    raise RepeatedKeyError((*path, key))
                seen.add(key)
                todo.append(((*path, key), item))
        elif isinstance(value, list):
            todo += [((*path, place), item) for place, item in enumerate(value)]
