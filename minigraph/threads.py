"""Threads: the stored runs of a graph, to look at and to edit. The run itself is in `compiled.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from minigraph import difference, lineage, snapshots
from minigraph.aexecute import AsyncDriver
from minigraph.calls import at_checkpoint, checkpoint_id_of, root_scope
from minigraph.context import Scope
from minigraph.difference import Difference
from minigraph.effects import Effect, Found
from minigraph.execute import ThreadDriver
from minigraph.structure import Graph
from minigraph.types import StateSnapshot, StateUpdate

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from minigraph.cache import Cache
    from minigraph.checkpoint.base import Saver
    from minigraph.migration import Migration
    from minigraph.work import RunTask

Reading = Callable[[Scope, str | None], Generator[Effect, Any, Found]]
"""Reads or edits a thread: from its scope and the checkpoint id named in the config, if any."""


class Threads:
    """The threads that a compiled graph has stored, and the edits that can be made to them."""

    graph: Graph
    checkpointer: Saver | bool | None
    cache: Cache | None
    executor: Executor | None
    run_task: RunTask | None
    migrations: tuple[Migration, ...]
    migrating: bool
    """Whether this graph or a child graph that is a node of it has migrations."""

    def get_state(self, config: Mapping[str, Any], *, subgraphs: bool = False) -> StateSnapshot:
        """The thread as it is now; with a checkpoint_id in the config, as it was then.

        Raises ValueError without a checkpointer, UnknownCheckpointError for an id that is not stored.
        """
        return self._drive(config, lambda scope, at: snapshots.snapshot(scope, at, subgraphs=subgraphs))

    async def aget_state(self, config: Mapping[str, Any], *, subgraphs: bool = False) -> StateSnapshot:
        """The same as `get_state`."""
        return await self._adrive(config, lambda scope, at: snapshots.snapshot(scope, at, subgraphs=subgraphs))

    def get_state_history(
        self,
        config: Mapping[str, Any],
        *,
        filter: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> Iterator[StateSnapshot]:
        """The thread's checkpoints, newest first; `filter` compares metadata, `before` is the config of one of them."""
        wanted, older = dict(filter or {}), checkpoint_id_of(before)
        yield from self._drive(config, lambda scope, at: snapshots.history(scope, at, older, limit, wanted))

    async def aget_state_history(
        self,
        config: Mapping[str, Any],
        *,
        filter: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[StateSnapshot]:
        """The same as `get_state_history`."""
        wanted, older = dict(filter or {}), checkpoint_id_of(before)
        for shot in await self._adrive(config, lambda scope, at: snapshots.history(scope, at, older, limit, wanted)):
            yield shot

    def update_state(
        self, config: Mapping[str, Any], values: object, as_node: str | None = None, task_id: str | None = None
    ) -> dict[str, Any]:
        """Edits the thread as if `as_node` (default: the node that ran last) had returned `values`.

        Writes a checkpoint and returns its config. At an older checkpoint it makes a branch, which becomes the head.
        Raises InvalidUpdateError for unknown keys or nodes and where the node is ambiguous.
        """
        return self.bulk_update_state(config, [[StateUpdate(values, as_node, task_id)]])

    async def aupdate_state(
        self, config: Mapping[str, Any], values: object, as_node: str | None = None, task_id: str | None = None
    ) -> dict[str, Any]:
        """The same as `update_state`."""
        return await self.abulk_update_state(config, [[StateUpdate(values, as_node, task_id)]])

    def bulk_update_state(
        self, config: Mapping[str, Any], supersteps: Sequence[Sequence[StateUpdate]]
    ) -> dict[str, Any]:
        """Several edits in one transaction: each inner list is one step and makes one checkpoint."""
        return self._drive(config, lambda scope, at: snapshots.update(scope, at, supersteps))

    async def abulk_update_state(
        self, config: Mapping[str, Any], supersteps: Sequence[Sequence[StateUpdate]]
    ) -> dict[str, Any]:
        """The same as `bulk_update_state`."""
        return await self._adrive(config, lambda scope, at: snapshots.update(scope, at, supersteps))

    def fork(self, config: Mapping[str, Any], values: object = None, as_node: str | None = None) -> dict[str, Any]:
        """Makes a branch at the checkpoint in the config, edited where `values` are given; returns the branch's config.

        The branch is the thread's head from now on; go on with `resume(config)`.
        """
        as_node = "__copy__" if values is None and as_node is None else as_node
        return self.update_state(at_checkpoint(config), values, as_node)

    async def afork(
        self, config: Mapping[str, Any], values: object = None, as_node: str | None = None
    ) -> dict[str, Any]:
        """The same as `fork`."""
        as_node = "__copy__" if values is None and as_node is None else as_node
        return await self.aupdate_state(at_checkpoint(config), values, as_node)

    def diff(self, a: Mapping[str, Any], b: Mapping[str, Any]) -> Difference:
        """How the checkpoint in config `a` differs from the one in `b` (the head where none is named), on any threads.

        What is compared is what was stored at the end of a step. Raises UnknownCheckpointError where there is nothing.
        """
        other, at = self._thread(b), checkpoint_id_of(b)
        return self._drive(a, lambda scope, first: difference.diff(scope, first, other, at))

    async def adiff(self, a: Mapping[str, Any], b: Mapping[str, Any]) -> Difference:
        """The same as `diff`."""
        other, at = self._thread(b), checkpoint_id_of(b)
        return await self._adrive(a, lambda scope, first: difference.diff(scope, first, other, at))

    def bisect(
        self, config: Mapping[str, Any], predicate: lineage.Predicate, *, monotone: bool = True
    ) -> StateSnapshot:
        """The first checkpoint at which `predicate(snapshot)` turned true, on the way to the one in the config.

        The way leads along parents from the oldest one stored. A predicate that turns once is found in about log2(n)
        looks; with monotone=False each is looked at, from the oldest on. Raises NoTurnError, a ValueError.
        """
        return self._drive(config, lambda scope, at: lineage.bisect(scope, at, predicate, monotone=monotone))

    async def abisect(
        self, config: Mapping[str, Any], predicate: lineage.Predicate, *, monotone: bool = True
    ) -> StateSnapshot:
        """The same as `bisect`; the predicate is a plain function here too."""
        return await self._adrive(config, lambda scope, at: lineage.bisect(scope, at, predicate, monotone=monotone))

    def _drive(self, config: Mapping[str, Any], make: Reading[Found]) -> Found:
        scope = self._thread(config)
        with ThreadDriver(scope.saver) as driver:
            return driver.result(make(scope, checkpoint_id_of(config)))

    async def _adrive(self, config: Mapping[str, Any], make: Reading[Found]) -> Found:
        scope = self._thread(config)
        return await AsyncDriver(scope.saver, scope).result(make(scope, checkpoint_id_of(config)))

    def _thread(self, config: Mapping[str, Any]) -> Scope:
        """The scope for looking at a thread, or at a child graph's namespace in it."""
        if self.checkpointer is None or isinstance(self.checkpointer, bool):
            raise ValueError("no checkpointer is set: compile(checkpointer=...) to keep threads that can be looked at")
        scope = root_scope(self, config, None)
        namespace = (config.get("configurable") or {}).get("checkpoint_ns") or ""
        child: Any = self
        for part in namespace.split("|") if namespace else ():
            node = child.graph.nodes.get(part.split(":")[0]) if child is not None else None
            child = node.child if node is not None else None
        return snapshots.child_scope(scope, child, namespace)
