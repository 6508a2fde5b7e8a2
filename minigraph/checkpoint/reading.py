"""Rows to checkpoints with their results: one alone, or many folded forward so that they share what did not change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minigraph.checkpoint import rows
from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.results import read_results
from minigraph.checkpoint.rows import Body, State
from minigraph.checkpoint.tables import Row, Tables
from minigraph.errors import DecodeError
from minigraph.records import Checkpoint, Result, Task

Found = tuple[Checkpoint, tuple[Result, ...]]


def read_one(codec: Codec, tables: Tables, number: int, row: Row, after: Sequence[Row]) -> Found:
    """A checkpoint whose values are new objects; `after` are the rows up to the next one."""
    chain = chain_of(tables, number, row)
    bodies = [rows.read_body(link) for link in chain]
    parent = _parent(tables, number, row, {link.revision: link for link in chain})
    point = rows.read_checkpoint(codec, row, bodies[-1], rows.read_state(codec, bodies), parent)

    def state(next_row: Row) -> Mapping[str, Any]:
        linked = chain_of(tables, number, next_row)
        return rows.read_state(codec, [rows.read_body(link) for link in linked]).values

    found = _Results(codec, point.due)
    found.add(rows.read_body(row).own if bodies[-1].own else [], None)
    for later in after:
        found.add_row(later, state)
    return point, found.in_order()


def read_many(codec: Codec, tables: Tables, number: int, wanted: Sequence[int]) -> list[Found]:
    """The checkpoints with these revisions, newest first, as they are given.

    They share what did not change from one to the next; lists, dicts and sets at the top of a state are each one's own.
    """
    oldest, newest = wanted[-1], wanted[0]
    if newest - oldest >= rows.SPAN * len(wanted):
        return [found for revision in wanted for found in _single(codec, tables, number, revision)]
    log = [*tables.rows(number, oldest, newest), *tables.after(number, newest)]
    fold = _Fold(codec, tables, number, frozenset(wanted), log)
    return fold.run()[::-1]


def _single(codec: Codec, tables: Tables, number: int, revision: int) -> list[Found]:
    found = tables.rows(number, revision, revision)
    return [read_one(codec, tables, number, row, tables.after(number, revision)) for row in found]


def chain_of(tables: Tables, number: int, row: Row) -> list[Row]:
    """The row and those that its state builds on, the whole one first."""
    if row.base is None:
        return [row]
    chain = tables.chain(number, row.revision)
    if not chain or chain[0].base is not None:
        raise DecodeError(f"the row that the stored checkpoint {rows.id_of(row)!r} builds on is missing")
    return chain


def _parent(tables: Tables, number: int, row: Row, known: Mapping[int, Row]) -> str | None:
    """The id of the checkpoint that a row came from; None where there is none, or it was forgotten."""
    if row.parent is None:
        return None
    revision = row.revision - row.parent
    found = known.get(revision) or next(iter(tables.rows(number, revision, revision)), None)
    return None if found is None or found.mark is None else rows.id_of(found)


class _Results:
    """The results of one checkpoint, collected from the rows that hold them."""

    def __init__(self, codec: Codec, due: tuple[Task, ...]) -> None:
        self._codec, self._due = codec, due
        self._found: dict[str, Result] = {}

    def add(self, stored: Sequence[Any], state: Any) -> None:
        if stored:
            read_results(self._codec, self._found, stored, self._due, state)

    def add_row(self, row: Row, state: Any) -> None:
        body = None if row.mark is None else rows.read_body(row)
        self.add(rows.read_results(row, body), lambda: state(row))

    def in_order(self) -> tuple[Result, ...]:
        found = self._found
        if len(found) > 1:
            order = {task.id: place for place, task in enumerate(self._due)}
            return tuple([found[task] for task in sorted(found, key=lambda t: (order.get(t, len(order)), t))])
        return tuple(found.values())


class _Fold:
    """Goes through the rows of a log from the oldest on and keeps what is wanted."""

    def __init__(self, codec: Codec, tables: Tables, number: int, wanted: frozenset[int], log: Sequence[Row]) -> None:
        self._codec, self._tables, self._number = codec, tables, number
        self._wanted, self._log = wanted, log
        self._states: dict[int, State] = {}
        self._rows: dict[int, Row] = {}

    def run(self) -> list[Found]:
        """The wanted checkpoints, oldest first."""
        found: list[Found] = []
        current: tuple[Checkpoint, _Results] | None = None
        for row in self._log:
            body = None if row.mark is None else rows.read_body(row)
            state = None if body is None else self._state(row, body)
            if current is not None:
                values = None if state is None else state.values
                current[1].add(rows.read_results(row, body), None if values is None else lambda held=values: held)
            if body is None or state is None:
                continue
            if current is not None:
                found.append((current[0], current[1].in_order()))
                current = None
            if row.revision in self._wanted:
                current = self._begin(row, body, state)
        if current is not None:
            found.append((current[0], current[1].in_order()))
        return found

    def _state(self, row: Row, body: Body) -> State:
        if row.base is None:
            state = rows.read_state(self._codec, [body])
        else:
            before = self._states.get(row.revision - row.base)
            if before is None:
                linked = chain_of(self._tables, self._number, row)
                state = rows.read_state(self._codec, [rows.read_body(link) for link in linked])
            else:
                state = rows.next_state(self._codec, before, body)
        self._states[row.revision], self._rows[row.revision] = state, row
        return state

    def _begin(self, row: Row, body: Body, state: State) -> tuple[Checkpoint, _Results]:
        values = {key: own(value) for key, value in state.values.items()}
        parent = _parent(self._tables, self._number, row, self._rows)
        point = rows.read_checkpoint(self._codec, row, body, State(values, state.written), parent)
        results = _Results(self._codec, point.due)
        results.add(body.own, None)
        return point, results


def own(value: Any) -> Any:
    """A list, dict or set of one's own; anything else as it is."""
    return value.copy() if type(value) in (list, dict, set) else value
