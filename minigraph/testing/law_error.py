"""What a broken law raises, and the comparison that most laws end with."""

from __future__ import annotations

from typing import Any

from minigraph.testing.traces import first_difference


class LawError(AssertionError):
    """A law was broken; `law` is its name."""

    def __init__(self, law: str, what: str) -> None:
        super().__init__(f"{law}: {what}")
        self.law = law


def demand_same(law: str, left: Any, right: Any) -> None:
    """Raises LawError with the first place where two values differ, if they do."""
    if found := first_difference(left, right):
        raise LawError(law, found)
