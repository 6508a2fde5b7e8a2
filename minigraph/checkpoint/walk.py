"""The walk over a value that is to be stored: plain data stays as it is, the rest becomes tagged extensions."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.msgpack import Encoder, Ext

from minigraph.checkpoint import tags
from minigraph.checkpoint.classes import Absent, ClassForm
from minigraph.checkpoint.tags import Composite, Leaf, Unsuitable
from minigraph.errors import UnstorableValueError

MAX_DEPTH: Final = 150
"""How deeply values may be nested."""
SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
"""What MessagePack holds as it is, but for huge ints and text with lone surrogates."""
SURE_SCALARS: Final = SCALARS - {int, str}
"""What it holds as it is in any case."""

pack: Final = Encoder().encode


class Refused(Exception):
    """Climbs out of the walk; every level adds its step to the path."""

    def __init__(self, value: object, reason: str) -> None:
        self.kind, self.reason = type(value), reason
        self.steps: list[str] = []


TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep, or it contains itself"
_ADVICE = (
    "an Enum, a NamedTuple, a dataclass, a msgspec.Struct, a pydantic model or an exception can be stored after "
    "saver.register({}); turn other objects into one of these or into plain data"
)


def refusal(refused: Refused, key: str | None, at: str) -> UnstorableValueError:
    """The error for a refused value, which stands under `key` of a state at `at`."""
    kind = refused.kind
    type_name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    steps = refused.steps[::-1]
    shown = steps if len(steps) <= 20 else [*steps[:20], "..."]
    path = at + "".join(shown)
    place = path if key is None else f"key {key!r} at {path}"
    message = f"{place}: a value of type {type_name} cannot be stored: {refused.reason}"
    return UnstorableValueError(message, key=key, path=path, type_name=type_name)


def array_form(kind: type) -> Composite | None:
    """The form of a numpy type, or None."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "generic"):
        return None
    if kind is numpy.ndarray or (issubclass(kind, numpy.generic) and kind.__module__ == "numpy"):
        from minigraph.checkpoint import arrays

        if kind is numpy.ndarray:
            return Composite(tags.ARRAY, arrays.array_parts)
        return Composite(tags.ARRAY_SCALAR, arrays.scalar_parts)
    return None


class Walk:
    """Turns one value into plain data and extensions. `scalars` are the types taken as they are."""

    __slots__ = ("known_class", "scalars", "standard")

    def __init__(
        self,
        scalars: frozenset[type],
        standard: Callable[[type], Leaf | Composite | None],
        known_class: Callable[[type], ClassForm | None],
    ) -> None:
        self.scalars, self.standard, self.known_class = scalars, standard, known_class

    def plain(self, value: Any, depth: int = 0) -> Any:
        """What MessagePack is given for a value; Refused where it has no exact form."""
        kind = type(value)
        scalars = self.scalars
        if kind in scalars:
            return value
        if depth > MAX_DEPTH:
            raise Refused(value, TOO_DEEP)
        if kind is list:
            return value if scalars.issuperset(map(type, value)) else self._items(value, depth)
        if kind is dict:
            if not (scalars.issuperset(map(type, value)) or (scalars is not SCALARS and _fit(value))):
                return Ext(tags.PAIRS, pack(self._pairs(value, depth)))
            if scalars.issuperset(map(type, value.values())):
                return value
            return self._members(value, depth, "[{!r}]")
        if kind is int:
            return value if -(2**63) <= value < 2**64 else Ext(tags.INTEGER, tags.integer_bytes(value))
        if kind is str:
            return value if _encodable(value) else Ext(tags.TEXT, value.encode("utf-8", "surrogatepass"))
        return self._tagged(value, kind, depth)

    def _tagged(self, value: Any, kind: type, depth: int) -> Ext:
        form = self.standard(kind)
        try:
            if form is None:
                return self._special(value, kind, depth)
            if isinstance(form, Leaf):
                return Ext(form.tag, form.dump(value))
            if form.tag in (tags.ORDERED, tags.COUNTER):
                form.parts(value)
                return Ext(form.tag, pack(self._pairs(value, depth)))
            parts = form.parts(value)
        except Unsuitable as why:
            raise Refused(value, str(why)) from None
        return Ext(form.tag, pack(self._items(parts, depth)))

    def _special(self, value: Any, kind: type, depth: int) -> Ext:
        if kind is defaultdict:
            name = self._factory_name(value)
            return Ext(tags.DEFAULT, pack([name, *self._pairs(value, depth)]))
        if kind is Absent:
            return Ext(tags.ABSENT_FIELD, b"")
        if value is msgspec.UNSET:
            return Ext(tags.NO_FIELD, b"")
        known = self.known_class(kind)
        if known is None:
            raise Refused(value, _ADVICE.format(kind.__name__))
        if issubclass(kind, tuple) and getattr(value, "__dict__", None):
            raise Unsuitable("it carries attributes of its own, which would be lost")
        attributes, others = known.parts(value)
        stored = [self._members(attributes, depth, ".{}")] if attributes else [None]
        return Ext(tags.OBJECT, pack([known.name, *stored, *self._items(others, depth)]))

    def _factory_name(self, value: defaultdict[Any, Any]) -> str | None:
        factory = value.default_factory
        if factory is None:
            return None
        name = getattr(factory, "__name__", "")
        if tags.FACTORIES.get(name) is factory:
            return str(name)
        known = self.known_class(factory) if isinstance(factory, type) else None
        if known is None:
            raise Unsuitable(f"its factory {factory!r} is neither a built-in type nor a registered class")
        return known.name

    def _items(self, values: list[Any], depth: int) -> list[Any]:
        stored = []
        for index, value in enumerate(values):
            if type(value) in self.scalars:
                stored.append(value)
                continue
            try:
                stored.append(self.plain(value, depth + 1))
            except Refused as refused:
                refused.steps.append(f"[{index}]")
                raise
        return stored

    def _members(self, values: Mapping[Any, Any], depth: int, step: str) -> dict[Any, Any]:
        stored = {}
        for name, value in values.items():
            if type(value) in self.scalars:
                stored[name] = value
                continue
            try:
                stored[name] = self.plain(value, depth + 1)
            except Refused as refused:
                refused.steps.append(f".{name}" if type(name) is str and name.isidentifier() else step.format(name))
                raise
        return stored

    def _pairs(self, values: Mapping[Any, Any], depth: int) -> list[Any]:
        stored = []
        for name, value in values.items():
            try:
                stored.append(self.plain(name, depth + 1))
                stored.append(self.plain(value, depth + 1))
            except Refused as refused:
                refused.steps.append(f".{name}" if type(name) is str and name.isidentifier() else "[...]")
                raise
        return stored


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fit(names: Mapping[Any, Any]) -> bool:
    """Whether the keys of a dict can stand in MessagePack as they are."""
    if not SCALARS.issuperset(map(type, names)):
        return False
    return all(_encodable(n) if type(n) is str else type(n) is not int or -(2**63) <= n < 2**64 for n in names)
