"""How many bytes a stored numpy array takes, by its description alone: so that it can be checked where numpy is not."""

from __future__ import annotations

import math
import re
from typing import Any, Final

_DTYPE: Final = re.compile(r"[<>|=]?([A-Za-z?])([0-9]{1,9})(\[[^]]*\])?")


def check_size(parts: list[Any], *, scalar: bool) -> None:
    """ValueError (or another error of that kind) where the bytes of a stored array or scalar do not fill it."""
    description, *shape, data = parts if scalar else [parts[0], *parts[1], parts[-1]]
    if not scalar and (len(parts) != 4 or parts[2] not in ("C", "F")):
        raise ValueError("not the parts of an array")
    if _count(shape) * _bytes_of(description) != len(data):
        raise ValueError("the bytes do not fill the array")


def _count(shape: Any) -> int:
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError("not the shape of an array")
    return math.prod(shape)


def _bytes_of(description: Any) -> int:
    """The bytes of one item: the number in "<f8", times four for text, and the sum of the fields of a record."""
    if isinstance(description, list | tuple):
        return sum(_bytes_of(kind) * _count(*shape or [[]]) for _, kind, *shape in description)
    found = _DTYPE.fullmatch(description)
    if found is None:
        raise ValueError(f"{description[:50]!r} is no dtype that is stored")
    return int(found[2]) * (4 if found[1] == "U" else 1)
