"""Turns states and structured texts into the one text that the model reads.

A string stays as it is. Anything else is written as JSON with sorted keys, so equal values give equal text and a
line break or a quotation mark inside a value cannot pass for structure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CuttableState:
    """A state that says which part may be shortened when it does not fit.

    `head` and `tail` are always read in full; `cuttable` loses tokens from its end. The parts are read one after the
    other, as if a line break stood between them.
    """

    head: str
    cuttable: str
    tail: str = ""


def render(value: object) -> str:
    """Return the text of a value that JSON can hold.

    Raises ValueError, with the reason, for what JSON cannot hold (NaN, sets, records) and for text that is not valid
    Unicode.
    """
    text = value if isinstance(value, str) else _as_json(value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"the text holds a lone surrogate at character {error.start}") from error
    return text


def _as_json(value: object) -> str:
    try:
        _refuse_other_keys(value)
        return json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False)
    except RecursionError as error:
        raise ValueError("it cannot be written as JSON (it is nested too deeply, or holds itself)") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"it cannot be written as JSON ({error})") from error


def _refuse_other_keys(value: object) -> None:
    """json.dumps writes the key 1 as "1" and None as "null": two different mappings could give one text."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"it has the key {key!r}, and keys must be strings")
            _refuse_other_keys(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_other_keys(item)
