"""Whether what a checkpoint is labelled with equals the values of a filter, types included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


def matches(labels: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether each wanted value is there, as the same JSON: 1 is neither 1.0 nor true."""
    return all(key in labels and _equal(labels[key], value) for key, value in wanted.items())


def _equal(a: object, b: object) -> bool:
    return msgspec.json.encode(a) == msgspec.json.encode(b)
