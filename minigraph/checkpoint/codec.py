"""A closed codec: exact values in, bytes out, and nothing in the bytes can import or call anything.

Plain data (None, bool, int, float, str, bytes, lists, dicts with such keys) is ordinary MessagePack. Every other known
value is a MessagePack extension whose code is one of the tags of `tags.py` and whose body holds its parts. An object
of a program's class is stored under a name that must have been registered before it is read. What has no exact form
is refused, naming the place.
"""

from __future__ import annotations

import struct
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.msgpack import Decoder, Encoder, Ext

from minigraph.checkpoint import tags
from minigraph.checkpoint.classes import ABSENT, Absent, ClassForm, form_of, is_storable_class
from minigraph.checkpoint.tags import Composite, Leaf, Unsuitable
from minigraph.errors import DecodeError, StorageError, UnstorableValueError
from minigraph.types import Command, Interrupt, Overwrite, Send, TimeoutPolicy

MAX_DEPTH: Final = 150
"""How deeply values may be nested."""

_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_ROOMY: Final = _SCALARS - {int, str}
_ENGINE_TYPES: Final = (Send, Command, Interrupt, Overwrite, TimeoutPolicy)
_BROKEN: Final = (
    *(ValueError, TypeError, LookupError, ArithmeticError, AttributeError, ImportError, OSError, SyntaxError),
    *(struct.error, msgspec.MsgspecError),
)
"""What the constructors of standard values raise for parts that do not fit."""

pack: Final = Encoder().encode


class _Refused(Exception):
    """Climbs out of the walk; every level adds its step to the path."""

    def __init__(self, value: object, reason: str) -> None:
        self.kind, self.reason = type(value), reason
        self.steps: list[str] = []


class Codec:
    """Turns values into bytes and back, with the classes it knows.

    With `learn` every storable class becomes known when its first instance is encoded, so that decoding in the same
    process gives back exactly that class, local ones included. Safe to use from several threads.
    """

    def __init__(self, *, learn: bool = False) -> None:
        self._learn = learn
        self._lock = threading.Lock()
        self._by_kind: dict[type, ClassForm] = {}
        self._by_name: dict[str, ClassForm] = {}
        self._forms: dict[type, Leaf | Composite] = dict(tags.STANDARD)
        self._decoder = Decoder(ext_hook=self._load)
        self._walk = _Walk(self, _SCALARS).plain
        self._careful_walk = _Walk(self, _ROOMY).plain
        for kind in _ENGINE_TYPES:
            self._add(kind.__name__, kind)

    def register(self, *types: type, name: str | None = None) -> None:
        """Makes classes known; `name` is what a single one is stored under (by default "module:qualified name").

        Registering a class again is fine. Built-in and standard types need no registration and are passed over.
        Raises TypeError for a class whose instances have no exact form, StorageError where another class has the name.
        """
        if name is not None and len(types) != 1:
            raise TypeError(f"register(..., name={name!r}): a name belongs to exactly one class, not {len(types)}")
        for kind in types:
            if name is None and kind in self._by_kind:
                continue
            kind = getattr(kind, "__origin__", kind)
            if not isinstance(kind, type):
                raise TypeError(f"register({kind!r}): a class was expected")
            if kind in _SCALARS or kind in (list, dict, defaultdict) or self._standard(kind) is not None:
                continue
            with self._lock:
                self._register(kind, name)

    def encode(self, value: object, *, key: str | None = None, at: str = "$") -> bytes:
        """The stored form of a value; `key` and `at` say where it stands when it is refused (UnstorableValueError)."""
        try:
            plain = value if type(value) in _SCALARS else self._walk(value, 0)
            return pack(plain)
        except (OverflowError, UnicodeEncodeError):
            pass
        except _Refused as refused:
            raise _refusal(refused, key, at) from None
        except RecursionError:
            raise _refusal(_Refused(value, _TOO_DEEP), key, at) from None
        try:
            return pack(self._careful_walk(value, 0))
        except _Refused as refused:
            raise _refusal(refused, key, at) from None
        except UnicodeEncodeError as error:
            raise _refusal(_Refused(value, f"a name in it is no valid text ({error})"), key, at) from None

    def decode(self, data: bytes | memoryview | msgspec.Raw) -> Any:
        """A new copy of the stored value; DecodeError where the bytes are not what this codec writes."""
        try:
            return self._decoder.decode(data)
        except DecodeError:
            raise
        except RecursionError:
            raise DecodeError("stored bytes are nested too deeply") from None
        except _BROKEN as error:
            raise DecodeError(f"stored bytes could not be read: {error}") from error

    def _add(self, name: str, kind: type) -> None:
        form = form_of(name, kind)
        self._by_name[name] = form
        self._by_kind[kind] = form

    def _register(self, kind: type, name: str | None) -> None:
        known = self._by_kind.get(kind)
        if known is not None and (name is None or known.name == name):
            return
        chosen = name or f"{kind.__module__}:{kind.__qualname__}"
        if chosen in self._by_name:
            if name is not None or not self._learn:
                raise StorageError(
                    f"two different classes would be stored under the name {chosen!r}; "
                    "give one of them another: register(cls, name='...')"
                )
            chosen = next(free for n in range(2, sys.maxsize) if (free := f"{chosen}#{n}") not in self._by_name)
        self._add(chosen, kind)

    def _standard(self, kind: type) -> Leaf | Composite | None:
        form = self._forms.get(kind)
        if form is None:
            form = tags.find(kind) or _array_form(kind)
            if form is not None:
                self._forms[kind] = form
        return form

    def known_class(self, kind: type) -> ClassForm | None:
        """The form of a registered class, or of one that may be learnt."""
        form = self._by_kind.get(kind)
        if form is None and self._learn and is_storable_class(kind):
            with self._lock:
                self._register(kind, None)
            form = self._by_kind[kind]
        return form

    def _load(self, code: int, data: memoryview) -> Any:
        body = bytes(data)
        if code in tags.LOAD_BYTES:
            return tags.LOAD_BYTES[code](body)
        if code == tags.ABSENT_FIELD:
            return ABSENT
        if code == tags.NO_FIELD:
            return msgspec.UNSET
        parts = self._decoder.decode(body)
        if code == tags.OBJECT:
            return self._load_object(parts)
        if type(parts) is not list:
            raise ValueError("a tagged value has no parts")
        if code in tags.LOAD_PARTS:
            return tags.LOAD_PARTS[code](parts)
        if code == tags.DEFAULT:
            name, *items = parts
            factory = None if name is None else tags.FACTORIES.get(name) or self._named(name).kind
            return defaultdict(factory, tags.paired(items))
        if code in (tags.ARRAY, tags.ARRAY_SCALAR):
            from minigraph.checkpoint import arrays

            return arrays.load_array(parts) if code == tags.ARRAY else arrays.load_scalar(parts)
        raise DecodeError(f"stored bytes have the unknown tag {code}: a newer release may have written them")

    def _named(self, name: object) -> ClassForm:
        form = self._by_name.get(name) if isinstance(name, str) else None
        if form is None:
            raise DecodeError(
                f"a stored value is of the class {name!r}, which is not known here: "
                "pass the class to saver.register(...) before reading"
            )
        return form

    def _load_object(self, stored: Any) -> Any:
        name, attributes, *others = stored
        form = self._named(name)
        try:
            return form.build({} if attributes is None else attributes, others)
        except _BROKEN as error:
            raise DecodeError(f"a stored value of the class {name!r} does not fit it: {error}") from error


_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep, or it contains itself"
_ADVICE = (
    "an Enum, a NamedTuple, a dataclass, a msgspec.Struct or a pydantic model can be stored after "
    "saver.register({}); turn other objects into one of these or into plain data"
)


def _refusal(refused: _Refused, key: str | None, at: str) -> UnstorableValueError:
    kind = refused.kind
    type_name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    steps = refused.steps[::-1]
    shown = steps if len(steps) <= 20 else [*steps[:20], "..."]
    path = at + "".join(shown)
    place = path if key is None else f"key {key!r} at {path}"
    message = f"{place}: a value of type {type_name} cannot be stored: {refused.reason}"
    return UnstorableValueError(message, key=key, path=path, type_name=type_name)


def _array_form(kind: type) -> Composite | None:
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "generic"):
        return None
    if kind is numpy.ndarray or (issubclass(kind, numpy.generic) and kind.__module__ == "numpy"):
        from minigraph.checkpoint import arrays

        if kind is numpy.ndarray:
            return Composite(tags.ARRAY, arrays.array_parts)
        return Composite(tags.ARRAY_SCALAR, arrays.scalar_parts)
    return None


class _Walk:
    """Turns one value into plain data and extensions. `scalars` are the types taken as they are."""

    __slots__ = ("codec", "scalars")

    def __init__(self, codec: Codec, scalars: frozenset[type]) -> None:
        self.codec, self.scalars = codec, scalars

    def plain(self, value: Any, depth: int) -> Any:
        kind = type(value)
        scalars = self.scalars
        if kind in scalars:
            return value
        if depth > MAX_DEPTH:
            raise _Refused(value, _TOO_DEEP)
        if kind is list:
            return value if scalars.issuperset(map(type, value)) else self.items(value, depth)
        if kind is dict:
            if not (scalars.issuperset(map(type, value)) or (scalars is not _SCALARS and _fit(value))):
                return Ext(tags.PAIRS, pack(self.pairs(value, depth)))
            if scalars.issuperset(map(type, value.values())):
                return value
            return self.members(value, depth, "[{!r}]")
        if kind is int:
            return value if -(2**63) <= value < 2**64 else Ext(tags.INTEGER, tags.integer_bytes(value))
        if kind is str:
            return value if _encodable(value) else Ext(tags.TEXT, value.encode("utf-8", "surrogatepass"))
        return self.tagged(value, kind, depth)

    def tagged(self, value: Any, kind: type, depth: int) -> Ext:
        form = self.codec._standard(kind)
        try:
            if form is None:
                return self.special(value, kind, depth)
            if isinstance(form, Leaf):
                return Ext(form.tag, form.dump(value))
            if form.tag in (tags.ORDERED, tags.COUNTER):
                form.parts(value)
                return Ext(form.tag, pack(self.pairs(value, depth)))
            parts = form.parts(value)
        except Unsuitable as why:
            raise _Refused(value, str(why)) from None
        return Ext(form.tag, pack(self.items(parts, depth)))

    def special(self, value: Any, kind: type, depth: int) -> Ext:
        if kind is defaultdict:
            name = self.factory_name(value)
            return Ext(tags.DEFAULT, pack([name, *self.pairs(value, depth)]))
        if kind is Absent:
            return Ext(tags.ABSENT_FIELD, b"")
        if value is msgspec.UNSET:
            return Ext(tags.NO_FIELD, b"")
        known = self.codec.known_class(kind)
        if known is None:
            raise _Refused(value, _ADVICE.format(kind.__name__))
        if issubclass(kind, tuple) and getattr(value, "__dict__", None):
            raise Unsuitable("it carries attributes of its own, which would be lost")
        attributes, others = known.parts(value)
        stored = [self.members(attributes, depth, ".{}")] if attributes else [None]
        return Ext(tags.OBJECT, pack([known.name, *stored, *self.items(others, depth)]))

    def factory_name(self, value: defaultdict[Any, Any]) -> str | None:
        factory = value.default_factory
        if factory is None:
            return None
        name = getattr(factory, "__name__", "")
        if tags.FACTORIES.get(name) is factory:
            return str(name)
        known = self.codec.known_class(factory) if isinstance(factory, type) else None
        if known is None:
            raise Unsuitable(f"its factory {factory!r} is neither a built-in type nor a registered class")
        return known.name

    def items(self, values: list[Any], depth: int) -> list[Any]:
        stored = []
        for index, value in enumerate(values):
            if type(value) in self.scalars:
                stored.append(value)
                continue
            try:
                stored.append(self.plain(value, depth + 1))
            except _Refused as refused:
                refused.steps.append(f"[{index}]")
                raise
        return stored

    def members(self, values: Mapping[Any, Any], depth: int, step: str) -> dict[Any, Any]:
        stored = {}
        for name, value in values.items():
            if type(value) in self.scalars:
                stored[name] = value
                continue
            try:
                stored[name] = self.plain(value, depth + 1)
            except _Refused as refused:
                refused.steps.append(f".{name}" if type(name) is str and name.isidentifier() else step.format(name))
                raise
        return stored

    def pairs(self, values: Mapping[Any, Any], depth: int) -> list[Any]:
        stored = []
        for name, value in values.items():
            try:
                stored.append(self.plain(name, depth + 1))
                stored.append(self.plain(value, depth + 1))
            except _Refused as refused:
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
    if not _SCALARS.issuperset(map(type, names)):
        return False
    return all(_encodable(n) if type(n) is str else type(n) is not int or -(2**63) <= n < 2**64 for n in names)
