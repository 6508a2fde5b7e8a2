"""numpy arrays and scalars as bytes; this module is loaded when the first one is stored or read."""

from __future__ import annotations

import math
import re
from typing import Any, Final

import numpy as np

from minigraph.checkpoint.tags import Unsuitable

MAX_EMPTY: Final = 1_000_000
_DTYPE: Final = re.compile(r"[<>|=]?[?bBhHiIlLqQuefdgFDGcmMSUVO][0-9]{0,9}(\[[0-9]{0,9}[A-Za-z]{1,7}(/[0-9]+)?\])?")


def _describe(dtype: np.dtype[Any]) -> Any:
    if dtype.hasobject:
        raise Unsuitable("its elements are Python objects; store a list instead")
    description: Any = dtype.str if dtype.names is None else np.lib.format.dtype_to_descr(dtype)
    if _dtype(description) != dtype or (dtype.names is not None and dtype.metadata is not None):
        raise Unsuitable("its dtype has no exact description; use one without titles, subarrays of its own or metadata")
    return description


def _dtype(description: Any) -> np.dtype[Any]:
    _check(description)
    dtype = np.dtype(description) if isinstance(description, str) else np.lib.format.descr_to_dtype(description)
    if dtype.hasobject:
        raise ValueError("arrays of Python objects are never stored")
    return dtype


def _check(description: Any) -> None:
    """ValueError for a text that numpy would not give itself: it understands many more, deprecated ones too."""
    if isinstance(description, str):
        if _DTYPE.fullmatch(description) is None:
            raise ValueError(f"{description[:50]!r} is no dtype that is stored")
    elif isinstance(description, list | tuple):
        for field in description:
            _check(field[1])
    else:
        raise ValueError("a dtype is a text, or a list of fields")


def _check_count(shape: Any, dtype: np.dtype[Any]) -> None:
    """Items that take no bytes can be claimed in any number."""
    if not dtype.itemsize and math.prod(shape) > MAX_EMPTY:
        raise Unsuitable(f"it has more than {MAX_EMPTY} items of no size")


def array_parts(value: np.ndarray[Any, Any]) -> list[Any]:
    """Dtype, shape, memory order and bytes of an array."""
    _check_count(value.shape, value.dtype)
    order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
    return [_describe(value.dtype), list(value.shape), order, value.tobytes(order=order)]  # type: ignore[arg-type]


def scalar_parts(value: np.generic) -> list[Any]:
    """Dtype and bytes of a scalar."""
    data = value.tobytes()
    if isinstance(value, str | bytes) and data.endswith(b"\0" * max(1, value.dtype.itemsize // max(1, len(value)))):
        raise Unsuitable("numpy drops the zeros it ends with; use a plain str or bytes")
    return [_describe(value.dtype), data]


def load_array(parts: list[Any]) -> np.ndarray[Any, Any]:
    """The array; ValueError where the parts do not fit together."""
    description, shape, order, data = parts
    dtype = _dtype(description)
    if any(type(size) is not int or size < 0 for size in shape) or order not in ("C", "F"):
        raise ValueError("not the shape of an array")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError("the bytes do not fill the array")
    try:
        _check_count(shape, dtype)
    except Unsuitable as error:
        raise ValueError(str(error)) from error
    return np.ndarray(tuple(shape), dtype, bytearray(data), order=order)


def load_scalar(parts: list[Any]) -> Any:
    """The scalar; ValueError where the bytes do not fit the dtype."""
    description, data = parts
    dtype = _dtype(description)
    if dtype.itemsize != len(data):
        raise ValueError("the bytes do not fill the scalar")
    return np.ndarray((1,), dtype, bytearray(data))[0]
