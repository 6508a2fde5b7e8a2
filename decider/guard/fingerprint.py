"""One hash for whatever a calibration depends on: data by its content, functions by their source.

The source of a function does not hold what it calls; give such a function a version of its own with `versioned`.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import types
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from decider.guard.errors import GuardSettingError

_VERSION: Final = "__guard_version__"
Function = TypeVar("Function", bound=Callable[..., object])


def versioned(version: str) -> Callable[[Function], Function]:
    """Return a decorator that gives a function a version, which is its fingerprint from then on.

    For a function whose source says too little (it calls others, or loads data) or cannot be read.
    """

    def mark(function: Function) -> Function:
        setattr(function, _VERSION, version)
        return function

    return mark


def fingerprint(value: object) -> str:
    """Return the SHA-256 (hex) of data that JSON can hold, or of a function; the order of keys does not count.

    A function counts with its source, its defaults and the values that it encloses, one marked by `versioned` with its
    version. Raises GuardSettingError for anything else, a lambda included: its source is a line that may hold two.
    """
    try:
        text = json.dumps(_described(value), sort_keys=True, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise GuardSettingError(
            "no_fingerprint", f"it has no fingerprint: {error}", "Mark a function with versioned('...')."
        ) from None
    return hashlib.sha256(text.encode()).hexdigest()


def canonical(value: object) -> str:
    """Return the one JSON text of data; raises ValueError or TypeError for what JSON cannot hold exactly.

    Keys have to be text, since 1 and "1" would be the same key; NaN and infinity are refused.
    """
    return json.dumps(_plain(value), sort_keys=True, allow_nan=False, ensure_ascii=True, separators=(",", ":"))


def hash_call(tool: str, arguments: object) -> str:
    """Return the SHA-256 (hex) of a tool's name and exact arguments; neither an id nor the order of keys counts."""
    return hashlib.sha256(canonical([tool, arguments]).encode()).hexdigest()


def _plain(value: object) -> object:
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        if not all(type(key) is str for key in value):
            raise TypeError("a key is no text")
        return {key: _plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        assert isinstance(value, list | tuple)
        return [_plain(item) for item in value]
    raise TypeError(f"a value is a {type(value).__name__}")


def _described(value: object) -> object:
    version = getattr(value, _VERSION, None)
    if isinstance(version, str):
        return ["version", version]
    if isinstance(value, types.FunctionType):
        return _function(value)
    try:
        return ["data", _plain(value)]
    except (TypeError, ValueError) as error:
        raise GuardSettingError(
            "no_fingerprint",
            f"a {type(value).__name__} has no fingerprint: {error}",
            "Give data that JSON can hold, a plain function, or mark a function with versioned('...').",
        ) from None


def _function(function: types.FunctionType) -> object:
    try:
        source = None if function.__name__ == "<lambda>" else inspect.getsource(function)
    except (OSError, TypeError):
        source = None
    if source is None:
        raise GuardSettingError(
            "no_fingerprint",
            f"{function.__qualname__} has no fingerprint: its own source cannot be read",
            "Write a def, or mark it with versioned('...') and change the version whenever it changes.",
        )
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
    enclosed = [_described(list(item) if isinstance(item, tuple) else item) for item in (*cells, *defaults)]
    return ["function", function.__qualname__, source, enclosed]
