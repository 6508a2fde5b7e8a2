"""How long the calculator takes to refuse what is no arithmetic: the milliseconds of the slowest hostile inputs.

    python benchmarks/refusals.py
    python benchmarks/refusals.py --random 100000 --limit 10

Times are CPU milliseconds of the process, the fastest of some rounds. Besides the written inputs there are random ones:
pieces of written ones put together, up to ten thousand characters long. Exit status 1 if any refusal, or any value
that a random input happens to have, takes longer than the limit.
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tools import CalculationError, evaluate

# Inputs of public reports by their number in the list of cases, others of their kind, and the rule that refuses them.
REFUSED: Final[list[tuple[str, str, list[str]]]] = [
    ("E43", "characters", [
        "__import__('os').system('id')", "__import__('os')", "eval('1')", "open('/etc/passwd')", "exec('1')",
        "abs(-1)", "print(1)", "().__class__", "(1).bit_length()", "globals()",
    ]),
    ("E45", "characters", [
        '"__imp"+"ort__"', "f'{1}'", "lambda: 1", "[x for x in (1,)]", "[].append", "[1][0]", "{1: 2}[1]", "{1}",
        "getattr(1, 'real')", "1 .real", "1.real", "(1)._", "...x", "b'1'", "`1`", "1;2", "$1", "\\x31", "@1", "*a",
        "{x: 1 for x in (1,)}", "await x", "yield 1",
    ]),
    ("E45", "form", ["1(2)", "(1)(2)", "()()", "..."]),
    ("E46", "characters", [
        "True + 1", "1j", '"1"+"2"', "x", "x + 1", "a:=1", "(a:=1)", "1,2", "1==1", "1 < 2", "not 1", "1 if 1 else 2",
        "None", "inf", "nan", "1 and 2", "~1", "1 << 2", "1 | 2", "1 ^ 2", "1 & 2", "'a' * 3", "[1]", "1 in 1",
    ]),
    ("E46, other spellings of numbers", "characters", [
        "1e5", "1E5", "0x10", "0b11", "0o17", "1_000", "1,000", "1\u00a0000", "\u0663", "\uff11", "\u00b2", "\u00bd",
        "\u22121", "2 \u00d7 3", "6 \u00f7 2", "\u2167", "\U0001d7d9", "\u4e09",
    ]),
    ("E47", "power", [
        "9**9**9", "10**10**10", "9**99999", "2 ** 10", "0**0", "(9**9)**(9**9)", "2**-1", "2**.5", "-2**2",
        "99999999**99999999", "1**1", "9**9**9*0",
    ]),
    ("E47, other towers", "characters", ["9!", "factorial(9999)", "1<<99999", "pow(9, 99999)", "'9'*9"]),
    ("E49", "length", [
        "-" * 5000 + "1", "+".join(["1"] * 10_000), "1" * 101, "(" * 5000 + "1" + ")" * 5000, " " * 101, "9" * 10**6,
        "1+" * 50 + "1", "1/" * 10**5 + "1",
    ]),
    ("E49", "depth", ["-" * 99 + "1", "+" * 99 + "1", "-" * 41 + "1", "-+" * 40 + "1", "2" + "-" * 60 + "1"]),
    ("E49", "form", ["(" * 99 + "1", "(" * 50 + ")" * 50, "1" + ")" * 50]),
    ("E51", "division", [
        "1/0", "7%0", "7 // 0", "1 / (1 - 1.0)", "0/0", "0.0/0.0", "1 % .0", "1//(2-2)", "5 / -0", "1/(1/3-1/3)",
    ]),
    ("E51, neither infinite nor complex", "power", ["0**-1", "(-8)**(1/3)", "(-1)**.5"]),
    ("E51, neither infinite nor complex", "characters", ["1e308*10", "1e999", "-1e999", "1e-400"]),
    ("blank", "text", ["", "   ", " " * 100]),
    ("unfinished", "form", [
        "()", "1 +", "(1", "1)", "1.1.1", "1 1", "* 2", "/", "1 ** ", "%", "50%", ".", "1..", "08", "1 - - ", "( )",
        "1 (", "+", "//",
    ]),
    ("blanks and comments of Python", "characters", [
        "1\n+1", "1\t+1", "1 # comment", "1\\\n+1", "1\0", "1\x0c", "\ufeff1", "1\u200b", "1\u2028+1", "\ud800",
        "\n1", "1\n",
    ]),
]  # fmt: skip


class Figure(NamedTuple):
    """One input: CPU milliseconds, the rule that refused it (or "value"), and the input."""

    milliseconds: float
    rule: str
    text: str


def measured(texts: Iterable[str], rounds: int) -> Iterator[Figure]:
    """Times each input, the fastest of that many rounds."""
    for text in texts:
        taken = []
        rule = "value"
        for _ in range(rounds):
            began = time.process_time_ns()
            try:
                evaluate(text)
            except CalculationError as error:
                rule = error.rule
            taken.append(time.process_time_ns() - began)
        yield Figure(min(taken) / 1e6, rule, text)


def random_texts(count: int, seed: int) -> Iterator[str]:
    """Pieces of the written inputs put together, half of them within the length that is read."""
    chance = random.Random(seed)
    pieces = [text[:60] for _, _, texts in REFUSED for text in texts] + list("0123456789.+-*/%() ") * 5
    for number in range(count):
        joined = "".join(chance.choices(pieces, k=chance.randint(1, 40)))
        yield joined[: 100 if number % 2 else 10_000]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the slowest refusals and give the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--random", type=int, default=20_000, metavar="N", help="random inputs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3, help="times each input is tried")
    parser.add_argument("--limit", type=float, default=10.0, metavar="MS", help="milliseconds a refusal may take")
    given = parser.parse_args(arguments)
    written = [text for _, _, texts in REFUSED for text in texts]
    figures = list(measured([*written, *random_texts(given.random, given.seed)], given.rounds))
    slowest = heapq.nlargest(5, figures)
    rules = ", ".join(f"{rule} {count}" for rule, count in Counter(figure.rule for figure in figures).most_common())
    print(f"{len(written)} written inputs and {given.random} random ones: {rules}")
    for figure in slowest:
        print(f"{figure.milliseconds:8.3f} ms  {figure.rule:10}  {len(figure.text)} characters  {figure.text[:60]!a}")
    return int(slowest[0].milliseconds > given.limit)


if __name__ == "__main__":
    sys.exit(main())
