"""A thread as one JSON text: exact, between savers of any kind, and never half of it."""

from __future__ import annotations

import collections
import json
import math
import struct
import zoneinfo
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypedDict
from uuid import UUID

import msgspec
import numpy
import pytest

from minigraph import START, Command, StateGraph, interrupt, once
from minigraph.checkpoint import InMemorySaver, PostgresSaver, SqliteSaver, readable
from minigraph.checkpoint.base import Saver
from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.sameness import same
from minigraph.checkpoint.saver import TableSaver
from minigraph.errors import DecodeError, StorageError
from minigraph.records import Failed, Finished, Paused, Recorded
from minigraph.testing.saver_parts import SavedThread, named_id
from minigraph.types import Interrupt


@dataclass(frozen=True)
class Ticket:
    number: int = 0
    labels: tuple[str, ...] = ()


class Colour(Enum):
    RED = 1


VALUES: dict[str, Any] = {
    "plain": [None, True, 0, -1, 2**64 - 1, -(2**63), 1.0, -0.0, 1e300, 5e-324, "", "日本", "\0", "\u2028"],
    "odd floats": [math.nan, math.inf, -math.inf, struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0]],
    "large ints": [2**64, -(2**63) - 1, 2**9000, -(2**2047), 2**2048],
    "text": ["\ud800", "a\udfff"],
    "bytes": [b"", b"\x00\xff", bytearray(b"x")],
    "maps": [{}, {"a": 1}, {"$a": 1}, {"$tuple": [1]}, {1: 2, None: 4, b"x": 5, 1.5: 6}, {(1, 2): {"$": 1}}],
    "containers": [(), (1,), {1}, frozenset({(1,)}), collections.deque([1, 2], 5), collections.deque()],
    "more": [collections.OrderedDict(b=1, a=2), collections.Counter("aab"), range(1, 10, 2), 1 - 2j, complex("nan")],
    "times": [datetime(2026, 3, 29, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"), fold=1), timedelta(-1, 2, 3)],
    "numbers": [Decimal("1.50"), Decimal("NaN123"), Decimal("-sNaN"), Decimal("1E+999999")],
    "others": [UUID(int=7), PurePosixPath("/a/b"), zoneinfo.ZoneInfo("UTC")],
    "classes": [Ticket(1, ("a",)), Colour.RED, collections.defaultdict(Ticket)],
    "$key": {"$key": "$value"},
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_in_words_is_the_very_same_bytes(name: str) -> None:
    codec = Codec(learn=True)
    for value in [VALUES[name], *(VALUES[name] if isinstance(VALUES[name], list) else ())]:
        data = codec.encode(value)
        text = json.dumps(readable.readable(data), allow_nan=False)
        assert readable.stored(json.loads(text)) == data
        assert "$extension" not in text


def test_words_are_what_a_person_expects() -> None:
    shown = readable.readable(
        Codec(learn=True).encode({"a": (1, b"x"), "t": Ticket(2), "d": Decimal("1.5"), "n": 2**70})
    )
    assert shown == {
        "a": {"$tuple": [1, {"$bytes": "eA=="}]},
        "t": {"$object": ["test_exchange:Ticket", {"number": 2, "labels": {"$tuple": []}}]},
        "d": {"$decimal": "1.5"},
        "n": {"$integer": "1180591620717411303424"},
    }


@pytest.mark.parametrize("code", [*range(1, 128)])
def test_bytes_that_nobody_writes_stay_what_they_are(code: int) -> None:
    for body in (b"", b"\x00", b"\xff" * 17, b"\xc1", msgspec.msgpack.encode([1, "x", None]), b"1_0", b" 1"):
        data = msgspec.msgpack.encode(msgspec.msgpack.Ext(code, body))
        try:
            shown = json.loads(json.dumps(readable.readable(data)))
        except (ValueError, msgspec.MsgspecError):
            continue
        assert readable.stored(shown) == data


# --------------------------------------------------------------------------- threads


def fill(saver: Saver) -> None:
    """A thread with everything that a thread can have."""
    saver.register(Ticket, Colour)
    thread = SavedThread(saver)
    state = dict(VALUES)
    for number in range(70):
        state = {**state, "m": [*state.get("m", ()), {"n": number, "text": "x" * 50}], "d": {number: (number,)}}
        thread.add(state, metadata={"who": "é", "n": number, "f": 1e16, "nested": {"l": [1.0, None]}})
    head = named_id(70, "c69")
    asked = (Interrupt({"q": (1,)}, "1" * 32),)
    thread.write((), (head, Paused("c69-task", "node", asked, ((1,),), asked, (("2" * 32, {3}),))))
    thread.write((), (head, Failed("c69-task", "node", "E", "m", True, asked, (None,), kept=Finished("c69-task", "n"))))
    child = SavedThread(saver, "t", "child:1|inner")
    for number in range(3):
        child.add(
            {"c": number},
            written=(("k", (number,)),) * number,
            owner="task#0@1",
            deferred=("d",),
            joins={"a+b:c": ("a",)},
        )
    for key, done in (("b", True), ("a", False)):
        saver.record("t", "", "c69-task", Recorded(key, done, VALUES["classes"][0], "E: 日", 1, 2))
    saver.record("t", "child:1|inner", "x|0:1:n", Recorded("b", True))


def content(saver: Saver, thread_id: str = "t") -> list[Any]:
    records = [saver.recorded(thread_id, *place) for place in (("", "c69-task"), ("child:1|inner", "x|0:1:n"))]
    return [[*saver.history(thread_id, space)] for space in saver.namespaces(thread_id)] + records


Make = Callable[[], TableSaver]


@pytest.fixture
def kinds(tmp_path: Path, postgres: PostgresSaver) -> Iterator[dict[str, TableSaver]]:
    with SqliteSaver(tmp_path / "x.db") as sqlite:
        yield {"memory": InMemorySaver(), "sqlite": sqlite, "postgres": postgres}


@pytest.mark.parametrize("target", ["memory", "sqlite", "postgres"])
@pytest.mark.parametrize("source", ["memory", "sqlite", "postgres"])
def test_a_thread_moves_between_savers_of_any_kind(kinds: dict[str, TableSaver], source: str, target: str) -> None:
    fill(kinds[source])
    exported = kinds[source].export_thread("t")
    before = content(kinds[source])
    if source == target:
        kinds[source].delete_thread("t")
    assert kinds[target].import_thread(exported) == "t"
    kinds[target].register(Ticket, Colour)
    assert same(content(kinds[target]), before)
    assert kinds[target].export_thread("t") == exported


def test_a_pruned_thread_keeps_its_revisions(saver: Saver) -> None:
    fill(saver)
    saver.prune("t", keep=5)
    before = content(saver)
    saver.import_thread(saver.export_thread("t"), thread_id="copy")
    assert same(content(saver, "copy"), before)
    SavedThread(saver, "other").add({})


def test_classes_need_not_be_known(tmp_path: Path) -> None:
    fill(source := InMemorySaver())
    with SqliteSaver(tmp_path / "x.db") as saver:
        saver.import_thread(source.export_thread("t"))
        assert saver.export_thread("t") == source.export_thread("t")
        with pytest.raises(DecodeError, match="which is not known here"):
            saver.get("t", "")
        saver.register(Ticket, Colour)
        assert same(content(saver), content(source))


class State(TypedDict):
    log: Annotated[list[str], list.__add__]


def test_a_paused_run_goes_on_elsewhere_and_repeats_nothing(tmp_path: Path) -> None:
    sent: list[str] = []

    def reserve() -> int:
        sent.append("reserved")
        return 7

    def book(state: State) -> dict[str, Any]:
        number = once("reserve", reserve)
        return {"log": [f"{number} for {interrupt('who?')}"]}

    builder = StateGraph(State).add_node(book).add_edge(START, "book")
    first = builder.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    asked = first.invoke({"log": []}, config)["__interrupt__"][0].id
    assert isinstance(first.checkpointer, Saver)
    path = tmp_path / "thread.json"
    path.write_text(first.checkpointer.export_thread("t"), encoding="utf-8")
    with SqliteSaver(tmp_path / "x.db") as saver:
        saver.import_thread(path.read_text(encoding="utf-8"))
        second = builder.compile(checkpointer=saver)
        assert second.invoke(Command(resume={asked: "Ann"}), config)["log"] == ["7 for Ann"]
        assert [shot.values for shot in second.get_state_history(config)][2:] == [
            shot.values for shot in first.get_state_history(config)
        ][1:]
    assert sent == ["reserved"]


# ---------------------------------------------------------------------------- damage


@pytest.fixture(scope="module")
def exported() -> str:
    saver = InMemorySaver()
    thread = SavedThread(saver)
    for number in range(6):
        thread.add({"m": ["x" * 60] * number, "t": (number,)}, metadata={"n": number})
    thread.write((), (named_id(6, "c5"), Finished("c5-task", "node", (("m", [1]),))))
    SavedThread(saver, "t", "child").add({"c": 1}, written=(("k", 1),))
    saver.record("t", "", "c5-task", Recorded("k", True, {1}))
    return saver.export_thread("t")


def refused(text: str | bytes, match: str = "import_thread") -> None:
    saver = InMemorySaver()
    with pytest.raises(StorageError, match=match) as caught:
        saver.import_thread(text, thread_id="new")
    assert str(caught.value).startswith("import_thread(...)")
    assert str(caught.value).endswith("nothing was stored")
    with saver._reading() as tables:
        assert (tables.logs(None), tables.all_recorded("new")) == ([], [])


def test_a_text_that_ends_early_is_refused(exported: str) -> None:
    for length in range(len(exported.rstrip()) - 1):
        refused(exported[:length])


def test_what_is_no_export_is_refused(exported: str) -> None:
    for wrong in ("null", "[]", "{}", '{"format": "other"}', "[" * 100_000, '{"a": NaN}', b"\xff\xfe\x00", "\0"):
        refused(wrong)
    refused(exported.replace('"version": 1', '"version": 2'), "a newer release wrote it")
    for wrong in ("0", '"1"', "true", "1.0", "null"):
        refused(exported.replace('"version": 1', f'"version": {wrong}'), "there is no version")
    with pytest.raises(ValueError, match="a thread id is a non-empty str"):
        InMemorySaver().import_thread(exported, thread_id="")


def changed(exported: str, change: Callable[[Any], object]) -> str:
    parts = json.loads(exported)
    change(parts)
    return json.dumps(parts)


Row = dict[str, Any]


def unicode_error(**wrong: Any) -> dict[str, Any]:
    parts: dict[str, Any] = readable.readable(Codec().encode(UnicodeEncodeError("ascii", "abc", 0, 1, "no")))
    parts["$object"][1].update(wrong)
    return parts


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda r: r[2].update(revision=9), "begins with its revision"),
        (lambda r: r.pop(2), "the row after revision 2 has revision 4"),
        (lambda r: r.insert(1, dict(r[0])), "the row after revision 1 has revision 1"),
        (lambda r: r.clear(), "there are no rows"),
        (lambda r: r[2].update(base=3), "no whole number from 1 to 2"),
        (lambda r: r[2].update(base=0), "no whole number from 1 to 2"),
        (lambda r: r[0].update(base=1), "no whole number"),
        (lambda r: r[2].update(parent=True), "no whole number"),
        (lambda r: r[2].update(step="1"), "no whole number"),
        (lambda r: r[2].update(source=None), "no text"),
        (lambda r: r[2].update(source="\ud800"), "surrogates"),
        (lambda r: r[2].update(created_at="yesterday"), "yesterday"),
        (lambda r: r[2].update(created_at="2026-01-01T00:00:00"), "offset-naive"),
        (lambda r: r[2].update(created_at=2**64), "no whole number"),
        (lambda r: r[2].update(checkpoint_id="x"), "begins with its revision"),
        (lambda r: r[2].update(checkpoint_id=None), "TypeError"),
        (lambda r: r[2].update(metadata={"a": 2**70}), "cannot be stored"),
        (lambda r: r[2].update(metadata=[]), "cannot be read|is not what"),
        (lambda r: r[2].update(extra=1), "unknown or missing names: extra"),
        (lambda r: r[2].pop("links"), "unknown or missing names"),
        (lambda r: r[2].update(links="x"), "could not be read"),
        (lambda r: r[2].update(due=[["node"]]), "could not be read"),
        (lambda r: r[2].update(due=[[7, "id"]]), "a name or a text"),
        (lambda r: r[2].update(due=[["node", {"$tuple": []}]]), "a name or a text"),
        (lambda r: r[2].update(values={"m": ["append", 1]}), "append"),
        (lambda r: r[2].update(values={"m": []}), "cannot be read|is not what"),
        (lambda r: r[2].update(values={"m": ["keep", [99, []]]}), "do not fit together"),
        (lambda r: r[2].update(values={"m": ["set", {"$datetime": [2026, 13, 1, 0, 0, 0, 0, 0, None]}]}), "month"),
        (lambda r: r[2].update(values={"m": ["set", {"$tuple": 1}]}), "cannot be read|is not what"),
        (lambda r: r[2].update(values={"m": ["set", {"$nonsense": 1}]}), "no known form"),
        (lambda r: r[2].update(values={"m": ["set", {"$set": [[1]]}]}), "cannot be read|is not what"),
        (lambda r: r[2].update(values={"m": ["set", {"$tuple": [], "x": 1}]}), "stands beside"),
        (lambda r: r[2].update(values={"m": ["set", {"$map": [[1, 2], [1.0, 3]]}]}), "stands twice"),
        (lambda r: r[2].update(values={"m": ["set", {"$bytes": "?"}]}), "cannot be read|is not what"),
        (lambda r: r[2].update(values={"m": ["set", 2**64]}), "cannot be read|is not what"),
        (lambda r: r[6].update(results=[[5, 9]]), "cannot be read|is not what"),
        (lambda r: r[6].update(results={}), "`results` is a list"),
        (lambda r: r[6].update(results=[5]), "could not be read"),
        (lambda r: r[6].update(results=[[{"$decimal": "1"}, [["m", 1]]]]), "a name or a text"),
        (lambda r: r[6].update(results=[["t", [[{"a": 1}, 1]]]]), "a name or a text"),
        (lambda r: r[6].update(results=[["t", [], 5]]), "a name or a text"),
        (lambda r: r[6].update(results=[["t", [], "n", [7]]]), "a name or a text"),
        (lambda r: r[6].update(results=[["t", [], "n", [], False, False, [["?", None]]]]), "a name or a text"),
        (lambda r: r[6].update(results=[["t", 1, "n", [["?", None]]]]), "a name or a text"),
        (lambda r: r[6].update(results=[["t", 1, "n", [["?", 7]]]]), "a name or a text"),
        (lambda r: r[6].update(results=[["t", 1, "n", [], [], [], [[7, 1]]]]), "a name or a text"),
        (lambda r: r[6].update(results=[["t", 1, "n", 7]]), "could not be read"),
        (lambda r: r[6].update(results=[["t", 2, "n", 7, "text", False]]), "a name or a text"),
        (lambda r: r[6].update(results=[["t", 2, "n", "E", "x", False, [], [], [], [], [7]]]), "a name or a text"),
        (lambda r: r[2].update(values={"m": ["set", unicode_error(start=-5)]}), "Unicode error"),
        (lambda r: r[6].update(extra=1), "expected are"),
    ],
)  # fmt: skip
def test_a_row_that_could_not_be_read_is_refused(
    exported: str, change: Callable[[list[Row]], object], match: str
) -> None:
    refused(changed(exported, lambda parts: change(parts["namespaces"][0]["rows"])), match)


@pytest.mark.parametrize(
    "change",
    [
        lambda parts: parts.update(extra=1),
        lambda parts: parts.pop("recorded"),
        lambda parts: parts["namespaces"].append(parts["namespaces"][1]),
        lambda parts: parts["namespaces"][0].update(namespace=1),
        lambda parts: parts["namespaces"][0].update(graphs="x"),
        lambda parts: parts["namespaces"][0].update(graphs=None),
        lambda parts: parts["namespaces"][1]["rows"][0].update(written=["set", [{"$tuple": []}]]),
        lambda parts: parts["namespaces"][1]["rows"][0].update(written=["set", [{"$tuple": [1, 1]}]]),
        lambda parts: parts["recorded"].append(parts["recorded"][0]),
        lambda parts: parts["recorded"][0].update(done=1),
        lambda parts: parts["recorded"][0].update(questions=-1),
        lambda parts: parts["recorded"][0].update(value={"$decimal": "x"}),
        lambda parts: parts["recorded"][0].pop("value"),
        lambda parts: parts.update(recorded=None),
        lambda parts: parts.update(namespaces=[], recorded=[]),
    ],
)  # fmt: skip
def test_other_damage_is_refused(exported: str, change: Callable[[Any], object]) -> None:
    refused(changed(exported, change))


ARRAYS: tuple[Any, ...] = (
    numpy.arange(6, dtype="<i4").reshape(2, 3),
    numpy.array(["a", "bcd"]),
    numpy.array(["2026-01-01"], dtype="<M8[25s]"),
    numpy.zeros((0, 3)),
    numpy.array(1.5),
    numpy.float32(1.5),
    numpy.str_("ab"),
    numpy.zeros(2, dtype=[("a", "<i2"), ("b", [("c", "<f8"), ("d", "|S3")], (2, 2))]),
    numpy.zeros(2, dtype=numpy.dtype({"names": ["a", "b"], "formats": ["<i2", "<f8"]}, align=True)),
)


@pytest.mark.parametrize("numpy_is_there", [True, False])
@pytest.mark.parametrize("array", ARRAYS, ids=repr)
def test_an_array_that_its_bytes_do_not_fill_is_refused(
    array: Any, numpy_is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = InMemorySaver()
    SavedThread(saver).add({"m": array})
    text = saver.export_thread("t")
    if not numpy_is_there:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    saver.import_thread(text, thread_id="copy")

    def damaged(change: Callable[[list[Any]], object]) -> str:
        def edit(parts: Any) -> None:
            (shown,) = parts["namespaces"][0]["rows"][0]["values"]["m"][1].values()
            change(shown)

        return changed(text, edit)

    refused(damaged(lambda parts: parts.__setitem__(-1, {"$bytes": "AAA="})), "do not fill")
    refused(damaged(lambda parts: parts.__setitem__(0, "x")), "is no dtype")
    if len(array.shape):
        refused(damaged(lambda parts: parts.__setitem__(1, [4])), "do not fill")
        refused(damaged(lambda parts: parts.__setitem__(1, [-1, -6])), "not the shape")
        refused(damaged(lambda parts: parts.pop(2)), "import_thread")


def test_an_exception_that_a_class_unknown_here_caused_is_imported(saver: Saver) -> None:
    class Own(Exception):
        """An exception of the program."""

    error = ExceptionGroup("several", [Own(1)])
    error.__cause__ = Own(2)
    source = InMemorySaver()
    SavedThread(source).add({"m": [error, {1: Own(3)}]})
    assert saver.import_thread(source.export_thread("t")) == "t"


def test_a_name_that_stands_twice_is_refused(exported: str) -> None:
    refused(exported.replace('"step": 1,', '"step": 1, "step": 1,', 1), "a name stands twice in an object")


def test_importing_over_a_thread_is_refused(saver: Saver, exported: str) -> None:
    assert saver.import_thread(exported) == "t"
    before = saver.export_thread("t")
    with pytest.raises(StorageError, match="the thread 't' already exists"):
        saver.import_thread(exported)
    assert saver.export_thread("t") == before
    saver.record("only records", "", "task", Recorded("k", True, 1))
    with pytest.raises(StorageError, match="'only records' already exists"):
        saver.import_thread(exported, thread_id="only records")
    with pytest.raises(StorageError, match="there is no such thread"):
        saver.export_thread("gone")
    text = saver.export_thread("only records")
    saver.delete_thread("only records")
    saver.import_thread(text)
    assert saver.recorded("only records", "", "task") == (Recorded("k", True, 1),)


def test_an_old_time_stays_what_it_is(saver: Saver) -> None:
    for number, created in enumerate((0, -1, 1, 253402300799999, 10**17, int(datetime.now(UTC).timestamp() * 1000))):
        SavedThread(saver, f"t{number}").add({}, created=created)
        saver.import_thread(saver.export_thread(f"t{number}"), thread_id=f"c{number}")
        found = saver.get(f"c{number}", "")
        assert found is not None
        assert found.checkpoint.created == created
