from tools import ToolCall, ToolResult, run_calls


def call(number: int, **arguments: object) -> ToolCall:
    return ToolCall(f"c{number}", "search", dict(arguments))


def found_nothing(item: ToolCall) -> ToolResult:
    return ToolResult(item.id, item.name, "[]", False, "ok")


def test_the_sixth_of_two_rounds_of_three_is_past_a_budget_of_five() -> None:
    first = run_calls([call(n, q=n) for n in (1, 2, 3)], found_nothing, limit=5)
    assert ([item.kind for item in first.results], first.executed, first.stop) == (["ok"] * 3, 3, None)
    second = run_calls(
        [call(n, q=n) for n in (4, 5, 6)], found_nothing, limit=5, seen=first.seen, executed=first.executed
    )
    assert [item.kind for item in second.results] == ["ok", "ok", "budget"]
    assert [item.call_id for item in second.results] == ["c4", "c5", "c6"]
    assert "budget of 5 tool calls is used up" in second.results[2].content
    assert (second.executed, second.stop) == (5, "budget")


def test_the_third_repeat_is_a_warning_and_the_fourth_the_end() -> None:
    seen: tuple[str, ...] = ()
    kinds, stops = [], []
    for number in (1, 2, 3, 4):
        done = run_calls([call(number, q="same")], found_nothing, limit=50, seen=seen)
        seen = done.seen
        kinds.append(done.results[0].kind)
        stops.append(done.stop)
    assert kinds == ["ok", "ok", "budget", "budget"]
    assert stops == [None, None, None, "repeated_tool_calls"]


def test_other_arguments_are_no_repeat() -> None:
    done = run_calls([call(n, q=n % 2) for n in range(4)], found_nothing, limit=50)
    assert [item.kind for item in done.results] == ["ok"] * 4
    assert done.executed == 4


def test_nothing_is_run_without_a_budget_and_no_calls_have_no_results() -> None:
    done = run_calls([call(1)], found_nothing, limit=0)
    assert (done.results[0].is_error, done.stop, done.executed) == (True, "budget", 0)
    assert run_calls([], found_nothing, limit=1).results == ()
