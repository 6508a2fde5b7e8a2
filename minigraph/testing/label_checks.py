"""What every saver must note of the graphs that write to a thread."""

from __future__ import annotations

from minigraph.checkpoint.base import Saver
from minigraph.errors import StorageError, ThreadConflictError
from minigraph.records import Finished, NewCheckpoint, Write
from minigraph.testing.saver_parts import SavedThread, demand, named_id, point, refused, stored_in


def graphs_are_noted_with_what_they_wrote(saver: Saver) -> None:
    """Each checkpoint is read with the fingerprint of the graph that wrote it; not to give one changes nothing."""
    thread = SavedThread(saver)

    def add(graph: str) -> None:
        new = point(thread.revision + 1, f"c{thread.revision}", {"n": thread.revision}, thread.head)
        thread.write((NewCheckpoint(new, thread.head),), graph=graph)
        thread.head = new

    for graph in ("", "a1", "a1", "b2", "", "a1"):
        add(graph)
    labels = ["a1", "b2", "b2", "a1", "a1", ""]
    demand([stored.graph for stored in thread.history()], labels, "history gives the graph of each checkpoint")
    demand([a.graph for a in saver.lineage("t", "")], labels, "so does a lineage")
    demand(stored_in(saver, "t", "").graph, "a1", "the graph of the head")
    demand(stored_in(saver, "t", "", named_id(4, "c3")).graph, "b2", "the graph of an older checkpoint")
    assert thread.head is not None
    thread.write((), (thread.head.id, Finished("c5-task", "node")), graph="c3")
    demand(stored_in(saver, "t", "").graph, "a1", "a result makes a checkpoint nobody else's")
    with refused(StorageError, "a fingerprint with a space in it"):
        add("no fingerprint")
    with refused(ThreadConflictError, "a write on another revision"):
        saver.put(Write("t", "", 1, (NewCheckpoint(point(2, "x", {}), None),), graph="d4"))
    saver.copy_thread("t", "copy")
    saver.prune("copy", keep=2)
    demand([stored.graph for stored in saver.history("copy", "")], ["a1", "b2"], "copied and pruned threads keep them")
    add("c3")
    demand([stored.graph for stored in thread.history()], ["c3", *labels], "what was refused left nothing behind")
