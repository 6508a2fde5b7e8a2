"""A thread as one JSON text, and back: row by row as it is stored, in words, so that nothing in it is said twice.

    {"format": "minigraph thread", "version": 1, "thread_id": "invoice-7",
     "namespaces": [{"namespace": "", "graphs": "1:5f3a9c1b2d3e4f50", "rows": [{"revision": 1, ...}, ...]}],
     "recorded": [{"namespace": "", "task_id": "...", "key": "pay", "done": true, "value": 240, ...}]}

A row that is a checkpoint has a `checkpoint_id`; `values` says what became of each key: ["set", value], or for a list
["keep", [how many items, [items that follow]]], or for a dict ["patch", [[names removed], [name, value, ...]]], or
["gone", null]. `base` is the revision whose state these changes are to; null: they are the whole state. Values stand
as `readable` says. A text is written only if it reads back as the very same rows, and read only if every checkpoint
in it can be read.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from minigraph.checkpoint import delta, rows, tags
from minigraph.checkpoint.array_size import check_size
from minigraph.checkpoint.classes import ClassForm, built_in_exception
from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.readable import readable, stored
from minigraph.checkpoint.reading import read_many
from minigraph.checkpoint.tables import Log, RecordedRow, Row, Tables
from minigraph.errors import DecodeError, StorageError
from minigraph.identifiers import joined_checkpoint_id, parts_of_checkpoint_id, time_text

FORMAT: Final = "minigraph thread"
VERSION: Final = 1
_LAST: Final = 2**32 - 1
"""The highest revision."""
_WORDS: Final = {delta.WHOLE: "set", delta.TAIL: "keep", delta.PATCH: "patch", delta.GONE: "gone"}
_OPERATIONS: Final = {word: code for code, word in _WORDS.items()}
_PARTS: Final = {name: {"changes": "values"}.get(name, name) for name in rows.Body.__struct_fields__}
"""The names of what a checkpoint's body holds, as they stand in the text."""
_GRAPHS: Final = re.compile(r"(\d+:[0-9A-Za-z]+( \d+:[0-9A-Za-z]+)*)?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_WRONG: Final = (*(ValueError, TypeError, LookupError, AttributeError, OverflowError), msgspec.MsgspecError)
"""What reading something of another shape raises."""


class Thread(NamedTuple):
    """All that is stored of a thread; the logs in the order in which they began."""

    thread_id: str
    logs: list[tuple[Log, list[Row]]]
    recorded: list[RecordedRow]


def thread_of(tables: Tables, thread_id: str) -> Thread:
    """A thread from the tables; nothing in it where there is none."""
    logs = [(log, tables.rows(log.number, 0, tables.revision(log.number))) for log in tables.logs(thread_id)[::-1]]
    return Thread(thread_id, logs, tables.all_recorded(thread_id))


def keep(tables: Tables, thread: Thread) -> None:
    """Stores a thread in tables that have none of its name."""
    for log, found in thread.logs:
        tables.fill(tables.begin(thread.thread_id, log.namespace, log.graphs), found)
    for recorded in thread.recorded:
        tables.add_recorded(thread.thread_id, recorded)


# ----------------------------------------------------------------------------- write


def written(thread: Thread) -> str:
    """A thread as text, a line for each row. StorageError for one that would not read back as it is."""
    where = f"export_thread({thread.thread_id!r})"
    namespaces = [
        f'{{"namespace": {_text(log.namespace)}, "graphs": {_text(log.graphs)}, "rows": [\n'
        + ",\n".join(_checked_line(where, row) for row in found)
        + "\n]}"
        for log, found in thread.logs
    ]
    recorded = [
        _text({**msgspec.structs.asdict(row), "done": bool(row.done), "value": readable(row.value)})
        for row in thread.recorded
    ]
    head = f'{{"format": {_text(FORMAT)}, "version": {VERSION}, "thread_id": {_text(thread.thread_id)},\n'
    return f'{head}"namespaces": [{", ".join(namespaces)}],\n"recorded": [\n' + ",\n".join(recorded) + "\n]}\n"


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _checked_line(where: str, row: Row) -> str:
    try:
        line = _text(_shown_row(row))
        if _row(json.loads(line)) == _with_plain_metadata(row):
            return line
        reason = "it would not read back as it is"
    except RecursionError:
        reason = "it is nested too deeply"
    except _WRONG as error:
        reason = str(error)
    raise StorageError(f"{where}: the row of revision {row.revision} cannot be exported: {reason}")


def _with_plain_metadata(row: Row) -> Row:
    """The row with its metadata as a text that is written anew; a database may keep another one of the same JSON."""
    return row if row.metadata is None else msgspec.structs.replace(row, metadata=_metadata(json.loads(row.metadata)))


def _metadata(given: Any) -> str | None:
    if type(given) is not dict:
        raise ValueError("`metadata` is an object")
    return rows.metadata_text(given)


def _shown_row(row: Row) -> dict[str, Any]:
    if row.mark is None:
        return {"revision": row.revision, "created_at": _time(row.created), "results": readable(row.body)}
    parts = dict(zip(_PARTS.values(), readable(row.body), strict=False))
    shown = {
        "revision": row.revision,
        "checkpoint_id": joined_checkpoint_id(row.revision, row.mark),
        "parent": None if row.parent is None else row.revision - row.parent,
        "base": None if row.base is None else row.revision - row.base,
        "step": row.step,
        "source": row.source,
        "created_at": _time(row.created),
        "metadata": None if row.metadata is None else json.loads(row.metadata),
    }
    if "values" in parts:
        values = parts.pop("values")
        named = values if "$map" not in values else {"$map": values["$map"]}
        shown["values"] = (
            {key: _worded(steps) for key, steps in named.items()}
            if "$map" not in named
            else {"$map": [[key, _worded(steps)] for key, steps in named["$map"]]}
        )
    if "written" in parts:
        parts["written"] = _worded(parts["written"])
    return shown | parts


def _worded(operations: list[Any]) -> list[Any]:
    return [part if place % 2 else _WORDS[part] for place, part in enumerate(operations)]


def _coded(operations: list[Any]) -> list[Any]:
    return [part if place % 2 else _OPERATIONS[part] for place, part in enumerate(operations)]


def _time(created: int | None) -> str | int | None:
    """A time as text; as the number that it is where no text says it."""
    if created is None:
        return None
    try:
        text = time_text(created)
    except (ValueError, OverflowError, OSError):
        return created
    return text if _created(text) == created else created


def _created(given: Any) -> int | None:
    if given is None or type(given) is int:
        return given
    return (datetime.fromisoformat(given) - _EPOCH) // _MILLISECOND


# ------------------------------------------------------------------------------ read


def read(text: str | bytes, thread_id: str | None) -> Thread:
    """The thread in a text, under its own id or another one. StorageError for what is no whole and sound export."""
    place = "the text"
    try:
        given = json.loads(text, object_pairs_hook=_once_each, parse_constant=_no_constant)
        _check_format(given)
        _exactly(given, {"format", "version", "thread_id", "namespaces", "recorded"})
        name = given["thread_id"] if thread_id is None else thread_id
        place = "the thread's id"
        _check_name(name)
        logs = []
        for item in given["namespaces"]:
            place = f"the namespace {item['namespace']!r}"
            logs.append(_log(name, item))
        place = "the once() calls"
        thread = Thread(name, logs, [_recorded(item) for item in given["recorded"]])
        if not logs and not thread.recorded:
            raise ValueError("there is nothing in it")
        _check(thread)
    except StorageError as error:
        raise StorageError(f"import_thread(...): {place} cannot be read: {error}; nothing was stored") from error
    except RecursionError:
        raise StorageError(f"import_thread(...): {place} is nested too deeply; nothing was stored") from None
    except _WRONG as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise StorageError(
            f"import_thread(...): {place} is not what export_thread writes, or is damaged: {kind}{error};"
            " nothing was stored"
        ) from error
    return thread


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in an object")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _check_format(given: Any) -> None:
    if type(given) is not dict or given.get("format") != FORMAT:
        raise ValueError(f'an export is a JSON object with "format": {_text(FORMAT)}')
    version = given.get("version")
    if type(version) is int and version > VERSION:
        raise StorageError(f"it has version {version}, this release knows {VERSION}; a newer release wrote it")
    if version != VERSION or type(version) is not int:
        raise ValueError(f"there is no version {version!r}")


def _exactly(given: dict[str, Any], names: set[str]) -> None:
    if given.keys() != names:
        raise ValueError(f"expected are {', '.join(sorted(names))}, found {', '.join(sorted(given))}")


def _check_name(name: object) -> None:
    if type(name) is not str or not name:
        raise ValueError(f"{name!r} is no non-empty str")
    name.encode()


def _log(thread_id: str, given: Any) -> tuple[Log, list[Row]]:
    _exactly(given, {"namespace", "graphs", "rows"})
    namespace, graphs = given["namespace"], given["graphs"]
    if type(namespace) is not str or type(graphs) is not str or _GRAPHS.fullmatch(graphs) is None:
        raise ValueError("`namespace` and `graphs` are texts, and the latter says which graph wrote what")
    namespace.encode()
    found = []
    for item in given["rows"]:
        try:
            found.append(_row(item))
        except (*_WRONG, RecursionError) as error:
            revision = item.get("revision") if type(item) is dict else item
            raise ValueError(f"row {revision!r}: {type(error).__name__}: {error}") from error
    return Log(0, thread_id, namespace, graphs), found


def _row(given: dict[str, Any]) -> Row:
    revision = _whole(given["revision"], 1, _LAST)
    if "checkpoint_id" not in given:
        _exactly(given, {"revision", "created_at", "results"})
        results = given["results"]
        if type(results) is not list:
            raise ValueError("`results` is a list")
        return Row(
            revision, None, None, None, None, None, _optional(_created(given["created_at"])), None, stored(results)
        )
    columns = ("revision", "checkpoint_id", "parent", "base", "step", "source", "created_at", "metadata")
    parts = {name: part for name, part in given.items() if name not in columns}
    places = parts_of_checkpoint_id(given["checkpoint_id"])
    if places is None or places[0] != revision:
        raise ValueError("the id of a checkpoint begins with its revision, in 16 hexadecimal digits, and has 32")
    names = [*_PARTS.values()][: len(parts)]
    if set(names) != set(parts):
        raise ValueError(f"unknown or missing names: {', '.join(sorted(set(names) ^ set(parts)))}")
    metadata = given["metadata"]
    return Row(
        revision,
        places[1],
        None if given["parent"] is None else revision - _whole(given["parent"], 1, revision - 1),
        None if given["base"] is None else revision - _whole(given["base"], 1, revision - 1),
        _whole(given["step"], -(2**63), 2**63 - 1),
        _str(given["source"]),
        _whole(_created(given["created_at"]), -(2**63), 2**63 - 1),
        None if metadata is None else _metadata(metadata),
        stored([_part(name, parts[name]) for name in names]),
    )


def _part(name: str, shown: Any) -> Any:
    if name == "written":
        return _coded(shown)
    if name != "values":
        return shown
    if "$map" in shown:
        return {"$map": [[key, _coded(steps)] for key, steps in shown["$map"]]}
    return {key: _coded(steps) for key, steps in shown.items()}


def _whole(given: Any, first: int, last: int) -> int:
    if type(given) is not int or not first <= given <= last:
        raise ValueError(f"{given!r} is no whole number from {first} to {last}")
    return given


def _optional(given: int | None) -> int | None:
    return None if given is None else _whole(given, -(2**63), 2**63 - 1)


def _str(given: Any) -> str:
    if type(given) is not str:
        raise ValueError(f"{given!r} is no text")
    given.encode()
    return given


def _recorded(given: dict[str, Any]) -> RecordedRow:
    _exactly(given, set(RecordedRow.__struct_fields__))
    if type(given["done"]) is not bool:
        raise ValueError("`done` is true or false")
    return RecordedRow(
        _str(given["namespace"]),
        _str(given["task_id"]),
        _str(given["key"]),
        given["done"],
        stored(given["value"]),
        _str(given["error"]),
        _whole(given["questions"], 0, 2**63 - 1),
        _whole(given["children"], 0, 2**63 - 1),
    )


# ----------------------------------------------------------------------------- check


class _Unknown(Exception):
    """Stands for an object of a class that is not known here: it may be in a set, or what caused an exception."""


class _AnyClass(Codec):
    """Reads everything, objects of classes that are not known here too, and arrays without numpy."""

    def _load_object(self, stored: Any) -> Any:
        name, *_ = stored
        if type(name) is not str:
            raise ValueError("an object has the name of its class")
        known = name in self._by_name or built_in_exception(name) is not None
        return super()._load_object(stored) if known else _Unknown()

    def _named(self, name: object) -> ClassForm:
        form = (self._by_name.get(name) or built_in_exception(name)) if isinstance(name, str) else None
        return form or ClassForm(str(name), dict, lambda value: ({}, []), lambda attributes, items: None)

    def _load(self, code: int, data: memoryview) -> Any:
        if code in (tags.ARRAY, tags.ARRAY_SCALAR) and importlib.util.find_spec("numpy") is None:
            check_size(self._decoder.decode(data), scalar=code == tags.ARRAY_SCALAR)
            return _Unknown()
        return super()._load(code, data)


def _check(thread: Thread) -> None:
    """Raises ValueError or DecodeError where something in a thread could not be read once it is stored."""
    from minigraph.checkpoint.memory import InMemorySaver  # which itself may be asked to read an export

    codec = _AnyClass()
    with InMemorySaver()._writing() as tables:
        if len({log.namespace for log, _ in thread.logs}) != len(thread.logs):
            raise ValueError("a namespace stands twice")
        for _, found in thread.logs:
            _check_places(found)
        keep(tables, thread)
        for log in tables.logs(thread.thread_id):
            wanted = [row.revision for row in tables.rows(log.number, 0, _LAST) if row.mark is not None][::-1]
            for start in range(0, len(wanted), 512):
                read_many(codec, tables, log.number, wanted[start : start + 512])
        if len(tables.all_recorded(thread.thread_id)) != len(thread.recorded):
            raise ValueError("a once() call stands twice")
        for row in thread.recorded:
            codec.decode(row.value)


def _check_places(found: Iterable[Row]) -> None:
    """The rows of a log follow one another, and refer to checkpoints before them."""
    bodies: dict[int, rows.Body[Raw]] = {}
    last: int | None = None
    for row in found:
        if last is not None and row.revision != last + 1:
            raise ValueError(f"the row after revision {last} has revision {row.revision}")
        if last is None and row.mark is None:
            raise ValueError("the first row is no checkpoint")
        last = row.revision
        if row.mark is None:
            rows.read_results(row)
            continue
        body = bodies[row.revision] = rows.read_body(row)
        base = None if row.base is None else bodies.get(row.revision - row.base)
        if (row.base is not None and base is None) or (row.base is None and body.links):
            raise DecodeError(f"the row that revision {row.revision} builds on is missing")
    if last is None:
        raise ValueError("there are no rows in it")
