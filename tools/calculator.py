"""Arithmetic on a checked syntax tree: exact inside, bounded before anything is computed, no code ever run.

What is allowed is listed, and everything else is refused by the first of these rules that it breaks:

| rule | what it refuses |
|---|---|
| `text` | what is no text, or has nothing but blanks |
| `length` | more than ``EXPRESSION_LIMIT`` characters, before anything is read |
| `characters` | any but ``0-9 . + - * / % ( )`` and the blank: so names, calls, quotes, digits of other scripts |
| `form` | what does not read as numbers joined by operators: ``1 +``, ``()``, ``1(2)``, ``08`` |
| `power` | ``**``, whatever it is applied to |
| `depth` | more than ``DEPTH_LIMIT`` signs or operators inside one another; a long sum is not deep |
| `division` | ``/``, ``//`` and ``%`` by zero |

Without powers a number on the way has at most two digits for each character of the expression, one in its numerator
and one in its denominator. So the bound on the length bounds every step before it is computed.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from tools.errors import InvalidArgumentsError
from tools.tool import tool

EXPRESSION_LIMIT: Final = 100
"""Characters an expression may have."""

DEPTH_LIMIT: Final = 40
"""Operators that may lie inside one another."""

CalculationRule: TypeAlias = Literal["text", "length", "characters", "form", "power", "depth", "division"]
"""The rule that an expression broke; the module's docstring says what each refuses."""

_FOREIGN_CHARACTER: Final = re.compile(r"[^0-9.+\-*/%() ]")
_NUMBER: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\Z")
_ALLOWED: Final = "numbers, + - * / // %, signs and parentheses are allowed"


class CalculationError(InvalidArgumentsError, ValueError):
    """An expression outside the allowed arithmetic, or one without a value; ``rule`` names what it broke."""

    def __init__(self, rule: CalculationRule, problem: str) -> None:
        super().__init__(problem)
        self.rule: CalculationRule = rule
        self.problem = problem

    def __reduce__(self) -> tuple[type[CalculationError], tuple[CalculationRule, str]]:
        return type(self), (self.rule, self.problem)


@dataclass(frozen=True, slots=True)
class _Number:
    """An exact value, and whether it is shown with a decimal point."""

    value: Fraction
    is_decimal: bool


def evaluate(expression: str) -> int | float:
    """The value of an arithmetic expression, computed exactly and rounded once, at the end.

    Allowed are integers, decimals, ``+ - * / // %``, signs and parentheses, in at most ``EXPRESSION_LIMIT``
    characters. As in Python, the result is an int unless a decimal or ``/`` takes part; ``//`` rounds down and ``%``
    has the sign of its right side. The result is never infinite, NaN or complex.

    Raises:
        CalculationError: everything else (also a ValueError); its ``rule`` is one of the module's table.
    """
    if not isinstance(expression, str):
        raise CalculationError("text", f"an expression is a text, not {type(expression).__name__}")
    if len(expression) > EXPRESSION_LIMIT:
        problem = f"the expression has {len(expression)} characters; {EXPRESSION_LIMIT} are allowed"
        raise CalculationError("length", problem)
    text = expression.strip(" ")
    if not text:
        raise CalculationError("text", "the expression is empty")
    foreign = _FOREIGN_CHARACTER.search(expression)
    if foreign is not None:
        problem = f"{foreign.group()!a} at {foreign.start()} is no arithmetic; {_ALLOWED}"
        raise CalculationError("characters", problem)
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise CalculationError("form", f"the expression cannot be read; {_ALLOWED}") from error
    number = _value(tree.body, text, 0)
    return float(number.value) if number.is_decimal else int(number.value)


@tool(name="calculate")
def calculate(
    expression: Annotated[str, Field(description="For example (14 - 7) * 2 or 300 * 0.5. No names, no powers.")],
) -> int | float:
    """Compute an arithmetic expression exactly. Use it for every amount, difference or share.

    Allowed: numbers such as 300 or 0.5, + - * / // %, signs, parentheses and blanks, up to 100 characters. Refused:
    names, calls, texts, lists, comparisons, powers (**), 1e5 and other spellings of numbers, deep nesting,
    division by zero. // rounds down, % has the sign of its right side; the result is whole unless
    a decimal or / takes part.
    """
    return evaluate(expression)


def _value(node: ast.expr, text: str, depth: int) -> _Number:
    if depth > DEPTH_LIMIT:
        raise CalculationError("depth", f"the expression is nested deeper than {DEPTH_LIMIT} operators")
    if isinstance(node, ast.Constant):
        return _literal(node, text)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        operand = _value(node.operand, text, depth + 1)
        return operand if isinstance(node.op, ast.UAdd) else _Number(-operand.value, operand.is_decimal)
    if isinstance(node, ast.BinOp):
        # A sum of many terms leans to the left and is not deep: its left side counts as the same level.
        return _combine(node.op, _value(node.left, text, depth), _value(node.right, text, depth + 1))
    raise CalculationError("form", f"the expression holds something else than arithmetic; {_ALLOWED}")


def _literal(node: ast.Constant, text: str) -> _Number:
    # Read from the text: the tree holds a float already, and 0.1 is not a tenth there.
    source = text[node.col_offset : node.end_col_offset]
    if not _NUMBER.match(source):
        raise CalculationError("form", f"{source[:20]!r} is not a plain number")
    return _Number(Fraction(source if source[-1] != "." else source[:-1]), "." in source)


def _combine(operator: ast.operator, left: _Number, right: _Number) -> _Number:
    is_decimal = left.is_decimal or right.is_decimal
    match operator:
        case ast.Add():
            return _Number(left.value + right.value, is_decimal)
        case ast.Sub():
            return _Number(left.value - right.value, is_decimal)
        case ast.Mult():
            return _Number(left.value * right.value, is_decimal)
        case ast.Div() | ast.FloorDiv() | ast.Mod() if right.value == 0:
            raise CalculationError("division", "the expression divides by zero")
        case ast.Div():
            return _Number(left.value / right.value, True)
        case ast.FloorDiv():
            return _Number(Fraction(left.value // right.value), is_decimal)
        case ast.Mod():
            return _Number(left.value % right.value, is_decimal)
    raise CalculationError("power", f"powers are not allowed; {_ALLOWED}")
