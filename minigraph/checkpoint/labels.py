"""Which graph wrote what of a log: one short text for each log, so that a step costs nothing.

"1:5f3a9c1b2d3e4f50 120:77ab0c1d2e3f4a5b" says that the rows from revision 1 on are of the graph with the first
fingerprint, and those from revision 120 on of the graph with the second.
"""

from __future__ import annotations

from minigraph.errors import StorageError


def latest(graphs: str) -> str:
    """The fingerprint of the graph that wrote last, "" where none is known."""
    return graphs.rpartition(":")[2]


def graph_at(graphs: str, revision: int) -> str:
    """The fingerprint of the graph that wrote a revision, "" where none is known."""
    if not graphs or (graphs.startswith("1:") and " " not in graphs):
        return graphs[2:]
    found = ""
    for part in graphs.split():
        first, _, graph = part.partition(":")
        if int(first) > revision:
            break
        found = graph
    return found


def kept_from(graphs: str, first: int) -> str:
    """The text without what it says of revisions before the first."""
    parts = graphs.split()
    while len(parts) > 1 and int(parts[1].partition(":")[0]) <= first:
        parts.pop(0)
    return " ".join(parts)


def extended(graphs: str, revision: int, graph: str) -> str:
    """The text once a graph writes from a revision on; StorageError for what is no fingerprint.

    The same text where that graph wrote last, or where `graph` is "".
    """
    if not graph or graph == latest(graphs):
        return graphs
    if not graph.isalnum():
        raise StorageError(f"Write(graph={graph!r}): a fingerprint consists of letters and digits")
    return f"{graphs} {revision}:{graph}" if graphs else f"{revision}:{graph}"
