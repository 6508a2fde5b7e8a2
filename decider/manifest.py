"""The file decider.json of a model folder: what the weights are, how they are to be used, how good they were."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from decider.answers import Calibration
from decider.errors import ModelFileError
from decider.rows import Limits
from decider.specs import Spec

FORMAT: Final = 2
# Format 1 knew the shared layout alone and named its markers at the top.
OLDEST_FORMAT: Final = 1
MODEL_FILE: Final = "model.onnx"
TOKENIZER_FILE: Final = "tokenizer.json"
MANIFEST_FILE: Final = "decider.json"
GOLDEN_FILE: Final = "golden.json"
CALIBRATION_FILE: Final = "calibration.json"

Precision: TypeAlias = Literal["int8-weights", "float32", "float16", "dynamic-int8"]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of decider.json. `sha256` is that of model.onnx, `tokenizer_sha256` that of tokenizer.json.

    `layout` says how the model is asked and read (see decider.specs). `precision`: "int8-weights" are stored in eight
    bits and computed with in float32, "float16" is stored and computed in sixteen bits, "dynamic-int8" rounds
    activations too (see decider.precision). `released` is the day of the model, YYYY-MM-DD, or "" in a folder that does
    not say.
    """

    format: int
    name: str
    sha256: str
    tokenizer_sha256: str
    layout: Spec
    limits: Limits
    calibration: Calibration
    training: Mapping[str, object] = field(default_factory=dict)
    metrics: Mapping[str, object] = field(default_factory=dict)
    precision: Precision = "int8-weights"
    released: str = ""


def read_manifest(folder: Path) -> Manifest:
    """Read decider.json and check both files against it; raises ModelFileError for anything missing or different."""
    path = folder / MANIFEST_FILE
    try:
        fields = msgspec.json.decode(path.read_bytes())
        manifest = msgspec.convert(_in_this_format(fields, path), type=Manifest)
    except FileNotFoundError:
        raise ModelFileError(
            path, "the model is not there", "Train it with python -m decider.train, or give the path of its folder."
        ) from None
    except msgspec.DecodeError as error:  # not JSON, or a field is missing or of the wrong kind
        raise ModelFileError(path, f"it cannot be read ({error})", "Restore or correct the file.") from error
    unknown = _unknown_fields(fields, msgspec.to_builtins(manifest))
    if unknown and fields["format"] == FORMAT:
        raise ModelFileError(path, f"nothing is known of the field {unknown[0]}", "Correct its name or leave it out.")
    for name, expected in ((MODEL_FILE, manifest.sha256), (TOKENIZER_FILE, manifest.tokenizer_sha256)):
        file = folder / name
        if not file.is_file():
            raise ModelFileError(file, "the file is missing", "Restore it from the repository.")
        if sha256(file) != expected:
            raise ModelFileError(file, "its sha256 is not the one in decider.json", "Restore it from the repository.")
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write decider.json."""
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    (folder / MANIFEST_FILE).write_bytes(text + b"\n")


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _in_this_format(fields: object, path: Path) -> object:
    """Return the fields of a manifest as this version writes them."""
    if not isinstance(fields, dict) or fields.get("format") == FORMAT:
        return fields
    if fields.get("format") != OLDEST_FORMAT:
        known = f"This version reads the formats {OLDEST_FORMAT} and {FORMAT}."
        raise ModelFileError(path, f"its format is {fields.get('format')}", known)
    kept = {name: value for name, value in fields.items() if name != "markers"}
    return {**kept, "format": FORMAT, "layout": {"kind": "shared", "markers": fields.get("markers")}}


def _unknown_fields(given: Any, known: Any, where: str = "") -> list[str]:
    """Return the paths of what stands in the file and not in the record that was read from it."""
    if not isinstance(given, dict) or not isinstance(known, dict):
        return []
    found = []
    for name, value in given.items():
        place = f"{where}.{name}" if where else str(name)
        found += _unknown_fields(value, known[name], place) if name in known else [place]
    return found
