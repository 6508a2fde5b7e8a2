"""How two checkpoints differ: found by comparing their lineages, told as a record and in words."""

from __future__ import annotations

import enum
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from minigraph import events
from minigraph.context import Scope
from minigraph.effects import Effect
from minigraph.lineage import Line, line_of
from minigraph.opening import load
from minigraph.records import Ancestor, Checkpoint, Stored
from minigraph.types import Send


class Missing(enum.Enum):
    """The type of MISSING, which stands for a key that a state does not have."""

    MISSING = "missing"

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


MISSING: Final = Missing.MISSING
"""Where `diff` shows a value: the state there does not have the key."""


@dataclass(frozen=True, slots=True)
class PathStep:
    """One checkpoint of a path: its step number, the nodes that ran for it, and how it came about.

    `source` is "loop" where nodes ran; otherwise none did: "input", "update" (an edit) or "fork" (a branch's copy of
    its parent). `config` addresses the checkpoint.
    """

    step: int
    ran: tuple[str, ...]
    source: str
    config: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.step} {' + '.join(self.ran) if self.source == 'loop' else f'({self.source})'}"


@dataclass(frozen=True, slots=True)
class Difference:
    """How checkpoint a differs from checkpoint b; wherever there are two of something, a's comes first.

    `step` is the number of the first step that differs in what ran, in the state after it or in what is due next;
    None: the two are equal. Where a branch counts the same step by another number, it is the smaller one. `common` is
    the config of the newest checkpoint that both come from; None: they share none, and were compared from their
    beginnings. `paths` is how each went on from there, oldest first. What follows is how they differ in the end:
    `values` by key; `next`, what is due next (nodes by name, Sends with their argument); `waiting`, deferred nodes and
    list edges that have seen some of their sources, in words. The last two are None where there is no difference.
    """

    step: int | None
    common: dict[str, Any] | None
    paths: tuple[tuple[PathStep, ...], tuple[PathStep, ...]]
    values: Mapping[str, tuple[object, object]]
    next: tuple[tuple[str | Send, ...], tuple[str | Send, ...]] | None
    waiting: tuple[tuple[str, ...], tuple[str, ...]] | None

    def __str__(self) -> str:
        if self.step is None:
            return "no difference: the same steps, the same state and the same tasks due next"
        origin = "they share no checkpoint"
        if self.common is not None:
            origin = f"both come from checkpoint {self.common['configurable']['checkpoint_id']}"
        lines = [f"first difference at step {self.step}; {origin}"]
        lines += [f"path of {name}: {_path(steps)}" for name, steps in zip("ab", self.paths, strict=True)]
        lines += [f"key {key!r}: {_brief(a)} -> {_brief(b)}" for key, (a, b) in self.values.items()]
        if not self.values:
            lines.append("state: the same in the end")
        if self.next is not None:
            lines.append(f"next: {_names(self.next[0])} -> {_names(self.next[1])}")
        if self.waiting is not None:
            lines.append(f"waiting: {_names(self.waiting[0])} -> {_names(self.waiting[1])}")
        return "\n".join(lines)


def _path(steps: tuple[PathStep, ...]) -> str:
    shown = [str(step) for step in steps]
    if len(shown) > 20:
        shown = [*shown[:10], f"... ({len(shown)} in all)", *shown[-9:]]
    return ", ".join(shown) or "no further step"


def _names(tasks: Iterable[str | Send]) -> str:
    return ", ".join(task if isinstance(task, str) else _brief(task) for task in tasks) or "nothing"


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:150]} ... {text[-40:]}"


# ---------------------------------------------------------------------------- compare


class Contrast(NamedTuple):
    """What differs between two checkpoints, whatever led to them; the fields are those of `Difference`."""

    values: Mapping[str, tuple[object, object]]
    next: tuple[tuple[str | Send, ...], tuple[str | Send, ...]] | None
    waiting: tuple[tuple[str, ...], tuple[str, ...]] | None


def diff(scope_a: Scope, at_a: str | None, scope_b: Scope, at_b: str | None) -> Generator[Effect, Any, Difference]:
    """How two checkpoints differ, from the newest checkpoint that both come from, or else from their beginnings.

    The steps are compared in their order by what ran, the state and what is to run, up to the first that differs. A
    branch's copy of its parent is no step of its own.
    """
    scopes = (scope_a, scope_b)
    lines = (yield from line_of(scope_a, at_a)), (yield from line_of(scope_b, at_b))
    same_place = (scope_a.thread_id, scope_a.namespace) == (scope_b.thread_id, scope_b.namespace)
    starts = _common(*lines) if same_place else None
    common = None if starts is None else _config(scope_a, lines[0][starts[0] - 1])
    paths = lines if starts is None else (lines[0][starts[0] :], lines[1][starts[1] :])
    step, equal = yield from _first_difference(scopes, paths, whole=starts is None)
    if starts is None:
        paths = (paths[0][equal[0] :], paths[1][equal[1] :])
    ends = Contrast({}, None, None)
    if step is not None:
        ends = yield from _contrast(scopes, lines[0][-1], lines[1][-1])
    shown_a, shown_b = (tuple(_step(scope, a) for a in path) for scope, path in zip(scopes, paths, strict=True))
    return Difference(step, common, (shown_a, shown_b), ends.values, ends.next, ends.waiting)


def _common(line_a: Line, line_b: Line) -> tuple[int, int] | None:
    """Where each line goes on from the newest checkpoint that both hold; None if there is none."""
    places = {ancestor.id: place for place, ancestor in enumerate(line_b)}
    for place in range(len(line_a) - 1, -1, -1):
        other = places.get(line_a[place].id)
        if other is not None:
            return place + 1, other + 1
    return None


def _first_difference(
    scopes: tuple[Scope, Scope], paths: tuple[Line, Line], *, whole: bool
) -> Generator[Effect, Any, tuple[int | None, tuple[int, int]]]:
    """The number of the first step that differs, and how much of each path is equal before it.

    `whole`: the paths are whole lineages, and a copy at their beginning stands for a parent that is not stored.
    """
    steps = [
        [(place, a) for place, a in enumerate(path, 1) if a.source != "fork" or (whole and place == 1)]
        for path in paths
    ]
    equal = (0, 0)
    for left, right in zip_longest(*steps):
        if left is None or right is None:
            return next(a.step for _, a in filter(None, (left, right))), equal
        (end_a, a), (end_b, b) = left, right
        if _ran(a) != _ran(b) or any((yield from _contrast(scopes, a, b))):
            return min(a.step, b.step), equal
        equal = (end_a, end_b)
    return None, (len(paths[0]), len(paths[1]))


def _contrast(scopes: tuple[Scope, Scope], a: Ancestor, b: Ancestor) -> Generator[Effect, Any, Contrast]:
    """Reads two checkpoints and compares what they hold."""
    from minigraph.checkpoint.sameness import same

    point_a = yield from _checkpoint(scopes[0], a.id)
    point_b = yield from _checkpoint(scopes[1], b.id)
    keys = {**point_a.values, **point_b.values}
    pairs = {key: (point_a.values.get(key, MISSING), point_b.values.get(key, MISSING)) for key in keys}
    due = _due(point_a), _due(point_b)
    waits = _waits(point_a), _waits(point_b)
    return Contrast(
        values={key: pair for key, pair in pairs.items() if not same(*pair)},
        next=None if same(*due) else due,
        waiting=None if waits[0] == waits[1] else waits,
    )


def _due(point: Checkpoint) -> tuple[str | Send, ...]:
    """Sends in their order, then nodes by name."""
    sends = [Send(task.node, task.payload) for task in point.due if task.is_send]
    return (*sends, *sorted(task.node for task in point.due if not task.is_send))


def _waits(point: Checkpoint) -> tuple[str, ...]:
    seen = [f"join {name} has seen {', '.join(sorted(nodes))}" for name, nodes in sorted(point.joins.items()) if nodes]
    return (*(f"{node} is deferred" for node in point.deferred), *seen)


def _ran(ancestor: Ancestor) -> tuple[str, ...]:
    """The nodes that ran for a checkpoint; what an input, an edit or a copy carries along from its parent is not it."""
    return ancestor.ran if ancestor.source == "loop" else ()


def _step(scope: Scope, ancestor: Ancestor) -> PathStep:
    return PathStep(ancestor.step, _ran(ancestor), ancestor.source, _config(scope, ancestor))


def _config(scope: Scope, ancestor: Ancestor) -> dict[str, Any]:
    return events.config_of(scope.thread_id, scope.namespace, ancestor.id)


def _checkpoint(scope: Scope, checkpoint_id: str) -> Generator[Effect, Any, Checkpoint]:
    stored: Stored | None = yield from load(scope, checkpoint_id)
    assert stored is not None, "load() raises for an id that is not stored"
    return stored.checkpoint
