"""Reads a state schema into keys, and builds what a node sees from the values of those keys.

A schema is a TypedDict, a dataclass, a msgspec.Struct, a pydantic model or another annotated class: one key a field.
A type without annotations (`int`, `Annotated[list, add]`) is a schema of one value, the key ROOT.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, NotRequired, Required, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from minigraph.channels import COPIED, Channel, LastValue, Managed, Reduced, shallow_copy
from minigraph.errors import GraphDefinitionError
from minigraph.types import UNSET

ROOT = "__root__"
"""The one key of a schema without fields."""

_CONCRETE: dict[Any, type] = {
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
    collections.abc.Mapping: dict,
    collections.abc.MutableMapping: dict,
}


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """What a node is given: the keys it reads, and how they become its argument."""

    schema: Any
    keys: tuple[str, ...]
    managed: Mapping[str, Managed]
    build: Callable[[dict[str, Any]], Any] | None

    def read(self, values: Mapping[str, Any], remaining: int) -> Any:
        """A node's own view of the state: every list, dict and set of it is a copy.

        `remaining` is the number of steps that may still run after this one. Raises whatever the schema's
        constructor raises, a validation error for instance.
        """
        if self.keys == (ROOT,):
            return shallow_copy(values.get(ROOT))
        data = {
            key: value.copy() if type(value := values[key]) in COPIED else value for key in self.keys if key in values
        }
        for name, managed in self.managed.items():
            data[name] = managed.compute(remaining)
        return data if self.build is None else self.build(data)


@dataclasses.dataclass(frozen=True, slots=True)
class Schema:
    """The keys that one schema declares, its view and its field types."""

    channels: Mapping[str, Channel]
    view: View
    types: tuple[Any, ...]


def read_schema(schema: Any) -> Schema:
    """The keys of a schema with their channels. Raises GraphDefinitionError for a reducer that cannot be called."""
    if not has_fields(schema):
        channel = _channel(ROOT, schema, UNSET)
        if isinstance(channel, Managed):
            raise GraphDefinitionError("a managed value cannot be the whole state; make it a key of a TypedDict")
        return Schema({ROOT: channel}, View(schema, (ROOT,), {}, None), (schema,))
    hints = get_type_hints(schema, include_extras=True)
    defaults = field_defaults(schema)
    channels: dict[str, Channel] = {}
    managed: dict[str, Managed] = {}
    for name, hint in hints.items():
        rule = _channel(name, hint, defaults.get(name, UNSET))
        if isinstance(rule, Managed):
            managed[name] = rule
        else:
            channels[name] = rule
    build = None if is_typeddict(schema) else functools.partial(_construct, schema)
    return Schema(channels, View(schema, tuple(channels), managed, build), tuple(hints.values()))


def has_fields(schema: Any) -> bool:
    """Whether a type declares annotated fields, its own or inherited ones."""
    return isinstance(schema, type) and any(inspect.get_annotations(base) for base in schema.__mro__)


def merge_channels(into: dict[str, Channel], more: Mapping[str, Channel], where: str) -> None:
    """Adds keys to those already declared. Raises GraphDefinitionError where two declarations contradict each other."""
    for name, channel in more.items():
        known = into.get(name)
        if known is None:
            into[name] = channel
        elif type(channel) is LastValue or same_rule(known, channel):
            continue
        else:
            raise GraphDefinitionError(
                f"key {name!r} of {where} already exists with a different reducer or channel;"
                " declare it the same way in every schema, or plainly in all but the first"
            )


def same_rule(a: Channel, b: Channel) -> bool:
    """Whether two declarations of a key mean the same."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Reduced) and isinstance(b, Reduced):
        return a.reducer is b.reducer or a.reducer == b.reducer
    return vars(a) == vars(b)


def object_writes(value: Any, keys: Iterable[str]) -> list[tuple[str, Any]] | None:
    """The writes that an instance of an annotated class stands for, or None where it is no such instance.

    A pydantic model writes the fields that were set; a Struct those that differ from their default.
    """
    if not has_fields(type(value)):
        return None
    names: Iterable[str] = [key for key in keys if hasattr(value, key)]
    if is_pydantic(type(value)):
        names = [name for name in names if name in value.model_fields_set]
    elif isinstance(value, msgspec.Struct):
        defaults = field_defaults(type(value))
        names = [name for name in names if not _is_default(getattr(value, name), defaults.get(name, UNSET))]
    return [(name, getattr(value, name)) for name in names]


def is_pydantic(kind: type) -> bool:
    """Whether a class is a pydantic model; pydantic is not imported for the answer."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


def first_parameter_schema(function: Callable[..., Any]) -> Any:
    """The annotated class of a callable's first parameter, or None where there is none to be found."""
    target = function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__
    try:
        parameters = list(inspect.signature(function).parameters.values())
        hints = get_type_hints(inspect.unwrap(target), include_extras=True)
    except (NameError, TypeError, ValueError):
        return None
    hint = hints.get(parameters[0].name) if parameters else None
    return hint if has_fields(hint) else None


def _construct(schema: Any, data: dict[str, Any]) -> Any:
    return schema(**data)


def _is_default(value: Any, make: Any) -> bool:
    if make is UNSET:
        return False
    default = make()
    return value is default or (type(value) is type(default) and bool(value == default))


def _channel(name: str, hint: Any, default: Any) -> Channel | Managed:
    hint = _bare(hint)
    if get_origin(hint) is not Annotated:
        return LastValue()
    kind, *metadata = get_args(hint)
    for item in metadata:
        if isinstance(item, Channel | Managed):
            return item
        if isinstance(item, type) and issubclass(item, Channel):
            return item()
    reducer = metadata[-1]
    if not callable(reducer):
        return LastValue()
    _check_reducer(name, reducer)
    return Reduced(reducer, default if default is not UNSET else _maker(kind))


def _bare(hint: Any) -> Any:
    while get_origin(hint) in (Required, NotRequired):
        hint = get_args(hint)[0]
    if get_origin(hint) is Annotated:
        kind, *metadata = get_args(hint)
        if get_origin(kind) in (Required, NotRequired):
            return Annotated[(_bare(kind), *metadata)]
    return hint


def _check_reducer(name: str, reducer: Callable[..., Any]) -> None:
    try:
        parameters = inspect.signature(reducer).parameters.values()
    except (TypeError, ValueError):
        return  # a builtin without a readable signature, such as max
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) != 2 or any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise GraphDefinitionError(
            f"key {name!r}: invalid reducer signature {reducer!r}{inspect.signature(reducer)};"
            " a reducer takes exactly two positional arguments, (value so far, write)"
        )


def _maker(kind: Any) -> Callable[[], Any] | None:
    """The constructor of an empty value of a type, or None where the type has no empty value."""
    origin = get_origin(kind) or kind
    make = _CONCRETE.get(origin, origin)
    if not isinstance(make, type):
        return None
    try:
        make()
    except Exception:
        return None  # no empty value: the first write is stored as it is
    return make


def field_defaults(schema: type) -> dict[str, Callable[[], Any]]:
    """A maker of a fresh default for every field that declares one."""
    if is_pydantic(schema):
        fields: dict[str, Any] = schema.model_fields  # type: ignore[attr-defined]  # known to be a pydantic model
        return {
            name: functools.partial(field.get_default, call_default_factory=True)
            for name, field in fields.items()
            if not field.is_required()
        }
    if dataclasses.is_dataclass(schema):
        return {
            f.name: _default_maker(f.default, f.default_factory, dataclasses.MISSING)
            for f in dataclasses.fields(schema)
            if f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING
        }
    if issubclass(schema, msgspec.Struct):
        none = msgspec.NODEFAULT
        return {
            f.name: _default_maker(f.default, f.default_factory, none)
            for f in msgspec.structs.fields(schema)
            if f.default is not none or f.default_factory is not none
        }
    return {}


def _default_maker(default: Any, factory: Any, missing: Any) -> Callable[[], Any]:
    return factory if default is missing else functools.partial(shallow_copy, default)


def storable_classes(hints: Iterable[Any]) -> list[type]:
    """The classes mentioned in type hints, and in the fields of those, that a saver must know by name."""
    found: dict[type, None] = {}
    todo, seen = list(hints), set()
    while todo:
        hint = todo.pop()
        if id(hint) in seen:
            continue
        seen.add(id(hint))
        todo += [arg for arg in get_args(hint) if not isinstance(arg, Channel | Managed)]
        if not isinstance(hint, type) or is_typeddict(hint):
            todo += list(_field_hints(hint)) if is_typeddict(hint) else []
            continue
        if (
            issubclass(hint, enum.Enum)
            or dataclasses.is_dataclass(hint)
            or (issubclass(hint, Exception) and hint.__module__ != "builtins")
            or hasattr(hint, "__struct_fields__")
            or (is_pydantic(hint) or (issubclass(hint, tuple) and hasattr(hint, "_fields")))
        ):
            found[hint] = None
            todo += list(_field_hints(hint))
    return list(found)


def _field_hints(kind: type) -> Iterable[Any]:
    try:
        return get_type_hints(kind, include_extras=True).values()
    except (NameError, TypeError):
        return ()  # a hint that cannot be read here names no class to register; register() takes it by hand
