import time
import warnings
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools import CalculationError, ToolCall, calculate, evaluate, execute


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
        ("7.5 // 2", 3.0),
        ("7.5 % 2", 1.5),
        ("+-+3", -3),
        (" 1 + 1 ", 2),
        ("1.", 1.0),
        (".5 + 2", 2.5),
        ("1 / 3 * 3", 1.0),
        ("9" * 100, int("9" * 100)),
        ("-" * 30 + "1", 1),
        ("2 - 3 - 4", -5),
        ("2 + 3 * 4", 14),
    ],
)
def test_values(expression: str, value: float) -> None:
    result = evaluate(expression)
    assert (result, type(result)) == (value, type(value))


REFUSED = [
    "2 ** 10",
    "__import__('os')",
    "__import__('os').system('id')",
    '"__imp"+"ort__"',
    "x + 1",
    "1/0",
    "7%0",
    "7 // 0",
    "1 / (1 - 1.0)",
    "1" * 101,
    "True + 1",
    "'a' * 3",
    "abs(-1)",
    "1j",
    '"1"+"2"',
    "x",
    "a:=1",
    "1,2",
    "1==1",
    "1 < 2",
    "9**9**9",
    "10**10**10",
    "9**99999",
    "-" * 5000 + "1",
    "+".join(["1"] * 10_000),
    "-" * 99 + "1",
    "1e308*10",
    "1e5",
    "0x10",
    "1_000",
    "0**-1",
    "(-8)**(1/3)",
    "",
    "   ",
    "()",
    "1 +",
    "(1",
    "1(2)",
    "1.1.1",
    "1.real",
    "[1]",
    "lambda: 1",
    "1 if 1 else 2",
    "1\n+1",
    "1 # comment",
    "f'{1}'",
    "~1",
    "1 << 2",
    "not 1",
    "...",
    "\u0663",
    "1\0",
]


@pytest.mark.parametrize("expression", REFUSED)
def test_everything_else_is_refused_at_once(expression: str) -> None:
    began = time.perf_counter()
    with pytest.raises(ValueError, match=r".") as caught:
        evaluate(expression)
    assert time.perf_counter() - began < 0.1
    assert type(caught.value) is CalculationError
    result = execute(ToolCall("c", "calculate", {"expression": expression}), [calculate])
    assert (result.is_error, result.kind) == (True, "invalid_arguments")


def test_what_is_no_text_is_refused() -> None:
    for value in (2, None, b"1+1"):
        with pytest.raises(CalculationError):
            evaluate(value)  # type: ignore[arg-type]
        call = ToolCall("c", "calculate", {"expression": value})
        assert execute(call, [calculate]).kind == "invalid_arguments"


def test_a_result_as_the_model_sees_it() -> None:
    contents = [
        execute(ToolCall("c", "calculate", {"expression": text}), [calculate]).content
        for text in ("300 * 0.5", "(14 - 7) * 2", "-3 + 10 / 4")
    ]
    assert contents == ["150.0", "14", "-0.5"]


def literals() -> st.SearchStrategy[tuple[str, Fraction, bool]]:
    whole = st.integers(0, 9999).map(lambda number: (str(number), Fraction(number), False))
    decimal = st.decimals(0, 999, places=2).map(lambda number: (str(number), Fraction(str(number)), True))
    return whole | decimal


@st.composite
def joined(draw: st.DrawFn, inner: st.SearchStrategy[tuple[str, Fraction, bool]]) -> tuple[str, Fraction, bool]:
    operator = draw(st.sampled_from(["+", "-", "*", "/", "//", "%", "neg"]))
    left, right = draw(inner), draw(inner)
    if operator == "neg":
        return f"-({left[0]})", -left[1], left[2]
    if right[1] == 0 and operator in ("/", "//", "%"):
        operator = "+"
    compute = {
        "+": Fraction.__add__,
        "-": Fraction.__sub__,
        "*": Fraction.__mul__,
        "/": Fraction.__truediv__,
        "//": lambda a, b: Fraction(a // b),
        "%": Fraction.__mod__,
    }
    value = compute[operator](left[1], right[1])
    return f"({left[0]}) {operator} ({right[0]})", value, left[2] or right[2] or operator == "/"


@given(st.recursive(literals(), joined, max_leaves=5).filter(lambda item: len(item[0]) <= 100))
def test_it_agrees_with_exact_fractions(case: tuple[str, Fraction, bool]) -> None:
    expression, value, is_decimal = case
    result = evaluate(expression)
    assert isinstance(result, float) is is_decimal
    assert result == (float(value) if is_decimal else value)


@given(st.text(alphabet="0123456789.+-*/%() e_xj", max_size=110) | st.text(max_size=110))
def test_no_text_does_anything_but_give_a_number_or_a_value_error(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            result = evaluate(text)
        except CalculationError:
            return
    assert type(result) in (int, float)
