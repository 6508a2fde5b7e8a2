"""Deltas: the law that they reproduce a state exactly, what they store, and that composing them changes nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigraph.checkpoint import delta
from minigraph.checkpoint.codec import Codec
from minigraph.checkpoint.walk import pack
from minigraph.errors import DecodeError, UnstorableValueError

codec = Codec()


def exact(value: Any) -> str:
    """A text that differs wherever two values differ in content, type or order."""
    return repr(value)


def stored(keys: delta.Keys) -> delta.Keys:
    """A delta as it is read."""
    return msgspec.msgpack.decode(pack(keys), type=dict[str, list[msgspec.Raw]])


def decoded(keys: delta.Keys) -> delta.Keys:
    """A delta as it is read together with its values."""
    found: delta.Keys = codec.decode(pack(keys))
    return found


def rebuilt(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    start = stored(delta.complete(codec.encode, old).keys)
    found = delta.difference(codec.encode, old, new)
    return delta.apply(codec.decode, [stored(found.keys)] if found.complete else [start, stored(found.keys)])


atoms = st.sampled_from([0, 1, True, False, 1.0, 0.0, -0.0, None, "", "a", b"a", (1,), (True,), [1], [True], {"a": 1}])
items = st.lists(atoms, max_size=5)
dicts = st.dictionaries(st.sampled_from(["a", "b", "c", 1, True, 0.0, (1,)]), atoms | items, max_size=4)
states = st.dictionaries(st.sampled_from(["k", "l", "m", "n"]), atoms | items | dicts | st.sets(st.integers(0, 3)))


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """States that grow out of each other by the edits that programs make, sharing what they keep."""
    state = draw(states)
    found = [state]
    for _ in range(draw(st.integers(1, 5))):
        state = dict(state)
        for key in list(state):
            value: Any = state[key]
            match draw(st.sampled_from(["keep", "keep", "grow", "shrink", "replace", "drop", "move"])):
                case "grow" if type(value) is list:
                    state[key] = value + draw(items)
                case "grow" if type(value) is dict:
                    state[key] = {**value, **draw(dicts)}
                case "shrink" if type(value) is list and value:
                    state[key] = value[: draw(st.integers(0, len(value)))] + draw(items)
                case "shrink" if type(value) is dict and value:
                    state[key] = {name: part for name, part in value.items() if draw(st.booleans())}
                case "replace":
                    state[key] = draw(atoms | items | dicts)
                case "drop":
                    del state[key]
                case "move":
                    state[key] = state.pop(key)
        if draw(st.booleans()):
            state.update(draw(states))
        found.append(state)
    return found


@given(states, states)
def test_a_delta_leads_exactly_from_one_state_to_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert exact(rebuilt(old, new)) == exact(new)


@given(histories())
def test_a_chain_of_deltas_and_its_composition_lead_to_the_same_state(history: list[dict[str, Any]]) -> None:
    parts = [stored(delta.complete(codec.encode, history[0]).keys)]
    for old, new in pairwise(history):
        found = delta.difference(codec.encode, old, new)
        parts = [*([] if found.complete else parts), stored(found.keys)]
        assert exact(delta.apply(codec.decode, parts)) == exact(new)
        assert exact(delta.apply(codec.decode, [stored(delta.compose(parts))])) == exact(new)
        if len(parts) > 2:
            spanned = [parts[0], stored(delta.compose(parts[1:]))]
            assert exact(delta.apply(codec.decode, spanned)) == exact(new)


@given(histories())
def test_states_folded_forward_are_the_same_and_stay_as_they_are(history: list[dict[str, Any]]) -> None:
    folded = [delta.advance({}, decoded(delta.complete(codec.encode, history[0]).keys))]
    for old, new in pairwise(history):
        found = delta.difference(codec.encode, old, new)
        folded.append(delta.advance({} if found.complete else folded[-1], decoded(found.keys)))
    assert [exact(state) for state in folded] == [exact(state) for state in history]


@given(histories())
def test_the_tracked_size_is_the_size_of_the_whole_state(history: list[dict[str, Any]]) -> None:
    size = delta.complete(codec.encode, history[0]).growth
    for old, new in pairwise(history):
        found = delta.difference(codec.encode, old, new)
        size = found.growth if found.complete else size + found.growth
        changes = 16 * (1 + sum(len(v) if type(v) in (list, dict) else 1 for v in new.values()))
        assert abs(size - delta.complete(codec.encode, new).growth) <= changes * len(history)


def operations(old: Any, new: Any) -> list[Any]:
    """The operations of one key, with decoded payloads."""
    found = delta.difference(codec.encode, {"k": old}, {"k": new}).keys.get("k", [])
    return [codec.decode(part) if type(part) is msgspec.Raw else part for part in found]


SHARED = {"who": "user"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (1, 1, []),
        (1, True, [delta.WHOLE, True]),
        (1, 1.0, [delta.WHOLE, 1.0]),
        (0.0, -0.0, [delta.WHOLE, -0.0]),
        ([1, 2], [1, 2], []),
        ([1, 2], [1, True + 1, 3], [delta.TAIL, [2, [3]]]),
        ([1, 2], [True, 2], [delta.WHOLE, [True, 2]]),
        ([[1]], [[True]], [delta.WHOLE, [[True]]]),
        ([SHARED], [SHARED, 1], [delta.TAIL, [1, [1]]]),
        ([{"who": "user"}], [{"who": "user"}, 1], [delta.TAIL, [1, [1]]]),
        ([1, 2, 3], [1, 2], [delta.TAIL, [2, []]]),
        ([1, 2, 3], [1, 9, 3], [delta.TAIL, [1, [9, 3]]]),
        ([1, 2], [0, 1, 2], [delta.WHOLE, [0, 1, 2]]),
        ([], [1], [delta.WHOLE, [1]]),
        ((1,), (1,), []),
        ((1,), [1], [delta.WHOLE, [1]]),
        ({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2, "c": 4}, [delta.PATCH, [[], ["c", 4]]]),
        ({"a": 1, "b": 2, "c": 3}, {"a": 1, "c": 3}, [delta.PATCH, [["b"], []]]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, [delta.WHOLE, {"b": 2, "a": 1}]),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}, []),
        ({1: 1, 2: 2}, {True: 1, 2: 2}, [delta.WHOLE, {True: 1, 2: 2}]),
        ({(1,): [1], 2: 2}, {(1,): [1], 2: 3}, [delta.PATCH, [[], [2, 3]]]),
    ],
)
def test_what_is_stored_for_a_key(old: Any, new: Any, expected: list[Any]) -> None:
    assert exact(operations(old, new)) == exact(expected)


def test_an_unchanged_state_stores_nothing_and_a_removed_key_is_named() -> None:
    state = {"a": [1], "b": {"c": 1}}
    assert delta.difference(codec.encode, state, dict(state)).keys == {}
    assert delta.difference(codec.encode, state, {"a": state["a"]}).keys == {"b": [delta.GONE, None]}


def test_known_prefixes_are_not_compared() -> None:
    old, new = [1, 2], [7, 7, 3]
    found = delta.difference(codec.encode, {"k": old}, {"k": new}, frozenset({"k"}))
    assert codec.decode(found.keys["k"][1]) == [2, [3]]


def test_a_refused_item_is_named_by_its_place_in_the_list() -> None:
    old = [1, 2]
    with pytest.raises(UnstorableValueError) as caught:
        delta.difference(codec.encode, {"k": old}, {"k": [*old, {"x": object()}]})
    assert (caught.value.key, caught.value.path, caught.value.type_name) == ("k", "$[2].x", "object")


@pytest.mark.parametrize(
    "keys",
    [
        {"k": [delta.TAIL, [0, []]]},
        {"k": [delta.WHOLE, 1, delta.TAIL, [0, []]]},
        {"k": [delta.WHOLE, [1], delta.TAIL, [2, []]]},
        {"k": [delta.WHOLE, [1], delta.PATCH, [[], []]]},
        {"k": [delta.WHOLE, {}, delta.PATCH, [[], ["a"]]]},
        {"k": [7, 1]},
        {"k": [delta.WHOLE]},
        {"k": []},
        {"k": [delta.WHOLE, [1], delta.TAIL, 5]},
    ],
)
def test_changes_that_do_not_fit_are_a_decode_error(keys: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        delta.apply(codec.decode, [stored(keys)])
    with pytest.raises(DecodeError):
        delta.advance({}, decoded(keys))
