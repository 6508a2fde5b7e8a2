"""How much code the engine is: lines, the largest module and the longest function, without savers and testing.

python benchmarks/size.py
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ENGINE = Path(__file__).resolve().parent.parent / "minigraph"


def modules() -> list[Path]:
    """The modules of the engine itself; savers and testing are packages of their own inside of it."""
    return sorted(ENGINE.glob("*.py"))


def functions(path: Path) -> Iterator[tuple[int, str]]:
    """Every function of a module: its number of lines, and its name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.end_lineno - node.lineno + 1, node.name


def code_lines(path: Path) -> int:
    """How many lines of a module hold something besides docstrings, comments and spaces."""
    text = path.read_text(encoding="utf-8")
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    inside: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        for part in getattr(node, "body", []) if isinstance(node, documented) else ():
            if (
                isinstance(part, ast.Expr)
                and isinstance(part.value, ast.Constant)
                and isinstance(part.value.value, str)
            ):
                assert part.end_lineno is not None
                inside.update(range(part.lineno, part.end_lineno + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") and n not in inside for n, line in lines)


def sentence() -> str:
    """The figures in a sentence, as the docs have it."""
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    largest = max(lengths, key=lambda path: lengths[path])
    length, name, module = max((length, name, path.name) for path in modules() for length, name in functions(path))
    return (
        f"The engine without savers and testing is {sum(lengths.values())} lines in {len(lengths)} modules,"
        f" {sum(map(code_lines, lengths))} of them code (no docstrings, comments or blank lines);"
        f" the largest, `{largest.name}`, has {lengths[largest]} lines, and the longest function,"
        f" `{name}` in `{module}`, has {length}."
    )


if __name__ == "__main__":
    print(sentence())
