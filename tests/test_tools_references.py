import json
import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tools import (
    CALLER,
    ForeignReferenceError,
    InvalidArgumentsError,
    ResultStore,
    StaleReferenceError,
    Tool,
    ToolCall,
    ToolContext,
    UnknownReferenceError,
    execute,
    reference_tools,
)
from tools.references import ID_LIMIT, Row


class Requests:
    """Thirty rows: those with an even number are Ann's, the others Bob's; every third is a refund."""

    fields = ("intent", "text")

    def __init__(self) -> None:
        self.version = "v1"

    def rows(self, caller: str) -> Iterable[Row]:
        for number in range(30):
            if ("Ann", "Bob")[number % 2] == caller:
                intent = "refund" if number % 3 == 0 else "other"
                yield {"id": number, "intent": intent, "text": "x" * 300}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with ResultStore(tmp_path / "kept.db", clock=lambda: 100.0) as store:
        yield store


def run(tools: list[Tool], name: str, caller: object = "Ann", **arguments: object) -> tuple[str, str]:
    result = execute(ToolCall("c", name, arguments), tools, ToolContext("t", facts={CALLER: caller}))
    return result.kind, result.content


def filtered(tools: list[Tool], value: str = "refund", **more: object) -> dict[str, object]:
    kind, content = run(tools, "filter", field="intent", value=value, **more)
    assert kind == "ok"
    return dict(json.loads(content))


def test_the_whole_set_is_counted_and_a_part_is_shown(store: ResultStore) -> None:
    tools = reference_tools(store, Requests())
    given = filtered(tools, preview=2)  # Ann's refunds: 0, 6, 12, 18, 24
    assert given["preview"] == [
        {"id": 0, "intent": "refund", "text": "x" * 200 + "... (300 characters)"},
        {"id": 6, "intent": "refund", "text": "x" * 200 + "... (300 characters)"},
    ]
    assert json.loads(run(tools, "count", reference=given["reference"])[1]) == {
        "count": 5,
        "data_version": "v1",
        "query": {"field": "intent", "value": "refund"},
    }


def test_nothing_found_is_a_reference_to_nothing(store: ResultStore) -> None:
    tools = reference_tools(store, Requests())
    given = filtered(tools, "complaint")
    assert given["preview"] == []
    assert json.loads(run(tools, "count", reference=given["reference"])[1])["count"] == 0


def test_references_say_nothing_and_are_never_the_same(store: ResultStore) -> None:
    tools = reference_tools(store, Requests())
    references = {str(filtered(tools)["reference"]) for _ in range(5)}
    assert len(references) == 5
    assert all(len(item) == 27 and "refund" not in item for item in references)


@pytest.mark.parametrize("reference", ["", "rows-", "rows-0", "refund", "' OR 1=1 --", "rows-\u0430", "x" * 100])
def test_an_unknown_reference(store: ResultStore, reference: str) -> None:
    tools = reference_tools(store, Requests())
    filtered(tools)
    kind, content = run(tools, "count", reference=reference)
    assert (kind, "no such reference" in content) == ("invalid_arguments", True)
    with pytest.raises(UnknownReferenceError):
        store.load(reference, caller="Ann", data_version="v1")


@pytest.mark.parametrize("caller", ["Bob", "ann", "Ann "])
def test_a_reference_of_somebody_else(store: ResultStore, caller: str) -> None:
    tools = reference_tools(store, Requests())
    reference = filtered(tools)["reference"]
    assert run(tools, "count", caller, reference=reference)[0] == "not_permitted"
    with pytest.raises(ForeignReferenceError):
        store.load(str(reference), caller=caller, data_version="v1")


@pytest.mark.parametrize("caller", [None, "", 7, ["Ann"]])
def test_without_a_caller_nothing_is_read(store: ResultStore, caller: object) -> None:
    tools = reference_tools(store, Requests())
    reference = filtered(tools)["reference"]
    assert run(tools, "count", caller, reference=reference)[0] == "not_permitted"
    assert run(tools, "filter", caller, field="intent", value="refund")[0] == "not_permitted"


def test_a_reference_from_before_the_data_changed(store: ResultStore) -> None:
    source = Requests()
    tools = reference_tools(store, source)
    reference = str(filtered(tools)["reference"])
    source.version = "v2"
    kind, content = run(tools, "count", reference=reference)
    assert (kind, "filter again" in content) == ("invalid_arguments", True)
    with pytest.raises(StaleReferenceError) as caught:
        store.load(reference, caller="Ann", data_version="v2")
    assert (caught.value.kept, caught.value.present) == ("v1", "v2")
    assert pickle.loads(pickle.dumps(caught.value)).kept == "v1"
    assert run(tools, "count", reference=filtered(tools)["reference"])[0] == "ok"


@pytest.mark.parametrize(
    "arguments",
    [
        {"field": "Intent", "value": "refund"},
        {"field": "id", "value": "0"},
        {"field": "", "value": "0"},
        {"field": "intent"},
        {"field": "intent", "value": "refund", "preview": 21},
        {"field": "intent", "value": "refund", "preview": -1},
        {"field": "intent", "value": 1},
        {"field": "intent", "value": "refund", "caller": "Bob"},
    ],
)
def test_a_filter_that_cannot_be_used(store: ResultStore, arguments: dict[str, object]) -> None:
    context = ToolContext("t", facts={CALLER: "Ann"})
    result = execute(ToolCall("c", "filter", arguments), reference_tools(store, Requests()), context)
    assert result.kind == "invalid_arguments"


def test_another_process_goes_on_with_a_reference(tmp_path: Path) -> None:
    with ResultStore(tmp_path / "kept.db") as first:
        reference = first.keep(["1", "2"], caller="Ann", data_version="v1", query={"q": 1})
    with ResultStore(tmp_path / "kept.db") as second:
        assert second.load(reference, caller="Ann", data_version="v1").ids == ("1", "2")


def test_what_is_kept_is_bounded_and_can_be_forgotten(store: ResultStore) -> None:
    with pytest.raises(InvalidArgumentsError, match="more narrowly"):
        store.keep(["1"] * (ID_LIMIT + 1), caller="Ann", data_version="v1", query={})
    reference = store.keep(["1"], caller="Ann", data_version="v1", query={})
    assert store.forget_before(100.0) == 0
    assert store.forget_before(100.1) == 1
    with pytest.raises(UnknownReferenceError):
        store.load(reference, caller="Ann", data_version="v1")
