import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools import Breaker, Kind, Paced, Rate, ToolCall, ToolContext, ToolResult
from tools.rate import Bucket, Circuit, after_call, take, try_circuit

CALL = ToolCall("c", "search", {})


def result(kind: Kind = "ok") -> ToolResult:
    return ToolResult("c", "search", "", kind != "ok", kind)


def test_a_burst_and_then_one_at_a_time() -> None:
    rate, bucket, waits = Rate(2, 0.5), None, []
    for now in (0.0, 0.0, 0.0, 1.0, 2.0, 2.0, 100.0, 100.0, 100.0):
        bucket, wait = take(rate, bucket, now)
        waits.append(wait)
    assert waits == [0.0, 0.0, 2.0, 1.0, 0.0, 2.0, 0.0, 0.0, 2.0]


def test_a_clock_that_goes_back_fills_nothing() -> None:
    bucket, _ = take(Rate(1, 1.0), None, 10.0)
    assert take(Rate(1, 1.0), bucket, 5.0) == (Bucket(0.0, 10.0), 1.0)
    assert take(Rate(1, 1.0), bucket, 11.0) == (Bucket(0.0, 11.0), 0.0)


@settings(deadline=None)
@given(st.integers(1, 5), st.floats(0.1, 10), st.lists(st.floats(-1, 3), max_size=40))
def test_never_more_than_the_burst_and_what_time_brings(burst: int, per_second: float, gaps: list[float]) -> None:
    rate, now, latest = Rate(burst, per_second), 0.0, 0.0
    bucket, _ = take(rate, None, now)
    taken = 1
    for gap in gaps:
        now += gap
        latest = max(latest, now)
        bucket, wait = take(rate, bucket, now)
        assert wait >= 0
        assert 0 <= bucket.left <= burst
        taken += wait == 0
        assert taken <= burst + latest * per_second + 1e-6


@pytest.mark.parametrize(("burst", "per_second"), [(0, 1.0), (1, 0.0), (1, -1.0), (1, float("nan")), (1, float("inf"))])
def test_a_rate_is_more_than_nothing(burst: int, per_second: float) -> None:
    with pytest.raises(ValueError, match="burst"):
        Rate(burst, per_second)


@pytest.mark.parametrize(("failures", "cool_down"), [(0, 1.0), (1, 0.0), (1, float("nan"))])
def test_a_breaker_is_more_than_nothing(failures: int, cool_down: float) -> None:
    with pytest.raises(ValueError, match="failures"):
        Breaker(failures, cool_down)


def test_a_circuit_opens_tries_once_and_closes() -> None:
    breaker, circuit = Breaker(2, 10.0), Circuit()
    circuit = after_call(breaker, circuit, result("failed"), 0.0)
    assert circuit == Circuit(1)
    circuit = after_call(breaker, circuit, result("temporary"), 1.0)
    assert try_circuit(breaker, circuit, 4.0) == (Circuit(2, 1.0), 7.0)
    circuit, wait = try_circuit(breaker, circuit, 11.0)
    assert wait == 0
    assert try_circuit(breaker, circuit, 12.0)[1] == 9.0, "one tries, the others wait"
    assert try_circuit(breaker, circuit, 21.0)[1] == 0.0, "one that was lost blocks nobody for ever"
    assert after_call(breaker, circuit, result("failed"), 13.0) == Circuit(3, 13.0)
    assert after_call(breaker, circuit, result(), 13.0) == Circuit()


@pytest.mark.parametrize("kind", ["invalid_arguments", "not_permitted", "unknown_tool", "too_large", "budget"])
def test_a_bad_request_says_nothing_of_the_tool(kind: Kind) -> None:
    for circuit in (Circuit(), Circuit(1), Circuit(5, 3.0)):
        assert after_call(Breaker(2), circuit, result(kind), 9.0) == circuit


def test_a_success_forgets_the_failures_before_it() -> None:
    circuit = Circuit()
    for kind in ("failed", "ok", "failed", "ok", "failed"):
        circuit = after_call(Breaker(2), circuit, result(kind), 0.0)
    assert circuit == Circuit(1)


def test_a_clock_that_goes_back_does_not_hold_a_circuit_open_longer() -> None:
    assert try_circuit(Breaker(1, 10.0), Circuit(1, 1_000.0), 0.0)[1] == 10.0


def test_calls_are_held_back_with_a_result() -> None:
    now, ran = [0.0], []

    def run(call: ToolCall, context: ToolContext) -> ToolResult:
        ran.append(call.name)
        return ToolResult(call.id, call.name, "", call.name == "broken", "failed" if call.name == "broken" else "ok")

    paced = Paced(run, rates={"search": Rate(1, 0.1)}, breakers={"broken": Breaker(2, 5.0)}, clock=lambda: now[0])
    first, second = paced(CALL, ToolContext()), paced(CALL, ToolContext())
    assert (first.kind, second.kind) == ("ok", "temporary")
    assert "wait 10 seconds" in second.content
    _, _, third = [paced(ToolCall("b", "broken", {}), ToolContext()) for _ in range(3)]
    assert (third.kind, third.call_id) == ("temporary", "b")
    assert "left alone for 5 seconds" in third.content
    assert (paced.is_open("broken"), paced.is_open("search")) == (True, False)
    for _ in range(3):
        assert paced(ToolCall("o", "other", {}), ToolContext()).kind == "ok"
    assert ran == ["search", "broken", "broken", "other", "other", "other"]
    now[0] = 10.0
    assert paced(CALL, ToolContext()).kind == "ok"


def test_a_call_held_back_by_its_rate_does_not_use_up_the_trial_of_a_circuit() -> None:
    now = [0.0]
    paced = Paced(
        lambda call, context: result("failed"),
        rates={"search": Rate(1, 0.01)},
        breakers={"search": Breaker(1, 5.0)},
        clock=lambda: now[0],
    )
    assert paced(CALL, ToolContext()).kind == "failed"
    now[0] = 6.0
    assert "too often" in paced(CALL, ToolContext()).content
    now[0] = 100.0
    assert paced(CALL, ToolContext()).kind == "failed"


def test_threads_share_one_rate() -> None:
    kinds: list[str] = []
    paced = Paced(lambda call, context: result(), rates={"search": Rate(5, 0.001)}, clock=lambda: 0.0)
    threads = [threading.Thread(target=lambda: kinds.append(paced(CALL, ToolContext()).kind)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(kinds) == ["ok"] * 5 + ["temporary"] * 15
