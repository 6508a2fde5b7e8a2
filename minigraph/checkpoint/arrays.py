"""numpy arrays and scalars as bytes; this module is loaded when the first one is stored or read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigraph.checkpoint.tags import Unsuitable


def _describe(dtype: np.dtype[Any]) -> Any:
    if dtype.hasobject:
        raise Unsuitable("its elements are Python objects; store a list instead")
    description: Any = dtype.str if dtype.names is None else np.lib.format.dtype_to_descr(dtype)
    if _dtype(description) != dtype or (dtype.names is not None and dtype.metadata is not None):
        raise Unsuitable("its dtype has no exact description; use one without titles, subarrays of its own or metadata")
    return description


def _dtype(description: Any) -> np.dtype[Any]:
    dtype = np.dtype(description) if isinstance(description, str) else np.lib.format.descr_to_dtype(description)
    if dtype.hasobject:
        raise ValueError("arrays of Python objects are never stored")
    return dtype


def array_parts(value: np.ndarray[Any, Any]) -> list[Any]:
    """Dtype, shape, memory order and bytes of an array."""
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
    return np.ndarray(tuple(shape), dtype, bytearray(data), order=order)


def load_scalar(parts: list[Any]) -> Any:
    """The scalar; ValueError where the bytes do not fit the dtype."""
    description, data = parts
    dtype = _dtype(description)
    if dtype.itemsize != len(data):
        raise ValueError("the bytes do not fill the scalar")
    return np.ndarray((1,), dtype, bytearray(data))[0]
