"""What every saver must do with the export of a thread."""

from __future__ import annotations

import json

from minigraph.checkpoint.base import Saver
from minigraph.errors import StorageError
from minigraph.records import Finished, Paused, Recorded
from minigraph.testing.saver_parts import SavedThread, demand, named_id, refused, stored_in
from minigraph.types import Interrupt


def exported_threads_come_back(saver: Saver) -> None:
    """An exported thread is imported as it was: namespaces, history, results and records; and goes on."""
    thread = SavedThread(saver)
    for number in range(40):
        thread.add({"m": list(range(number)), "d": {"é": {number}, "$x": (1.0, None, b"x", 2**70)}}, metadata={"n": 1})
    thread.write((), (named_id(40, "c39"), Paused("c39-task", "node", (Interrupt("a?", "1"),))))
    saver.prune("t", keep=35)
    SavedThread(saver, "t", "child").add({"c": 1}, written=(("k", (1,)), ("k", 2)))
    saver.record("t", "", "c39-task", Recorded("b", True, {1}, "", 2, 1))
    saver.record("t", "", "c39-task", Recorded("a", False, None, "E: no"))
    before = [list(saver.history("t", space)) for space in ("", "child")]
    exported = saver.export_thread("t")
    demand(saver.import_thread(exported, thread_id="copy"), "copy", "import_thread returns the id")
    demand([list(saver.history("copy", space)) for space in ("", "child")], before, "the whole history is imported")
    demand(saver.recorded("copy", "", "c39-task"), saver.recorded("t", "", "c39-task"), "once records are imported")
    demand(saver.export_thread("copy").replace('"copy"', '"t"', 1), exported, "an export of an import is the same text")
    saver.delete_thread("t")
    demand(saver.import_thread(exported.encode()), "t", "a deleted thread is imported under its own id")
    demand(stored_in(saver, "t", "").revision, 41, "an imported thread has its revision")
    thread.write((), (named_id(40, "c39"), Finished("c39-task", "node", (("m", [1]),))))
    thread.add({"m": []})
    demand(thread.history()[0].checkpoint.values, {"m": []}, "an imported thread goes on")


def imports_are_whole_or_refused(saver: Saver) -> None:
    """What is damaged, foreign, newer, or there already is refused, and nothing of it is stored."""
    SavedThread(saver).add({"n": (1,)})
    exported = saver.export_thread("t")
    with refused(StorageError, "importing over a thread that is there"):
        saver.import_thread(exported)
    with refused(StorageError, "exporting a thread that is not there"):
        saver.export_thread("gone")
    parts = json.loads(exported)
    newer = json.dumps({**parts, "version": parts["version"] + 1})
    for wrong in ("", "{}", "[]", exported[:-5], newer, exported.replace('"$tuple"', '"$tuples"')):
        with refused(StorageError, f"importing {wrong[:20]!r}"):
            saver.import_thread(wrong, thread_id="new")
    demand((saver.get("new", ""), saver.namespaces("new")), (None, []), "a refused import stores nothing")
