"""The facts of one node or router function: what it reads of the state, what it may return, what it calls."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from minigraph.context import interrupt
from minigraph.reading.local import own, walk
from minigraph.reading.pauses import Repeated, repeated
from minigraph.reading.returned import Returned
from minigraph.reading.source import Body, Names, body_of, outside, target_of
from minigraph.reading.values import UNKNOWN, Value

RUNNING = frozenset({"invoke", "ainvoke", "stream", "astream"})
"""The methods that run a child graph, which may answer with a Command for its parent."""


@dataclass(frozen=True, slots=True)
class Read:
    """One reading of a key: by `state["key"]`, `state.get("key")` or `state.key`. `firm` where it fails without it."""

    key: str
    line: int
    firm: bool
    attribute: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """What the text of a function tells."""

    outcomes: tuple[Value, ...] = UNKNOWN
    reads: tuple[Read, ...] = ()
    repeated: Repeated | None = None
    calls: tuple[object, ...] = ()
    """The objects whose `invoke` or `stream` it calls; MISSING for one that is not known."""


NO_FACTS = Facts()
_known: WeakKeyDictionary[types.FunctionType, tuple[dict[str, object], Facts]] = WeakKeyDictionary()


def read(callee: Any) -> Facts:
    """The facts of a callable; NO_FACTS where its text cannot be had."""
    target = target_of(callee)
    body = body_of(target.function) if target is not None else None
    if target is None or body is None:
        return NO_FACTS
    kept = _known.get(target.function) if callee is target.function else None
    if kept is not None and all(outside(target.function, name) is found for name, found in kept[0].items()):
        return kept[1]
    returned = Returned(target, body)
    names = returned.names
    facts = Facts(
        returned.outcomes(),
        tuple(_reads(body, returned, target.parameters[:1])),
        repeated(body, names) if _asks(names) else None,
        tuple(_invoked(body.statements, names)),
    )
    if callee is target.function and target.function.__closure__ is None:  # a closure would be kept alive by its cells
        _known[target.function] = names.seen, facts
    return facts


def _asks(names: Names) -> bool:
    code = names.target.function.__code__
    used = (*code.co_names, *code.co_freevars)
    return interrupt.__name__ in used or any(names.lookup(name) is interrupt for name in used)


def _reads(body: Body, returned: Returned, parameter: tuple[str, ...]) -> Iterator[Read]:
    """Readings of the state parameter that surely see what the engine passed."""
    if not parameter:
        return
    [state] = parameter
    local = returned.locals.get(state)
    if local is not None and (local.given or local.opaque or local.merged):
        return
    text = returned.names.text
    changed = {text(key) for key in local.keys} if local is not None else set()
    guarded = _guarded(body.statements, state, text)
    caught = {id(node) for tried in own(body.statements) if isinstance(tried, ast.Try) for node in own(tried.body)}
    for node in own(body.statements):
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=key, ctx=ast.Load()) if name == state:
                found, firm, attribute = text(key), id(node) not in caught, False
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="get"), args=[key, *_]) if name == state:
                found, firm, attribute = text(key), False, False
            case ast.Attribute(value=ast.Name(id=name), attr=attr, ctx=ast.Load()) if name == state:
                found, firm, attribute = attr, id(node) not in caught, True
            case _:
                continue
        if found is not None and found not in changed:
            firm = firm and found not in guarded and not returned.steered
            yield Read(found, node.lineno + body.line, firm, attribute)


def _guarded(statements: Iterable[ast.stmt], state: str, text: Callable[[ast.expr], str | None]) -> set[str | None]:
    """The keys that the function asks for with `in` or hasattr, which it may do without."""
    found: set[str | None] = set()
    for node in own(statements):
        match node:
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[ast.Name(id=name)]) if name == state:
                found.add(text(key))
            case ast.Call(func=ast.Name(id="hasattr" | "getattr"), args=[ast.Name(id=name), key, *_]) if name == state:
                found.add(text(key))
    return found


def _invoked(statements: Iterable[ast.stmt], names: Names) -> Iterator[object]:
    for node in walk(statements):
        if isinstance(node, ast.Attribute) and node.attr in RUNNING:
            yield names.resolve(node.value)
