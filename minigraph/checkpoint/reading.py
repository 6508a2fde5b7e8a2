"""Rows to checkpoints with their results: one alone, or many folded forward so that they share what did not change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Raw

from minigraph.checkpoint import rows
from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.results import read_results
from minigraph.checkpoint.rows import Body, State
from minigraph.checkpoint.tables import Row, Tables
from minigraph.errors import DecodeError
from minigraph.records import Checkpoint, Result, Task

Found = tuple[Checkpoint, tuple[Result, ...]]
Read = tuple[Checkpoint, tuple[Result, ...], rows.Numbers]
"""A checkpoint, the results of its tasks, and what a read of its state takes."""
Values = Callable[[], Mapping[str, Any]]


def read_one(codec: Codec, tables: Tables, number: int, row: Row, after: Sequence[Row]) -> Read:
    """A checkpoint whose values are new objects; `after` are the rows up to the next one."""
    chain = chain_of(tables, number, row)
    parent = _parent(tables, number, row, {link.revision: link for link in chain})
    body, state = _state_of(codec, chain)
    point = rows.read_checkpoint(codec, row, body, state, parent)
    return point, _results(codec, point, body, after, tables, number), body.numbers


def read_end(codec: Codec, end: Sequence[Row]) -> Read | None:
    """The newest checkpoint of a log from rows of it, newest first; None where it takes other rows to read it."""
    after: list[Row] = []
    row: Row | None = None
    known: dict[int, Row] = {}
    for found in end:
        if found.mark is not None:
            row = row or found
            known[found.revision] = found
        elif row is None:
            after.append(found)
    if row is None:
        return None
    parent = None if row.parent is None else known.get(row.revision - row.parent)
    if parent is None and row.parent is not None:
        return None
    parent_id = None if parent is None else rows.id_of(parent)
    chain = [row]
    while (base := chain[-1].base) is not None:
        before = known.get(chain[-1].revision - base)
        if before is None:
            return None
        chain.append(before)
    body, state = _state_of(codec, chain[::-1])
    point = rows.read_checkpoint(codec, row, body, state, parent_id)
    return point, _results(codec, point, body, after[::-1]), body.numbers


def _state_of(codec: Codec, chain: Sequence[Row]) -> tuple[Body[Any], State]:
    """What the last row of a chain holds, and the state that the chain leads to, made of new objects."""
    if len(chain) == 1:
        body = rows.read_values(codec, chain[0])
        return body, rows.next_state(rows.NOTHING, body)
    bodies = [rows.read_body(link) for link in chain]
    return bodies[-1], rows.read_state(codec, bodies)


def _results(
    codec: Codec,
    point: Checkpoint,
    body: Body[Any],
    after: Sequence[Row],
    tables: Tables | None = None,
    number: int = 0,
) -> tuple[Result, ...]:
    """The results of a checkpoint's tasks: its own row's, then those in the rows after it.

    `tables` are needed where these end with another checkpoint.
    """
    found: dict[str, Result] = {}
    if body.own:
        read_results(codec, found, body.own, point.due)
    for later in after:
        if later.mark is None:
            read_results(codec, found, rows.read_results(later), point.due)
            continue
        assert tables is not None
        chain = [rows.read_body(link) for link in chain_of(tables, number, later)]
        if chain[-1].results:
            values = _once(lambda: rows.read_state(codec, chain).values)  # noqa: B023  # it is asked for at once
            read_results(codec, found, chain[-1].results, point.due, values)
    return in_order(found, point.due)


def _once(read: Values) -> Values:
    """The same, read when it is first asked for."""
    kept: list[Mapping[str, Any]] = []

    def values() -> Mapping[str, Any]:
        if not kept:
            kept.append(read())
        return kept[0]

    return values


def in_order(found: Mapping[str, Result], due: Sequence[Task]) -> tuple[Result, ...]:
    """Results by the place of their tasks; those of tasks that are not due last."""
    if len(found) > 1:
        order = {task.id: place for place, task in enumerate(due)}
        return tuple([found[task] for task in sorted(found, key=lambda t: (order.get(t, len(order)), t))])
    return tuple(found.values())


def read_many(codec: Codec, tables: Tables, number: int, wanted: Sequence[int]) -> list[Found]:
    """The checkpoints with these revisions, newest first, as they are given.

    They share what did not change from one to the next; lists, dicts and sets at the top of a state are each one's own.
    """
    oldest, newest = wanted[-1], wanted[0]
    if newest - oldest >= rows.SPAN * len(wanted):
        return [found for revision in wanted for found in _single(codec, tables, number, revision)]
    log = [*tables.rows(number, oldest, newest), *tables.after(number, newest)]
    fold = _Fold(codec, tables, number)
    return fold.run(log, frozenset(wanted))[::-1]


def _single(codec: Codec, tables: Tables, number: int, revision: int) -> list[Found]:
    found = tables.rows(number, revision, revision)
    return [read_one(codec, tables, number, row, tables.after(number, revision))[:2] for row in found]


def chain_of(tables: Tables, number: int, row: Row) -> list[Row]:
    """The row and those that its state builds on, the whole one first."""
    if row.base is None:
        return [row]
    chain = tables.chain(number, row.revision)
    if not chain or chain[0].base is not None:
        raise DecodeError(f"the row that the stored checkpoint {rows.id_of(row)!r} builds on is missing")
    return chain


def span_of(tables: Tables, number: int, row: Row) -> tuple[int, list[Body[Raw]]]:
    """The last whole or spanning row that a row builds on: its revision, its body, and the bodies up to the row's."""
    near = {found.revision: found for found in tables.rows(number, row.revision - rows.SPAN, row.revision)}
    bodies = [rows.read_body(row)]
    revision = row.revision
    while bodies[-1].links:
        revision -= row.base or 0
        found = near.get(revision) or next(iter(tables.rows(number, revision, revision)), None)
        if found is None or not row.base:
            raise DecodeError(f"the row that the stored checkpoint {rows.id_of(row)!r} builds on is missing")
        row = found
        bodies.append(rows.read_body(row))
    return revision, bodies[::-1]


def _parent(tables: Tables, number: int, row: Row, known: Mapping[int, Row]) -> str | None:
    """The id of the checkpoint that a row came from; None where there is none, or it was forgotten."""
    if row.parent is None:
        return None
    revision = row.revision - row.parent
    found = known.get(revision) or next(iter(tables.rows(number, revision, revision)), None)
    return None if found is None or found.mark is None else rows.id_of(found)


class _Fold:
    """Goes through the rows of a log from the oldest on and keeps what is wanted."""

    def __init__(self, codec: Codec, tables: Tables, number: int) -> None:
        self._codec, self._tables, self._number = codec, tables, number
        self._states: dict[int, State] = {}
        self._ids: dict[int, str] = {}
        self._given: set[int] = set()
        """The lists, dicts and sets that a checkpoint has got as its own, by their `id`; `_states` keeps them."""

    def run(self, log: Sequence[Row], wanted: frozenset[int]) -> list[Found]:
        """The wanted checkpoints, oldest first."""
        codec = self._codec
        found: list[Found] = []
        point: Checkpoint | None = None
        results: dict[str, Result] = {}
        for row in log:
            if row.mark is None:
                if point is not None:
                    read_results(codec, results, rows.read_results(row), point.due)
                continue
            body = rows.read_values(codec, row)
            state = self._state(row, body)
            if point is not None:
                if body.results:
                    read_results(codec, results, body.results, point.due, partial(getattr, state, "values"))
                found.append((point, in_order(results, point.due)))
                point = None
            if row.revision in wanted:
                own = State(self._own(state.values), state.written)
                point, results = rows.read_checkpoint(codec, row, body, own, self._parent(row)), {}
                self._ids[row.revision] = point.id
                if body.own:
                    read_results(codec, results, body.own, point.due)
        if point is not None:
            found.append((point, in_order(results, point.due)))
        return found

    def _state(self, row: Row, body: Body[Any]) -> State:
        if row.base is None:
            state = rows.next_state(rows.NOTHING, body)
        else:
            before = self._states.get(row.revision - row.base)
            if before is None:
                linked = chain_of(self._tables, self._number, row)
                state = rows.read_state(self._codec, [rows.read_body(link) for link in linked])
            else:
                state = rows.next_state(before, body)
        self._states[row.revision] = state
        return state

    def _own(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values for one checkpoint: what another one has got is copied."""
        given, found = self._given, {}
        for key, value in values.items():
            if type(value) in _HELD:
                if id(value) in given:
                    value = value.copy()
                else:
                    given.add(id(value))
            found[key] = value
        return found

    def _parent(self, row: Row) -> str | None:
        if row.parent is None:
            return None
        known = self._ids.get(row.revision - row.parent)
        return known if known is not None else _parent(self._tables, self._number, row, {})


_HELD = frozenset({list, dict, set})
