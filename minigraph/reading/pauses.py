"""Effects that happen again since they come before a question in the same node, and whether a function asks at all."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from minigraph.context import interrupt
from minigraph.reading.local import own
from minigraph.reading.source import MISSING, Body, Names, Target, attribute, body_of, imports_of, target_of

DEPTH = 2
"""How many calls deep an effect is looked for in helper functions."""
VERBS = frozenset({"send", "charge", "refund", "notify", "publish", "purchase", "transfer", "deploy"})
"""First words of names of functions that act on the world."""
NOUNS = frozenset({"for", "of", "date", "time", "rate", "fee", "fees", "amount", "price", "cost", "id", "text", "body"})
"""Second words that make a value of such a name: `charge_for(nights)` computes."""
METHODS = frozenset({"write_text", "write_bytes", "send_message", "sendmail", "unlink", "executemany"})
"""Methods that act on the world, whatever object has them."""
POSTING = frozenset({"post", "put", "patch", "delete"})
"""The same, for objects and functions of the modules in CLIENTS."""
CLIENTS = frozenset({"requests", "httpx", "aiohttp"})
FUNCTIONS = {
    "os": frozenset(
        {"remove", "unlink", "rename", "replace", "rmdir", "removedirs", "renames", "system", "kill", "truncate"}
    ),
    "shutil": frozenset({"copy", "copy2", "copyfile", "copytree", "move", "rmtree"}),
    "subprocess": frozenset({"run", "call", "check_call", "check_output", "Popen"}),
}
"""Functions of the standard library that act on the world, by module."""
LOOKING = frozenset(
    [
        "interrupt",
        "get",
        "len",
        "isinstance",
        "any",
        "all",
        "bool",
        "str",
        "lower",
        "upper",
        "strip",
        "startswith",
        "endswith",
    ]
)
"""Calls in a condition that tell nothing about what was done before."""
CHANGING = ("insert", "update", "delete", "replace", "merge", "drop", "create", "alter")
QUIET = frozenset({"interrupt", "once", "aonce"})


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that a node does to the world: the call as it is written, and its line."""

    call: str
    line: int


@dataclass(frozen=True, slots=True)
class Repeated:
    """An effect before a question: when the answer comes, the node runs again and the effect happens again."""

    effect: Effect
    question_line: int


def repeated(body: Body, names: Names) -> Repeated | None:
    """The first effect that is not recorded and may be followed by a call of `interrupt()` in the same function."""
    walk = _Walk(names, body.line)
    walk.block(body.statements, ())
    return walk.found


def may_pause(callee: Any) -> bool:
    """Whether calling this may ask a question or end the run early, through functions that can be found by name too.

    True as well for what cannot be read.
    """
    todo, seen = [target_of(callee)], set[types.CodeType]()
    while todo:
        target = todo.pop()
        if target is None:
            return True
        if target.function.__code__ in seen:
            continue
        seen.add(target.function.__code__)
        if len(seen) > 200:
            return True
        for found in _mentioned(target):
            if found is interrupt or getattr(found, "__name__", "") in ("interrupt", "request_drain"):
                return True
            if isinstance(found, types.FunctionType | types.MethodType):
                todo.append(target_of(found))
        if {"interrupt", "request_drain", "eval", "exec"} & _names(target.function.__code__):
            return True
    return False


def _mentioned(target: Target) -> Iterable[object]:
    """The objects that a function names: globals, its closure, and attributes of those and of what it is bound to."""
    names = Names(target)
    used = _names(target.function.__code__)
    body = body_of(target.function)
    names.imports = imports_of(body.statements) if body is not None else {}
    roots = [found for name in used if (found := names.lookup(name)) is not MISSING] + [target.bound]
    for root in roots:
        yield root
        if not isinstance(root, types.FunctionType | types.BuiltinFunctionType):
            yield from (found for name in used if (found := attribute(root, name)) is not MISSING)


def _names(code: types.CodeType) -> set[str]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return {*code.co_names, *code.co_freevars}.union(*map(_names, inner))


@dataclass(slots=True)
class _Walk:
    """Follows the statements of a function in order and keeps the effects that have happened on the way."""

    names: Names
    line: int
    depth: int = 0
    known: dict[types.CodeType, bool] = field(default_factory=dict)
    """By helper function, whether it acts on the world."""
    found: Repeated | None = None
    every: list[Effect] = field(default_factory=list)
    """All effects that no look-up of the function's own guards."""
    guarded: int = 0
    left: list[tuple[Effect, ...]] = field(default_factory=list)
    """What had happened where loops are left or begun anew."""

    def block(self, statements: Iterable[ast.stmt], before: tuple[Effect, ...]) -> tuple[Effect, ...] | None:
        """What has happened at the end of the statements; None where the end is not reached."""
        now: tuple[Effect, ...] | None = before
        entered = self.guarded
        for statement in statements:
            if now is None:
                break
            now = self._statement(statement, now)
        self.guarded = entered
        return now

    def _statement(self, node: ast.stmt, now: tuple[Effect, ...]) -> tuple[Effect, ...] | None:
        match node:
            case ast.If(test=test, body=body, orelse=other):
                return self._choice(test, body, other, now)
            case ast.For(iter=head, body=body, orelse=other) | ast.AsyncFor(iter=head, body=body, orelse=other):
                return self._loop(head, body, other, now, endless=False)
            case ast.While(test=head, body=body, orelse=other):
                return self._loop(head, body, other, now, endless=isinstance(head, ast.Constant) and bool(head.value))
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                for item in items:
                    now = self._expression(item.context_expr, now)
                return self.block(body, now)
            case ast.Try() | ast.TryStar():
                return self._try(node, now)
            case ast.Match(subject=subject, cases=cases):
                now = self._expression(subject, now)
                return _joined([now, *(self.block(case.body, now) for case in cases)])
            case ast.Return() | ast.Raise():
                self._expression(node, now)
                return None
            case ast.Break() | ast.Continue():
                self.left.append(now)
                return None
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return now
        return self._expression(node, now)

    def _choice(
        self, test: ast.expr, body: list[ast.stmt], other: list[ast.stmt], now: tuple[Effect, ...]
    ) -> tuple[Effect, ...] | None:
        now = self._expression(test, now)
        looks = _looks_up(test)
        self.guarded += looks
        ways = [self.block(body, now), self.block(other, now)]
        self.guarded -= looks
        if None in ways and looks:
            self.guarded += 1  # what follows happens only if the look-up let it; block() ends this
        return _joined(ways)

    def _loop(
        self, head: ast.expr, body: list[ast.stmt], other: list[ast.stmt], now: tuple[Effect, ...], *, endless: bool
    ) -> tuple[Effect, ...] | None:
        now = self._expression(head, now)
        outer, self.left = self.left, []
        once = _joined([now, self.block(body, now), *self.left]) or now
        again = self.block(body, self._expression(head, once))
        ends = [*self.left] if endless else [once, again, *self.left]
        self.left = outer
        end = _joined(ends)
        return end if end is None or not other else self.block(other, end)

    def _try(self, node: ast.Try | ast.TryStar, now: tuple[Effect, ...]) -> tuple[Effect, ...] | None:
        seen = len(self.every)
        tried = self.block(node.body, now)
        broken = (*now, *self.every[seen:])
        if tried is not None:
            tried = self.block(node.orelse, tried)
        end = _joined([tried, *(self.block(handler.body, broken) for handler in node.handlers)])
        final = self.block(node.finalbody, end if end is not None else broken)
        return None if end is None else final

    def _expression(self, node: ast.AST, now: tuple[Effect, ...]) -> tuple[Effect, ...]:
        for call in _calls(node):
            function = self.names.resolve(call.func)
            if function is interrupt:
                if now and self.found is None:
                    self.found = Repeated(now[0], call.lineno + self.line)
            elif not self.guarded and (effect := self._effect(call, function)) is not None:
                self.every.append(effect)
                now = (*now, effect)
        return now

    # ---------------------------------------------------------------- effects

    def _effect(self, call: ast.Call, function: object) -> Effect | None:
        words = {k.arg or "" for k in call.keywords}
        if any("idempot" in word or word in ("dry_run", "message_id", "request_id", "key") for word in words):
            return None
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in QUIET:
            return None
        acts = self._acts(call, name, function) or self._verb(name, call, function) or self._inside(function)
        return Effect(ast.unparse(call.func) + "()", call.lineno + self.line) if acts else None

    def _acts(self, call: ast.Call, name: str, function: object) -> bool:
        if function is open:
            modes = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "mode")]
            return any(isinstance(m, ast.Constant) and set("wax+") & set(str(m.value)) for m in modes)
        module = str(getattr(function, "__module__", None) or "").partition(".")[0]
        module = {"posix": "os", "nt": "os"}.get(module, module)
        if getattr(function, "__name__", "") in FUNCTIONS.get(module, ()):
            return True
        if not isinstance(call.func, ast.Attribute):
            return False
        if name == "execute" and call.args and isinstance(call.args[0], ast.Constant):
            return str(call.args[0].value).lstrip().lower().startswith(CHANGING)
        if name in POSTING:
            owner = self.names.resolve(call.func.value)
            return (getattr(owner, "__name__", "") or type(owner).__module__).partition(".")[0] in CLIENTS
        return name in METHODS and not isinstance(function, types.FunctionType | types.MethodType)

    def _verb(self, name: str, call: ast.Call, function: object) -> bool:
        words = name.strip("_").split("_")
        if words[0] not in VERBS or (len(words) > 1 and words[1] in NOUNS):
            return False
        if isinstance(function, type):
            return False
        if len(words) == 1 and function is MISSING and isinstance(call.func, ast.Attribute):
            root = call.func.value
            while isinstance(root, ast.Attribute):
                root = root.value
            if not isinstance(root, ast.Name) or root.id in self.names.target.function.__code__.co_varnames[1:]:
                return False  # a method of a local object: `send` of a generator, say
        return function is not MISSING and not _plain(function)

    def _inside(self, function: object) -> bool:
        """Whether a helper function that can be found acts on the world itself."""
        target = target_of(function) if isinstance(function, types.FunctionType | types.MethodType) else None
        body = body_of(target.function) if target is not None and self.depth < DEPTH else None
        if target is None or body is None:
            return False
        code = target.function.__code__
        if code not in self.known:
            self.known[code] = False
            walk = _Walk(Names(target, imports_of(body.statements)), body.line, self.depth + 1, self.known)
            walk.block(body.statements, ())
            self.known[code] = bool(walk.every)
        return self.known[code]


def _calls(node: ast.AST) -> list[ast.Call]:
    """The calls that a statement or expression makes itself, those in arguments before the call they are for."""
    return sorted(
        (n for n in own([node]) if isinstance(n, ast.Call)),
        key=lambda call: (call.end_lineno or 0, call.end_col_offset or 0),
    )


def _joined(ways: Iterable[tuple[Effect, ...] | None]) -> tuple[Effect, ...] | None:
    open_ways = [way for way in ways if way is not None]
    return tuple(dict.fromkeys(effect for way in open_ways for effect in way)) if open_ways else None


def _looks_up(test: ast.expr) -> bool:
    """Whether a condition asks somebody, who may know that the effect has happened already."""
    names = [c.func.attr if isinstance(c.func, ast.Attribute) else getattr(c.func, "id", "") for c in _calls(test)]
    return any(name not in LOOKING for name in names)


def _plain(function: object) -> bool:
    """Whether a function, judged by its code, calls nothing but builtins and changes nothing outside of itself."""
    if not isinstance(function, types.FunctionType | types.MethodType):
        return False
    target = target_of(function)
    body = body_of(target.function) if target is not None else None
    if target is None or body is None:
        return False
    names = Names(target, imports_of(body.statements))
    for node in own(body.statements):
        match node:
            case ast.Call(func=ast.Name() as name) if isinstance(names.resolve(name), type | types.BuiltinFunctionType):
                continue
            case ast.Call(func=ast.Attribute(value=ast.Constant() | ast.JoinedStr())):
                continue
            case ast.Call() | ast.Global() | ast.Nonlocal() | ast.Await() | ast.Yield():
                return False
            case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                return False
    return True
