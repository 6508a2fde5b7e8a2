"""The syntax tree of a function, found by its code object, and what the names in it stand for."""

from __future__ import annotations

import ast
import builtins
import enum
import functools
import inspect
import linecache
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final


class Missing:
    """The type of MISSING, which stands for a name whose object is not known."""


MISSING: Final = Missing()


@dataclass(frozen=True, slots=True)
class Body:
    """What a function runs. `line` added to a line number of the tree gives the line in the file."""

    statements: tuple[ast.stmt, ...]
    returns: ast.expr | None
    line: int


@dataclass(frozen=True, slots=True)
class Target:
    """A plain function behind a callable: the instance it is bound to, and how many arguments are filled in already."""

    function: Any  # a FunctionType, which is a descriptor: a checker would take the field for a method
    bound: object = MISSING
    filled: int = 0
    named: frozenset[str] = frozenset()

    @property
    def parameters(self) -> tuple[str, ...]:
        """The positional parameters that a call still fills."""
        code = self.function.__code__
        names = code.co_varnames[self.filled + (self.bound is not MISSING) : code.co_argcount]
        return tuple(name for name in names if name not in self.named)


def target_of(callee: Any) -> Target | None:
    """The function that a call of `callee` runs; None for classes, C functions and other things without Python code."""
    filled, named = 0, frozenset[str]()
    while isinstance(callee, functools.partial):
        filled, named = filled + len(callee.args), named | frozenset(callee.keywords)
        callee = callee.func
    bound: object = MISSING
    if not isinstance(callee, types.FunctionType | types.MethodType) and not isinstance(callee, type):
        method = inspect.getattr_static(type(callee), "__call__", None)
        if isinstance(method, types.FunctionType):
            callee = types.MethodType(method, callee)
    if isinstance(callee, types.MethodType):
        bound, callee = callee.__self__, callee.__func__
    return Target(callee, bound, filled, named) if isinstance(callee, types.FunctionType) else None


_bodies: dict[types.CodeType, Body | None] = {}


def body_of(function: types.FunctionType) -> Body | None:
    """The parsed source of a function, or None where there is none that fits its code."""
    code = function.__code__
    if code not in _bodies:
        if len(_bodies) >= 4096:
            _bodies.clear()
        _bodies[code] = _parsed(code, function.__globals__)
    return _bodies[code]


def _parsed(code: types.CodeType, scope: dict[str, Any]) -> Body | None:
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, scope)
    try:
        body = _lambda(code, lines) if code.co_name == "<lambda>" else _definition(code, lines)
    except (SyntaxError, ValueError, RecursionError):
        return None
    if body is None or not _used(body.statements) <= _named(code):
        return None  # the file has changed since it was imported, or this is not its source
    return body


def _definition(code: types.CodeType, lines: list[str]) -> Body | None:
    first = code.co_firstlineno
    last = max((end for place in _codes(code) for _, end, _, _ in place.co_positions() if end), default=first)
    block = lines[first - 1 : last]
    if not block:
        return None
    margin = len(block[0]) - len(block[0].lstrip())
    text = "".join(block)
    if margin:  # an indented definition stands in a block of its own, so that its text stays as it is
        text, first = "if True:\n" + text, first - 1
    [statement] = ast.parse(text).body
    if isinstance(statement, ast.If):
        [statement] = statement.body
    if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) or statement.name != code.co_name:
        return None
    names = [a.arg for a in (*statement.args.posonlyargs, *statement.args.args)]
    if tuple(names) != code.co_varnames[: code.co_argcount]:
        return None
    return Body(tuple(statement.body), statement.returns, first - 1)


def _lambda(code: types.CodeType, lines: list[str]) -> Body | None:
    spans = [
        (first, start, last, end)
        for first, last, start, end in code.co_positions()
        if first is not None and last is not None and start is not None and end is not None and (start, end) != (0, 0)
    ]
    if not spans:
        return None
    first, start = min((span[0], span[1]) for span in spans)
    last, end = max((span[2], span[3]) for span in spans)
    block = [line.encode() for line in lines[first - 1 : last]]
    if not block:
        return None
    block[-1] = block[-1][:end]
    block[0] = block[0][start:]
    expression = ast.parse(b"(" + b"".join(block) + b"\n)", mode="eval").body
    return Body((ast.copy_location(ast.Return(expression), expression),), None, first - 1)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _used(statements: tuple[ast.stmt, ...]) -> set[str]:
    found = set()
    todo: list[ast.AST] = list(statements)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.AnnAssign):  # its annotation is never evaluated
            todo += [node.target, *([node.value] if node.value else [])]
            continue
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        todo += ast.iter_child_nodes(node)
    return found - {"__debug__", "TYPE_CHECKING"}


def _named(code: types.CodeType) -> set[str]:
    return {
        name
        for place in _codes(code)
        for names in (place.co_names, place.co_varnames, place.co_cellvars, place.co_freevars)
        for name in names
    }


@dataclass(slots=True)
class Names:
    """What the names in a function stand for, as far as that is settled outside of it."""

    target: Target
    imports: dict[str, object] = field(default_factory=dict)
    rebound: frozenset[str] = frozenset()
    """Local names that are set in the function; none of them is looked up."""
    seen: dict[str, object] = field(default_factory=dict)
    """The global and built-in names that were looked up: what was concluded holds as long as they stay the same."""

    def lookup(self, name: str) -> object:
        """The object of a name: imported in the function, `self`, of a closure, global or built in; or MISSING."""
        function, code = self.target.function, self.target.function.__code__
        if name in self.imports:
            return self.imports[name]
        if code.co_argcount and name == code.co_varnames[0] and name not in self.rebound:
            return self.target.bound
        if name in code.co_varnames or name in code.co_cellvars:
            return MISSING
        if name in code.co_freevars:
            return _content(function.__closure__[code.co_freevars.index(name)])
        found = self.seen[name] = outside(function, name)
        return found

    def resolve(self, expression: ast.expr) -> object:
        """The object that a name or a dotted name stands for, or MISSING. Runs no code of anybody's."""
        if isinstance(expression, ast.Name):
            return self.lookup(expression.id)
        if isinstance(expression, ast.Attribute):
            return attribute(self.resolve(expression.value), expression.attr)
        return MISSING

    def text(self, expression: ast.expr) -> str | None:
        """The string that an expression surely is, or None."""
        found = expression.value if isinstance(expression, ast.Constant) else self.resolve(expression)
        return str.__str__(found) if isinstance(found, str) else None


def outside(function: types.FunctionType, name: str) -> object:
    """The global or built-in object of a name, or MISSING."""
    scope = function.__globals__
    return scope[name] if name in scope else getattr(builtins, name, MISSING)


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return MISSING


def attribute(owner: object, name: str) -> object:
    """An attribute as it is stored, without running a property or `__getattr__`; MISSING where there is none."""
    if owner is MISSING:
        return MISSING
    if isinstance(owner, types.ModuleType):
        return vars(owner).get(name, MISSING)
    if isinstance(owner, enum.EnumMeta):
        return owner.__members__.get(name, MISSING)
    if isinstance(owner, enum.Enum) and name in ("value", "name"):
        return owner._value_ if name == "value" else owner._name_
    if isinstance(owner, type):
        found = inspect.getattr_static(owner, name, MISSING)
        return found.__func__ if isinstance(found, staticmethod) else found
    own = getattr(owner, "__dict__", {})
    if isinstance(own, dict) and name in own:
        return own[name]
    found = inspect.getattr_static(type(owner), name, MISSING)
    if isinstance(found, types.FunctionType):
        return types.MethodType(found, owner)
    if isinstance(found, types.MemberDescriptorType):
        return _slot(found, owner)
    return found.__func__ if isinstance(found, staticmethod) else MISSING


def _slot(member: Any, owner: object) -> object:
    try:
        return member.__get__(owner, type(owner))
    except (AttributeError, TypeError):  # empty, or a slot of the class's own class
        return MISSING


def imports_of(statements: tuple[ast.stmt, ...]) -> dict[str, object]:
    """What a function imports in its body, as far as those modules are loaded."""
    found: dict[str, object] = {}
    for node in (n for statement in statements for n in ast.walk(statement)):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            module: object = sys.modules.get(node.module or "", MISSING)
            found |= {alias.asname or alias.name: attribute(module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                found[alias.asname or name] = sys.modules.get(name, MISSING)
    return found
