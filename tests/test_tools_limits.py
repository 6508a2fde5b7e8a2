import pickle

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools import (
    Amounts,
    LimitReachedError,
    Limits,
    Reservation,
    ReservationError,
    Usage,
    forfeit,
    refund,
    reserve,
    settle,
    time_slice,
)

ONE = Amounts(tool_calls=1)


def test_a_call_is_set_aside_before_and_put_down_after() -> None:
    limits = Limits(model_calls=2, tokens=1_000, money=500)
    usage = reserve(limits, Usage(), "m1", Amounts(model_calls=1, tokens=600, money=300))
    assert (usage.spent, usage.in_use()) == (Amounts(), Amounts(model_calls=1, tokens=600, money=300))
    usage = settle(usage, "m1", Amounts(model_calls=1, tokens=350, money=175))
    assert (usage.spent, usage.reserved) == (Amounts(model_calls=1, tokens=350, money=175), ())
    with pytest.raises(LimitReachedError) as caught:
        reserve(limits, usage, "m2", Amounts(model_calls=1, tokens=651))
    error = caught.value
    assert (error.limit, error.allowed, error.in_use, error.wanted, error.kind) == ("tokens", 1000, 350, 651, "budget")
    assert str(error) == "the budget of 1000 tokens is used up: 650 left, 651 wanted"
    assert pickle.loads(pickle.dumps(error)).in_use == 350
    assert reserve(limits, usage, "m2", Amounts(model_calls=1, tokens=650)).in_use().tokens == 1000


def test_what_is_under_way_counts() -> None:
    limits = Limits(tool_calls=2)
    usage = reserve(limits, reserve(limits, Usage(), "a", ONE), "b", ONE)
    with pytest.raises(LimitReachedError):
        reserve(limits, usage, "c", ONE)
    assert reserve(limits, refund(usage, "a"), "c", ONE).in_use() == Amounts(tool_calls=2)


def test_a_tool_may_have_a_limit_of_its_own() -> None:
    limits = Limits(tool_calls=10, calls_by_tool={"mail": 1})
    usage = settle(reserve(limits, Usage(), "a", ONE, tool="mail"), "a", ONE)
    with pytest.raises(LimitReachedError, match="calls of mail"):
        reserve(limits, usage, "b", ONE, tool="mail")
    usage = reserve(limits, usage, "b", ONE, tool="search")
    assert (usage.calls_of("mail"), usage.spent_by_tool) == (1, {"mail": 1})
    assert usage.reserved[0].tool is None, "a model may invent names without end; only those with a limit are kept"


def test_nothing_fits_into_a_limit_of_zero_and_nothing_bounds_none() -> None:
    with pytest.raises(LimitReachedError):
        reserve(Limits(tool_calls=0), Usage(), "a", ONE)
    assert reserve(Limits(), Usage(), "a", Amounts(tokens=10**15)).in_use().tokens == 10**15
    assert reserve(Limits(tokens=0), Usage(), "a", ONE).in_use() == ONE, "a call that takes no tokens needs none"


def test_more_than_was_set_aside_is_put_down_in_full_and_closes_the_door() -> None:
    limits = Limits(tokens=100)
    usage = settle(reserve(limits, Usage(), "a", Amounts(tokens=50)), "a", Amounts(tokens=180))
    assert usage.spent.tokens == 180
    with pytest.raises(LimitReachedError) as caught:
        reserve(limits, usage, "b", Amounts(tokens=1))
    assert "0 left" in str(caught.value)


def test_only_what_was_reserved_can_be_settled_and_only_once() -> None:
    usage = reserve(Limits(), Usage(), "a", ONE)
    with pytest.raises(ReservationError, match="there already"):
        reserve(Limits(), usage, "a", ONE)
    with pytest.raises(ReservationError, match="there is none") as caught:
        settle(Usage(), "a", ONE)
    assert caught.value.id == "a"
    with pytest.raises(ReservationError, match="there is none"):
        refund(settle(usage, "a", ONE), "a")


def test_what_a_crash_left_counts_as_spent() -> None:
    limits = Limits(tool_calls=2, calls_by_tool={"mail": 1})
    usage = reserve(limits, Usage(), "a", Amounts(tool_calls=1, money=7), tool="mail")
    usage = forfeit(Usage.from_json(usage.to_json()))
    assert (usage.spent, usage.reserved, usage.calls_of("mail")) == (Amounts(tool_calls=1, money=7), (), 1)


def test_time_is_given_in_slices_of_what_is_left() -> None:
    limits = Limits(milliseconds=1_000)
    assert time_slice(limits, Usage(), 400) == 400
    usage = settle(reserve(limits, Usage(), "a", Amounts(milliseconds=400)), "a", Amounts(milliseconds=900))
    assert time_slice(limits, usage, 400) == 100
    over = settle(reserve(limits, usage, "b", Amounts(milliseconds=100)), "b", Amounts(milliseconds=300))
    with pytest.raises(LimitReachedError, match="milliseconds"):
        time_slice(limits, over, 400)
    assert time_slice(Limits(), over, 400) == 400


def test_records_are_plain_data_and_back() -> None:
    limits = Limits(tool_calls=3, calls_by_tool={"mail": 1})
    usage = reserve(limits, Usage(Amounts(tokens=5)), "a", ONE, tool="mail")
    assert usage.to_json() == {
        "spent": {"model_calls": 0, "tool_calls": 0, "tokens": 5, "money": 0, "milliseconds": 0},
        "spent_by_tool": {},
        "reserved": [
            {
                "id": "a",
                "amounts": {"model_calls": 0, "tool_calls": 1, "tokens": 0, "money": 0, "milliseconds": 0},
                "tool": "mail",
            }
        ],
    }
    assert Usage.from_json(usage.to_json()) == usage
    assert Limits.from_json(limits.to_json()) == limits


@pytest.mark.parametrize("value", [-1, True, 1.0, "1", float("nan")])
def test_amounts_are_whole_numbers_that_are_not_negative(value: object) -> None:
    for make in (Amounts, Limits):
        with pytest.raises(ValueError, match="tokens"):
            make(tokens=value)  # type: ignore[arg-type]
        with pytest.raises(msgspec.ValidationError):
            make.from_json({"tokens": value})
    with pytest.raises(ValueError, match="calls_by_tool"):
        Limits(calls_by_tool={"mail": value})  # type: ignore[dict-item]


def test_what_is_no_record_is_refused() -> None:
    odd: list[object] = [None, [], {"spent": None}, {"spend": {}}, {"reserved": [{"id": 1, "amounts": {}}]}]
    for plain in odd:
        with pytest.raises(msgspec.ValidationError):
            Usage.from_json(plain)


small = st.integers(0, 6)
amounts = st.builds(Amounts, model_calls=small, tool_calls=small, tokens=small, money=small, milliseconds=small)
limit = st.none() | st.integers(0, 12)
some_limits = st.builds(
    Limits,
    model_calls=limit,
    tool_calls=limit,
    tokens=limit,
    money=limit,
    milliseconds=limit,
    calls_by_tool=st.dictionaries(st.sampled_from("mn"), st.integers(0, 8)),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "settle", "refund", "forfeit", "pause"]), st.sampled_from("abcd"), amounts,
        st.sampled_from(["m", "n", None]),
    ),
    max_size=25,
)  # fmt: skip


@settings(deadline=None)
@given(some_limits, steps)
def test_in_no_order_is_a_limit_exceeded_or_a_count_negative(
    limits: Limits, steps: list[tuple[str, str, Amounts, str | None]]
) -> None:
    """Against a ledger kept by hand: for each id what is set aside, and the sum of what was put down."""
    usage, aside, spent = Usage(), dict[str, Amounts](), Amounts()
    for step, id, amount, tool in steps:
        if step == "reserve" and id not in aside:
            before = usage.in_use()
            room = [(getattr(limits, n), getattr(before, n), getattr(amount, n)) for n in before.__struct_fields__]
            if tool in limits.calls_by_tool:
                room.append((limits.calls_by_tool[str(tool)], usage.calls_of(str(tool)), amount.tool_calls))
            if any(allowed is not None and wanted and used + wanted > allowed for allowed, used, wanted in room):
                with pytest.raises(LimitReachedError):
                    reserve(limits, usage, id, amount, tool=tool)
                continue
            usage = reserve(limits, usage, id, amount, tool=tool)
            aside[id] = amount
        elif step == "settle" and id in aside:
            most = aside.pop(id)
            took = Amounts(**{n: min(getattr(most, n), getattr(amount, n)) for n in most.__struct_fields__})
            usage, spent = settle(usage, id, took), spent.plus(took)
        elif step == "refund" and id in aside:
            usage = refund(usage, id)
            del aside[id]
        elif step == "forfeit":
            usage = forfeit(usage)
            for item in aside.values():
                spent = spent.plus(item)
            aside = {}
        elif step == "pause":
            usage = Usage.from_json(usage.to_json())
        assert usage.spent == spent
        assert {item.id: item.amounts for item in usage.reserved} == aside
        in_use = usage.in_use()
        for name in in_use.__struct_fields__:
            allowed = getattr(limits, name)
            assert 0 <= getattr(usage.spent, name) <= getattr(in_use, name)
            assert allowed is None or getattr(in_use, name) <= allowed
        for name, allowed in limits.calls_by_tool.items():
            assert 0 <= usage.calls_of(name) <= allowed


def test_a_reservation_is_a_record_too() -> None:
    assert Reservation.from_json({"id": "a", "amounts": {"tokens": 1}}) == Reservation("a", Amounts(tokens=1))
