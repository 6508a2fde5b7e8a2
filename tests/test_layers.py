"""Imports run one way, and importing the engine stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Collection, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("minigraph", "tools", "decider", "desk")
ALLOWED = {
    "minigraph": {"minigraph"},
    "tools": {"tools"},
    "decider": {"decider"},
    "desk": {"minigraph", "tools", "decider", "desk"},
}


def modules(package: str) -> dict[str, Path]:
    """The modules of a package by their dotted names."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, *, at_import: bool = False) -> Iterator[str]:
    """The dotted names that a file imports; `at_import` leaves out functions and blocks for type checkers."""
    todo: list[ast.AST] = [ast.parse(path.read_text())]
    while todo:
        node = todo.pop()
        if at_import and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if at_import and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        todo += ast.iter_child_nodes(node)


def module_of(name: str, known: Collection[str]) -> str | None:
    """The module that an imported name is, or lies in; None for a foreign one."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


def test_the_walk_finds_what_is_there() -> None:
    assert {"minigraph", "minigraph.run", "minigraph.checkpoint.memory"} <= modules("minigraph").keys()
    assert "minigraph.records.Task" in set(imported(ROOT / "minigraph" / "run.py", at_import=True))
    compiled = ROOT / "minigraph" / "compiled.py"
    assert "minigraph.draw.mermaid" in set(imported(compiled)) - set(imported(compiled, at_import=True))
    assert module_of("minigraph.draw.mermaid", modules("minigraph")) == "minigraph.draw"
    assert module_of("os.path", modules("minigraph")) is None


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_what_lies_below_them(package: str) -> None:
    wrong = [
        f"{name} imports {target}"
        for name, path in modules(package).items()
        for target in imported(path)
        if target.partition(".")[0] in {*PACKAGES, "tests", "examples", "benchmarks"} - ALLOWED[package]
    ]
    assert wrong == []


def test_the_engine_has_no_import_cycles() -> None:
    known = modules("minigraph")
    graph = {
        name: {
            found
            for target in imported(path, at_import=True)
            if (found := module_of(target, known)) not in (None, name)
        }
        for name, path in known.items()
    }
    order = list(TopologicalSorter(graph).static_order())  # CycleError names the cycle
    assert order.index("minigraph.errors") < order.index("minigraph.step") < order.index("minigraph.run")
    assert order.index("minigraph.run") < order.index("minigraph.compiled") < order.index("minigraph")


def test_the_pure_step_knows_no_world_outside() -> None:
    for name in ("step", "channels", "updates", "structure"):
        found = {target.partition(".")[0] for target in imported(ROOT / "minigraph" / f"{name}.py")}
        assert not found & {"asyncio", "threading", "time", "os", "sqlite3", "random", "datetime", "concurrent"}, name


def loaded(code: str) -> set[str]:
    """The modules that are loaded after some code, in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_importing_the_engine_loads_nothing_heavy() -> None:
    before, after = loaded("pass"), loaded("import minigraph")
    heavy = {
        "asyncio",
        "sqlite3",
        "psycopg",
        "pydantic",
        "numpy",
        "httpx",
        "requests",
        "hypothesis",
        "langgraph",
        "typer",
        "rich",
    }
    assert heavy & after == set()
    assert len(after - before) < 118


def test_a_synchronous_run_in_memory_loads_no_asyncio() -> None:
    code = (
        "from minigraph import START, StateGraph; from minigraph.checkpoint import InMemorySaver;"
        " g = StateGraph(dict).add_node('a', lambda s: {'x': 1}).add_edge(START, 'a').compile(InMemorySaver());"
        " assert g.invoke({}, {'configurable': {'thread_id': 't'}}) == {'x': 1}"
    )
    assert {"asyncio", "sqlite3", "pydantic", "numpy"} & loaded(code) == set()


def test_every_module_can_be_imported_first() -> None:
    """Each in turn, with everything of the engine forgotten before, so that no order of imports is needed."""
    names = sorted(name for name in modules("minigraph") if not name.startswith("minigraph.testing"))
    forget = "[sys.modules.pop(n) for n in list(sys.modules) if n.partition('.')[0] == 'minigraph']"
    code = f"import importlib; [({forget}, importlib.import_module(name)) for name in {names!r}]; print('all')"
    assert "all" in loaded(code)
