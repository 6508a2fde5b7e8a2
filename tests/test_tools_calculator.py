import operator
import pickle
import random
import sys
import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import REFUSED, main, measured

from tools import CalculationError, ToolCall, calculate, evaluate, execute
from tools.calculator import DEPTH_LIMIT, EXPRESSION_LIMIT


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("300 * 0.5", 150.0),
        ("(14 - 7) * 2", 14),
        ("-3 + 10 / 4", -0.5),
        ("((2))", 2),
        ("0.1 + 0.2", 0.3),
        ("10 / 5", 2.0),
        ("7 // 2", 3),
        ("-7 // 2", -4),
        ("-7 % 3", 2),
        ("7 % -3", -2),
        ("7.5 // 2", 3.0),
        ("7.5 % 2", 1.5),
        ("+-+3", -3),
        (" 1 + 1 ", 2),
        ("1.", 1.0),
        (".5 + 2", 2.5),
        ("1 / 3 * 3", 1.0),
        ("0 * -1.0", 0.0),
        ("9" * 100, int("9" * 100)),
        ("." + "0" * 98 + "1", 1e-99),
        ("-" * 30 + "1", 1),
        ("+".join(["1"] * 50), 50),
        ("2 - 3 - 4", -5),
        ("2 + 3 * 4", 14),
        ("-2 * -3 % 4 // 1", 2),
    ],
)
def test_values(expression: str, value: float) -> None:
    result = evaluate(expression)
    assert (result, type(result)) == (value, type(value))
    assert str(result) != "-0.0"


HOSTILE = [(rule, text) for _, rule, texts in REFUSED for text in texts]


@pytest.mark.parametrize(("rule", "expression"), HOSTILE, ids=lambda value: ascii(value)[:30])
def test_everything_else_is_refused_by_a_written_rule(rule: str, expression: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        evaluate(expression)
    assert type(caught.value) is CalculationError
    assert caught.value.rule == rule
    result = execute(ToolCall("c", "calculate", {"expression": expression}), [calculate])
    assert (result.is_error, result.kind) == (True, "invalid_arguments")
    assert len(result.content) <= 600


def test_a_refusal_names_what_and_where() -> None:
    with pytest.raises(CalculationError, match=r"'\\u2212' at 4 is no arithmetic; numbers, \+ - \* / // %"):
        evaluate("300 \u2212 50")
    with pytest.raises(CalculationError, match="has 101 characters; 100 are allowed"):
        evaluate("1" * 101)
    with pytest.raises(CalculationError) as caught:
        evaluate("1/0")
    error = caught.value
    assert (error.rule, error.problem) == ("division", "the expression divides by zero")
    assert pickle.loads(pickle.dumps(error)).rule == "division"


def test_what_is_no_text_is_refused() -> None:
    for value in (2, None, b"1+1", ["1"], True, 1.5):
        with pytest.raises(CalculationError) as caught:
            evaluate(value)  # type: ignore[arg-type]
        assert caught.value.rule == "text"
        call = ToolCall("c", "calculate", {"expression": value})
        assert execute(call, [calculate]).kind == "invalid_arguments"


def test_the_tool_tells_the_model_its_rules() -> None:
    for word in ("+ - * / // %", "100 characters", "names", "calls", "powers (**)", "nesting", "division by zero"):
        assert word in calculate.description


# ----------------------------------------------------------------------- cost


LARGEST = ["+".join(["1"] * 50), "/".join(["7"] * 50), "*".join([".9"] * 33), "-" * 40 + "1", "9" * 49 + "%" + "7" * 50]
"""Allowed expressions that take longest: the most terms, the largest numbers, the deepest nesting."""


def calls_made(function: Callable[[], object]) -> int:
    """How many functions of Python and of C are entered, a number that no busy machine changes."""
    made = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return made


def rule_of(expression: str) -> str | None:
    """The rule that refuses a text, or None."""
    try:
        evaluate(expression)
    except CalculationError as error:
        return error.rule
    return None


def test_no_refusal_takes_more_steps_than_the_largest_calculation() -> None:
    allowed = max(calls_made(lambda text=text: evaluate(text)) for text in LARGEST)  # type: ignore[misc]
    assert 100 < allowed < 5_000
    taken = {text[:30]: calls_made(lambda text=text: rule_of(text)) for _, text in HOSTILE}  # type: ignore[misc]
    assert {text: steps for text, steps in taken.items() if steps > allowed} == {}


def test_a_long_text_is_refused_without_being_read() -> None:
    def fastest(text: str) -> float:
        times = []
        for _ in range(20):
            began = time.perf_counter()
            assert rule_of(text) is not None
            times.append(time.perf_counter() - began)
        return min(times)

    assert fastest("9" * 10**7) < 20 * fastest("9" * 101)


def test_the_command_that_times_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    assert {figure.rule for figure in measured(["1/0", "9**9", "x"], rounds=1)} == {"division", "power", "characters"}
    assert main(["--random", "200", "--rounds", "1", "--limit", "10000"]) == 0
    shown = capsys.readouterr().out
    assert f"{len(HOSTILE)} written inputs" in shown
    assert "200 random ones" in shown
    assert main(["--random", "0", "--rounds", "1", "--limit", "0"]) == 1


def test_the_length_bounds_every_number_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    import tools.calculator

    digits: list[int] = []
    number = tools.calculator._Number

    def counted(value: Fraction, is_decimal: bool) -> object:
        digits.append(len(str(abs(value.numerator))) + len(str(value.denominator)))
        return number(value, is_decimal)

    monkeypatch.setattr(tools.calculator, "_Number", counted)
    for text in [
        *LARGEST,
        "." + "9" * 99,
        "/".join(["." + "7" * 31] * 3),
        "1/." + "0" * 96 + "1",
        "*".join(["9"] * 50),
    ]:
        evaluate(text)
    assert 150 < max(digits) <= 2 * EXPRESSION_LIMIT


# ------------------------------------------------------------------- exactness


Case = tuple[str, Fraction | None, bool, int]
"""A text, its value (None where it divides by zero), whether it is a decimal, and how tightly it binds."""

OPERATORS: dict[str, tuple[int, Callable[[Fraction, Fraction], Fraction | int]]] = {
    "+": (1, operator.add),
    "-": (1, operator.sub),
    "*": (2, operator.mul),
    "/": (2, operator.truediv),
    "//": (2, operator.floordiv),
    "%": (2, operator.mod),
}
SIGN, ATOM = 3, 4


def enclosed(case: Case, at_least: int, chance: random.Random) -> str:
    """The text in parentheses where it binds less than that, and sometimes where it need not."""
    return f"({case[0]})" if case[3] < at_least or chance.random() < 0.1 else case[0]


def written(chance: random.Random, terms: int) -> Case:
    """A random expression of that many numbers, with its value computed beside the text and never from it."""
    if terms > 1 and chance.random() < 0.9:
        symbol = chance.choice(list(OPERATORS))
        binds, compute = OPERATORS[symbol]
        first = chance.randint(1, terms - 1)
        left, right = written(chance, first), written(chance, terms - first)
        blank = chance.choice(["", " "])
        text = f"{enclosed(left, binds, chance)}{blank}{symbol}{blank}{enclosed(right, binds + 1, chance)}"
        value = None
        if left[1] is not None and right[1] is not None and (right[1] != 0 or symbol in "+-*"):
            value = Fraction(compute(left[1], right[1]))
        return text, value, left[2] or right[2] or symbol == "/", binds
    if chance.random() < 0.15:
        inner = written(chance, terms)
        sign = chance.choice("+-")
        value = None if inner[1] is None else -inner[1] if sign == "-" else inner[1]
        return sign + enclosed(inner, SIGN, chance), value, inner[2], SIGN
    whole = str(chance.choice([chance.randint(0, 12), chance.randint(0, 10**6)]))
    if chance.random() < 0.6:
        return whole, Fraction(whole), False, ATOM
    decimal = f"{whole}.{chance.randint(0, 10 ** chance.randint(1, 4)):d}"
    return decimal, Fraction(decimal), True, ATOM


def test_ten_thousand_random_expressions_agree_with_fractions() -> None:
    chance = random.Random(20261130)
    values = zeros = 0
    while values + zeros < 10_000:
        text, value, is_decimal, _ = written(chance, chance.randint(1, 12))
        if len(text) > EXPRESSION_LIMIT:
            continue
        if value is None:
            zeros += 1
            assert rule_of(text) == "division", text
            continue
        values += 1
        result = evaluate(text)
        assert type(result) is (float if is_decimal else int), text
        assert result == (float(value) if is_decimal else value), text
    assert values > 8_500
    assert zeros > 100


@given(st.text(alphabet="0123456789.+-*/%() e_xj", max_size=110) | st.text(max_size=110))
def test_no_text_does_anything_but_give_a_number_or_a_value_error(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            result = evaluate(text)
        except CalculationError:
            return
    assert type(result) in (int, float)


@given(st.integers(0, DEPTH_LIMIT))
def test_signs_up_to_the_limit_are_read(signs: int) -> None:
    assert evaluate("-" * signs + "5") == 5 * (-1) ** signs


def test_a_result_as_the_model_sees_it() -> None:
    contents = [
        execute(ToolCall("c", "calculate", {"expression": text}), [calculate]).content
        for text in ("300 * 0.5", "(14 - 7) * 2", "-3 + 10 / 4")
    ]
    assert contents == ["150.0", "14", "-0.5"]
