"""Where a graph may go from each place, as far as its edges and the text of its functions tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from minigraph.reading.function import NO_FACTS, Facts, read
from minigraph.reading.source import MISSING
from minigraph.reading.values import Flag, Go, Goal, Many, Nothing, Unknown, Update, Value
from minigraph.structure import Graph, Join, Node, Router
from minigraph.types import END, START


@dataclass(slots=True)
class Choice:
    """What a router, or the Commands of one node, may choose.

    `goals` and `sends` are nodes that may be chosen by name and by a Send; an `unknown` choice may be any of them.
    """

    place: str
    goals: set[str] = field(default_factory=set)
    sends: set[str] = field(default_factory=set)
    unknown: bool = False
    stops: bool = False
    """It may choose nothing, so that this path ends."""
    leaves: bool = False
    """It may end the whole graph, with a Command for the parent."""
    several: bool = False
    """It may choose more than one at once."""
    groups: list[frozenset[str]] = field(default_factory=list)
    """Nodes that one answer surely chooses together."""
    repeated: set[str] = field(default_factory=set)
    """Nodes that one answer surely sends several tasks."""
    jumps: set[str] = field(default_factory=set)
    """Where Commands surely go on some way, END among them."""
    wrong: set[str] = field(default_factory=set)
    """Names that are surely chosen on some way and are none."""

    @property
    def targets(self) -> set[str]:
        """Every node that may be chosen."""
        return self.goals | self.sends


@dataclass(frozen=True, slots=True)
class Flow:
    """The graph with the choices of each of its places."""

    graph: Graph
    facts: Mapping[str, Facts]
    choices: Mapping[str, tuple[Choice, ...]]

    @classmethod
    def of(cls, graph: Graph) -> Flow:
        """Reads every function of a graph."""
        facts = {
            name: read(node.callee.function) if node.child is None else NO_FACTS
            for name, node in graph.nodes.items()
            if name != START
        }
        choices: dict[str, tuple[Choice, ...]] = {}
        for name, node in graph.nodes.items():
            own = [] if name == START else [_of_node(graph, node, facts[name])]
            own += [] if node.handler is None else [_of_handler(graph, node)]
            routers = [_of_router(graph, name, router) for router in graph.routers.get(name, ())]
            choices[name] = (*own, *routers)
        return cls(graph, facts, choices)

    def all_choices(self) -> Iterator[Choice]:
        """Every choice of the graph."""
        for choices in self.choices.values():
            yield from choices

    def following(self, name: str, *, joins: Iterable[Join] = ()) -> set[str]:
        """The nodes that may come directly after one, over single edges, choices and these list edges."""
        found = set(self.graph.edges.get(name, ()))
        for choice in self.choices[name]:
            found |= choice.targets
        return found | {join.target for join in joins if name in join.sources}

    def reached(self, *, without: Join | None = None) -> Set[str]:
        """The nodes that a run may reach; all of them where some function may go anywhere.

        A list edge leads on only where all its sources are reached; `without` leaves one out.
        """
        joins = [join for join in self.graph.joins if join != without]
        found: set[str] = set()
        todo = [START]
        while todo:
            name = todo.pop()
            if name in found:
                continue
            found.add(name)
            if any(choice.unknown for choice in self.choices[name]):
                return self.graph.nodes.keys()
            todo += self.following(name) - found
            todo += [join.target for join in joins if found.issuperset(join.sources)]
        return found


def may_answer_anything(node: Node, facts: Facts) -> bool:
    """Whether a child graph that the node is, or runs in its function, may decide what the node writes and chooses."""
    if node.child is not None:
        return _speaks_up(node.child.graph, set())
    return _runs_unknown(facts, set())


def _speaks_up(graph: Graph, seen: set[int]) -> bool:
    """Whether a child graph may end with a Command for its parent, or something in it cannot be read."""
    if id(graph) in seen:
        return False
    seen.add(id(graph))
    for name, node in graph.nodes.items():
        if name == START:
            continue
        if node.child is not None:
            if _speaks_up(node.child.graph, seen):
                return True
            continue
        functions = [node.callee.function, *([node.handler.function] if node.handler is not None else [])]
        for facts in map(read, functions):
            if any(_for_parent(value) for value in facts.outcomes) or _runs_unknown(facts, seen):
                return True
    return False


def _for_parent(value: Value) -> bool:
    if isinstance(value, Many):
        return value.open or any(_for_parent(v) for item in value.items for v in item)
    return isinstance(value, Unknown) or (isinstance(value, Go) and value.parent)


def _runs_unknown(facts: Facts, seen: set[int]) -> bool:
    from minigraph.compiled import CompiledGraph

    return any(
        found is MISSING or (isinstance(found, CompiledGraph) and _speaks_up(found.graph, seen))
        for found in facts.calls
    )


def _of_node(graph: Graph, node: Node, facts: Facts) -> Choice:
    choice = Choice(node.name)
    declared = node.destinations or ()
    for value in facts.outcomes if node.child is None else ():
        _returned(choice, value, graph.nodes, declared)
    if may_answer_anything(node, facts):
        choice.unknown = choice.stops = True
        choice.leaves = node.child is not None
    choice.stops = choice.stops or node.child is not None
    choice.goals |= {name for name in declared if name != END}
    if any(isinstance(value, Go | Unknown) for value in facts.outcomes):
        choice.jumps |= set(declared)
    return choice


def _of_handler(graph: Graph, node: Node) -> Choice:
    """What handles a node's error stands in for the node's own edges."""
    assert node.handler is not None
    choice = Choice(node.name, stops=True, leaves=True)
    for value in read(node.handler.function).outcomes:
        _returned(choice, value, graph.nodes, node.destinations or ())
    choice.groups.clear()
    choice.jumps.clear()
    return choice


def _returned(choice: Choice, value: Value, nodes: Mapping[str, Any], declared: tuple[str, ...]) -> None:
    """Adds what one return value of a node chooses."""
    if isinstance(value, Goal) and value.sent:
        _goal(choice, value, value.name, nodes)
    elif isinstance(value, Many) and (value.open or any(_steers(v) for item in value.items for v in item)):
        for item in value.items:
            for part in item:
                _returned(choice, part, nodes, declared)
        if value.open:
            _anything(choice, declared)
    elif isinstance(value, Go) and value.parent:
        choice.stops = choice.leaves = True
        choice.goals |= {name for name in _named(value.goto) if name in nodes}
    elif isinstance(value, Go):
        for goto in value.goto:
            _gone(choice, goto, nodes, declared)
    elif isinstance(value, Unknown):
        _anything(choice, declared)
    else:
        choice.stops = True


def _gone(choice: Choice, goto: Value, nodes: Mapping[str, Any], declared: tuple[str, ...]) -> None:
    """Adds one value that a Command's `goto` may have."""
    if isinstance(goto, Goal):
        _goal(choice, goto, goto.name, nodes)
        if goto.sure:
            choice.jumps.add(goto.name)
    elif isinstance(goto, Many):
        choice.jumps |= {v.name for item in goto.items for v in item if isinstance(v, Goal) and v.sure}
        _list(choice, goto, nodes, None, declared)
    elif isinstance(goto, Nothing):
        choice.stops = True
    else:
        _anything(choice, declared)


def _of_router(graph: Graph, source: str, router: Router) -> Choice:
    choice = Choice(f"{source}->{router.name}")
    mapped = router.targets
    declared = None if mapped is None else tuple(mapped.values())
    for value in read(router.callee.function).outcomes:
        if isinstance(value, Goal):
            _goal(choice, value, _mapped(choice, value, mapped), graph.nodes)
        elif isinstance(value, Many):
            _list(choice, value, graph.nodes, mapped, declared or ())
        elif isinstance(value, Flag | Nothing) and mapped is not None:
            keys = (True, False) if isinstance(value, Flag) else (None,)
            for target in {mapped[key] for key in keys if key in mapped}:
                _goal(choice, Goal(target, sure=False), target, graph.nodes)
        elif isinstance(value, Unknown | Update | Go):
            _anything(choice, declared or ())
    return choice


def _mapped(choice: Choice, value: Goal, mapped: Mapping[Any, str] | None) -> str | None:
    """The node's name that a router's answer stands for; None, noted as wrong, for what its map lacks."""
    if value.sent or mapped is None or value.name == END:
        return value.name
    if value.name not in mapped and value.sure:
        choice.wrong.add(value.name)
    return mapped.get(value.name)


def _goal(choice: Choice, value: Goal, name: str | None, nodes: Mapping[str, Any]) -> None:
    if name == END:
        choice.stops = True
    elif name in nodes and name != START:
        assert name is not None
        (choice.sends if value.sent else choice.goals).add(name)
        if value.sure:
            choice.groups.append(frozenset({name}))
    elif name is not None and value.sure:
        choice.wrong.add(name)


def _list(
    choice: Choice,
    value: Many,
    nodes: Mapping[str, Any],
    mapped: Mapping[Any, str] | None,
    declared: tuple[str, ...],
) -> None:
    """Adds a list of targets."""
    exact = value.exact and not value.open
    choice.several = choice.several or len(value.items) > 1 or not exact
    choice.stops = choice.stops or not value.items or not exact
    certain: list[str] = []
    for item in value.items:
        alone = Choice("")
        for part in item:
            if isinstance(part, Goal):
                _goal(alone, part, _mapped(choice, part, mapped), nodes)
            else:
                _anything(alone, declared)
        if len(item) == 1 and alone.groups:
            certain += alone.groups[0]
            if value.repeated:
                choice.repeated |= alone.sends
        choice.goals |= alone.goals
        choice.sends |= alone.sends
        choice.wrong |= alone.wrong
        choice.unknown = choice.unknown or alone.unknown
        choice.stops = choice.stops or alone.stops
    if value.open:
        _anything(choice, declared)
    if exact:
        choice.groups.append(frozenset(certain))
        choice.repeated |= {name for name in choice.sends if certain.count(name) > 1}


def _anything(choice: Choice, declared: tuple[str, ...]) -> None:
    """Adds a value that the text does not tell: one of the declared targets, or any."""
    choice.stops = choice.several = True
    choice.unknown = choice.unknown or not declared
    choice.goals |= {name for name in declared if name != END}
    choice.sends |= {name for name in declared if name != END}


def _steers(value: Value) -> bool:
    return isinstance(value, Go | Unknown) or (isinstance(value, Goal) and value.sent)


def _named(values: Iterable[Value]) -> Iterator[str]:
    for value in values:
        if isinstance(value, Goal):
            yield value.name
        elif isinstance(value, Many):
            yield from (v.name for item in value.items for v in item if isinstance(v, Goal))
