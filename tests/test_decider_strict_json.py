"""JSON that would be read by luck is refused, with the place; all else is read as it stands."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decider.strict_json import RepeatedKeyError, read_json


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (b'{"a": 1, "a": 1}', ("a",)),
        (b'{"a": {"b": 1, "c": 2, "b": 3}}', ("a", "b")),
        (b'[0, {"x": [{"a": 1, "\\u0061": 2}]}]', (1, "x", 0, "a")),
        (b'{"": 1, "": 2}', ("",)),
        (b'{"a": {}, "a": {"b": 1, "b": 1}}', ("a",)),
    ],
)
def test_a_key_that_stands_twice_is_named_with_its_place(text: bytes, path: tuple[str | int, ...]) -> None:
    with pytest.raises(RepeatedKeyError) as caught:
        read_json(text)
    assert caught.value.path == path
    assert repr(path[-1]) in str(caught.value)


@pytest.mark.parametrize("text", [b"", b"{", b"NaN", b"[Infinity]", b"\xff", b'"\\ud800"', b"\xef\xbb\xbf{}", b"{}{}"])
def test_what_is_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        read_json(text)
    assert not isinstance(caught.value, RepeatedKeyError)


def test_the_same_key_in_other_objects_and_long_numbers_are_no_fault() -> None:
    assert read_json(b'[{"a": 1}, {"a": {"a": 2}}, 1.5, null]') == [{"a": 1}, {"a": {"a": 2}}, 1.5, None]
    assert read_json(b"[1" + b"0" * 300 + b"]") == [10**300]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    )
)
def test_what_python_writes_is_read_back(value: object) -> None:
    assert read_json(json.dumps(value).encode()) == value
