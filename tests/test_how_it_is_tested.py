"""The page that says how the engine is tested counts what is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import size
from crash import Tally
from laws import NAMES, Count, resumed
from pages import table_of
from seeded_bugs import BUGS

from minigraph.testing import laws, saver_checks
from minigraph.testing.oracle import Table

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "how-it-is-tested.md").read_text(encoding="utf-8")


def block(name: str) -> str:
    """What stands between two marks of the page."""
    return table_of(PAGE, name)


def near(said: int, real: int) -> bool:
    """Whether a figure of the page is right within a twentieth, so that not every commit has to touch the page."""
    return abs(said - real) <= max(2, real / 20)


def count_of_tests(path: Path) -> int:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return sum(isinstance(node, ast.FunctionDef) and node.name.startswith("test_") for node in tree.body)


def test_the_page_counts_the_tests_of_each_file() -> None:
    counts = {name: int(count) for name, count in re.findall(r"`(tests/\w+\.py)`: (\d+) tests", PAGE)}
    assert len(counts) == 9
    real = {name: count_of_tests(ROOT / name) for name in counts}
    assert {name: (counts[name], real[name]) for name in counts if not near(counts[name], real[name])} == {}


def test_the_page_counts_laws_checks_and_bugs() -> None:
    assert f": {len(NAMES)} laws" in PAGE
    assert f": {len(saver_checks())} checks" in PAGE
    assert f": {len(BUGS)} bugs" in PAGE


def test_the_page_shows_every_law_with_what_it_says() -> None:
    found = (laws.any_finishing_order, laws.savers_agree, *laws.PROGRAM_LAWS)
    rows = [f"| {law.__name__.replace('_', ' ')} | {(law.__doc__ or '').splitlines()[0]} |" for law in found]
    assert block("laws") == "\n".join(["| Law | What it says |", "|---|---|", *rows, ""])


def test_nothing_was_lost_or_done_twice_in_the_crash_sweep_of_the_page() -> None:
    rows = re.findall(r"^\| (.+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", block("crash"), re.MULTILINE)
    tallies = {name: tuple(map(int, counts)) for name, *counts in rows}
    assert set(tallies) == {"random", "desk, a person approves", "desk, sent at once"}
    assert tallies["random"][0] == 200
    assert all(stops > 10 and (lost, twice) == (0, 0) for _, stops, lost, twice in tallies.values())


def test_nothing_was_lost_or_done_twice_in_the_trials_of_the_page() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| [^|]+ \| (\d+) \|$", block("endurance"), re.MULTILINE)
    assert len(rows) >= 9
    assert {wrong for *_, wrong in rows} == {"0"}
    found = {(trial.partition(":")[0], store): how_much for trial, store, how_much, _ in rows}
    stores = ("SQLite", "PostgreSQL")
    assert set(found) == {(each, store) for each in ("crowd", "kill", "race") for store in stores} | {
        ("faults of a file", "SQLite")
    }
    assert all(re.match(r"(5\d\d) kills in", how_much) for (trial, _), how_much in found.items() if trial == "kill")


def test_the_page_says_how_large_the_engine_is() -> None:
    said = re.search(r"The engine without savers and testing is .*? has \d+\.", PAGE.replace("\n", " "))
    assert said is not None
    real = size.sentence()
    assert re.sub(r"\d+", "N", said[0]) == re.sub(r"\d+", "N", real)
    pairs = zip(re.findall(r"\d+", said[0]), re.findall(r"\d+", real), strict=True)
    assert [pair for pair in pairs if not near(int(pair[0]), int(pair[1]))] == [], real
    assert size.code_lines(ROOT / "benchmarks" / "size.py") < 50


# ---------------------------------------------------------------- the commands


def test_the_laws_are_counted_and_a_part_that_is_there_is_not_run_again(tmp_path: Path) -> None:
    found = resumed(range(0, 1), tmp_path)
    assert (found.programs, found.broken) == (1, [])
    assert found.held == dict.fromkeys(NAMES, 1)
    (part,) = tmp_path.iterdir()
    part.write_text(part.read_text().replace('"programs": 1', '"programs": 7'))
    assert resumed(range(0, 1), tmp_path).programs == 7


def test_a_broken_law_is_counted_with_its_seed() -> None:
    count = Count(1, {"a": 1}, [])
    count.add(Count(2, {"a": 1, "b": 2}, [("b", 5, "why")]))
    assert (count.programs, count.held, count.broken) == (3, {"a": 2, "b": 2}, [("b", 5, "why")])
    assert count.lines()[-3:] == ["| b | 2 |", "| given up | 0 |", "| broken | 1 |"]


def test_a_tally_shows_what_broke() -> None:
    tally = Tally(1, 4)
    tally.add(Tally(1, 3, lost=["x"], twice=["y"]))
    assert tally.lines("all") == ["| all | 2 | 7 | 1 | 1 |", "  lost: x", "  done twice: y"]


def test_the_page_of_parity_shows_no_difference() -> None:
    page = (ROOT / "docs" / "parity.md").read_text(encoding="utf-8")
    table = Table.read(page)
    drawn = re.search(r"^(\d+) programs, seeds", page, re.MULTILINE)
    assert drawn is not None
    assert table.compared + sum(table.outside.values()) == int(drawn[1]) > 20_000
    assert "| differences | 0 |" in page
