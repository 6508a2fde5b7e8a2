"""Draws programs at random: mostly terminating, and dense in what makes engines differ."""

from __future__ import annotations

from random import Random
from typing import Any

from minigraph.testing.programs import (
    REPLACEABLE,
    Edit,
    EditPaused,
    Fork,
    Input,
    Join,
    Kind,
    NodeSpec,
    Program,
    Put,
    Replay,
    RouterSpec,
    SendTo,
    Target,
    Turn,
)
from minigraph.types import END, START

_KINDS: tuple[tuple[Kind, int], ...] = (
    ("write", 40),
    ("nothing", 8),
    ("command", 16),
    ("several", 5),
    ("fan_out", 7),
    ("ask", 8),
    ("ask_twice", 4),
    ("fail_once", 5),
    ("retry", 3),
    ("call_child", 4),
    ("child", 4),
)
_CHILD_KINDS: tuple[tuple[Kind, int], ...] = (("write", 6), ("ask", 2), ("nothing", 1), ("retry", 1))
_DEEP_KINDS: tuple[tuple[Kind, int], ...] = (*_CHILD_KINDS, ("child", 3), ("call_child", 3))
_DEPTH = 3
"""How many levels of child graphs there may be with `deep_children`."""
_ANSWERS: tuple[Any, ...] = ("yes", None, False, 0, "", [], {}, {"a": 1}, [1, {"b": None}], 7)


def draw_program(
    random: Random, *, size: int = 6, failing_routers: bool = False, deep_children: bool = False
) -> Program:
    """A program drawn from `random`: 2 to `size` nodes, 1 to 4 turns. The same numbers give the same program.

    `failing_routers` adds routers that fail the first time, which LangGraph does not recover from. `deep_children`
    gives child graphs children of their own, down to the third level.
    """
    return _Drawing(random, size, failing_routers, deep_children).program()


class _Drawing:
    def __init__(self, random: Random, size: int, failing_routers: bool, deep_children: bool) -> None:
        self.random, self.failing_routers = random, failing_routers
        self.depth = _DEPTH if deep_children else 1
        self.names = [f"n{i}" for i in range(random.randint(2, size))]
        random.shuffle(self.names)
        self.kinds: dict[str, Kind] = {name: self.weighted(_KINDS) for name in self.names}
        self.calm = random.random() < 0.5
        """Whether parallel nodes keep off plain keys, so that most runs get far."""

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def weighted(self, choices: tuple[tuple[Kind, int], ...]) -> Kind:
        kinds: list[Kind] = [kind for kind, _ in choices]
        return self.random.choices(kinds, [weight for _, weight in choices])[0]

    def sample(self, least: int, most: int) -> list[str]:
        most = min(most, len(self.names))
        return self.random.sample(self.names, self.random.randint(min(least, most), most))

    def program(self) -> Program:
        joins = self.joins()
        nodes = tuple(self.node(name) for name in self.names)
        return Program(
            nodes=nodes,
            edges=self.edges(),
            joins=joins,
            routers=self.routers(),
            before=tuple(self.sample(1, 2)) if self.chance(0.08) else (),
            after=tuple(self.sample(1, 2)) if self.chance(0.08) else (),
            turns=self.turns(forks=not joins and not any(node.defer for node in nodes)),
            answers=tuple(self.random.sample(_ANSWERS, self.random.randint(1, 5))),
            one_by_one=self.chance(0.4),
            budget=self.random.randint(3, 12),
        )

    # ------------------------------------------------------------------- nodes

    def node(self, name: str) -> NodeSpec:
        kind: Kind = self.kinds[name]
        goto: tuple[Target, ...] = ()
        if kind in ("command", "several"):
            goto = self.targets(0, 2)
        elif kind == "fan_out":
            places = [n for n in self.names if self.sendable(n)] or [name]
            if self.chance(0.7):
                places = [self.random.choice(places)]
            goto = tuple(SendTo(self.random.choice(places), i) for i in range(self.random.randint(1, 3)))
        child = self.child(name, shared=kind == "child") if kind in ("child", "call_child") else None
        return NodeSpec(name, kind, self.puts(), goto, self.chance(0.18), child)

    def puts(self) -> tuple[Put, ...]:
        keys = ["log", "total"]
        keys += [k for k in ("text", "table", "names", "peak") if self.chance(0.35)]
        keys += [k for k in ("plain", "other", "flash") if self.chance(0.04 if self.calm else 0.12)]
        return tuple(Put(key, key in REPLACEABLE and self.chance(0.05)) for key in keys)

    def child(self, name: str, *, shared: bool, depth: int = 1) -> Program:
        """A child graph for a node: one that shares keys with its parent, or one that the node calls."""
        names = [f"{name}c{i}" for i in range(self.random.randint(1, 3))]
        choices = _DEEP_KINDS if depth < self.depth else _CHILD_KINDS
        kinds: list[Kind] = [self.weighted(choices) for _ in names]
        if shared:  # what a function calls hands back keys that a parent of this child must not see twice
            kinds = ["child" if kind == "call_child" else kind for kind in kinds]
        if set(kinds) == {"nothing"}:
            kinds[0] = "write"  # a child that writes nothing still shows values on LangGraph, and none here
        keys = ("names",) if shared else ("log", "total", "text")
        nodes = tuple(self.child_node(n, kind, keys, depth) for n, kind in zip(names, kinds, strict=True))
        if "child" in kinds and not shared:
            keys = (*keys, "names")
        chain = tuple(zip((START, *names), (*names, END), strict=True))
        fan = tuple((START, n) for n in names)
        return Program(nodes, chain if self.chance(0.6) else fan, keys=keys)

    def child_node(self, name: str, kind: Kind, keys: tuple[str, ...], depth: int) -> NodeSpec:
        puts, defer = tuple(Put(key) for key in keys), self.chance(0.1)
        if kind not in ("child", "call_child"):
            return NodeSpec(name, kind, puts, (), defer)
        return NodeSpec(name, kind, puts, (), defer, self.child(name, shared=kind == "child", depth=depth + 1))

    def sendable(self, name: str) -> bool:
        """Whether several Sends to a node behave the same in any order: not if its first call fails."""
        return self.kinds[name] not in ("fail_once", "child")

    # ------------------------------------------------------------------- edges

    def edges(self) -> tuple[tuple[str, str], ...]:
        found = [(START, name) for name in self.sample(1, 3)]
        for place, name in enumerate(self.names):
            for _ in range(self.random.choice([0, 1, 1, 1, 2])):
                forward = self.names[place + 1 :] or [END]
                anywhere = [*self.names, END]
                found.append((name, self.random.choice(forward if self.chance(0.92) else anywhere)))
        return tuple(dict.fromkeys(found))

    def joins(self) -> tuple[Join, ...]:
        if len(self.names) < 3 or not self.chance(0.5):
            return ()
        found = []
        for _ in range(self.random.randint(1, 2)):
            sources = self.sample(2, 3)
            others = [n for n in self.names if n not in sources] or [END]
            target = self.random.choice(sources if self.chance(0.02) else others)
            found.append(Join(tuple(sources), target))
        return tuple(dict.fromkeys(found))

    def targets(self, least: int, most: int) -> tuple[Target, ...]:
        return tuple(self.one_target() for _ in range(self.random.randint(least, most)))

    def one_target(self) -> Target:
        name = self.random.choice([*self.names, END])
        if name != END and self.sendable(name) and self.chance(0.3):
            return SendTo(name, self.random.randint(0, 9))
        return name

    def routers(self) -> tuple[RouterSpec, ...]:
        found = []
        for source in (START, *self.names):
            count = self.random.choice([0, 0, 0, 0, 1, 1, 2]) if source != START else int(self.chance(0.15))
            for number in range(count):
                choices = tuple(self.targets(0 if source != START else 1, 2) for _ in range(self.random.randint(1, 3)))
                hint = self.random.choice(["names", "names", "map", "list", "literal"])
                fails = self.failing_routers and source != START and self.chance(0.2)
                found.append(RouterSpec(source, f"r{number}", choices, hint, self.chance(0.5), fails))  # type: ignore[arg-type]
        return tuple(found)

    # ------------------------------------------------------------------- turns

    def turns(self, forks: bool) -> tuple[Turn, ...]:
        first: Turn = EditPaused(0, self.puts()) if self.chance(0.12) else Input(0, self.input_keys())
        later = [self.later_turn(n) for n in range(1, self.random.choice([1, 1, 2, 3, 4]))]
        return (
            first,
            *(Replay(t.back) if not forks and isinstance(t, Fork) and self.chance(0.9) else t for t in later),
        )

    def input_keys(self) -> tuple[str, ...]:
        more = [key for key in ("total", "text", "table", "names", "peak", "plain", "flash") if self.chance(0.2)]
        return ("log", *more)

    def later_turn(self, number: int) -> Turn:
        kind = self.random.choice(["input", "input", "edit", "edit paused", "replay", "fork"])
        node, back = self.random.choice(self.names), self.random.randint(0, 7)
        match kind:
            case "edit":
                return Edit(node, self.puts())
            case "edit paused":
                return EditPaused(number, self.puts())
            case "replay":
                return Replay(back)
            case "fork":
                return Fork(back, node, self.puts())
            case _:
                return Input(number, self.input_keys())
