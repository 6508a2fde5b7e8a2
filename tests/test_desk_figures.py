"""The figures in the docs are those of the model that is shipped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from desk.decisions.figures import Figure, Figures, Prediction, figure_of, read_figures, table

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "decider-figures.json"


def test_a_figure_counts_and_compares_confidence_with_accuracy() -> None:
    said = [Prediction("a", "", {"a": 0.75, "b": 0.25}), Prediction("b", "", {"a": 0.75, "b": 0.25})]
    found = figure_of(said)
    assert (found.right, found.count, found.share, found.mean_probability) == (1, 2, 0.5, 0.75)
    assert found.calibration_error == 0.25


def test_figures_survive_their_file(tmp_path: Path) -> None:
    figures = Figures("abc", {"dev": {"route": Figure(1, 2, 0.5, 0.1, 0.9, 0.75, 0.25)}})
    path = tmp_path / "figures.json"
    path.write_text(figures.to_json())
    assert read_figures(path) == figures
    assert "| dev | route | 1 of 2 | 0.500 (0.100 to 0.900) | 0.750 | 0.250 |" in table(figures)


@pytest.mark.skipif(not FIGURES.exists(), reason="no model is shipped")
def test_the_docs_show_the_figures_of_the_shipped_model() -> None:
    from decider.manifest import read_manifest

    figures = read_figures(FIGURES)
    assert figures.model_sha256 == read_manifest(ROOT / "decider" / "models" / "desk").sha256
    assert table(figures) in (ROOT / "docs" / "decider.md").read_text()


def test_the_docs_show_the_loss_of_the_shipped_model() -> None:
    described = json.loads((ROOT / "decider" / "models" / "desk" / "decider.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "decider.md").read_text(encoding="utf-8")
    first, *others = described["training"]["processes"]
    assert f"loss of {first['best_loss']:.3f} after {first['steps']:,} steps" in page
    assert all(other["best_loss"] == first["best_loss"] for other in others)
