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
from typing import Any, Final

import msgspec
from msgspec.msgpack import Decoder

from minigraph.checkpoint import tags
from minigraph.checkpoint.classes import ABSENT, ClassForm, built_in_exception, form_of, is_storable_class
from minigraph.checkpoint.tags import Composite, Leaf
from minigraph.checkpoint.walk import SCALARS, SURE_SCALARS, TOO_DEEP, Refused, Walk, array_form, pack, refusal
from minigraph.errors import DecodeError, StorageError
from minigraph.types import Command, Interrupt, Overwrite, Send, TimeoutPolicy

_ENGINE_TYPES: Final = (Send, Command, Interrupt, Overwrite, TimeoutPolicy)
_BROKEN: Final = (
    *(ValueError, TypeError, LookupError, ArithmeticError, AttributeError, ImportError, OSError, SyntaxError),
    *(NotImplementedError, MemoryError, struct.error, msgspec.MsgspecError),
)
"""What the constructors of standard values raise for parts that do not fit."""


_OTHER_PARTS: Final = frozenset({tags.OBJECT, tags.DEFAULT, tags.ARRAY, tags.ARRAY_SCALAR})


def _is_built_in_exception(kind: type) -> bool:
    return kind.__module__ == "builtins" and issubclass(kind, BaseException)


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
        self._decoder: Decoder[Any] = Decoder(ext_hook=self._load)
        self._typed: dict[Any, Decoder[Any]] = {}
        self._walk = Walk(SCALARS, self._standard, self._known_class).plain
        self._careful_walk = Walk(SURE_SCALARS, self._standard, self._known_class).plain
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
            if kind in SCALARS or kind in (list, dict, defaultdict) or self._standard(kind) is not None:
                continue
            with self._lock:
                self._register(kind, name)

    def encode(self, value: object, *, key: str | None = None, at: str = "$") -> bytes:
        """The stored form of a value; `key` and `at` say where it stands when it is refused (UnstorableValueError)."""
        try:
            plain = value if type(value) in SCALARS else self._walk(value)
            return pack(plain)
        except (OverflowError, UnicodeEncodeError):
            pass
        except Refused as refused:
            raise refusal(refused, key, at) from None
        except RecursionError:
            raise refusal(Refused(value, TOO_DEEP), key, at) from None
        try:
            return pack(self._careful_walk(value))
        except Refused as refused:
            raise refusal(refused, key, at) from None
        except UnicodeEncodeError as error:
            raise refusal(Refused(value, f"a name in it is no valid text ({error})"), key, at) from None

    def decode(self, data: bytes | memoryview | msgspec.Raw, kind: Any = None) -> Any:
        """A new copy of the stored value; DecodeError where the bytes are not what this codec writes.

        `kind` may be a msgspec Struct that holds values: a record around them.
        """
        decoder = self._decoder
        if kind is not None:
            decoder = self._typed.get(kind) or self._typed.setdefault(kind, Decoder(kind, ext_hook=self._load))
        try:
            return decoder.decode(data)
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
            form = tags.find(kind) or array_form(kind)
            if form is not None:
                self._forms[kind] = form
        return form

    def _known_class(self, kind: type) -> ClassForm | None:
        """The form of a registered class, or of one that may be learnt."""
        form = self._by_kind.get(kind)
        if form is None and (self._learn or _is_built_in_exception(kind)) and is_storable_class(kind):
            with self._lock:
                self._register(kind, None)
            form = self._by_kind[kind]
        return form

    def _load(self, code: int, data: memoryview) -> Any:
        if code in tags.LOAD_BYTES:
            return tags.LOAD_BYTES[code](bytes(data))
        if code == tags.ABSENT_FIELD:
            return ABSENT
        if code == tags.NO_FIELD:
            return msgspec.UNSET
        if code not in tags.LOAD_PARTS and code not in _OTHER_PARTS:
            raise DecodeError(f"stored bytes have the unknown tag {code}: a newer release may have written them")
        parts = self._decoder.decode(data)
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
        from minigraph.checkpoint import arrays

        return arrays.load_array(parts) if code == tags.ARRAY else arrays.load_scalar(parts)

    def _named(self, name: object) -> ClassForm:
        form = (self._by_name.get(name) or built_in_exception(name)) if isinstance(name, str) else None
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
