"""Arithmetic on a checked syntax tree: exact inside, bounded before anything is computed, no code ever run."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Final

from pydantic import Field

from tools.errors import InvalidArgumentsError
from tools.tool import tool

EXPRESSION_LIMIT: Final = 100
"""Characters an expression may have."""

DEPTH_LIMIT: Final = 40
"""Operators that may lie inside one another."""

OPERAND_BITS: Final = 1024
"""Bits that the numerator and the denominator of a number may have together."""

_ALLOWED_CHARACTERS: Final = re.compile(r"[0-9.+\-*/%() ]*\Z")
_NUMBER: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\Z")
_ALLOWED: Final = "numbers, + - * / // %, signs and parentheses are allowed"


class CalculationError(InvalidArgumentsError, ValueError):
    """An expression outside the allowed arithmetic, or one without a value."""


@dataclass(frozen=True, slots=True)
class _Number:
    """An exact value, and whether it is shown with a decimal point."""

    value: Fraction
    is_decimal: bool


def evaluate(expression: str) -> int | float:
    """The value of an arithmetic expression, computed exactly and rounded once, at the end.

    Allowed are integers, decimals, ``+ - * / // %``, signs and parentheses, in at most ``EXPRESSION_LIMIT``
    characters. As in Python, the result is an int unless a decimal or ``/`` takes part; ``//`` rounds down and ``%``
    has the sign of its right side. Raises ``CalculationError`` (a ValueError) for everything else.
    """
    if not isinstance(expression, str):
        raise CalculationError(f"an expression is a text, not {type(expression).__name__}")
    if len(expression) > EXPRESSION_LIMIT:
        raise CalculationError(f"the expression has {len(expression)} characters; {EXPRESSION_LIMIT} are allowed")
    text = expression.strip(" ")
    if not text:
        raise CalculationError("the expression is empty")
    if not _ALLOWED_CHARACTERS.match(text):
        raise CalculationError(f"the expression holds something else than arithmetic; {_ALLOWED}")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise CalculationError(f"the expression cannot be read; {_ALLOWED}") from error
    number = _value(tree.body, text, 0)
    return float(number.value) if number.is_decimal else int(number.value)


@tool(name="calculate")
def calculate(
    expression: Annotated[str, Field(description="For example (14 - 7) * 2 or 300 * 0.5. No names, no powers.")],
) -> int | float:
    """Compute an arithmetic expression exactly. Use it for every amount, difference or share."""
    return evaluate(expression)


def _value(node: ast.expr, text: str, depth: int) -> _Number:
    if depth > DEPTH_LIMIT:
        raise CalculationError(f"the expression is nested deeper than {DEPTH_LIMIT} operators")
    if isinstance(node, ast.Constant):
        return _literal(node, text)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        operand = _value(node.operand, text, depth + 1)
        return operand if isinstance(node.op, ast.UAdd) else _Number(-operand.value, operand.is_decimal)
    if isinstance(node, ast.BinOp):
        return _combine(node.op, _value(node.left, text, depth + 1), _value(node.right, text, depth + 1))
    raise CalculationError(f"the expression holds something else than arithmetic; {_ALLOWED}")


def _literal(node: ast.Constant, text: str) -> _Number:
    # Read from the text: the tree holds a float already, and 0.1 is not a tenth there.
    source = ast.get_source_segment(text, node) or ""
    if not _NUMBER.match(source):
        raise CalculationError(f"{source[:20]!r} is not a plain number")
    return _bounded(Fraction(source if source[-1] != "." else source[:-1]), "." in source)


def _combine(operator: ast.operator, left: _Number, right: _Number) -> _Number:
    is_decimal = left.is_decimal or right.is_decimal
    match operator:
        case ast.Add():
            return _bounded(left.value + right.value, is_decimal)
        case ast.Sub():
            return _bounded(left.value - right.value, is_decimal)
        case ast.Mult():
            return _bounded(left.value * right.value, is_decimal)
        case ast.Div() | ast.FloorDiv() | ast.Mod() if right.value == 0:
            raise CalculationError("the expression divides by zero")
        case ast.Div():
            return _bounded(left.value / right.value, True)
        case ast.FloorDiv():
            return _bounded(Fraction(left.value // right.value), is_decimal)
        case ast.Mod():
            return _bounded(left.value % right.value, is_decimal)
    raise CalculationError(f"powers and other operators are not allowed; {_ALLOWED}")


def _bounded(value: Fraction, is_decimal: bool) -> _Number:
    # Both operands of the next operation are within the bound, so no single step can be long.
    if value.numerator.bit_length() + value.denominator.bit_length() > OPERAND_BITS:
        raise CalculationError(f"a number in the expression needs more than {OPERAND_BITS} bits")
    return _Number(value, is_decimal)
