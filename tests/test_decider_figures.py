"""The guard's figures in the docs are those of the file, and of the model that is shipped."""

from __future__ import annotations

import json
from pathlib import Path

import decider_figures
import msgspec
import pages
import pytest
from decider_figures import GuardReport

from decider.manifest import read_manifest
from desk.decisions.figures import Figure, Figures, read_figures, table
from desk.decisions.guard import GuardCase, measure_guards
from desk.decisions.outside import MUST_ABSTAIN, OutsideFigure, outside_table

ROOT = Path(__file__).parent.parent
needs_figures = pytest.mark.skipif(not decider_figures.GUARD_FIGURES.exists(), reason="no figures were written")


def shown() -> GuardReport:
    return msgspec.json.decode(decider_figures.GUARD_FIGURES.read_bytes(), type=GuardReport)


@needs_figures
def test_the_figures_are_those_of_the_shipped_model() -> None:
    guard = shown()
    assert guard.model_sha256 == read_manifest(ROOT / "decider" / "models" / "desk").sha256
    page = decider_figures.GUARD_PAGE.read_text(encoding="utf-8")
    assert pages.table_of(page, "guard").strip() == decider_figures.guard_page(guard)
    assert pages.table_of(page, "outside").strip() == "\n".join(outside_table(guard.outside))


@needs_figures
def test_text_that_says_nothing_or_is_too_long_is_never_acted_on() -> None:
    assert {kind: shown().outside[kind].acted for kind in MUST_ABSTAIN} == dict.fromkeys(MUST_ABSTAIN, 0)


def test_decisions_between_two_thresholds_are_counted() -> None:
    cases = [GuardCase(True, {"one": 0.96875, "two": None}), GuardCase(True, {"one": 0.969, "two": 0.9688})]
    assert decider_figures.moved(cases, 0.96875, 0.969) == 2
    assert decider_figures.moved(cases, 0.969, 0.96875) == 2


def test_the_page_says_how_many_cases_there_were_and_what_rounding_moves() -> None:
    found = measure_guards([GuardCase(True, {"one": 1.0}), GuardCase(False, {"one": 0.0})], 0.375, 0.96875)
    text = decider_figures.guard_page(
        GuardReport("abc", 0.375, 0.96875, {"dev": found}, {"dev": 4}, {"dev": {"all": "Approve nothing."}}, {})
    )
    assert text.startswith("dev: 1 cases in which acting is right, 1 in which it is not.\n\n| guard |")
    assert "\n- `all`: Approve nothing.\n" in text
    assert text.endswith("tau_act is rounded to 0.969: 4 in dev.")


def test_lists_of_texts_are_read_by_their_keys(tmp_path: Path) -> None:
    path = tmp_path / "texts.json"
    path.write_text(json.dumps({"author": "t", "foreign": ["a"], "near": ["b", "c"], "general": [{"text": "d"}]}))
    assert decider_figures.read_texts(path) == {"foreign": ["a"], "near": ["b", "c"]}
    path.write_text(json.dumps({"foreign": ["a"]}))
    with pytest.raises(KeyError, match="near"):
        decider_figures.read_texts(path)


def test_figures_and_tables_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("ROUTER_FIGURES", "ROUTER_PAGE", "GUARD_FIGURES", "GUARD_PAGE")
    router_figures, router_page, guard_figures, guard_page = (tmp_path / name for name in names)
    for name in names:
        monkeypatch.setattr(decider_figures, name, tmp_path / name)
    router_page.write_text("a\n<!-- routers: begin -->\nold\n<!-- routers: end -->\nb\n")
    guard_page.write_text(
        "<!-- guard: begin -->\n<!-- guard: end -->\nc\n<!-- outside: begin -->\n<!-- outside: end -->\n"
    )
    found = measure_guards([GuardCase(True, {"one": 1.0}), GuardCase(False, {"one": 0.0})], 0.375, 0.96875)
    guard = GuardReport("abc", 0.375, 0.96875, {"dev": found}, {"dev": 0}, {"dev": {}}, {"odd": OutsideFigure(1, 3, 0)})
    figures = Figures("abc", {"dev": {"route": Figure(1, 2, 0.5, 0.1, 0.9, 0.75, 0.25)}})
    for _ in range(2):  # over what is there as well
        decider_figures.write(figures, guard)
        assert read_figures(router_figures) == figures
        assert msgspec.json.decode(guard_figures.read_bytes(), type=GuardReport) == guard
        assert router_page.read_text() == (f"a\n<!-- routers: begin -->\n{table(figures)}\n<!-- routers: end -->\nb\n")
        shown = guard_page.read_text()
        assert pages.table_of(shown, "guard") == f"{decider_figures.guard_page(guard)}\n"
        assert "| odd | 1 | 3 | 0 | 0.000 (0.000 to 0.561) |" in pages.table_of(shown, "outside")
