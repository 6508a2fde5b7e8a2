"""Large results that a model hands on without reading them: ids kept under an opaque reference.

``filter`` keeps the ids of the rows that match and gives the model a reference and a short preview; ``count`` takes the
reference and counts what was kept, not what was shown. A reference belongs to one caller and one version of the data,
and remembers its query; it says nothing by itself and cannot be guessed.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Protocol, TypeAlias

from pydantic import Field

from tools.errors import InvalidArgumentsError, NotPermittedError
from tools.storage import Database
from tools.tool import Tool, ToolContext, tool

CALLER: Final = "caller"
"""The fact of a ``ToolContext`` that names who asks; the program sets it, no model does."""

PREVIEW_LIMIT: Final = 20
"""Rows of a preview at most."""

FIELD_LIMIT: Final = 200
"""Characters of a field in a preview."""

ID_LIMIT: Final = 100_000
"""Ids under one reference."""

Row: TypeAlias = Mapping[str, object]
"""One row: its fields by name, ``id`` among them."""

_COLUMNS: Final = ("reference", "caller", "data_version", "query", "ids", "at")
_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS kept_results (reference TEXT PRIMARY KEY, caller TEXT NOT NULL,
       data_version TEXT NOT NULL, query TEXT NOT NULL, ids TEXT NOT NULL, at REAL NOT NULL)""",
)


class UnknownReferenceError(InvalidArgumentsError):
    """No result was kept under this reference, or it was forgotten since."""


class ForeignReferenceError(NotPermittedError):
    """The reference belongs to another caller."""


class StaleReferenceError(InvalidArgumentsError):
    """The data changed since; the query has to be made again. ``kept`` and ``present`` are the versions."""

    def __init__(self, kept: str, present: str) -> None:
        super().__init__(f"the reference is for version {kept!r} of the data, which is now {present!r}; filter again")
        self.kept = kept
        self.present = present

    def __reduce__(self) -> tuple[type[StaleReferenceError], tuple[str, str]]:
        return type(self), (self.kept, self.present)


@dataclass(frozen=True, slots=True)
class KeptResult:
    """What lies under a reference."""

    ids: tuple[str, ...]
    data_version: str
    query: Mapping[str, object]


class RowSource(Protocol):
    """Data with a version, of which each caller may read some rows."""

    @property
    def version(self) -> str:
        """A text that changes whenever the data does."""
        ...

    @property
    def fields(self) -> Sequence[str]:
        """The fields one can filter by."""
        ...

    def rows(self, caller: str) -> Iterable[Row]:
        """The rows that a caller may read, no others."""
        ...


class ResultStore:
    """Kept results in one SQLite file, so that another process can go on with them. Close it, or use ``with``."""

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        self._database = Database(path, _SCHEMA, {"kept_results": _COLUMNS})
        self._clock = clock

    def __enter__(self) -> ResultStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def keep(self, ids: Sequence[str], *, caller: str, data_version: str, query: Mapping[str, object]) -> str:
        """Keep ids and give their reference. Raises ``InvalidArgumentsError`` for more than ``ID_LIMIT``."""
        if len(ids) > ID_LIMIT:
            raise InvalidArgumentsError(f"{len(ids)} rows match and {ID_LIMIT} are allowed; filter more narrowly")
        reference = f"rows-{secrets.token_urlsafe(16)}"
        values = (reference, caller, data_version, json.dumps(query), json.dumps(list(ids)), self._clock())
        with self._database.transaction() as connection:
            connection.execute("INSERT INTO kept_results VALUES (?, ?, ?, ?, ?, ?)", values)
        return reference

    def load(self, reference: str, *, caller: str, data_version: str) -> KeptResult:
        """What lies under a reference.

        Raises:
            UnknownReferenceError: nothing does.
            ForeignReferenceError: it belongs to another caller.
            StaleReferenceError: the data has another version now.
        """
        found = None
        if reference.isascii() and len(reference) < 100:
            with self._database.read() as connection:
                found = connection.execute("SELECT * FROM kept_results WHERE reference = ?", (reference,)).fetchone()
        if found is None:
            raise UnknownReferenceError("there is no such reference; pass one on exactly as `filter` gave it")
        if found["caller"] != caller:
            raise ForeignReferenceError("the reference belongs to somebody else")
        if found["data_version"] != data_version:
            raise StaleReferenceError(found["data_version"], data_version)
        return KeptResult(tuple(json.loads(found["ids"])), found["data_version"], json.loads(found["query"]))

    def forget_before(self, at: float) -> int:
        """Forget what was kept before a time, in seconds since 1970, and give how many results that were."""
        with self._database.transaction() as connection:
            return int(connection.execute("DELETE FROM kept_results WHERE at < ?", (at,)).rowcount)


Answer: TypeAlias = dict[str, object]
"""What the two tools give, as an object."""


def reference_tools(store: ResultStore, source: RowSource) -> list[Tool]:
    """The tools ``filter`` and ``count`` over rows, each caller seeing its own rows alone."""

    @tool(name="filter", field_limit=FIELD_LIMIT)
    def filter_rows(
        field: Annotated[str, Field(max_length=100, description="The name of a field.")],
        value: Annotated[str, Field(max_length=1_000, description="The whole value, exactly.")],
        context: ToolContext,
        preview: Annotated[int, Field(ge=0, le=PREVIEW_LIMIT, description="Rows to show.")] = 5,
    ) -> Answer:
        """Keep all rows whose field has this value; gives a reference to them and the first few."""
        if field not in source.fields:
            raise InvalidArgumentsError(f"there is no field {field!r}; there are {', '.join(source.fields)}")
        caller, version = _caller(context), source.version
        found = [row for row in source.rows(caller) if str(row.get(field)) == value]
        query = {"field": field, "value": value}
        ids = [str(row["id"]) for row in found]
        reference = store.keep(ids, caller=caller, data_version=version, query=query)
        return {"reference": reference, "preview": [dict(row) for row in found[:preview]]}

    @tool(name="count")
    def count_rows(
        reference: Annotated[str, Field(max_length=100, description="What `filter` gave as reference.")],
        context: ToolContext,
    ) -> Answer:
        """Count the rows that a reference stands for, all of them and not only those shown."""
        kept = store.load(reference, caller=_caller(context), data_version=source.version)
        return {"count": len(kept.ids), "data_version": kept.data_version, "query": dict(kept.query)}

    return [filter_rows, count_rows]


def _caller(context: ToolContext) -> str:
    caller = context.facts.get(CALLER)
    if not isinstance(caller, str) or not caller:
        raise NotPermittedError("nobody is named as the caller, so there is nothing to read")
    return caller
