"""The documents keep their word: examples print what they say, snippets run, links lead somewhere, names say more."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from postgres_server import conninfo

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PACKAGES = ("minigraph", "tools", "decider", "desk")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODEL = ROOT / "decider" / "models" / "desk"


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def fenced(document: Path, *languages: str) -> list[tuple[int, str]]:
    """The blocks in these languages of a document, each with the number of its first line."""
    text = document.read_text(encoding="utf-8")
    found = FENCED.finditer(text)
    return [(text.count("\n", 0, m.start(2)) + 1, m.group(2)) for m in found if m.group(1) in languages]


def prose(document: Path) -> str:
    """A document without its blocks."""
    return FENCED.sub("", document.read_text(encoding="utf-8"))


# ------------------------------------------------------------------- examples


def promised(example: Path) -> str:
    """What an example says that it prints: the indented text after `Prints:` in its docstring."""
    docstring = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or ""
    _, found, output = docstring.partition("Prints:\n\n")
    assert found, f"{example.name}: its docstring has no part `Prints:`"
    return textwrap.dedent(output).rstrip("\n") + "\n"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_its_docstring_says(example: Path, tmp_path: Path) -> None:
    text = example.read_text(encoding="utf-8")
    if "from langchain_core.decisions" in text:
        pytest.importorskip("langchain_core.decisions", reason="needs langchain-core 1.8 or newer")
    if "Decider.load" in text and not MODEL.is_dir():
        pytest.skip("there is no decision model here; `make model` trains one")
    command = [sys.executable, "-W", "error", str(example)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == promised(example)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short(example: Path) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) < 60


# ------------------------------------------------------------------- snippets


@pytest.fixture
def docs_server() -> Iterator[str]:
    """The server that the documents call DATABASE_URL; what they store there is dropped."""
    yield conninfo()
    with psycopg.connect(conninfo(), autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS minigraph_docs CASCADE")


@pytest.fixture
def docs_decider() -> Iterator[str]:
    """The address that the documents call DECIDER_URL: the shipped model, served on this machine."""
    from loopback import LoopbackServer

    from decider import Decider
    from decider.serve import ModelCard, create_app

    with LoopbackServer(create_app(Decider.load(provider="cpu"), ModelCard("desk", "", "2026-11-30"))) as server:
        yield server.url


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_the_python_blocks_of_a_document_run(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """In order, as one program: a block may use what an earlier one defined. One that loads the model needs it."""
    monkeypatch.chdir(tmp_path)
    module: dict[str, object] = {"__name__": "__snippets__"}
    for line, block in fenced(document, "python"):
        if ("Decider.load" in block or "DECIDER_URL" in block) and not MODEL.is_dir():
            pytest.skip(f"line {line}: there is no decision model here; `make model` trains one")
        if "DECIDER_URL" in block:
            monkeypatch.setenv("DECIDER_URL", request.getfixturevalue("docs_decider"))
        if "import torch" in block:
            pytest.importorskip("torch", reason=f"line {line}: the extra `train` brings torch")
        if "DATABASE_URL" in block:
            monkeypatch.setenv("DATABASE_URL", request.getfixturevalue("docs_server"))
        source = "\n" * (line - 1) + block  # so that a traceback names the line of the document
        exec(compile(source, str(document), "exec", dont_inherit=True), module)


def sessions(document: Path) -> Iterator[tuple[int, list[str], str]]:
    """The commands of the console blocks of a document: line, arguments and what is shown under it."""
    for start, block in fenced(document, "console"):
        for match in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            yield start + block.count("\n", 0, match.start()), shlex.split(match.group(1)), match.group(2)


def commands_of_the_desk() -> set[str]:
    """The verbs that `desk` understands."""
    from desk.cli import app

    groups = {str(group.name) for group in app.registered_groups}
    return groups | {command.callback.__name__ for command in app.registered_commands if command.callback}


def test_the_console_blocks_of_the_desk_show_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the prepared probabilities the document names. `...` stands for lines that it leaves out."""
    from typer.testing import CliRunner

    from desk import ScriptedDecider, models
    from desk.cli import app

    decider = ScriptedDecider({"cancel": 0.91, "ask_policy": 0.09}, allow=0.8)
    monkeypatch.setattr(models, "load_shipped", lambda: decider)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("USER", "ann")
    monkeypatch.delenv("DESK_DB", raising=False)
    played: list[str] = []
    code = 0
    for line, arguments, shown in sessions(ROOT / "docs" / "desk.md"):
        if arguments[0] == "echo":
            assert arguments == ["echo", "$?"]
            assert shown == f"{code}\n", f"line {line}"
            continue
        assert arguments[0] == "desk", f"line {line}"
        result = CliRunner().invoke(app, arguments[1:])
        code = result.exit_code
        pattern = ".*".join(re.escape(part) for part in re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE))
        assert re.fullmatch(pattern, result.output, re.DOTALL), f"line {line}:\n{result.output}"
        played.append(next(word for word in arguments[1:] if not word.startswith("--")))
    assert set(played) >= commands_of_the_desk()


def test_the_drawing_of_the_desk_is_the_graph_that_runs() -> None:
    from desk import Planner, ScriptedDecider, build_graph
    from tools import AuditedTools, AuditLog, Mailer, send_email_tool

    with AuditLog(":memory:") as log, Mailer(":memory:") as mailer:
        graph = build_graph(Planner(), ScriptedDecider({}), AuditedTools([send_email_tool(mailer)], log))
    [(_, drawing)] = fenced(ROOT / "docs" / "desk.md", "mermaid")
    assert drawing == graph.draw_mermaid()


# ---------------------------------------------------------------------- links


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_relative_link_leads_to_a_file(document: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(document))
    relative = [target.partition("#")[0] for target in targets if not re.match(r"[a-z]+:|#", target)]
    missing = [target for target in relative if not (document.parent / target).exists()]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_source_file_that_a_document_names_exists(document: Path) -> None:
    """Paths in code style that lead into a folder of ours, such as `minigraph/step.py`."""
    text = document.read_text(encoding="utf-8")
    folders = "minigraph|tools|decider|desk|tests|examples|benchmarks|docs"
    named = set(re.findall(rf"`((?:{folders})/[\w/.-]+\.(?:py|md))`", text))
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []


# ------------------------------------------------------------------- commands


def commands(document: Path) -> list[str]:
    """What a document writes as code: the lines of its plain blocks and its inline code."""
    blocks = "\n".join(block for _, block in fenced(document, "", "console"))
    inline = re.findall(r"`([^`\n]+)`", prose(document))
    return [line.strip().removeprefix("$ ") for line in [*blocks.splitlines(), *inline]]


def recipes() -> dict[str, str]:
    """The targets of the Makefile with what they run."""
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    found = [re.match(r"([a-z]+):[^=]*?;(.*)", line) for line in lines]
    return {match.group(1): match.group(2) for match in found if match}


def test_every_make_target_that_a_document_names_exists() -> None:
    named = {
        match.group(1) for document in DOCUMENTS for c in commands(document) if (match := re.match(r"make (\w+)", c))
    }
    assert "test" in named
    assert named - recipes().keys() == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_the_commands_of_a_document_name_existing_files_and_modules(document: Path) -> None:
    """Those of the make targets that it names count as well."""
    given = commands(document)
    targets = {match.group(1) for command in given if (match := re.match(r"make (\w+)", command))}
    given += [recipes().get(target, "") for target in sorted(targets)]
    runs = [command for command in given if re.search(r"\b(python|pytest)\b", command)]
    files = {
        path
        for command in runs
        for path in re.findall(r"(?<![\w/])((?:tests|benchmarks|examples)/[\w/]+\.py)", command)
    }
    modules = {name for command in runs for name in re.findall(r"python -m ([\w.]+)", command)} - {"build", "pip"}
    assert [path for path in sorted(files) if not (ROOT / path).is_file()] == []
    assert [name for name in sorted(modules) if importlib.util.find_spec(name) is None] == []


def test_the_desk_has_every_command_that_a_document_names() -> None:
    known = commands_of_the_desk()
    named = {
        match.group(1) for document in DOCUMENTS for c in commands(document) if (match := re.match(r"desk (\w+)", c))
    }
    assert "ask" in named
    assert named - known == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_the_commands_of_the_decider_that_a_document_shows_are_understood(document: Path) -> None:
    from decider.cli import make_parser

    blocks = "\n".join(block for _, block in fenced(document, "", "console"))
    for line in blocks.splitlines():
        words = (
            shlex.split(re.sub(r"^\$ |\s#.*$| < \S+$|^[A-Z_]+=\S+ ", "", line), comments=False)
            if "decider " in line
            else []
        )
        if words[:1] == ["decider"]:
            make_parser().parse_args(words[1:])


# ---------------------------------------------------------------------- names


def explained(package: str) -> dict[str, bool]:
    """Every name that a module of a package defines at its top, and whether a docstring follows."""
    found: dict[str, bool] = {}
    for path in (ROOT / package).rglob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for place, node in enumerate(body):
            after = body[place + 1] if place + 1 < len(body) else None
            literal = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names, documented = [node.name], bool(ast.get_docstring(node))
            elif isinstance(node, ast.Assign):
                names, documented = [t.id for t in node.targets if isinstance(t, ast.Name)], literal
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names, documented = [node.target.id], literal
            else:
                continue
            for name in names:
                found[name] = found.get(name, False) or documented
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_has_a_docstring(package: str) -> None:
    public = importlib.import_module(package).__all__
    assert list(public) == sorted(public, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    # A package may pass on a name from one below it, where its docstring stands.
    known = {name: said for one in (*PACKAGES, package) for name, said in explained(one).items()}
    assert [name for name in public if not known[name]] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_says_what_it_is(package: str) -> None:
    modules = (ROOT / package).rglob("*.py")
    parsed = {name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in modules}
    silent = [name for name, tree in parsed.items() if tree.body and not ast.get_docstring(tree)]
    assert silent == []


def test_the_tour_names_every_module() -> None:
    tour = (ROOT / "docs" / "tour.md").read_text()
    package = ROOT / "minigraph"
    modules = {path.relative_to(ROOT).as_posix() for path in package.glob("*.py") if path.name != "__init__.py"}
    modules |= {f"{path.parent.relative_to(ROOT).as_posix()}/" for path in package.glob("*/__init__.py")}
    assert [module for module in sorted(modules) if f"`{module}`" not in tour] == []
