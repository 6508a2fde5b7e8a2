"""The command that compares speed and size measures right results, and the page shows what it wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import speed
from pages import table_of
from speed_cases import CASES, Append, Case, Minigraph, expect

PAGE = Path(__file__).parent.parent / "docs" / "speed.md"


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_case_runs_on_every_engine(case: Case) -> None:
    figures = speed.measured(case, 6, 1)
    assert [figure.name for figure in figures[:2]] == ["by hand", "minigraph"]
    assert len(figures) == 1 + len(speed.engines_for(case))
    assert figures[0].ratio == 1
    assert all(figure.micros > 0 and figure.ratio > 0 for figure in figures)
    rows = [*speed.lines_of(case.name, case.unit, 6, figures)]
    assert rows[0].startswith(f"| {case.name} (6) | {case.unit} | by hand | ")
    assert all(row.count("|") == speed.HEAD.partition("\n")[0].count("|") for row in rows)


def test_a_growing_list_takes_at_most_twice_the_bytes_of_its_rows_by_hand() -> None:
    case = Append()
    for size in (400, 800):
        assert case.engine(Minigraph(), size)[1] <= 2.2 * case.floor(size)[1]


def test_a_wrong_result_ends_the_command() -> None:
    with pytest.raises(SystemExit, match="wrong result: 1 instead of 2"):
        expect(1, 2)


def test_the_page_shows_every_case_and_no_engine_beats_us_where_we_say_so() -> None:
    table = table_of(PAGE.read_text(encoding="utf-8"), "speed")
    assert table.startswith(speed.HEAD)
    for case in CASES:
        assert f"| {case.name} ({case.size:,}) |" in table
    assert "| import, with the saver (1) |" in table
    against = [float(found) for found in re.findall(r"\| LangGraph[^|]* \| [^|]* \| [^|]* \| ([\d.]+) \|", table)]
    assert len(against) == len(CASES) + 2
    assert sum(ratio > 3 for ratio in against) >= len(against) - 2
