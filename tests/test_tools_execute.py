import dataclasses
import datetime
import itertools
import json
import time
from collections.abc import Iterator
from typing import Annotated, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator

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
    prepare,
    tool,
)
from tools.call import ARGUMENTS_LIMIT, ERROR_LIMIT


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


APPROVED = ToolContext("t", approved_by="Ada")


def dangerous(value: object = "done", error: Exception | None = None, **options: object) -> Tool:
    def act() -> object:
        """Act on the world."""
        if error is not None:
            raise error
        return value

    return tool(tier="dangerous", **options)(act)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("error", [TimeoutError("x"), ConnectionResetError("x"), OSError("x"), ValueError("x")])
def test_an_act_that_broke_off_is_not_called_temporary(error: Exception) -> None:
    result = execute(call("act"), [dangerous(error=error)], APPROVED)
    assert result.kind == "failed"
    assert result.content.endswith("It is not known what was done; do not call it again.")


def test_an_act_may_say_more_of_its_errors() -> None:
    for error in (TimeoutError("x"), ConnectionResetError("x")):
        assert execute(call("act"), [dangerous(error=error, idempotent=True)], APPROVED).kind == "temporary"
        declared = dangerous(error=error, errors={type(error): "temporary"})
        assert execute(call("act"), [declared], APPROVED).kind == "temporary"
    assert execute(call("act"), [dangerous(error=TemporaryToolError("x"))], APPROVED).kind == "temporary"
    assert execute(call("act"), [dangerous(error=PermissionError("x"))], APPROVED).kind == "not_permitted"


def test_an_act_whose_result_cannot_be_shown_was_done_all_the_same() -> None:
    long = execute(call("act"), [dangerous("x" * 11, result_limit=10)], APPROVED)
    assert (long.kind, long.content) == ("ok", "xxxxxxx...")
    odd = execute(call("act"), [dangerous(object())], APPROVED)
    assert odd.kind == "failed"
    assert "It was done" in odd.content


def test_long_fields_are_trimmed_and_say_so() -> None:
    @tool(field_limit=4)
    def rows() -> list[dict[str, object]]:
        """Give rows."""
        return [{"id": 1, "text": "abcdefgh", "tags": ["abcd", "abcde"], "long_key_name": None}]

    assert json.loads(execute(call("rows"), [rows]).content) == [
        {"id": 1, "text": "abcd... (8 characters)", "tags": ["abcd", "abcd... (5 characters)"], "long_key_name": None}
    ]


def test_no_call_starts_after_the_deadline() -> None:
    over = ToolContext("t", deadline=time.monotonic() - 1)
    assert execute(call("add", a=1), [add], over).kind == "budget"
    assert execute(call("add", a=1), [add], ToolContext("t", deadline=time.monotonic() + 60)).kind == "ok"


def test_huge_arguments_are_refused_in_a_few_words() -> None:
    huge = "x" * ARGUMENTS_LIMIT
    for made in (call("repeat", text=huge, times=1), ToolCall.parse("c1", "repeat", json.dumps({"text": huge}))):
        result = execute(made, [repeat])
        assert result.kind == "invalid_arguments"
        assert str(ARGUMENTS_LIMIT) in result.content
        assert len(result.content) <= ERROR_LIMIT


def deep(levels: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


CYCLE: dict[str, object] = {}
CYCLE["a"] = CYCLE


@pytest.mark.parametrize(
    "arguments",
    [
        {"a": 10**5000},
        deep(100_000),
        {"a": [[[[]]]] * 1000},
        CYCLE,
        {"a": float("inf")},
        {"a\ud800": 1},
        {"a": b"1"},
        {"a": 1, "b": 2, **{f"extra{n}": n for n in range(5000)}},
        {"": 1},
        {"__class__": 1},
        [1],
        "a",
    ],
)
def test_odd_arguments_get_a_bounded_error(arguments: dict[str, object]) -> None:
    result = execute(ToolCall("c1", "add", arguments), [add])
    assert result.kind == "invalid_arguments"
    assert len(result.content) <= ERROR_LIMIT
    assert prepare(ToolCall("c1", "add", arguments), [add]) == result


# ------------------------------------------------------------------ prepare


@tool(tier="dangerous")
def invite(to: Annotated[str, AfterValidator(str.lower)], seats: int = 1) -> str:
    """Invite somebody."""
    return f"{to} {seats}"


def test_the_prepared_call_shows_the_arguments_that_run() -> None:
    final = prepare(call("invite", to="Ana@Example.ORG"), [invite])
    assert isinstance(final, ToolCall)
    assert final.arguments == {"to": "ana@example.org", "seats": 1}
    assert json.loads(final.raw_arguments) == final.arguments
    assert execute(final, [invite], APPROVED).content == "ana@example.org 1"
    assert prepare(final, [invite]) == final


def test_calls_that_mean_the_same_are_prepared_alike() -> None:
    short, long = call("invite", to="A"), call("invite", seats=1, to="a")
    assert short.fingerprint != long.fingerprint
    prepared = [prepare(item, [invite]) for item in (short, long)]
    assert prepared[0].fingerprint == prepared[1].fingerprint  # type: ignore[union-attr]


def test_what_cannot_run_is_not_prepared() -> None:
    assert prepare(call("none"), [invite]).kind == "unknown_tool"  # type: ignore[union-attr]
    assert prepare(ToolCall("c", "invite", None, "{"), [invite]).kind == "invalid_arguments"  # type: ignore[union-attr]
    assert prepare(call("invite", to="a", bcc="b"), [invite]).kind == "invalid_arguments"  # type: ignore[union-attr]


def test_arguments_that_never_settle_cannot_be_approved() -> None:
    counter = itertools.count()

    @tool(tier="dangerous")
    def stamp(text: Annotated[str, AfterValidator(lambda value: f"{value}{next(counter)}")]) -> str:
        """Stamp."""
        return text

    result = prepare(call("stamp", text="x"), [stamp])
    assert isinstance(result, ToolResult)
    assert (result.kind, "differently each time" in result.content) == ("failed", True)


def test_values_are_prepared_in_their_json_form() -> None:
    final = prepare(call("show", day="2026-03-01", pair=[1, 2]), [show])
    assert isinstance(final, ToolCall)
    assert final.arguments == {"day": "2026-03-01", "pair": [1, 2]}
    assert execute(final, [show]).content == "2026-03-01 (1, 2)"


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


@settings(deadline=None)
@given(st.text(), st.text(), st.text())
def test_no_text_makes_it_raise(identity: str, name: str, raw: str) -> None:
    result = execute(ToolCall.parse(identity, name, raw), [add])
    assert result.call_id == identity
    assert result.is_error


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.complex_numbers()
    | st.just(object())
    | st.dates(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.none(), inner) | st.sets(st.text()),
    max_leaves=12,
)


@settings(deadline=None)
@given(anything, anything, anything)
def test_nothing_at_all_makes_it_raise(name: object, arguments: object, raw: object) -> None:
    """Not even what the types forbid."""
    made = ToolCall("c1", name, arguments, raw)  # type: ignore[arg-type]
    for result in (execute(made, [add]), prepare(made, [add])):
        assert isinstance(result, ToolResult) or name == "add"
        assert isinstance(result, ToolCall) or (result.call_id == "c1" and len(result.content) <= ERROR_LIMIT)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), json_values))
def test_only_integers_pass(arguments: dict[str, object]) -> None:
    result = execute(ToolCall("1", "add", arguments), [add])
    good = "a" in arguments and "c" not in arguments and all(type(value) is int for value in arguments.values())
    assert result.is_error is not good


@pytest.mark.parametrize("by", ["", " ", "\t", "\u00a0", "\u200b", "--", None, True, 5])
def test_who_cannot_be_named_releases_nothing(by: object) -> None:
    context = dataclasses.replace(ToolContext(), approved_by=by)  # type: ignore[arg-type]
    assert execute(call("delete", name="x"), [delete], context).kind == "not_permitted"
