"""Text for PostgreSQL, which cannot hold NUL characters: they are written as "␀0", and "␀" itself as "␀␀"."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_SIGN: Final = "␀"
_PLAIN: Final = re.compile("[\0␀]")
_JSON: Final = re.compile(r"\\u0000|\\.|␀")
_HELD: Final = re.compile("␀([0␀])")


def held(text: str) -> str:
    """A text as it is stored."""
    if "\0" not in text and _SIGN not in text:
        return text
    return _PLAIN.sub(lambda found: _SIGN + ("0" if found[0] == "\0" else _SIGN), text)


def read(text: str) -> str:
    """A text as it was."""
    return text if _SIGN not in text else _HELD.sub(lambda found: "\0" if found[1] == "0" else _SIGN, text)


def held_json(text: str) -> str:
    """JSON as it is stored, with `held` of every text in it."""
    if "\\u0000" not in text and _SIGN not in text:
        return text
    written = {"\\u0000": _SIGN + "0", _SIGN: _SIGN + _SIGN}
    return _JSON.sub(lambda found: written.get(found[0], found[0]), text)


def read_json(text: str) -> str:
    """JSON as it was."""
    return text if _SIGN not in text else _HELD.sub(lambda found: "\\u0000" if found[1] == "0" else _SIGN, text)


def address(*place: str) -> bytes:
    """What a place is found by in an index, however long its parts are: no two places have the same."""
    return hashlib.sha256("\0".join(map(held, place)).encode()).digest()
