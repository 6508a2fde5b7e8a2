"""Where a thread stands while it runs, what of that is not stored yet, and the write that stores it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from minigraph.channels import overwrite_of
from minigraph.context import Scope
from minigraph.errors import UnstorableValueError
from minigraph.identifiers import derived_checkpoint_id, new_checkpoint_id, now, same_call
from minigraph.records import Carried, Checkpoint, Finished, NewCheckpoint, Paused, Result, Task, Write
from minigraph.step import Stamp
from minigraph.structure import Graph
from minigraph.types import START


@dataclass(slots=True)
class Position:
    """Where a thread stands: its newest checkpoint, the results recorded for its tasks, the head's revision."""

    checkpoint: Checkpoint
    results: dict[str, Result] = field(default_factory=dict)
    revision: int = 0
    unsaved: list[NewCheckpoint] = field(default_factory=list)
    unsaved_results: list[tuple[str, Result]] = field(default_factory=list)
    carried: list[Carried] = field(default_factory=list)
    """What tasks of a new branch recorded before, to be stored with the branch."""
    stored: Checkpoint | None = None
    """The last checkpoint that is stored, for durability "exit"."""

    @property
    def has_unsaved(self) -> bool:
        """Whether anything waits to be stored."""
        return bool(self.unsaved or self.unsaved_results)

    def next_revision(self, scope: Scope) -> int:
        """The revision that the next checkpoint is stored as; with durability "exit" only the last one is stored."""
        only_last = scope.durability == "exit" and scope.saver is not None
        return self.revision + 1 + (0 if only_last else len(self.unsaved))


def stamp(scope: Scope, revision: int) -> Stamp:
    """The id and the time label of a new checkpoint, which is to be stored as this revision.

    A child run that stores nothing starts over when its parent resumes; its ids are the same then, so that answers
    find their questions.
    """
    if scope.saver is None and scope.owner:
        return Stamp(derived_checkpoint_id(same_call(scope.owner), revision), now())
    return Stamp(new_checkpoint_id(revision), now())


def write_of(
    scope: Scope, position: Position, new: Sequence[NewCheckpoint], results: Sequence[tuple[str, Result]]
) -> Write:
    """What stores new checkpoints and results of a position, in one transaction."""
    place = (scope.thread_id, scope.namespace, position.revision)
    carried, graph = tuple(position.carried), scope.graph.fingerprint
    if position.revision or scope.caller is None or scope.durability != "sync":
        return Write(*place, tuple(new), tuple(results), (), carried, graph)
    return Write(*place, tuple(new), tuple(results), (), carried, graph, scope.caller.scope.namespace)


def kept_prefixes(graph: Graph, pairs: Sequence[tuple[Task, Finished]]) -> frozenset[str]:
    """Keys that `operator.add` grew at their end in this step: a saver need not compare what stands before."""
    grown = graph.appended
    if not grown:
        return grown
    overwritten = {key for _, r in pairs for key, value in r.writes if key in grown and overwrite_of(value) is not None}
    return grown - overwritten


def only_last(
    new: list[NewCheckpoint], results: list[tuple[str, Result]], stored: Checkpoint | None
) -> tuple[list[NewCheckpoint], list[tuple[str, Result]]]:
    """For durability "exit": the last checkpoint alone, as a child of the last stored one."""
    last = new[-1].checkpoint
    parent = None if stored is None else stored.id
    return [NewCheckpoint(msgspec.structs.replace(last, parent_id=parent), stored)], [
        r for r in results if r[0] == last.id
    ]


def with_writer(error: UnstorableValueError, write: Write) -> UnstorableValueError:
    """The same error, naming the node that wrote the value."""
    writers = [
        r.node for _, r in write.results if isinstance(r, Finished) and any(key == error.key for key, _ in r.writes)
    ]
    askers = [r.node for _, r in write.results if isinstance(r, Paused)]
    node = ", ".join(dict.fromkeys(writers or askers)) or None
    given = re.match(r"\$\.arg\.(\w+)(.*)", error.path) if error.key == START else None
    if given is not None:
        return UnstorableValueError(
            str(error).replace(f"key {START!r} at {error.path}", f"the input's key {given[1]!r} at ${given[2]}"),
            node=START,
            key=given[1],
            path=f"${given[2]}",
            type_name=error.type_name,
        )
    if node is None:
        return error
    return UnstorableValueError(
        f"node {node!r}: {error}", node=node, key=error.key, path=error.path, type_name=error.type_name
    )
