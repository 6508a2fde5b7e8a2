"""Works out what a function may return, from its text and from what the names in it stand for."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Iterable, Mapping
from typing import is_typeddict

from minigraph.reading.local import Local, Locals, goes_on, own
from minigraph.reading.source import MISSING, Body, Names, Target, body_of, imports_of, target_of
from minigraph.reading.values import UNKNOWN, Flag, Go, Goal, Many, Nothing, Unknown, Update, Value, one_of, unsure
from minigraph.structure import INJECTED
from minigraph.types import Command, Overwrite, Send

DEPTH = 1
"""How many calls deep a returned call of a helper function is followed."""
GENERATES = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
OPEN = Update(open=True)
DICTS = (typing.Dict, typing.Mapping, typing.MutableMapping)  # noqa: UP006  # users write these
FLAG: tuple[Value, ...] = (Flag(),)


class Returned:
    """The values that one function may return."""

    def __init__(self, target: Target, body: Body, depth: int = 0) -> None:
        imports = imports_of(body.statements) if _imports(body.statements) else {}
        self.body, self.depth = body, depth
        self.locals = Locals(body.statements)
        rebound = frozenset(n for n, local in self.locals.items() if local.given or local.opaque) - imports.keys()
        self.names = Names(target, imports, rebound)
        self._asked: set[str] = set()
        self._hint: tuple[Value, ...] | None = None

    def outcomes(self) -> tuple[Value, ...]:
        """Each thing that the function may return. The return annotation stands in for what the text does not tell."""
        if self.names.target.function.__code__.co_flags & GENERATES:
            return UNKNOWN
        found: list[Value] = []
        for node in own(self.body.statements):
            if isinstance(node, ast.Return):
                found += self.values(node.value) if node.value is not None else (Nothing(),)
        if goes_on(self.body.statements):
            found.append(Nothing())
        if any(isinstance(value, Unknown) for value in found):
            told = [value for value in found if not isinstance(value, Unknown)]
            found = [*told, *self._annotated()]
        return one_of(map(unsure, found) if self.steered else found)

    @functools.cached_property
    def steered(self) -> bool:
        """Whether conditions of the function depend on how it was made: a closure, `self`, a global, an argument.

        What one such function never does in this graph, it may do in another.
        """
        code = self.names.target.function.__code__
        mine = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        handed = {*mine} - {*self.names.target.parameters[:1], *INJECTED}
        for node in own(self.body.statements):
            match node:
                case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) | ast.Match(subject=test):
                    if any(self._outside(n.id, handed) for n in own([test]) if isinstance(n, ast.Name)):
                        return True
                case ast.BoolOp() if any(self._outside(n.id, handed) for n in own([node]) if isinstance(n, ast.Name)):
                    return True
        return False

    def _outside(self, name: str, handed: set[str]) -> bool:
        if name in handed:
            return True
        found = self.names.lookup(name)
        constant = isinstance(found, str) and name.isupper()  # END, say: what a value of the state is compared with
        return not (found is MISSING or constant or callable(found) or inspect.ismodule(found))

    def values(self, expression: ast.expr) -> tuple[Value, ...]:
        """What an expression may be."""
        match expression:
            case ast.Constant(value=None):
                return (Nothing(),)
            case ast.Constant(value=str(text)):
                return (Goal(text),)
            case ast.Name(id=name):
                return self._name(name, expression)
            case ast.Attribute():
                return _object(self.names.resolve(expression))
            case ast.Dict(keys=keys, values=values):
                return (self._dict(keys, values),)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return (self._list(items),)
            case ast.ListComp(elt=element, generators=parts) | ast.GeneratorExp(elt=element, generators=parts):
                several = not any(part.ifs or _short(part.iter) for part in parts)
                return (Many((self.values(element),), exact=False, repeated=several),)
            case ast.IfExp(body=body, orelse=other):
                return one_of((*self.values(body), *self.values(other)))
            case ast.BoolOp(op=operator, values=parts):
                found = one_of(value for part in parts for value in self.values(part))
                return found if isinstance(operator, ast.Or) or found == FLAG else UNKNOWN
            case ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.Constant(value=bool()):
                return FLAG
            case ast.Await(value=inner):
                return self.values(inner)
            case ast.BinOp(left=left, op=op, right=right):
                return self._operation(left, op, right)
            case ast.Call():
                return self._call(expression)
        return UNKNOWN

    # ------------------------------------------------------------------ names

    def _name(self, name: str, expression: ast.expr) -> tuple[Value, ...]:
        local = self.locals.get(name)
        code = self.names.target.function.__code__
        if local is None or name in self.names.imports:
            return UNKNOWN if name in code.co_varnames else _object(self.names.resolve(expression))
        if local.opaque or name in self._asked:
            return UNKNOWN
        if name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
            return self._changed((Update(open=True),), local) if local.keys and not local.given else UNKNOWN
        if not local.given:
            return UNKNOWN
        self._asked.add(name)
        values = one_of(value for given in local.given for value in self.values(given))
        if len(local.given) > 1:
            values = tuple(map(unsure, values))
        values = self._changed(values, local)
        self._asked.discard(name)
        return values

    def _changed(self, values: tuple[Value, ...], local: Local) -> tuple[Value, ...]:
        if not (local.keys or local.merged or local.items or local.shared):
            return values
        texts = [self.names.text(key) for key in local.keys]
        added = frozenset(text for text in texts if text is not None)
        more = [value for expression in local.merged for value in self.values(expression)]
        dicts = [value for value in more if isinstance(value, Update)]
        opened = local.shared or len(added) < len(set(texts)) or len(dicts) < len(more) or any(d.open for d in dicts)
        for one in dicts:
            added |= one.keys
        items = tuple(self.values(item) for item in local.items)
        return tuple(self._grown(value, added, opened, items, local.shared) for value in values)

    @staticmethod
    def _grown(
        value: Value, added: frozenset[str], opened: bool, items: tuple[tuple[Value, ...], ...], shared: bool
    ) -> Value:
        if isinstance(value, Update):
            certain = frozenset[str]() if shared else value.certain
            spelled = value.spelled | added if len(added) and not value.open else value.spelled
            return Update(certain, value.keys | added, value.open or opened, spelled, value.replaced)
        if isinstance(value, Many):
            return Many(value.items + items, value.open or shared, exact=False)
        return Unknown() if shared and not isinstance(value, Goal | Nothing) else value

    # ------------------------------------------------------------ expressions

    def _dict(self, keys: Iterable[ast.expr | None], values: Iterable[ast.expr]) -> Update:
        certain: set[str] = set()
        maybe: set[str] = set()
        replaced: set[str] = set()
        spelled: set[str] = set()
        opened = False
        for key, value in zip(keys, values, strict=True):
            if key is None:
                for part in self.values(value):
                    if isinstance(part, Update):
                        certain |= part.certain if len(self.values(value)) == 1 else set()
                        maybe |= part.keys
                        spelled |= part.spelled
                        replaced |= part.replaced
                        opened = opened or part.open
                    elif not isinstance(part, Nothing):
                        opened = True
                continue
            name = self.names.text(key)
            if name is None:
                opened = True
            else:
                certain.add(name)
                spelled.add(name)
                if self._overwrites(value):
                    replaced.add(name)
        return Update(frozenset(certain), frozenset(maybe), opened, frozenset(spelled), frozenset(replaced))

    def _list(self, items: Iterable[ast.expr]) -> Many:
        found: list[tuple[Value, ...]] = []
        opened, exact, repeated = False, True, False
        for item in items:
            if not isinstance(item, ast.Starred):
                found.append(self.values(item))
                continue
            match self.values(item.value):
                case (Many() as part,):
                    found += part.items
                    opened, exact, repeated = opened or part.open, exact and part.exact, repeated or part.repeated
                case _:
                    opened = True
        return Many(tuple(found), opened, exact, repeated)

    def _overwrites(self, value: ast.expr) -> bool:
        """Whether an Overwrite is mentioned in a value, or in what is assigned to a name in it."""
        todo: list[ast.AST] = [value]
        seen: set[str] = set()
        while todo:
            node = todo.pop()
            todo += ast.iter_child_nodes(node)
            if isinstance(node, ast.Constant) and node.value == "__overwrite__":
                return True
            if isinstance(node, ast.Name | ast.Attribute) and self.names.resolve(node) is Overwrite:
                return True
            if isinstance(node, ast.Name) and node.id in self.locals and node.id not in seen:
                seen.add(node.id)
                todo += self.locals[node.id].given
        return False

    def _operation(self, left: ast.expr, operator: ast.operator, right: ast.expr) -> tuple[Value, ...]:
        if isinstance(operator, ast.BitOr):
            return (self._dict([None, None], [left, right]),)
        if isinstance(operator, ast.Add):
            return (self._list([ast.Starred(left), ast.Starred(right)]),)
        return UNKNOWN

    def _call(self, call: ast.Call) -> tuple[Value, ...]:
        function = self.names.resolve(call.func)
        words = {k.arg: k.value for k in call.keywords if k.arg is not None}
        whole = len(words) == len(call.keywords) and not any(isinstance(a, ast.Starred) for a in call.args)
        if function is Command:
            return (self._command(words),) if whole else UNKNOWN
        if function is Send:
            node = call.args[0] if call.args else words.get("node")
            values = self.values(node) if node is not None and whole else UNKNOWN
            return tuple(Goal(v.name, True, v.sure) if isinstance(v, Goal) else Unknown() for v in values)
        if function is dict:
            update = self._dict([ast.Constant(name) for name in words], words.values())
            return (dataclasses.replace(update, open=True),) if call.args or not whole else (update,)
        if isinstance(function, type):
            return (self._constructed(function, words, whole and not call.args),)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "copy" and not call.args:
            return self.values(call.func.value)
        return self._helper(function)

    def _constructed(self, kind: type, words: Mapping[str, ast.expr], whole: bool) -> Value:
        if is_typeddict(kind):
            update = self._dict([ast.Constant(name) for name in words], words.values())
            return update if whole else dataclasses.replace(update, open=True)
        if dataclasses.is_dataclass(kind):
            return Update(frozenset(f.name for f in dataclasses.fields(kind)))
        if whole and hasattr(kind, "__struct_fields__"):
            return Update(maybe=frozenset(words))
        if whole and hasattr(kind, "model_fields"):
            return Update(frozenset(words))
        return Unknown()

    def _command(self, words: Mapping[str, ast.expr]) -> Go:
        update = self.values(words["update"]) if "update" in words else (Nothing(),)
        goto = self.values(words["goto"]) if "goto" in words else (Nothing(),)
        graph = words.get("graph")
        inside = graph is None or (isinstance(graph, ast.Constant) and graph.value is None)
        return Go(update, goto, parent=not inside)

    def _helper(self, function: object) -> tuple[Value, ...]:
        target = target_of(function) if isinstance(function, types.FunctionType | types.MethodType) else None
        body = body_of(target.function) if target is not None and self.depth < DEPTH else None
        if target is None or body is None:
            return UNKNOWN
        return tuple(map(unsure, Returned(target, body, self.depth + 1).outcomes()))

    # ------------------------------------------------------------ annotations

    def _annotated(self) -> tuple[Value, ...]:
        return self._hinted(self.body.returns) if self.body.returns is not None else UNKNOWN

    def _hinted(self, hint: ast.expr) -> tuple[Value, ...]:
        if isinstance(hint, ast.Constant) and hint.value is None:
            return (Nothing(),)
        if isinstance(hint, ast.BinOp):
            return one_of((*self._hinted(hint.left), *self._hinted(hint.right)))
        base = hint.value if isinstance(hint, ast.Subscript) else hint
        kind = self.names.resolve(base)
        if kind is None:
            return (Nothing(),)
        if kind is typing.Optional and isinstance(hint, ast.Subscript):
            return one_of((Nothing(), *self._hinted(hint.slice)))
        if kind is typing.Union and isinstance(hint, ast.Subscript) and isinstance(hint.slice, ast.Tuple):
            return one_of(value for part in hint.slice.elts for value in self._hinted(part))
        if kind is Command:
            return (Go((OPEN,), self._places(hint)),)
        if is_typeddict(kind):
            return (Update(maybe=frozenset(typing.get_type_hints(kind))),) if isinstance(kind, type) else UNKNOWN
        if _is_mapping(kind):
            return (OPEN,)
        return (OPEN,) if any(kind is alias for alias in DICTS) else UNKNOWN

    def _places(self, hint: ast.expr) -> tuple[Value, ...]:
        inner = hint.slice if isinstance(hint, ast.Subscript) else None
        if isinstance(inner, ast.Subscript) and self.names.resolve(inner.value) is typing.Literal:
            names = inner.slice.elts if isinstance(inner.slice, ast.Tuple) else [inner.slice]
            texts = [self.names.text(name) for name in names]
            return tuple(Goal(text, sure=False) if text is not None else Unknown() for text in texts)
        return UNKNOWN


def _is_mapping(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Mapping)


def _object(found: object) -> tuple[Value, ...]:
    if found is None:
        return (Nothing(),)
    return (Goal(str.__str__(found)),) if isinstance(found, str) else UNKNOWN


def _short(iterated: ast.expr) -> bool:
    """Whether a comprehension over this may be meant to give a single item."""
    sliced = isinstance(iterated, ast.Subscript) and isinstance(iterated.slice, ast.Slice)
    return sliced or isinstance(iterated, ast.List | ast.Tuple)


def _imports(statements: Iterable[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Import | ast.ImportFrom) for node in own(statements))
