"""Findings about edges: names of no node, nodes no run reaches, loops without an exit, joins that wait for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set

from minigraph.check import Finding
from minigraph.errors import listing, nearest
from minigraph.findings.flow import Choice, Flow
from minigraph.reading.pauses import may_pause
from minigraph.structure import Graph, Join
from minigraph.types import END, START


def found(flow: Flow, pauses: Set[str]) -> Iterator[Finding]:
    """All findings about edges; `pauses` are the nodes with a breakpoint."""
    reached = flow.reached()
    yield from _unknown_targets(flow)
    yield from _unreachable(flow, reached)
    yield from _without_end(flow, reached, pauses)
    yield from _joins(flow, reached)
    yield from _edges_and_goto(flow)


def _unknown_targets(flow: Flow) -> Iterator[Finding]:
    names = [name for name in flow.graph.nodes if name != START]
    routers = {f"{source}->{r.name}": r for source, routers in flow.graph.routers.items() for r in routers}
    for choice in flow.all_choices():
        router = routers.get(choice.place)
        choices = names if router is None or router.targets is None else [str(key) for key in router.targets]
        who = f"node {choice.place!r} goes to" if router is None else f"router {choice.place!r} returns"
        for name in sorted(choice.wrong):
            yield Finding(
                "unknown-target",
                choice.place,
                f"{who} {name!r}, which names no {'node' if choices is names else 'target of it'}"
                f"{nearest(name, choices)}",
                f"write one of {listing(choices)} or END",
            )


def _unreachable(flow: Flow, reached: Set[str]) -> Iterator[Finding]:
    for name in flow.graph.nodes:
        if name not in reached:
            yield Finding(
                "unreachable-node",
                name,
                f"no run reaches node {name!r}: no edge, router, Command or Send leads to it from START",
                f"lead an edge to it, as in add_edge(START, {name!r}), declare it as a target, or leave it out",
            )


# ---------------------------------------------------------------------- loops


def _without_end(flow: Flow, reached: Set[str], pauses: Set[str]) -> Iterator[Finding]:
    graph = flow.graph
    lost = _never_ending(flow) & reached - {START}
    edges = {name: [t for t in graph.edges.get(name, ()) if t in lost] for name in graph.nodes if name in lost}
    for name in edges:
        edges[name] += [join.target for join in _single_joins(graph, name) if join.target in lost]
    every = {name: sorted({*edges[name], *(flow.following(name) & lost)}) for name in edges}
    for circle in _circles(every):
        inside = set(circle)
        if any(_pauses(graph, name, pauses) for name in circle):
            continue
        fixed = _circle_of(edges, inside)
        if fixed is not None:
            shown = " -> ".join([*fixed, fixed[0]])
            yield Finding(
                "endless-loop",
                fixed[0],
                f"the loop {shown} is made of single edges, so it goes round until the step limit",
                "let a router choose between the next round and END in place of one of these edges",
            )
        elif not any(set(every[name]) - inside for name in circle):
            yield Finding(
                "no-way-out",
                circle[0],
                f"no run that comes to {', '.join(map(repr, circle))} ends: each choice there leads back",
                "let one of the routers or Commands there choose END or a node that leads to it",
            )


def _never_ending(flow: Flow) -> Set[str]:
    """The nodes from which every path goes on for ever, whatever is chosen."""
    graph = flow.graph
    ending: set[str] = set()
    grown = True
    while grown:
        grown = False
        for name in reversed([*graph.nodes]):  # what comes last ends first
            if name not in ending and _may_end(flow, name, ending):
                ending.add(name)
                grown = True
    return graph.nodes.keys() - ending


def _may_end(flow: Flow, name: str, ending: Set[str]) -> bool:
    choices = flow.choices[name]
    if any(choice.leaves for choice in choices):
        return True
    fixed = [*flow.graph.edges.get(name, ()), *(join.target for join in _single_joins(flow.graph, name))]
    return all(target in ending for target in fixed) and all(
        choice.stops or choice.unknown or bool(choice.targets & ending) or not choice.targets for choice in choices
    )


def _single_joins(graph: Graph, name: str) -> Iterable[Join]:
    """List edges of this source alone, which are single edges by another name."""
    return [join for join in graph.joins_of.get(name, ()) if len(join.sources) == 1]


def _pauses(graph: Graph, name: str, breakpoints: Set[str]) -> bool:
    """Whether a run may stop at a node, its routers or inside its child graph, to go on later."""
    if name in breakpoints:
        return True
    node = graph.nodes[name]
    if node.child is None:
        functions = [node.callee.function, *(router.callee.function for router in graph.routers.get(name, ()))]
        return any(map(may_pause, functions))
    inner = node.child.graph
    stops = node.child.before | node.child.after
    return any(_pauses(inner, each, stops) for each in inner.nodes if each != START)


def _circles(edges: dict[str, list[str]]) -> Iterator[list[str]]:
    """The strongly connected parts of a graph that contain a loop (Tarjan's algorithm), in the order of its nodes."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    parts: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in edges[name]:
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            at = stack.index(name)
            parts.append(stack[at:])
            del stack[at:]

    for name in edges:
        if name not in index:
            visit(name)
    for part in parts:
        if len(part) > 1 or part[0] in edges[part[0]]:
            yield [name for name in edges if name in part]


def _circle_of(edges: dict[str, list[str]], inside: Set[str]) -> list[str] | None:
    """A loop along these edges that stays inside, or None."""
    for start in (name for name in edges if name in inside):
        trail: dict[str, str] = {}
        todo = [start]
        while todo:
            name = todo.pop()
            for target in edges[name]:
                if target == start:
                    path = [name]
                    while path[-1] != start:
                        path.append(trail[path[-1]])
                    return path[::-1]
                if target in inside and target not in trail:
                    trail[target] = name
                    todo.append(target)
    return None


# ---------------------------------------------------------------------- joins


def _joins(flow: Flow, reached: Set[str]) -> Iterator[Finding]:
    if reached == flow.graph.nodes.keys() and any(choice.unknown for choice in flow.all_choices()):
        return
    for join in flow.graph.joins:
        if len(join.sources) == 1 and set(join.sources) <= reached:
            continue
        why = _never_fires(flow, join)
        if why is not None:
            yield Finding(
                "join-never-fires",
                join.target,
                f"the list edge {list(join.sources)} -> {join.target!r} never leads on: {why}",
                "list only nodes that all run; for alternatives, write an edge of its own from each",
            )


def _never_fires(flow: Flow, join: Join) -> str | None:
    reached = flow.reached(without=join)
    missing = [name for name in join.sources if name not in reached]
    if missing:
        return f"without it, no run reaches {', '.join(map(repr, missing))}"
    others = [other for other in flow.graph.joins if other != join]
    after = _closure({name: flow.following(name, joins=others) for name in flow.graph.nodes})
    strands = {name: _strands(flow, name, others) for name in reached}
    for i, one in enumerate(join.sources):
        for other in join.sources[i + 1 :]:
            if other in after[one] or one in after[other]:
                continue
            if not any(_fork(parts, one, other, after) for parts in strands.values()):
                return f"{one!r} and {other!r} are alternatives, of which a run takes one"
    return None


def _closure(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """By node, every node that comes later on some path."""
    found: dict[str, set[str]] = {}
    for name in edges:
        seen: set[str] = set()
        todo = list(edges[name])
        while todo:
            target = todo.pop()
            if target not in seen:
                seen.add(target)
                todo += edges[target]
        found[name] = seen
    return found


def _strands(flow: Flow, name: str, joins: Iterable[Join]) -> list[set[str]]:
    """The parts of what follows a node that may run side by side; alternatives are one part."""
    strands = [{target} for target in flow.graph.edges.get(name, ())]
    strands += [{join.target} for join in joins if name in join.sources]
    for choice in flow.choices[name]:
        strands += _strands_of(choice)
    return strands


def _strands_of(choice: Choice) -> list[set[str]]:
    if not choice.several:
        return [choice.targets] if choice.targets else []
    return [{name} for name in choice.goals] + [{name} for name in choice.sends] * 2


def _fork(parts: list[set[str]], one: str, other: str, after: dict[str, set[str]]) -> bool:
    leads: Callable[[set[str], str], bool] = lambda part, goal: any(t == goal or goal in after[t] for t in part)  # noqa: E731
    return any(leads(a, one) and leads(b, other) for i, a in enumerate(parts) for j, b in enumerate(parts) if i != j)


# ------------------------------------------------------------ edges and gotos


def _edges_and_goto(flow: Flow) -> Iterator[Finding]:
    for name, choices in flow.choices.items():
        fixed = flow.graph.edges.get(name, ())
        jumps = set().union(*(choice.jumps for choice in choices)) - set(fixed)
        if fixed and jumps:
            gone = ", ".join("END" if jump == END else repr(jump) for jump in sorted(jumps))
            yield Finding(
                "edges-and-goto",
                name,
                f"node {name!r} has edges to {', '.join(map(repr, fixed))} and a Command that goes to {gone}: goto adds"
                " to the edges, it does not replace them, so both run",
                "leave out the edges and let the Command name every target, or leave out the goto",
            )
