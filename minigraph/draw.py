"""A graph as Mermaid text."""

from __future__ import annotations

import re

from minigraph.structure import Graph
from minigraph.types import END, START

_HEAD = "---\nconfig:\n  flowchart:\n    curve: linear\n---\ngraph TD;\n"
_STYLE = (
    "\tclassDef default fill:#f4f4fb,line-height:1.3\n\tclassDef first fill-opacity:0\n\tclassDef last fill:#d9d5f5\n"
)


def mermaid(graph: Graph) -> str:
    """The graph as Mermaid text: `-->` always runs, `-.->` is chosen by a router or a Command."""
    edges = [*_fixed(graph), *_chosen(graph)]
    names = [name for name in graph.nodes if name != START]
    lines = [f"\t{START}([start]):::first"]
    lines += [f"\t{_id(name)}({name}{'<hr/>deferred' if graph.nodes[name].defer else ''})" for name in names]
    if any(target == END for _, target, _, _ in edges):
        lines.append(f"\t{END}([end]):::last")
    for source, target, label, chosen in edges:
        arrow = (f"-. {label} .->" if label else "-.->") if chosen else "-->"
        lines.append(f"\t{_id(source)} {arrow} {_id(target)};")
    return _HEAD + "\n".join(lines) + "\n" + _STYLE


def _fixed(graph: Graph) -> list[tuple[str, str, str, bool]]:
    edges = [(source, target, "", False) for source, targets in graph.edges.items() for target in targets or (END,)]
    return edges + [(source, join.target, "", False) for join in graph.joins for source in join.sources]


def _chosen(graph: Graph) -> list[tuple[str, str, str, bool]]:
    """Edges that something chooses at run time. A router that names no targets may choose any node."""
    anywhere = [name for name in graph.nodes if name != START] + [END]
    edges = []
    for source, routers in graph.routers.items():
        for router in routers:
            targets = router.targets if router.targets is not None else {name: name for name in anywhere}
            for answer, target in targets.items():
                edges.append((source, target, "" if answer == target else str(answer), True))
    for name, node in graph.nodes.items():
        edges += [(name, target, "", True) for target in node.destinations or ()]
    return list(dict.fromkeys(edges))


def _id(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else "n_" + "".join(c if c.isalnum() else f"_{ord(c):x}_" for c in name)
