"""What is in a wheel: the engine alone, and no command of a package that is not there."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

wheel = pytest.importorskip("hatchling.builders.wheel")

ROOT = Path(__file__).parent.parent


def built(version: str, folder: Path) -> dict[str, str]:
    """The text files of a wheel by name."""
    (path,) = wheel.WheelBuilder(str(ROOT)).build(directory=str(folder), versions=[version])
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_a_wheel_holds_the_engine_and_no_command(tmp_path: Path) -> None:
    files = built("standard", tmp_path)
    tops = {name.partition("/")[0] for name in files}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"minigraph"}
    assert "minigraph/py.typed" in files
    assert not [name for name in files if name.endswith("entry_points.txt")]
    (metadata,) = (text for name, text in files.items() if name.endswith(".dist-info/METADATA"))
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert [line.partition(">")[0] for line in needed] == ["Requires-Dist: msgspec"]


def test_an_editable_install_has_both_commands(tmp_path: Path) -> None:
    files = built("editable", tmp_path)
    (entry_points,) = (text for name, text in files.items() if name.endswith("entry_points.txt"))
    assert "decider = decider.cli:main" in entry_points
    assert "desk = desk.cli:main" in entry_points
