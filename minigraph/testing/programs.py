"""A graph program as frozen data: what its nodes do, how they are connected, and what is asked of the thread.

Being data, a program can be drawn at random, printed, compared, and built again in another process or engine.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

from minigraph.testing.engines import Engine
from minigraph.types import END

Kind = Literal[
    "write",  # returns a dict
    "nothing",  # returns None
    "command",  # Command with an update and a goto
    "several",  # a list of a Command and a dict, writing some keys twice
    "fan_out",  # Command with a Send for each of its targets
    "ask",  # asks one question
    "ask_twice",  # asks two
    "ask_and_fail",  # asks one, and fails the first time that it has its answer; not drawn
    "fail_once",  # fails the first time it is called
    "retry",  # fails the first time, and is tried again at once
    "call_child",  # calls a child graph inside its function
    "child",  # is a child graph
]


@dataclass(frozen=True, slots=True)
class SendTo:
    """A target that is reached by a Send; `number` goes into its argument."""

    node: str
    number: int


Target = str | SendTo


@dataclass(frozen=True, slots=True)
class Put:
    """A key that a node writes, plainly or as an Overwrite. The value follows from the node and what it saw."""

    key: str
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node: what it does, which keys it writes and where its Commands go.

    What fails the first time, a node or a router, does so in the first step that calls it, once for each task of that
    step: which of them is the first depends on who finishes first.
    """

    name: str
    kind: Kind
    puts: tuple[Put, ...] = (Put("log"),)
    goto: tuple[Target, ...] = ()
    defer: bool = False
    child: Program | None = None


@dataclass(frozen=True, slots=True)
class RouterSpec:
    """A router after `source` ("__start__" too): it takes the choice that the state's `total` counts to.

    `hint` says how its targets are declared: not at all, as a dict, as a list or as a Literal return annotation.
    `bare` returns a single target without a list. `fails_once` makes it fail the first time.
    """

    source: str
    name: str
    choices: tuple[tuple[Target, ...], ...]
    hint: Literal["names", "map", "list", "literal"] = "names"
    bare: bool = False
    fails_once: bool = False


@dataclass(frozen=True, slots=True)
class Join:
    """A list edge: `target` runs once all `sources` have finished."""

    sources: tuple[str, ...]
    target: str


@dataclass(frozen=True, slots=True)
class Input:
    """A turn: new input. `number` goes into what it writes to each of `keys`."""

    number: int
    keys: tuple[str, ...] = ("log",)


@dataclass(frozen=True, slots=True)
class Edit:
    """A turn: `update_state` on the finished thread, as `node`, and then going on."""

    node: str
    puts: tuple[Put, ...]


@dataclass(frozen=True, slots=True)
class EditPaused:
    """A turn: new input, and at the first pause of a step of one task `update_state` in place of an answer.

    Not where that task's node is deferred or the target of a join: LangGraph would keep it due.
    """

    number: int
    puts: tuple[Put, ...]


@dataclass(frozen=True, slots=True)
class Replay:
    """A turn: going on from an older checkpoint, the `back`-th that can be gone on from."""

    back: int


@dataclass(frozen=True, slots=True)
class Fork:
    """A turn: `update_state` at an older checkpoint as `node`, and going on from there."""

    back: int
    node: str
    puts: tuple[Put, ...]


Turn = Input | Edit | EditPaused | Replay | Fork


@dataclass(frozen=True, slots=True)
class Program:
    """A graph and what is asked of its thread. `budget` bounds its loops: once `total` is there, routers end."""

    nodes: tuple[NodeSpec, ...]
    edges: tuple[tuple[str, str], ...]
    joins: tuple[Join, ...] = ()
    routers: tuple[RouterSpec, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = (Input(0),)
    answers: tuple[Any, ...] = ("yes", None, False, 0, "", [], {}, {"a": 1})
    one_by_one: bool = False
    """Whether several open questions are answered one call at a time."""
    keys: tuple[str, ...] = ("log", "total", "text", "table", "names", "peak", "plain", "other", "flash")
    budget: int = 10

    def __repr__(self) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name in self.__slots__ if getattr(self, name) != _default(name)]
        return f"Program({', '.join(shown)})"

    def node(self, name: str) -> NodeSpec:
        """The node with this name."""
        return next(node for node in self.nodes if node.name == name)


def _default(name: str) -> Any:
    return Program.__dataclass_fields__[name].default


# ---------------------------------------------------------------------------- keys


def weave(old: str, new: str) -> str:
    """A reducer whose result tells the order and the grouping of its writes."""
    return f"({old}{new})"


def shelve(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """A reducer of dicts in which the later write wins."""
    return {**old, **new}


def larger(old: int | None, new: int | None) -> int | None:
    """A reducer without an empty value: its first write is stored as it is."""
    return max(old or 0, new or 0)


def schema(keys: tuple[str, ...], engine: Engine) -> Any:
    """A TypedDict with these keys, for one engine."""
    known: Mapping[str, Any] = {
        "log": Annotated[list[Any], operator.add],
        "total": Annotated[int, operator.add],
        "text": Annotated[str, weave],
        "table": Annotated[dict[str, Any], shelve],
        "names": Annotated[set[str], operator.or_],
        "peak": Annotated[int | None, larger],
        "plain": str,
        "other": Any,
        "flash": Annotated[str, engine.ephemeral(str)],
    }
    annotations = {key: known[key] for key in keys}
    return types.new_class(
        "State", (TypedDict,), {"total": False}, lambda body: body.update(__annotations__=annotations)
    )


REPLACEABLE = ("log", "text", "table", "names")
"""The keys that an Overwrite may replace: reducers with an empty value."""
PLAIN = ("plain", "other", "flash")
"""The keys that take one write a step."""


def value_for(key: str, writer: str, seen: str, number: int) -> Any:
    """What `writer` writes to a key after having seen `seen`."""
    return {
        "log": [f"{writer}:{seen}"],
        "total": 1,
        "text": f"{writer}{number}",
        "table": {writer: seen, "last": writer},
        "names": {writer, f"{writer}{number % 3}"},
        "peak": (number * 7 + len(writer)) % 11,
        "plain": f"{writer}{number}",
        "other": [writer, {"seen": seen}],
        "flash": f"{writer}!",
    }[key]


def writes(puts: tuple[Put, ...], writer: str, seen: str, number: int, engine: Engine) -> dict[str, Any]:
    """The update that a node's puts stand for."""
    update: dict[str, Any] = {}
    for put in puts:
        value = value_for(put.key, writer, seen, number)
        update[put.key] = engine.overwrite(value) if put.overwrite else value
    return update


def input_of(turn: Input) -> dict[str, Any]:
    """The input that a turn gives."""
    return {key: value_for(key, "input", str(turn.number), turn.number) for key in turn.keys}


def answer_to(program: Program, question: Mapping[str, Any]) -> Any:
    """The answer to a question: it follows from the question alone, so that the order of asking plays no part."""
    text = f"{question['node']}/{question['seen']}/{question['part']}"
    return program.answers[sum(map(ord, text)) % len(program.answers)]


def names_of(targets: tuple[Target, ...]) -> list[str]:
    """The node names that targets lead to, END left out."""
    return [name for t in targets if (name := t.node if isinstance(t, SendTo) else t) != END]
