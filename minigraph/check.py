"""check(): the graph held against its state and against the text of its functions; findings with place and remedy."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from minigraph.errors import GraphDefinitionError, nearest

if TYPE_CHECKING:
    from collections.abc import Set

    from minigraph.compiled import CompiledGraph
    from minigraph.graph import StateGraph
    from minigraph.structure import Graph

FINDINGS: Final = (
    "unwritten-key",
    "undeclared-key",
    "conflicting-writes",
    "unknown-target",
    "unreachable-node",
    "no-way-out",
    "endless-loop",
    "join-never-fires",
    "edges-and-goto",
    "effect-before-interrupt",
)
"""The names of all findings, in the order in which check() gives them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing in a graph that goes wrong, or does not do what it looks like.

    `place` is a node, a key or a router ("source->router"); `remedy` says what to write instead.
    """

    name: str
    place: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"[{self.name}] {self.message}; {self.remedy}"


class GraphWarning(UserWarning):
    """A finding of check(), issued by compile(); `finding` is the record."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding

    def __reduce__(self) -> tuple[type[GraphWarning], tuple[Finding]]:
        return GraphWarning, (self.finding,)


def check(graph: StateGraph[Any, Any, Any, Any] | CompiledGraph, *, ignore: Sequence[str] = ()) -> tuple[Finding, ...]:
    """What is wrong with a graph, found without running it; compile() issues the same as warnings.

    Nodes and routers are read, not called. What cannot be read is taken to be right, so a finding is never a guess.
    `ignore` leaves out findings by name or by "name:place". Raises GraphDefinitionError for a graph that does not
    compile and for a name in `ignore` that is no finding's.
    """
    ignored = checked_ignore(ignore)
    from minigraph.graph import StateGraph

    if isinstance(graph, StateGraph):
        return findings(graph.frozen("graph"), ignored)
    return findings(graph.graph, ignored, graph.before | graph.after)


def checked_ignore(ignore: Sequence[str]) -> Set[str]:
    """The names to leave out, as a set. Raises GraphDefinitionError for one that is no finding's."""
    if isinstance(ignore, str):
        raise GraphDefinitionError(f"ignore={ignore!r}: pass a list of names, as in ignore=[{ignore!r}]")
    for entry in ignore:
        name = entry.partition(":")[0] if isinstance(entry, str) else entry
        if name not in FINDINGS:
            raise GraphDefinitionError(
                f"ignore: there is no finding {name!r}{nearest(name, FINDINGS)}; the findings are {', '.join(FINDINGS)}"
            )
    return frozenset(ignore)


def findings(graph: Graph, ignored: Set[str] = frozenset(), pauses: Set[str] = frozenset()) -> tuple[Finding, ...]:
    """The findings of a frozen graph, in the order of FINDINGS; `pauses` are the nodes with a breakpoint."""
    if ignored >= set(FINDINGS):
        return ()
    from minigraph.findings import keys, questions, routes
    from minigraph.findings.flow import Flow

    flow = Flow.of(graph)
    found = [*keys.found(flow), *routes.found(flow, pauses), *questions.found(flow)]
    kept = [f for f in found if f.name not in ignored and f"{f.name}:{f.place}" not in ignored]
    return tuple(sorted(kept, key=lambda finding: FINDINGS.index(finding.name)))


def warn(graph: CompiledGraph, ignored: Set[str], stacklevel: int) -> None:
    """Issues a GraphWarning for each finding, at the line `stacklevel` calls above the caller's."""
    for finding in findings(graph.graph, ignored, graph.before | graph.after):
        warnings.warn(GraphWarning(finding), stacklevel=stacklevel + 1)
