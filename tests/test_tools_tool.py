import datetime
import pickle
from typing import Annotated, Literal

import pytest
from pydantic import Field

from tools import Tool, ToolContext, ToolDefinitionError, tool, tools_by_name


@tool
def lookup(customer: Annotated[str, Field(description="Full name", max_length=20)], limit: int = 3) -> list[str]:
    """Find a customer by name."""
    return [customer] * limit


def test_a_plain_function_becomes_a_safe_tool() -> None:
    assert (lookup.name, lookup.description, lookup.tier) == ("lookup", "Find a customer by name.", "safe")
    assert lookup.parameters == ("customer", "limit")
    assert lookup("Ada", limit=2) == ["Ada", "Ada"]


def test_the_schema_names_every_argument_and_allows_no_other() -> None:
    assert lookup.json_schema() == {
        "additionalProperties": False,
        "properties": {
            "customer": {"type": "string", "maxLength": 20, "description": "Full name"},
            "limit": {"type": "integer", "default": 3},
        },
        "required": ["customer"],
        "title": "lookup_arguments",
        "type": "object",
    }


def test_provider_schemas_carry_name_description_and_arguments() -> None:
    schema = lookup.json_schema()
    assert lookup.openai_schema() == {
        "type": "function",
        "function": {"name": "lookup", "description": "Find a customer by name.", "parameters": schema},
    }
    assert lookup.anthropic_schema() == {
        "name": "lookup",
        "description": "Find a customer by name.",
        "input_schema": schema,
    }


def test_the_context_is_hidden_from_the_model() -> None:
    @tool(tier="dangerous", name="create-ticket", result_limit=50, errors={LookupError: "invalid_arguments"})
    def create(title: str, context: ToolContext) -> str:
        """Create a ticket."""
        return f"{context.thread_id}: {title}"

    assert create.takes_context
    assert create.parameters == ("title",)
    assert set(create.json_schema()["properties"]) == {"title"}  # type: ignore[call-overload]
    assert (create.name, create.tier, create.result_limit) == ("create-ticket", "dangerous", 50)


def test_parameters_may_be_named_like_attributes_of_a_model() -> None:
    @tool
    def awkward(schema: str, copy: int, model_config: bool, json: Literal["a", "b"] = "a") -> str:
        """Take awkward names."""
        return f"{schema}{copy}{model_config}{json}"

    assert list(awkward.json_schema()["properties"]) == ["schema", "copy", "model_config", "json"]  # type: ignore[call-overload]


def no_docstring(a: int) -> int:
    return a


def blank_docstring(a: int) -> int:
    """ """
    return a


def untyped(a) -> int:  # type: ignore[no-untyped-def]
    """Doc."""
    return int(a)


def no_return(a: int):  # type: ignore[no-untyped-def]
    """Doc."""
    return a


def star(*a: int) -> int:
    """Doc."""
    return len(a)


def stars(**a: int) -> int:
    """Doc."""
    return len(a)


def positional(a: int, /) -> int:
    """Doc."""
    return a


async def coroutine(a: int) -> int:
    """Doc."""
    return a


def renamed_context(ctx: ToolContext) -> int:
    """Doc."""
    return 1


def other_context(context: str) -> int:
    """Doc."""
    return 1


def opaque(a: object, b: ToolDefinitionError) -> int:
    """Doc."""
    return 1


def unresolved(a: "Missing") -> int:  # type: ignore[name-defined]  # noqa: F821
    """Doc."""
    return 1


def wrong_default(a: int = "3") -> int:  # type: ignore[assignment]
    """Doc."""
    return 1


def field_as_default(a: int = Field(3, ge=1)) -> int:
    """Doc."""
    return 1


def endless_default(a: float = float("inf")) -> int:
    """Doc."""
    return 1


def odd_parameter(größe: int) -> int:
    """Doc."""
    return 1


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (no_docstring, "docstring"),
        (blank_docstring, "docstring"),
        (untyped, "'a' has no type"),
        (no_return, "return annotation"),
        (star, "named"),
        (stars, "named"),
        (positional, "named"),
        (coroutine, "plain function"),
        (renamed_context, "'ctx'"),
        (other_context, "'context'"),
        (opaque, "JSON form"),
        (unresolved, "Missing"),
        (wrong_default, "default '3' is not of its type"),
        (field_as_default, "'a': its default"),
        (endless_default, "'a': its default"),
        (odd_parameter, "providers take"),
    ],
)
def test_a_function_a_model_could_not_use_is_refused(function: object, word: str) -> None:
    with pytest.raises(ToolDefinitionError, match=word) as caught:
        tool(function)  # type: ignore[call-overload]
    assert caught.value.tool == function.__name__  # type: ignore[attr-defined]


def test_options_are_checked() -> None:
    def good(a: int) -> int:
        """Doc."""
        return a

    with pytest.raises(ToolDefinitionError, match="name is a letter"):
        tool(name="with space")(good)
    with pytest.raises(ToolDefinitionError, match="tier"):
        tool(tier="harmless")(good)  # type: ignore[call-overload]
    with pytest.raises(ToolDefinitionError, match="result_limit"):
        tool(result_limit=0)(good)
    with pytest.raises(ToolDefinitionError, match="field_limit"):
        tool(field_limit=0)(good)
    with pytest.raises(ToolDefinitionError, match="idempotent"):
        tool(idempotent=False)(good)
    with pytest.raises(ToolDefinitionError, match="choose another"):
        tool(name="unreadable_name")(good)
    with pytest.raises(ToolDefinitionError, match="not one of"):
        tool(errors={ValueError: "ok"})(good)
    with pytest.raises(ToolDefinitionError, match="exception class"):
        tool(errors={KeyboardInterrupt: "failed"})(good)  # type: ignore[dict-item]
    with pytest.raises(ToolDefinitionError, match="same parameters"):
        tool(dry_run=lambda b: "x")(good)


def test_two_tools_of_one_name_are_refused() -> None:
    other: Tool = tool(name="lookup")(lookup.function)
    with pytest.raises(ToolDefinitionError, match="two tools"):
        tools_by_name([lookup, other])


@pytest.mark.parametrize("name", ["Lookup", "LOOKUP"])
def test_names_that_a_model_would_mix_up_are_refused(name: str) -> None:
    with pytest.raises(ToolDefinitionError, match="only in case"):
        tools_by_name([lookup, tool(name=name)(lookup.function)])
    two = [tool(name="send-mail")(lookup.function), tool(name="send_mail")(lookup.function)]
    with pytest.raises(ToolDefinitionError, match="only in case"):
        tools_by_name(two)


def test_a_dangerous_tool_is_idempotent_only_if_it_says_so() -> None:
    assert lookup.idempotent
    assert not tool(tier="dangerous")(lookup.function).idempotent
    assert tool(tier="dangerous", idempotent=True)(lookup.function).idempotent


def test_defaults_of_rich_types_are_kept() -> None:
    @tool
    def pick(day: datetime.date = datetime.date(2026, 3, 1), pair: tuple[int, int] = (1, 2), rate: float = 1) -> str:
        """Pick."""
        return f"{day} {pair} {rate}"

    assert pick.json_schema()["properties"]["day"]["default"] == "2026-03-01"  # type: ignore[index]


def test_a_context_says_how_many_seconds_are_left() -> None:
    assert ToolContext().seconds_left() is None
    context = ToolContext("t", deadline=10.0)
    assert (context.seconds_left(lambda: 7.5), context.seconds_left(lambda: 11.0)) == (2.5, 0.0)
    assert pickle.loads(pickle.dumps(context)).deadline == 10.0


def test_a_context_is_frozen_copied_and_picklable() -> None:
    facts: dict[str, object] = {"record_email": "ana@example.org"}
    context = ToolContext("t", "c", 4, "Ada", facts)
    facts["record_email"] = "eve@example.net"
    assert context.facts["record_email"] == "ana@example.org"
    with pytest.raises(TypeError):
        context.facts["record_email"] = "eve@example.net"  # type: ignore[index]
    assert pickle.loads(pickle.dumps(context)) == context


def test_idempotency_keys_differ_where_joined_texts_would_not() -> None:
    assert ToolContext("a", "b,c").idempotency_key != ToolContext("a,b", "c").idempotency_key
    assert ToolContext("a", "b").idempotency_key == '["a", "b"]'


def test_rich_types_have_a_schema() -> None:
    @tool
    def book(day: datetime.date, seats: tuple[int, int]) -> str:
        """Book seats."""
        return f"{day} {seats}"

    assert book.json_schema()["properties"]["day"] == {"type": "string", "format": "date"}  # type: ignore[index]
