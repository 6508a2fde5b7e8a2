"""One step worked out a second time, apart from the engine: from a stored checkpoint to what has to come after it.

Nothing of `step`, `updates`, `channels.fold` or the routers' own code is used here, so that a mistake made there is
not made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from minigraph.channels import EphemeralValue, Reduced
from minigraph.records import Checkpoint, Finished, Stored, Task
from minigraph.structure import Graph, Router
from minigraph.testing.building import Ledger, build
from minigraph.testing.engines import minigraph_engine
from minigraph.testing.programs import Program
from minigraph.testing.traces import plain, plain_state
from minigraph.types import END, START, Command, Overwrite, Send


@dataclass(slots=True)
class Said:
    """What one task said: its writes in order, and where it goes besides its static edges."""

    node: str
    writes: list[tuple[str, Any]] = field(default_factory=list)
    targets: list[str | Send] = field(default_factory=list)


class Reference:
    """Works out steps of a program whose nodes fail no more and know the answers to their questions."""

    def __init__(self, program: Program) -> None:
        self.graph: Graph = build(program, minigraph_engine(), ledger=_Past(), knows_answers=True).graph

    def after(self, stored: Stored, older: Iterable[str] = ()) -> tuple[Any, ...]:
        """What the step from a checkpoint leads to, in the form of `shown`.

        `older` are the ids of tasks that were due before this checkpoint: what they had found by then may stem from an
        earlier state, so their stored results are taken as they are.
        """
        before = stored.checkpoint
        results = {r.task_id: r for r in stored.results if isinstance(r, Finished)}
        ordered = sorted((t for t in before.due if not t.is_send), key=lambda task: task.node)
        ordered += sorted((t for t in before.due if t.is_send), key=lambda task: task.index)
        said = []
        for task in ordered:
            node = self.graph.nodes[task.node]
            known = node.child is not None or task.id in set(older)
            said.append(_recorded(results[task.id]) if known else self._said(before.values, task))
        values = self._folded(before.values, said)
        joins, due, deferred, sends = self._reached(before, said)
        return (plain_state(values), _sends(sends), sorted(due), sorted(deferred), joins, before.id, before.step + 1)

    def _said(self, values: Mapping[str, Any], task: Task) -> Said:
        said = Said(task.node)
        if task.node == START:
            said.writes = list(task.payload.items())
        else:
            argument = task.payload if task.is_send else dict(values)
            returned = self.graph.nodes[task.node].callee.function(argument)
            for part in returned if isinstance(returned, list) else [returned]:
                update = part.update if isinstance(part, Command) else part
                said.writes += [] if update is None else list(update.items())
                if isinstance(part, Command):
                    goto: Any = part.goto
                    said.targets += [goto] if isinstance(goto, str | Send) else list(goto)
        for router in self.graph.routers.get(task.node, ()):
            said.targets += _answer(router, self._folded(values, [said], ages=False))
        return said

    def _folded(self, values: Mapping[str, Any], said: Iterable[Said], *, ages: bool = True) -> dict[str, Any]:
        found = dict(values)
        for key, channel in self.graph.channels.items():
            writes = [value for task in said for name, value in task.writes if name == key]
            replacing = [value.value for value in writes if isinstance(value, Overwrite)]
            if not writes:
                if ages and isinstance(channel, EphemeralValue):
                    found.pop(key, None)
            elif replacing:
                found[key] = _only(key, replacing)
            elif isinstance(channel, Reduced):
                for value in writes:
                    found[key] = channel.reducer(found[key], value) if key in found else value
            else:
                found[key] = _only(key, writes)
        return found

    def _reached(
        self, before: Checkpoint, said: list[Said]
    ) -> tuple[dict[str, list[str]], set[str], set[str], list[Send]]:
        """The joins that still wait, the nodes that are due, the nodes held back, and the Sends."""
        reached = [t for task in said for t in (*self.graph.edges.get(task.node, ()), *task.targets) if t != END]
        sends = [target for target in reached if isinstance(target, Send)]
        nodes = {target for target in reached if isinstance(target, str)}
        ran = {task.node for task in said}
        held = {name for name in nodes if self.graph.nodes[name].defer} | set(before.deferred)
        due = nodes - held
        seen = {
            join.name: set(before.joins.get(join.name, ())) | (ran & set(join.sources)) for join in self.graph.joins
        }
        full = [join for join in self.graph.joins if seen[join.name] == set(join.sources)]
        fired = [join for join in full if not self.graph.nodes[join.target].defer]
        due |= {join.target for join in fired}
        if not due:
            due, held, fired = held | {join.target for join in full}, set(), full
        for join in fired:
            seen[join.name] = set()
        return {name: sorted(names) for name, names in seen.items() if names}, due, held, sends


def shown(checkpoint: Checkpoint) -> tuple[Any, ...]:
    """What `Reference.after` says of a checkpoint: its state, tasks, nodes held back, joins, parent and step."""
    tasks = sorted((task for task in checkpoint.due if task.is_send), key=lambda task: task.index)
    return (
        plain_state(checkpoint.values),
        _sends(Send(task.node, task.payload) for task in tasks),
        sorted(task.node for task in checkpoint.due if not task.is_send),
        sorted(checkpoint.deferred),
        {name: sorted(seen) for name, seen in checkpoint.joins.items() if seen},
        checkpoint.parent_id,
        checkpoint.step,
    )


class _Past(Ledger):
    """A ledger in which everything has been called before, so that nothing fails any more."""

    def first(self, place: str, step: str, task: str) -> bool:
        return False


def _recorded(result: Finished) -> Said:
    return Said(result.node, list(result.writes), list(result.targets))


def _answer(router: Router, values: dict[str, Any]) -> list[str | Send]:
    answer = router.callee.function(values)
    targets = answer if isinstance(answer, list | tuple) else [answer]
    names = router.targets
    return [t if isinstance(t, Send) or names is None or t == END else names[t] for t in targets]


def _sends(sends: Iterable[Send]) -> list[Any]:
    return [(send.node, plain(send.arg)) for send in sends]


def _only(key: str, values: list[Any]) -> Any:
    if len(values) != 1:
        raise AssertionError(f"a step that wrote {key!r} {len(values)} times was stored")
    return values[0]
