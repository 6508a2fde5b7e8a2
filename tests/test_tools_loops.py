import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools import CallHistory, Kind, ToolCall, ToolResult, history_of, judge, note
from tools.loops import LONGEST_CYCLE, WINDOW, Seen, cycles


def verdicts(calls: str, data_versions: str = "") -> str:
    """What becomes of each call, as g, w or s; a capital letter is an attempt that fails for the time being."""
    history, found = CallHistory(), ""
    for place, call in enumerate(calls):
        version = data_versions[place] if data_versions else ""
        judgement = judge(history, call.lower(), version)
        found += judgement.verdict[0]
        temporary = judgement.is_retry or (judgement.verdict == "go" and call.isupper())
        history = note(history, call.lower(), temporary=temporary, data_version=version)
    return found


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ("aaaa", "ggws"),  # the third time a warning, the fourth the end
        ("abababab", "gggggwws"),  # cycle of two: its third time ends with the sixth call
        ("abcabcabcabc", "ggggggggwwws"),  # and of three
        ("abcdabcdabcd", "g" * 12),  # four is a plan
        ("aabbaabb", "g" * 8),
        ("abacada", "g" * 7),  # something new in between each time
        ("aabaabaabaab", "ggggggggwwws"),
        ("xyzaaaa", "gggggws"),
        ("AaAaAaAa", "ggggwsss"),  # a retry that works ends the attempts, and still repeats the call
        ("AAAAA", "gggws"),  # one attempt and two retries, a warning, the end
        ("AAAaaa", "gggwss"),
        ("AAaAA", "ggggg"),
        ("AbAcAdAeA", "ggggggwgs"),  # what lies between attempts does not make them fewer
    ],
)
def test_the_rule_worked_out_by_hand(calls: str, expected: str) -> None:
    assert verdicts(calls) == expected


def test_new_data_makes_it_a_new_question() -> None:
    assert verdicts("aaaaaa", "111222") == "ggwggw"
    assert verdicts("AAAAAA", "111122") == "gggwgg"
    assert verdicts("aaaa", "1212") == "gggg"


def test_the_texts_say_what_is_repeated() -> None:
    twice = note(note(CallHistory(), "a"), "a")
    third = judge(twice, "a")
    assert (third.verdict, third.times, third.length, third.is_retry) == ("warn", 3, 1, False)
    assert third.text("search") == "search was called 3 times with the same arguments; do something else or finish."
    assert judge(note(twice, "a"), "a").text("search").endswith("this run ends.")
    pairs = CallHistory(tuple(Seen(call) for call in "ababa"))
    assert judge(pairs, "b").text("next").startswith("The same 2 calls were made 3 times over, next among them;")
    attempts = CallHistory((Seen("a", True),) * 3)
    assert judge(attempts, "a").text("mail").startswith("mail has failed for the time being 3 times;")


def test_the_history_is_plain_data_and_bounded() -> None:
    history = CallHistory()
    for number in range(100):
        history = note(history, str(number), temporary=number % 2 == 0, data_version="v1")
    assert len(history.seen) == WINDOW
    assert CallHistory.from_json(history.to_json()) == history
    assert history.to_json()["data_version"] == "v1"


def test_ids_key_order_and_nothing_else_are_left_out_of_a_call() -> None:
    same = [ToolCall(str(n), "t", dict(pairs)) for n, pairs in enumerate([[("a", 1), ("b", 2)], [("b", 2), ("a", 1)]])]
    assert same[0].fingerprint == same[1].fingerprint
    for other in (
        ToolCall("0", "t", {"a": 1, "b": 2.5}),
        ToolCall("0", "u", same[0].arguments),
        ToolCall("0", "t", {}),
    ):
        assert other.fingerprint != same[0].fingerprint


def test_a_conversation_amounts_to_a_history() -> None:
    made: list[tuple[ToolCall, ToolResult]] = []
    kinds: tuple[Kind, ...] = ("temporary", "temporary", "temporary", "budget", "ok")
    for number, kind in enumerate(kinds):
        id = f"c{number}"
        made.append((ToolCall(id, "t", {}), ToolResult(id, "t", "", kind != "ok", kind)))
    assert [item.temporary for item in history_of(made).seen] == [True, True, True, True, True]
    assert [item.temporary for item in history_of(made[:3] + made[4:]).seen] == [True, True, True, True]
    assert [item.temporary for item in history_of(made[4:]).seen] == [False]


def brute_force(calls: str) -> tuple[int, int]:
    """The most n for which the text ends with n copies of a block of one, two or three letters, and the shortest."""
    found = [
        (n, -length)
        for length in range(1, LONGEST_CYCLE + 1)
        for n in range(1, len(calls) + 1)
        if len(calls) >= length and calls.endswith(calls[-length:] * n)
    ]
    times, length = max(found)
    return times, -length


@settings(deadline=None)
@given(st.text("abc", min_size=1, max_size=20))
def test_cycles_agree_with_the_definition(calls: str) -> None:
    assert cycles(calls) == brute_force(calls)


def test_cycles_agree_with_the_definition_for_every_short_text() -> None:
    for size in range(1, 9):
        for letters in itertools.product("abc", repeat=size):
            assert cycles(letters) == brute_force("".join(letters))


@settings(deadline=None)
@given(st.text("abcABC", max_size=22))
def test_verdicts_agree_with_the_definition(calls: str) -> None:
    """The definition applied to the whole past: attempts that failed for the time being are counted, not repeated."""
    past: list[tuple[str, bool]] = []
    expected = ""
    for call in calls:
        name = call.lower()
        own = [temporary for other, temporary in past if other == name]
        attempts = len(own) if all(own) else own[::-1].index(False)
        times, _ = brute_force("".join(other for other, temporary in past if not temporary) + name)
        level_of_attempts, level_of_times = max(0, attempts - 2), max(0, times - 2)
        level = min(2, max(level_of_attempts, level_of_times))
        expected += "gws"[level]
        is_retry = min(2, level_of_attempts) > min(2, level_of_times)
        past.append((name, is_retry or (level == 0 and call.isupper())))
    assert verdicts(calls) == expected
