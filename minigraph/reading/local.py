"""What happens to the local names of a function: which values they are given, what is added, who else gets them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

READING = frozenset({"get", "items", "keys", "values", "copy", "index", "count"})
"""Methods of dicts and lists that change nothing."""


@dataclass(slots=True)
class Local:
    """One local name."""

    given: list[ast.expr] = field(default_factory=list)
    """What is assigned to it."""
    keys: list[ast.expr] = field(default_factory=list)
    """Keys that are set on it."""
    merged: list[ast.expr] = field(default_factory=list)
    """Dicts that are merged into it."""
    items: list[ast.expr] = field(default_factory=list)
    """What is appended to it."""
    opaque: bool = False
    """It is bound in a way that is not followed, or something is taken out of it."""
    shared: bool = False
    """It is handed to other code, which may have changed it."""


class Locals(dict[str, Local]):
    """The local names of a function that are assigned or changed in its text."""

    def __init__(self, statements: Iterable[ast.stmt]) -> None:
        super().__init__()
        self._safe: set[int] = set()
        loads: list[ast.Name] = []
        for node in walk(statements):
            self._note(node)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                loads.append(node)
        for name in loads:
            if id(name) not in self._safe and name.id in self:
                self[name.id].shared = True

    def of(self, name: str) -> Local:
        """The record of a name, made where there is none."""
        return self.setdefault(name, Local())

    def _note(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.of(name).given.append(value)
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name) as owner, slice=key)]):
                self._allow(owner)
                self.of(name).keys.append(key)
            case ast.Assign(targets=targets, value=value):
                self._bind(targets)
                if isinstance(value, ast.Name):
                    self.of(value.id).shared = True
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self.of(name).given.append(value)
            case ast.AugAssign(target=ast.Name(id=name), op=ast.BitOr(), value=value):
                self._allow(value)
                self.of(name).merged.append(value)
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=ast.List(elts=items)):
                self.of(name).items += items
            case ast.AugAssign(target=target) | ast.NamedExpr(target=target):
                self._bind([target])
            case ast.For(target=target) | ast.AsyncFor(target=target) | ast.comprehension(target=target):
                self._bind([target])
            case ast.withitem(optional_vars=ast.expr() as target):
                self._bind([target])
            case ast.Delete(targets=targets):
                self._bind(targets)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                self.of(name).opaque = True
            case ast.MatchMapping(rest=str(name)):
                self.of(name).opaque = True
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                for name in names:
                    self.of(name).opaque = True
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                self.of(name).opaque = True
            case ast.Call(func=function, args=arguments, keywords=keywords):
                self._call(function, arguments, keywords)
            case ast.Return(value=ast.Name() as name) | ast.Subscript(value=ast.Name() as name, ctx=ast.Load()):
                self._allow(name)
            case ast.Dict(keys=keys, values=values):
                self._allow(*(value for key, value in zip(keys, values, strict=True) if key is None))
            case ast.Compare(comparators=comparators):
                self._allow(*comparators)
            case ast.IfExp(test=test, body=body, orelse=other):
                self._allow(test, body, other)
            case ast.BoolOp(values=values):
                self._allow(*values)
            case ast.If(test=test) | ast.While(test=test) | ast.UnaryOp(operand=test):
                self._allow(test)
            case ast.BinOp(left=left, right=right, op=ast.BitOr()):
                self._allow(left, right)

    def _call(self, function: ast.expr, arguments: list[ast.expr], keywords: list[ast.keyword]) -> None:
        self._allow(*(k.value for k in keywords if k.arg in ("update", "goto")))
        if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
            return
        self._allow(function.value)
        local = self.of(function.value.id)
        if function.attr == "update":
            local.merged += [*arguments, *(ast.Dict([ast.Constant(k.arg)], [k.value]) for k in keywords if k.arg)]
            local.shared = local.shared or any(k.arg is None for k in keywords)
            self._allow(*arguments)
        elif function.attr == "setdefault" and arguments:
            local.keys.append(arguments[0])
        elif function.attr == "append":
            local.items += arguments
        elif function.attr not in READING:
            local.opaque = True

    def _allow(self, *expressions: ast.expr) -> None:
        self._safe |= {id(e) for e in expressions if isinstance(e, ast.Name)}

    def _bind(self, targets: Iterable[ast.expr]) -> None:
        for target in targets:
            for node in ast.walk(target):
                if isinstance(node, ast.Name):
                    self.of(node.id).opaque = True


def walk(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Every node of the trees, those inside nested functions too."""
    todo = list(statements)
    while todo:
        node = todo.pop()
        yield node
        todo += ast.iter_child_nodes(node)


def own(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Every node that the function runs itself: nested functions, lambdas and classes are left out."""
    todo = list(statements)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)


def goes_on(statements: Iterable[ast.stmt]) -> bool:
    """Whether control may reach the end of a block; True where that is not clear."""
    for statement in statements:
        match statement:
            case ast.Return() | ast.Raise() | ast.Continue() | ast.Break():
                return False
            case ast.If(body=body, orelse=other) if other and not goes_on(body) and not goes_on(other):
                return False
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                if not goes_on(body) and not any("suppress" in ast.dump(item) for item in items):
                    return False
            case ast.Try(body=body, handlers=handlers, orelse=other, finalbody=final):
                ends = not goes_on(body) or (other and not goes_on(other))
                if not goes_on(final) or (ends and not any(goes_on(h.body) for h in handlers)):
                    return False
            case ast.While(test=ast.Constant(value=value)) if value and not _breaks(statement.body):
                return False
            case ast.Match(cases=cases) if _exhaustive(cases) and not any(goes_on(c.body) for c in cases):
                return False
    return True


def _exhaustive(cases: list[ast.match_case]) -> bool:
    last = cases[-1]
    return last.guard is None and isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None


def _breaks(body: list[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Break) for node in own(body))
