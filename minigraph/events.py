"""The payloads of a run's events, in the shapes LangGraph's stream modes have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minigraph.channels import shallow_copy
from minigraph.context import Scope
from minigraph.identifiers import now, time_text
from minigraph.records import Checkpoint, Failed, Finished, Paused
from minigraph.state import ROOT
from minigraph.structure import Graph
from minigraph.work import Job, Outcome, read_input

MODES = ("values", "updates", "custom", "tasks", "checkpoints", "debug")
_KINDS: dict[str, tuple[str, ...]] = {
    "values": ("values",),
    "updates": ("updates",),
    "custom": ("custom",),
    "task": ("tasks", "debug"),
    "task_result": ("tasks", "debug"),
    "checkpoint": ("checkpoints", "debug"),
}


def wanted(kind: str, modes: frozenset[str]) -> bool:
    """Whether any of the requested modes shows events of this kind."""
    return not modes.isdisjoint(_KINDS[kind])


def kinds_of(modes: frozenset[str], *, stored: bool) -> frozenset[str]:
    """The kinds of events that the requested modes show; a run that stores nothing has no checkpoints to show."""
    return frozenset(kind for kind in _KINDS if wanted(kind, modes) and (stored or kind != "checkpoint"))


def chunks(kind: str, step: int, payload: Any, modes: Sequence[str]) -> list[tuple[str, Any]]:
    """An event as (mode, chunk) pairs, one for each requested mode that shows it."""
    shown = []
    for mode in modes:
        if mode not in _KINDS[kind]:
            continue
        if mode == "debug":
            shown.append((mode, {"step": step, "timestamp": time_text(now()), "type": kind, "payload": payload}))
        else:
            shown.append((mode, payload))
    return shown


def values(graph: Graph, state: Mapping[str, Any]) -> Any:
    """The whole state, private keys too, in the order the keys were declared."""
    if ROOT in graph.channels:
        return shallow_copy(state.get(ROOT))
    return {key: shallow_copy(state[key]) for key in graph.channels if key in state}


def paused_values(graph: Graph, state: Mapping[str, Any], questions: Sequence[Any]) -> Any:
    """The state together with the questions that hold it."""
    shown = values(graph, state)
    return (
        {**shown, "__interrupt__": tuple(questions)} if isinstance(shown, dict) else {"__interrupt__": tuple(questions)}
    )


def update(finished: Finished) -> dict[str, Any]:
    """{node: what it wrote}; several writes of one key give a list of dicts; nothing gives None."""
    chunk: dict[str, Any] = {finished.node: written(finished.writes)}
    return {**chunk, "__metadata__": {"cached": True}} if finished.cached else chunk


def written(writes: Sequence[tuple[str, Any]]) -> Any:
    """Writes as an update: a dict; where a key comes twice, a dict for each write; None where there are none."""
    if not writes:
        return None
    if writes[0][0] == ROOT:
        return writes[-1][1]
    together = dict(writes)
    return together if len(together) == len(writes) else [{key: value} for key, value in writes]


def result(writes: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Writes as a task's result: what each key got; {"$writes": [...]} where it got several values."""
    single = dict(writes)
    if len(single) == len(writes):
        return single
    by_key: dict[str, list[Any]] = {}
    for key, value in writes:
        by_key.setdefault(key, []).append(value)
    return {key: found[0] if len(found) == 1 else {"$writes": found} for key, found in by_key.items()}


def task(job: Job) -> dict[str, Any]:
    """A task that is about to run."""
    node = job.scope.graph.nodes[job.task.node]
    try:
        given = read_input(job, node.view)
    except Exception as error:  # the task itself will fail with it; the event only shows
        given = {"__error__": repr(error)}
    triggers = ("__send__",) if job.task.is_send else (f"branch:to:{job.task.node}",)
    return {"id": job.task.id, "name": job.task.node, "input": given, "triggers": triggers}


def task_result(outcome: Outcome) -> dict[str, Any]:
    """A task that has run: its error, its result, its questions."""
    ended = outcome.result
    assert ended is not None
    return {
        "id": ended.task_id,
        "name": ended.node,
        "error": outcome.error if isinstance(ended, Failed) else None,
        "result": result(ended.writes) if isinstance(ended, Finished) else {},
        "interrupts": [{"value": q.value, "id": q.id} for q in ended.open] if isinstance(ended, Paused) else [],
    }


def checkpoint(scope: Scope, new: Checkpoint) -> dict[str, Any]:
    """A checkpoint: configuration, values, what is due next."""
    parent = new.parent_id
    return {
        "config": config_of(scope.thread_id, scope.namespace, new.id),
        "parent_config": None if parent is None else config_of(scope.thread_id, scope.namespace, parent),
        "values": values(scope.graph, new.values),
        "metadata": metadata_of(new),
        "next": [t.node for t in new.due],
        "tasks": [{"id": t.id, "name": t.node, "interrupts": (), "state": None} for t in new.due],
    }


def config_of(thread_id: str, namespace: str, checkpoint_id: str | None) -> dict[str, Any]:
    """The configuration that names a checkpoint (or, without an id, a namespace's head)."""
    if checkpoint_id is None:
        return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace}}
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}


def metadata_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """A checkpoint's metadata as snapshots show it."""
    return {"source": checkpoint.source, "step": checkpoint.step, "parents": {}, **checkpoint.metadata}
