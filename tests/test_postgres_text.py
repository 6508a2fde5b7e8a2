"""Text as PostgreSQL can hold it: nothing is lost, and no two texts become one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigraph.checkpoint.postgres_text import address, held, held_json, read, read_json

TEXTS = st.text(st.sampled_from('\0␀0a\\u"é\n'), max_size=8)
JSON = st.dictionaries(
    TEXTS, st.one_of(TEXTS, st.lists(TEXTS, max_size=3), st.none(), st.floats(allow_nan=False, allow_infinity=False))
)


def as_held(part: Any) -> Any:
    if isinstance(part, list):
        return [held(each) for each in part]
    return held(part) if isinstance(part, str) else part


@pytest.mark.parametrize(
    ("text", "stored"), [("", ""), ("a0", "a0"), ("\\0", "\\0"), ("a\0b", "a␀0b"), ("␀", "␀␀"), ("␀0\0", "␀␀0␀0")]
)
def test_a_text_is_stored_like_this(text: str, stored: str) -> None:
    assert held(text) == stored
    assert read(stored) == text


@settings(derandomize=True, deadline=None)
@given(TEXTS)
def test_every_text_comes_back(text: str) -> None:
    assert "\0" not in held(text)
    assert read(held(text)) == text


@settings(derandomize=True, deadline=None)
@given(JSON)
def test_every_json_comes_back_and_its_parts_are_stored_like_texts(value: dict[str, Any]) -> None:
    text = msgspec.json.encode(value).decode()
    stored = held_json(text)
    assert read_json(stored) == text
    assert json.loads(stored) == {held(name): as_held(part) for name, part in value.items()}


def test_an_escaped_backslash_before_u0000_is_no_nul() -> None:
    assert held_json('{"a":"\\\\u0000"}') == '{"a":"\\\\u0000"}'
    assert held_json('{"a":"\\\\\\u0000"}') == '{"a":"\\\\␀0"}'


@settings(derandomize=True, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=3), st.lists(TEXTS, min_size=1, max_size=3))
def test_no_two_places_have_one_address(one: list[str], other: list[str]) -> None:
    assert (address(*one) == address(*other)) is (one == other)
