"""How a state key takes its writes. A plain key is replaced; a reducer key is folded; the rest are special lives.

A channel is a rule, not a container: it holds no value, so one graph serves any number of threads.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Final

from minigraph.errors import InvalidUpdateError
from minigraph.types import UNSET, Overwrite

KeyWrite = tuple[str, Any]
"""Who wrote (a node's name) and what."""
COPIED: Final = frozenset({list, dict, set})
"""The types whose values are copied before somebody else may change them."""
_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes, list, tuple, set})
"""Types whose values can be no Overwrite."""


class Channel:
    """The rule of one key. Subclasses say what the key starts with, how writes change it and what an idle step does."""

    tracked: ClassVar[bool] = True
    """Whether checkpoints store the key."""

    def initial(self) -> Any:
        """The value of a new thread, or UNSET."""
        return UNSET

    def update(self, key: str, old: Any, writes: Sequence[KeyWrite]) -> Any:
        """The value after a step that wrote the key; `old` is UNSET where there was none."""
        raise TypeError(f"{type(self).__name__} must define update()")

    def idle(self, old: Any) -> Any:
        """The value after a step that did not write the key."""
        return old


class LastValue(Channel):
    """A plain key: at most one write a step."""

    def update(self, key: str, old: Any, writes: Sequence[KeyWrite]) -> Any:
        """The one value written. Raises InvalidUpdateError where there are several."""
        return writes[0][1] if len(writes) == 1 else _only(key, writes)


class Reduced(Channel):
    """A reducer key: each write is folded into the value, in task order."""

    def __init__(self, reducer: Callable[[Any, Any], Any], make: Callable[[], Any] | None) -> None:
        self.reducer, self.make = reducer, make

    def initial(self) -> Any:
        """The declared default, or an empty value of the key's type, or UNSET where the type has none."""
        return UNSET if self.make is None else self.make()

    def update(self, key: str, old: Any, writes: Sequence[KeyWrite]) -> Any:
        """The writes folded left to right; the first write of a key without a value is stored as it is."""
        value = old if self.reducer is operator.add else shallow_copy(old)  # `add` leaves its arguments as they are
        for node, write in writes:
            try:
                value = shallow_copy(write) if value is UNSET else self.reducer(value, write)
            except Exception as error:
                error.add_note(f"in the reducer of key {key!r}, merging what node {node!r} wrote")
                raise
        return value


class EphemeralValue(Channel):
    """A key that lives for one step: it is gone after the next step unless written again."""

    def __init__(self, typ: Any = None, guard: bool = True) -> None:
        self.guard = guard

    def update(self, key: str, old: Any, writes: Sequence[KeyWrite]) -> Any:
        """The value written; with `guard`, several writes in one step are an error."""
        return _only(key, writes) if self.guard else writes[-1][1]

    def idle(self, old: Any) -> Any:
        """Nothing: the key's life is over."""
        return UNSET


class AnyValue(EphemeralValue):
    """Like EphemeralValue for writers that all write the same: the last write of the step counts."""

    def __init__(self, typ: Any = None) -> None:
        super().__init__(typ, guard=False)


class UntrackedValue(Channel):
    """A key that lives as long as the run and is never stored: a connection, a cache."""

    tracked = False

    def __init__(self, typ: Any = None, guard: bool = True) -> None:
        self.guard = guard

    def update(self, key: str, old: Any, writes: Sequence[KeyWrite]) -> Any:
        """The value written; with `guard`, several writes in one step are an error."""
        return _only(key, writes) if self.guard else writes[-1][1]


class Topic(Channel):
    """A list of everything written in the last step, or, with `accumulate`, ever. Lists are flattened."""

    def __init__(self, typ: Any = None, accumulate: bool = False) -> None:
        self.accumulate = accumulate

    def update(self, key: str, old: Any, writes: Sequence[KeyWrite]) -> Any:
        """The values of this step, after those of earlier ones where they accumulate."""
        value = list(old) if self.accumulate and old is not UNSET else []
        for _, write in writes:
            value.extend(write) if isinstance(write, list) else value.append(write)
        return value

    def idle(self, old: Any) -> Any:
        """What accumulated, or nothing."""
        return old if self.accumulate else UNSET


class Managed:
    """A value the engine computes for a node; it is no key of the state and cannot be written."""

    def __init__(self, compute: Callable[[int], Any]) -> None:
        self.compute = compute
        """Maps the number of steps that may still run after this one to the value."""


def _remaining(steps: int) -> int:
    return steps


def _is_last(steps: int) -> bool:
    return steps == 0


RemainingSteps = Annotated[int, Managed(_remaining)]
"""Annotates a key that tells a node how many steps may still run after its own."""
IsLastStep = Annotated[bool, Managed(_is_last)]
"""Annotates a key that is True in the last step that `recursion_limit` allows."""


def fold(channel: Channel, key: str, old: Any, writes: Sequence[KeyWrite]) -> Any:
    """The value of a key after one step's writes. An `Overwrite` beats the others; two of them conflict.

    Raises InvalidUpdateError for a conflict, and whatever the key's reducer raises.
    """
    for _, value in writes:
        if type(value) not in _PLAIN and overwrite_of(value) is not None:
            break
    else:
        return channel.update(key, old, writes)
    overwrites = [(node, unwrapped) for node, value in writes if (unwrapped := overwrite_of(value)) is not None]
    if len(overwrites) > 1:
        raise InvalidUpdateError(
            f"key {key!r}: nodes {', '.join(repr(node) for node, _ in overwrites)} overwrote it in one step;"
            " only one Overwrite a step is allowed: let one of them write, or run them one after the other",
            key=key,
            node=overwrites[-1][0],
        )
    return overwrites[0][1].value


def overwrite_of(value: Any) -> Overwrite | None:
    """The Overwrite that a written value is (as an object or in its two dictionary forms), or None."""
    if isinstance(value, Overwrite):
        return value
    if type(value) is dict:
        if len(value) == 1 and "__overwrite__" in value:
            return Overwrite(value["__overwrite__"])
        if len(value) == 2 and value.get("type") == "__overwrite__" and "value" in value:
            return Overwrite(value["value"])
    return None


def shallow_copy(value: Any) -> Any:
    """A copy of a plain list, dict or set; anything else as it is."""
    return value.copy() if type(value) in COPIED else value


def copied(value: Any) -> Any:
    """A copy of a plain list, dict or set, and of those that a dict holds; anything else as it is."""
    return {key: shallow_copy(item) for key, item in value.items()} if type(value) is dict else shallow_copy(value)


def _only(key: str, writes: Sequence[KeyWrite]) -> Any:
    if len(writes) > 1:
        raise InvalidUpdateError(
            f"key {key!r} was written {len(writes)} times in one step (by {', '.join(repr(n) for n, _ in writes)})"
            f", and a plain key takes one value a step: give it a reducer, as in Annotated[list, operator.add],"
            " or let one node write it",
            key=key,
            node=writes[-1][0],
        )
    return writes[0][1]
