"""The `once()` calls of tasks: to rows and back, carried to a branch, and forgotten with the tasks they belong to."""

from __future__ import annotations

import msgspec

from minigraph.checkpoint import rows
from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.tables import RecordedRow, Tables
from minigraph.records import Carried, Recorded, Write


def row_of(codec: Codec, namespace: str, task_id: str, recorded: Recorded) -> RecordedRow:
    """The row of a call; UnstorableValueError where its value cannot be stored."""
    value = codec.encode(recorded.value, key=recorded.key)
    error = recorded.error.encode(errors="backslashreplace").decode()
    position = (recorded.questions, recorded.children)
    return RecordedRow(namespace, task_id, recorded.key, recorded.done, value, error, *position)


def read(codec: Codec, row: RecordedRow) -> Recorded:
    """The call of a row."""
    return Recorded(row.key, bool(row.done), codec.decode(row.value), row.error, row.questions, row.children)


def carry(tables: Tables, write: Write, carried: Carried) -> None:
    """Copies the calls of a task to the one that stands for it on a branch."""
    for row in tables.all_recorded(write.thread_id):
        owner, bar, way = row.task_id.partition("|")
        same = (row.namespace, owner) == (carried.namespace, carried.task_id)
        if same and carried.includes(row.questions, row.children):
            name = f"{carried.new_task_id}{bar}{way}"
            tables.add_recorded(write.thread_id, msgspec.structs.replace(row, namespace=write.namespace, task_id=name))


def forget_unlisted(codec: Codec, tables: Tables, thread_id: str) -> None:
    """Deletes the calls of tasks that no checkpoint of a thread lists any more."""
    found = tables.all_recorded(thread_id)
    if not found:
        return
    listed = {
        (log.namespace, task.id)
        for log in tables.logs(thread_id)
        for row in tables.rows(log.number, 0, tables.revision(log.number))
        if row.mark is not None
        for task in rows.read_due(codec, rows.id_of(row), rows.read_body(row))
    }
    for row in found:
        if (row.namespace, row.task_id.partition("|")[0]) not in listed:
            tables.remove_recorded(thread_id, row.namespace, row.task_id)
