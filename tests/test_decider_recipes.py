"""The comparison of recipes for the decision model, and the table that shows it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch")

import decider_recipes
import pages
from decider_recipes import Measured, Recipes

from decider.layout import Row
from decider.train.batches import LabelledRow

needs_figures = pytest.mark.skipif(not decider_recipes.OUT.exists(), reason="nothing was compared")


@needs_figures
def test_the_docs_show_what_was_compared() -> None:
    found = decider_recipes.read()
    page = decider_recipes.PAGE.read_text(encoding="utf-8")
    assert pages.table_of(page, "recipes").strip() == decider_recipes.table(found)
    assert {row.name for row in found.recipes} <= {recipe.name for recipe in decider_recipes.RECIPES}


def test_answers_are_read_off_the_markers_by_hand() -> None:
    none = np.zeros(0, dtype=np.int64)
    row = LabelledRow(Row(none, none, none, none, {}), [(1, 1.0)], [([2, 3], [0.0, 1.0])], [])
    logits = np.zeros((4, 3))
    logits[1, 0], logits[2, 1], logits[3, 1] = np.log(3), np.log(2), np.log(6)
    noul, choice = decider_recipes._answers(row, logits)
    assert noul.tolist() == pytest.approx([0.75])
    assert choice.tolist() == pytest.approx([0.25, 0.75])


def test_rows_of_another_cpu_time_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decider_recipes, "OUT", tmp_path / "recipes.json")
    monkeypatch.setattr(decider_recipes, "PAGE", tmp_path / "page.md")
    (tmp_path / "page.md").write_text("".join(pages.marks("recipes")))
    first, second = (Measured(name, 1.0, 0.5, 0.5, 20.0, 7, 70) for name in ("seed 0", "seed 1"))
    decider_recipes.write(Recipes(8.0, [second]))
    decider_recipes.write(Recipes(8.0, [first]))
    assert decider_recipes.read() == Recipes(8.0, [first, second])
    decider_recipes.write(Recipes(2.0, [first]))
    assert decider_recipes.read() == Recipes(2.0, [first])
    assert "| seed 0 | 1.000 |" in (tmp_path / "page.md").read_text()
