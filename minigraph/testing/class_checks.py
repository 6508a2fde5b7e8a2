"""What savers must do for classes of the program, as checks over the Saver contract alone."""

from __future__ import annotations

from dataclasses import dataclass

from minigraph.checkpoint.base import Saver
from minigraph.errors import UnstorableValueError
from minigraph.records import Recorded
from minigraph.testing.saver_parts import ConformanceError, SavedThread, demand, stored_in


@dataclass(frozen=True)
class Registered:
    """A class as a program may have it."""

    number: int
    labels: tuple[str, ...] = ()


def registered_classes_come_back(saver: Saver) -> None:
    """A value of a class that was registered is stored, and read with its class: in states and in once() records."""
    value = Registered(1, ("a",))
    saver.register(Registered)
    try:
        SavedThread(saver).add({"value": value, "inside": [(value,)]})
        saver.record("t", "", "task", Recorded("k", True, value))
    except UnstorableValueError as error:
        raise ConformanceError("a registered class can be stored", str(error)) from error
    wanted = {"value": value, "inside": [(value,)]}
    demand(stored_in(saver, "t", "").checkpoint.values, wanted, "a registered class comes back")
    demand(saver.recorded("t", "", "task"), (Recorded("k", True, value),), "a registered class comes back")
