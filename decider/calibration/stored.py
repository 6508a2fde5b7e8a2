"""The file calibration.json of a model folder: what gives yes/no answers their intervals, for these weights alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from decider.calibration.venn_abers import VennAbers, fit_venn_abers
from decider.errors import CalibrationError, ModelFileError
from decider.manifest import CALIBRATION_FILE


@dataclass(frozen=True, slots=True)
class StoredCalibration:
    """The contents of calibration.json: the weights it was fitted with, and the steps from a Noul's raw logit."""

    model_sha256: str
    noul: VennAbers


def fit_stored(model_sha256: str, logits: Sequence[float], outcomes: Sequence[bool]) -> StoredCalibration:
    """Fit to raw logits of Nouls; raises CalibrationError when there are none."""
    if not logits:
        raise CalibrationError("the interval of yes/no answers", "there is no labelled Noul", "Calibrate on some.")
    return StoredCalibration(model_sha256, fit_venn_abers(logits, [float(outcome) for outcome in outcomes]))


def write_stored(folder: Path, stored: StoredCalibration) -> None:
    """Write calibration.json, one line a list."""
    (folder / CALIBRATION_FILE).write_bytes(msgspec.json.encode(stored).replace(b"],", b"],\n ") + b"\n")


def read_stored(folder: Path, model_sha256: str) -> StoredCalibration | None:
    """Read calibration.json; None where there is none.

    Raises ModelFileError for a file that is damaged or was fitted with other weights.
    """
    path = folder / CALIBRATION_FILE
    remedy = "Fit it again with python -m decider.calibration, or delete it to do without intervals."
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=StoredCalibration)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ModelFileError(path, f"it cannot be read ({error})", remedy) from error
    if stored.model_sha256 != model_sha256:
        raise ModelFileError(path, "it was fitted with other weights than those in the folder", remedy)
    return stored
