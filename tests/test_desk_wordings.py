"""The desk's wordings of its questions are such as the report takes."""

from __future__ import annotations

from pathlib import Path

from decider import Choice, Noul
from decider.report import read_wordings
from desk.decisions.ask import question_bank
from desk.decisions.wordings import main
from desk.routing import choice, noul


def test_every_question_is_there_with_its_ways_to_ask(tmp_path: Path) -> None:
    out = tmp_path / "wordings.json"
    main(["--split", "test", "--out", str(out)])
    found = read_wordings(out)
    bank = question_bank()
    assert set(found) == {*bank["nouls"], *bank["choices"]}
    assert found["asks_person"].base == noul("asks_person")
    assert found["intent"].base == choice("intent")
    texts = bank["nouls"]["asks_person"]
    assert [each.instructions for each in found["asks_person"].same] == texts["test"]
    assert [each.instructions for each in found["asks_person"].opposite] == texts["test_not"]
    assert all(isinstance(each, Noul) for each in found["guard"].same)
    assert all(isinstance(each, Choice) and each.criteria == choice("intent").criteria for each in found["intent"].same)
    assert len(found["intent"].same) >= 2
