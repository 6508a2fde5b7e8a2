"""Whether two stored values are exactly the same: part by part, as the codec takes them apart, not by their own ==."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from minigraph.checkpoint import tags
from minigraph.checkpoint.classes import form_of, is_storable_class
from minigraph.checkpoint.tags import Leaf, Unsuitable
from minigraph.checkpoint.walk import array_form

_PLAIN: Final = frozenset({type(None), bool, int, str, bytes})
_UNORDERED: Final = frozenset({dict, defaultdict, Counter})


def same(left: object, right: object) -> bool:
    """Whether two values are the same, types included: 1 is neither True nor 1.0, and NaN is the same as NaN.

    0.0 and -0.0 differ, as a list and a tuple do. The order of a set counts for nothing, nor does that of a dict
    (of an OrderedDict it does). A value that could not be stored is the same as one that it calls equal; where
    asking it raises, it is the same as itself alone.
    """
    kind = type(left)
    if kind is not type(right):
        return False
    if left is right:
        return True
    a: Any = left
    b: Any = right
    if kind in _PLAIN:
        return bool(a == b)
    if kind is float:
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    if kind is list:
        return _same_items(a, b)
    if kind in _UNORDERED:
        return getattr(a, "default_factory", None) is getattr(b, "default_factory", None) and _same_entries(a, b)
    if kind in (set, frozenset):
        return _same_members(a, b)
    return _same_parts(kind, a, b)


def _same_parts(kind: type, a: Any, b: Any) -> bool:
    form = tags.STANDARD.get(kind) or tags.find(kind) or array_form(kind)
    try:
        if isinstance(form, Leaf):
            return form.dump(a) == form.dump(b)
        if form is not None:
            return _same_items(form.parts(a), form.parts(b))
        if is_storable_class(kind):
            parts = form_of(kind.__qualname__, kind).parts
            (attributes, items), (others, other_items) = parts(a), parts(b)
            return _same_entries(attributes, others) and _same_items(items, other_items)
    except Unsuitable:
        pass
    try:
        return (a == b) is True
    except Exception:
        return False


def _same_items(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(map(same, a, b))


def _same_entries(a: Mapping[Any, Any], b: Mapping[Any, Any]) -> bool:
    if len(a) != len(b):
        return False
    if all(map(same, a, b)):  # the same keys in the same order, as nearly always
        return all(map(same, a.values(), b.values()))
    return _matched([*a.items()], [*b.items()])


def _same_members(a: Collection[Any], b: Collection[Any]) -> bool:
    return len(a) == len(b) and _matched([*a], [*b])


def _matched(a: list[Any], b: list[Any]) -> bool:
    """Whether each item has a partner of its own; those with equal hashes are tried alone."""
    buckets: dict[int, list[Any]] = {}
    for item in b:
        buckets.setdefault(_hash(item), []).append(item)
    for item in a:
        bucket = buckets.get(_hash(item), [])
        partner = next((place for place, other in enumerate(bucket) if same(item, other)), None)
        if partner is None:
            return False
        del bucket[partner]
    return True


def _hash(item: Any) -> int:
    """The hash of a member, or of the key of an entry."""
    return _key_hash(item[0] if type(item) is tuple and len(item) == 2 else item)


def _key_hash(key: Any) -> int:
    """The hash of a key; every NaN has its own, so they share one here, also where they are parts of a key."""
    if type(key) is tuple:
        return hash(tuple(map(_key_hash, key)))
    if type(key) is frozenset:
        return hash(frozenset(map(_key_hash, key)))
    try:
        return 0 if key != key else hash(key)
    except Exception:
        return hash(key)
