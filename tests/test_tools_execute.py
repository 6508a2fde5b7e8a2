import dataclasses
import datetime
import json
from collections.abc import Iterator
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools import (
    BudgetError,
    InvalidArgumentsError,
    Kind,
    NotPermittedError,
    TemporaryToolError,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    ToolResult,
    execute,
    tool,
)
from tools.execute import ERROR_LIMIT


@tool
def add(a: int, b: int = 1) -> int:
    """Add two integers."""
    return a + b


@tool
def show(day: datetime.date, pair: tuple[int, int]) -> str:
    """Show a day and a pair."""
    return f"{day.isoformat()} {pair}"


@tool
def who(context: ToolContext) -> list[object]:
    """Say what the context holds."""
    return [context.thread_id, context.call_id, context.step, context.approved_by, dict(context.facts)]


@tool(tier="dangerous")
def delete(name: str) -> str:
    """Delete a thing."""
    raise AssertionError(f"the body was entered for {name}")


@tool(result_limit=10)
def repeat(text: str, times: int) -> str:
    """Repeat a text."""
    return text * times


def call(name: str, /, **arguments: object) -> ToolCall:
    return ToolCall("c1", name, arguments, json.dumps(arguments))


def raising(error: BaseException, **options: object) -> Tool:
    def fail() -> None:
        """Fail."""
        raise error

    return tool(**options)(fail)  # type: ignore[call-overload,no-any-return]


def returning(value: object, limit: int = 1000) -> Tool:
    def give() -> object:
        """Give a value."""
        return value

    return tool(result_limit=limit)(give)


def test_a_good_call() -> None:
    assert execute(call("add", a=2, b=3), [add]) == ToolResult("c1", "add", "5", False, "ok")
    assert execute(call("add", a=2), {"add": add}).content == "3"


def test_values_arrive_as_their_types() -> None:
    assert execute(call("show", day="2026-03-01", pair=[1, 2]), [show]).content == "2026-03-01 (1, 2)"


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"a": "2"},
        {"a": True},
        {"a": 2.0},
        {"a": None},
        {"a": 2, "c": 3},
        {"a": float("nan")},
        {"a": {1, 2}},
        {"a": 2, "context": {}},
        {"a": "\ud800"},
        {1: 2},
    ],
)
def test_arguments_are_strict(arguments: dict[str, object]) -> None:
    result = execute(ToolCall("c1", "add", arguments), [add])
    assert (result.is_error, result.kind) == (True, "invalid_arguments")


def test_the_text_names_the_argument_and_never_its_value() -> None:
    text = execute(call("add", a="secret-value", bcc="x"), [add]).content
    assert "a: " in text
    assert "bcc: " in text
    assert "secret-value" not in text


@pytest.mark.parametrize(
    "raw", ['{"a":1}{"a":1}', '{"a":1,"a":2}', '{"a":NaN}', "[1]", "", "{", "1", "null", '{"a":' * 100_000]
)
def test_text_that_is_not_one_object_is_not_repaired(raw: str) -> None:
    parsed = ToolCall.parse("c1", "add", raw)
    assert parsed == ToolCall("c1", "add", None, raw)
    result = execute(parsed, [add])
    assert (result.is_error, result.kind) == (True, "invalid_arguments")
    assert len(result.content) <= ERROR_LIMIT


def test_text_that_is_one_object_is_read() -> None:
    assert ToolCall.parse("c1", "add", ' {"a": 1} ').arguments == {"a": 1}


def test_an_unknown_tool_is_told_what_there_is() -> None:
    result = execute(call("execute_python", code="1"), [show, add])
    assert result.kind == "unknown_tool"
    assert result.content == "There is no tool 'execute_python'. The tools are: add, show."


def test_the_context_carries_the_id_of_the_call() -> None:
    context = ToolContext("t1", "another", 7, "Ada", {"x": 1})
    assert json.loads(execute(call("who"), [who], context).content) == ["t1", "c1", 7, "Ada", {"x": 1}]


class OwnError(ToolError):
    pass


class StrangeKindError(ToolError):
    kind: ClassVar[Kind] = "delicious"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TemporaryToolError("not_permitted"), "temporary"),
        (NotPermittedError("temporary: try later"), "not_permitted"),
        (InvalidArgumentsError("x"), "invalid_arguments"),
        (BudgetError("x"), "budget"),
        (OwnError("x"), "failed"),
        (StrangeKindError("x"), "failed"),
        (TimeoutError("x"), "temporary"),
        (ConnectionResetError("x"), "temporary"),
        (PermissionError("x"), "not_permitted"),
        (ValueError("temporary timeout"), "failed"),
        (RecursionError(), "failed"),
        (MemoryError(), "failed"),
        (ExceptionGroup("x", [ValueError("y")]), "failed"),
        (StopIteration(), "failed"),
    ],
)
def test_the_kind_follows_from_the_class(error: Exception, kind: str) -> None:
    result = execute(call("fail"), [raising(error)])
    assert (result.is_error, result.kind) == (True, kind)
    assert result.content


def test_declared_errors_come_first_and_the_nearest_class_counts() -> None:
    declared = {LookupError: "temporary", KeyError: "invalid_arguments", TemporaryToolError: "not_permitted"}
    assert execute(call("fail"), [raising(KeyError("x"), errors=declared)]).kind == "invalid_arguments"
    assert execute(call("fail"), [raising(IndexError("x"), errors=declared)]).kind == "temporary"
    assert execute(call("fail"), [raising(TemporaryToolError("x"), errors=declared)]).kind == "not_permitted"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_what_is_not_an_exception_passes_through(error: BaseException) -> None:
    with pytest.raises(type(error)):
        execute(call("fail"), [raising(error)])


def test_error_texts_are_bounded_and_can_be_stored() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert len(execute(call("fail"), [raising(ValueError("x" * 10**6))]).content) <= ERROR_LIMIT
    assert "Unprintable" in execute(call("fail"), [raising(Unprintable())]).content
    assert execute(call("fail"), [raising(ValueError("\ud800"))]).content.encode()
    long_name = execute(call("x" * 10_000), [add])
    assert len(long_name.content) <= ERROR_LIMIT


@dataclasses.dataclass
class Point:
    x: int
    y: float


def endless() -> Iterator[int]:
    while True:
        yield 1


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        ("", ""),
        ([], "[]"),
        (None, "null"),
        (150.0, "150.0"),
        ({"a": (1, 2)}, '{"a": [1, 2]}'),
        (Point(1, 0.5), '{"x": 1, "y": 0.5}'),
        (datetime.date(2026, 3, 1), '"2026-03-01"'),
        ("naïve", "naïve"),
        (["é"], '["é"]'),
        ("\udcff", "\\udcff"),
    ],
)
def test_results_become_text(value: object, content: str) -> None:
    assert execute(call("give"), [returning(value)]) == ToolResult("c1", "give", content, False, "ok")


def test_results_without_a_json_form_fail() -> None:
    loop: list[object] = []
    loop.append(loop)
    for value in (float("nan"), float("inf"), object(), loop, endless()):
        assert execute(call("give"), [returning(value)]).kind == "failed"


def test_the_limit_of_a_result() -> None:
    assert execute(call("repeat", text="ab", times=5), [repeat]).content == "ababababab"
    result = execute(call("repeat", text="ab", times=6), [repeat])
    assert (result.is_error, result.kind) == (True, "too_large")
    assert "12 characters and 10 are allowed" in result.content


def test_a_dangerous_tool_needs_somebody_who_released_it() -> None:
    for context in (None, ToolContext("t"), ToolContext("t", approved_by="")):
        assert execute(call("delete", name="x"), [delete], context).kind == "not_permitted"
    released = execute(call("delete", name="x"), [delete], ToolContext("t", approved_by="Ada"))
    assert released.kind == "failed"
    assert "AssertionError: the body was entered for x" in released.content


def test_a_dry_run_describes_a_dangerous_tool_and_checks_its_arguments() -> None:
    assert execute(call("delete", name="x"), [delete], dry_run=True).content == (
        'Dry run: delete would be called with {"name": "x"}'
    )
    assert execute(call("delete", name=1), [delete], dry_run=True).kind == "invalid_arguments"
    assert execute(call("add", a=1), [add], dry_run=True).content == "2"

    @tool(tier="dangerous", dry_run=lambda name, context: f"{context.thread_id} would lose {name}")
    def drop(name: str, context: ToolContext) -> str:
        """Drop."""
        raise AssertionError("entered")

    assert execute(call("drop", name="x"), [drop], ToolContext("t"), dry_run=True).content == "t would lose x"


def test_results_stay_with_their_call() -> None:
    good, bad = ToolCall("g", "add", {"a": 1}), ToolCall("b", "add", None, "{")
    assert [execute(item, [add]).call_id for item in (bad, good)] == ["b", "g"]
    assert [execute(item, [add]).is_error for item in (bad, good)] == [True, False]


def test_broken_sets_of_tools_become_results() -> None:
    assert execute(call("add", a=1), [add, add]).kind == "failed"
    assert execute(ToolCall("c", ["add"], {}), [add]).kind == "failed"  # type: ignore[arg-type]


def test_fingerprints_ignore_id_and_key_order_only() -> None:
    first = ToolCall("1", "t", {"a": 1, "b": {"c": 2, "d": 3}})
    assert first.fingerprint == ToolCall("2", "t", {"b": {"d": 3, "c": 2}, "a": 1}).fingerprint
    assert first.fingerprint != ToolCall("1", "t", {"a": 1, "b": {"c": 2, "d": 4}}).fingerprint
    assert first.fingerprint != ToolCall("1", "u", first.arguments).fingerprint
    assert ToolCall("1", "t", None, "{").fingerprint != ToolCall("1", "t", None, "}").fingerprint


def test_a_result_as_a_message() -> None:
    assert execute(call("add", a=1), [add]).as_message() == {
        "role": "tool",
        "tool_call_id": "c1",
        "name": "add",
        "content": "2",
        "is_error": False,
        "kind": "ok",
    }


@given(st.text(), st.text(), st.text())
def test_no_text_makes_it_raise(identity: str, name: str, raw: str) -> None:
    result = execute(ToolCall.parse(identity, name, raw), [add])
    assert result.call_id == identity
    assert result.is_error


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), json_values))
def test_only_integers_pass(arguments: dict[str, object]) -> None:
    result = execute(ToolCall("1", "add", arguments), [add])
    good = "a" in arguments and "c" not in arguments and all(type(value) is int for value in arguments.values())
    assert result.is_error is not good
