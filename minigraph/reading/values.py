"""What a function may return, as far as its text tells: updates with their keys, targets, Commands, lists of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that the text does not tell."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """None."""


@dataclass(frozen=True, slots=True)
class Flag:
    """True or False."""


@dataclass(frozen=True, slots=True)
class Update:
    """A dict of state keys.

    `certain` keys are always there, `maybe` keys on some way; an `open` dict may have others. `spelled` keys are
    written out in a place that is surely what is returned. `replaced` keys hold an Overwrite.
    """

    certain: frozenset[str] = frozenset()
    maybe: frozenset[str] = frozenset()
    open: bool = False
    spelled: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()

    @property
    def keys(self) -> frozenset[str]:
        """Every key that is seen."""
        return self.certain | self.maybe


@dataclass(frozen=True, slots=True)
class Goal:
    """The name of a node, alone or in a Send. `sure` where this is surely what is returned on some way."""

    name: str
    sent: bool = False
    sure: bool = True


@dataclass(frozen=True, slots=True)
class Many:
    """A list: for each item what it may be. An `open` list may have others, an `exact` one has just these, once each.

    `repeated` items come from a comprehension, and there may well be several of them.
    """

    items: tuple[tuple[Value, ...], ...] = ()
    open: bool = False
    exact: bool = True
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Go:
    """A Command: what it may write and where it may go. `parent` where it is, or may be, for the parent graph."""

    update: tuple[Value, ...]
    goto: tuple[Value, ...]
    parent: bool = False


Value = Unknown | Nothing | Flag | Update | Goal | Many | Go
UNKNOWN = (Unknown(),)
LIMIT = 40


def one_of(values: Iterable[Value]) -> tuple[Value, ...]:
    """Alternatives without repetition; unknown where there are very many."""
    found = tuple(dict.fromkeys(values))
    return found if len(found) <= LIMIT else UNKNOWN


def unsure(value: Value) -> Value:
    """The same value, where it is only one of those that a name may hold."""
    if isinstance(value, Goal):
        return Goal(value.name, value.sent, False)
    if isinstance(value, Update):
        return Update(value.certain, value.maybe, value.open, frozenset(), value.replaced)
    if isinstance(value, Many):
        return Many(tuple(tuple(map(unsure, item)) for item in value.items), value.open, exact=False)
    if isinstance(value, Go):
        return Go(tuple(map(unsure, value.update)), tuple(map(unsure, value.goto)), value.parent)
    return value
