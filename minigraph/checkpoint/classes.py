"""How instances of a program's own classes are taken apart and put together without running the program's code.

Enums, NamedTuples, dataclasses, msgspec Structs, pydantic models and exceptions. Attributes are read and set beneath
`__init__`, `__post_init__`, validators, properties and `__setattr__`. A field added to a class after a value was
stored takes its default; a stored field that the class no longer has is an error for slotted classes and Structs.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import sys
from collections.abc import Callable
from types import MemberDescriptorType
from typing import Any, Final, NamedTuple

import msgspec

from minigraph.checkpoint.tags import Unsuitable
from minigraph.errors import GraphSignal

_PASSING: Final = frozenset({"obj", "exceptions", "message"})
"""What an exception refers to (an AttributeError its object), or has from its arguments (a group its members)."""


class Absent:
    """The type of ABSENT, which stands for a field that an instance lacks."""


ABSENT = Absent()


class ClassForm(NamedTuple):
    """One known class: its stored name, and the two directions.

    `parts` gives the attributes by name and the items in order; either may be empty.
    """

    name: str
    kind: type
    parts: Callable[[Any], tuple[dict[str, Any], list[Any]]]
    build: Callable[[dict[str, Any], list[Any]], Any]


def is_storable_class(kind: object) -> bool:
    """Whether instances of a class can be stored once it is registered."""
    return isinstance(kind, type) and _family(kind) is not None


def form_of(name: str, kind: type) -> ClassForm:
    """The form of a class; TypeError where its instances have no exact stored form."""
    family = _family(kind)
    if family is None:
        raise TypeError(
            f"{kind.__module__}.{kind.__qualname__} cannot be registered: instances of an Enum, a NamedTuple, a "
            "dataclass, a msgspec.Struct, a pydantic model or an exception can be stored; turn others into one of these"
        )
    return family(name, kind)


def _family(kind: type) -> Callable[[str, type], ClassForm] | None:
    if issubclass(kind, enum.Enum):
        return _enum_form
    if issubclass(kind, msgspec.Struct):
        return _struct_form if kind is not msgspec.Struct else None
    if issubclass(kind, tuple):
        fields = getattr(kind, "_fields", None)
        return _named_tuple_form if isinstance(fields, tuple) and kind.__base__ is tuple else None
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and issubclass(kind, pydantic.BaseModel):
        return _model_form if kind is not pydantic.BaseModel else None
    if issubclass(kind, BaseException):
        return None if issubclass(kind, GraphSignal) else _exception_form
    if dataclasses.is_dataclass(kind) and _is_plain_object(kind):
        return _dataclass_form
    return None


def built_in_exception(name: str) -> ClassForm | None:
    """The form of an exception of Python's own, by its stored name ("builtins:ValueError")."""
    module, _, exception = name.partition(":")
    kind = vars(builtins).get(exception) if module == "builtins" else None
    return form_of(name, kind) if isinstance(kind, type) and issubclass(kind, BaseException) else None


def _is_plain_object(kind: type) -> bool:
    """Whether instances consist of attributes alone: no subclass of a built-in container."""
    try:
        object.__new__(kind)
    except TypeError:
        return False
    return True


def _enum_form(name: str, kind: type) -> ClassForm:
    assert issubclass(kind, enum.Enum)
    if not issubclass(kind, enum.Flag):
        return ClassForm(name, kind, lambda member: ({}, [member._name_]), lambda _, parts: kind._member_map_[parts[0]])

    def load(_: dict[str, Any], parts: list[Any]) -> object:
        (value,) = parts
        if type(value) is not int:
            raise ValueError("a flag is stored as an integer")
        known = kind._value2member_map_.get(value)
        return known if known is not None else enum.Flag._missing_.__func__(kind, value)  # type: ignore[attr-defined]

    return ClassForm(name, kind, lambda member: ({}, [member._value_]), load)


def _named_tuple_form(name: str, kind: type) -> ClassForm:
    width = len(kind._fields)  # type: ignore[attr-defined]  # checked by _family

    def load(_: dict[str, Any], parts: list[Any]) -> object:
        if len(parts) != width:
            raise ValueError(f"{len(parts)} fields are stored, the class has {width}")
        return tuple.__new__(kind, parts)

    return ClassForm(name, kind, lambda value: ({}, list(value)), load)


def _struct_form(name: str, kind: type) -> ClassForm:
    assert issubclass(kind, msgspec.Struct)
    fields = kind.__struct_fields__
    known = frozenset(fields)
    silent: Any = kind
    if hasattr(kind, "__post_init__"):
        make: Any = type(kind)
        silent = make(kind.__name__, (kind,), {"__post_init__": lambda self: None, "__module__": kind.__module__})
    become = object.__dict__["__class__"].__set__

    def parts(value: Any) -> tuple[dict[str, Any], list[Any]]:
        found = {field: getattr(value, field, ABSENT) for field in fields}
        if extra := getattr(value, "__dict__", None):
            found.update(extra)
        return found, []

    def load(stored: dict[str, Any], _: list[Any]) -> object:
        value = silent(**{field: part for field, part in stored.items() if field in known and part is not ABSENT})
        if silent is not kind:
            become(value, kind)
        for field, part in stored.items():
            if part is ABSENT:
                msgspec.structs.force_setattr(value, field, msgspec.UNSET)
                delattr(value, field)
            elif field not in known:
                value.__dict__[field] = part
        return value

    return ClassForm(name, kind, parts, load)


def _slots(kind: type) -> dict[str, MemberDescriptorType]:
    return {
        name: member
        for base in reversed(kind.__mro__)
        for name, member in vars(base).items()
        if isinstance(member, MemberDescriptorType)
    }


def _cached(kind: type) -> frozenset[str]:
    """Names whose values in the instance are only remembered results of a property."""
    functools = sys.modules.get("functools")
    cached = getattr(functools, "cached_property", ())
    return frozenset(name for base in kind.__mro__ for name, member in vars(base).items() if isinstance(member, cached))


def _dataclass_form(name: str, kind: type) -> ClassForm:
    slots, cached = _slots(kind), _cached(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    in_dict = [field for field in fields if field not in slots]

    def parts(value: Any) -> tuple[dict[str, Any], list[Any]]:
        attributes: dict[str, Any] = getattr(value, "__dict__", {})
        found = {}
        for field, member in slots.items():
            try:
                found[field] = member.__get__(value, kind)
            except AttributeError:
                found[field] = ABSENT
        for field in in_dict:
            found[field] = attributes.get(field, ABSENT)
        for field, part in attributes.items():
            if field not in found and field not in cached:
                found[field] = part
        return found, []

    def load(stored: dict[str, Any], _: list[Any]) -> object:
        value: Any = object.__new__(kind)
        for field in fields:
            if field not in stored:
                stored[field] = _default(fields[field])
        attributes: dict[str, Any] | None = getattr(value, "__dict__", None)
        for field, part in stored.items():
            if part is ABSENT:
                continue
            if field in slots:
                slots[field].__set__(value, part)
            elif attributes is None:
                raise ValueError(f"the class has no field {field!r} any more")
            else:
                attributes[field] = part
        return value

    return ClassForm(name, kind, parts, load)


def _exception_form(name: str, kind: type) -> ClassForm:
    """Arguments, cause, and attributes, notes among them; the traceback and the context stay behind."""
    assert issubclass(kind, BaseException)
    slots = {name: member for name, member in _slots(kind).items() if name not in _PASSING}
    origin = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    is_group = issubclass(kind, BaseExceptionGroup)
    text = _UNICODE_TEXTS.get(origin)
    if issubclass(kind, OSError):
        slots["characters_written"] = vars(OSError)["characters_written"]

    def parts(value: Any) -> tuple[dict[str, Any], list[Any]]:
        found = dict(vars(value))
        for field, member in slots.items():
            try:
                part = member.__get__(value, kind)
            except AttributeError:
                continue
            if part is not None:
                found[field] = part
        if text is not None and not _is_sound(found, text):
            raise Unsuitable("its encoding, object, start, end and reason are not what such an error has")
        return found, [value.args, value.__cause__]

    def load(stored: dict[str, Any], items: list[Any]) -> object:
        args, cause = items
        if type(args) is not tuple or not (cause is None or isinstance(cause, BaseException)):
            raise ValueError("an exception has a tuple of arguments and a cause")
        if text is not None and not _is_sound(stored, text):
            raise ValueError("it has not the parts of a Unicode error")
        value: Any = origin.__new__(kind, *args) if is_group else origin.__new__(kind)  # type: ignore[call-overload]
        for field, part in stored.items():
            if field in slots:
                slots[field].__set__(value, part)
            else:
                value.__dict__[field] = part
        value.args = args
        if cause is not None:
            value.__cause__ = cause
        return value

    return ClassForm(name, kind, parts, load)


_UNICODE_TEXTS: Final[dict[type, type]] = {
    UnicodeDecodeError: bytes,
    UnicodeEncodeError: str,
    UnicodeTranslateError: str,
}
"""What the object of a Unicode error is."""


def _is_sound(found: dict[str, Any], text: type) -> bool:
    """Whether Python can say what a Unicode error with these parts is: it reads the object at `start` unchecked."""
    start, end = found.get("start", 0), found.get("end", 0)
    if type(start) is not int or type(end) is not int or start < 0:
        return False
    if any(type(found.get(field, "")) is not str for field in ("encoding", "reason")):
        return False
    return "object" not in found or type(found["object"]) is text


def _default(field: dataclasses.Field[Any]) -> object:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    if not field.init:
        return ABSENT
    raise ValueError(f"the field {field.name!r} is not stored and has no default")


def _model_form(name: str, kind: Any) -> ClassForm:
    cached = _cached(kind)

    def parts(value: Any) -> tuple[dict[str, Any], list[Any]]:
        attributes = {key: part for key, part in value.__dict__.items() if key not in cached}
        private = value.__pydantic_private__
        if private is not None:
            from pydantic_core import PydanticUndefined

            private = {key: part for key, part in private.items() if part is not PydanticUndefined}
        return attributes, [value.__pydantic_fields_set__, value.__pydantic_extra__, private]

    def load(attributes: dict[str, Any], others: list[Any]) -> object:
        chosen, extra, private = others
        for field, info in kind.model_fields.items():
            if field not in attributes:
                if info.is_required():
                    raise ValueError(f"the field {field!r} is not stored and has no default")
                attributes[field] = info.get_default(call_default_factory=True)
        value = object.__new__(kind)
        for slot, part in (
            ("__dict__", attributes),
            ("__pydantic_fields_set__", chosen),
            ("__pydantic_extra__", extra),
            ("__pydantic_private__", private),
        ):
            object.__setattr__(value, slot, part)
        return value

    return ClassForm(name, kind, parts, load)
