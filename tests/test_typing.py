"""What type checkers say: all of `typing/right.py` passes, each marked line of `typing/wrong.py` is refused."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RIGHT, WRONG = ROOT / "tests" / "typing" / "right.py", ROOT / "tests" / "typing" / "wrong.py"
CHECKERS = ("mypy", "pyright")


def output(module: str, *arguments: str) -> str:
    """What a checker prints; its exit status says no more than that there are errors."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@cache
def refused(checker: str) -> frozenset[tuple[Path, int]]:
    """The lines with errors, by file and number."""
    if checker == "mypy":
        printed = output("mypy", "--output=json", str(RIGHT), str(WRONG))
        found = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        return frozenset((ROOT / e["file"], e["line"]) for e in found if e["severity"] == "error")
    settings = str(RIGHT.with_name("pyrightconfig.json"))
    report = json.loads(output("pyright", "--outputjson", "--pythonpath", sys.executable, "--project", settings))
    return frozenset(
        (Path(e["file"]), e["range"]["start"]["line"] + 1)
        for e in report["generalDiagnostics"]
        if e["severity"] == "error"
    )


def marked(path: Path) -> dict[int, str]:
    """The lines that must be refused, by number."""
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return {number: line for number, line in lines if line.endswith("# error")}


@pytest.mark.parametrize("checker", CHECKERS)
def test_each_wrong_line_is_refused_and_no_other(checker: str) -> None:
    expected = marked(WRONG)
    assert len(expected) > 100
    assert {number for path, number in refused(checker) if path == WRONG} == expected.keys()


@pytest.mark.parametrize("checker", CHECKERS)
def test_right_programs_pass(checker: str) -> None:
    assert marked(RIGHT) == {}
    assert {number for path, number in refused(checker) if path != WRONG} == set()
