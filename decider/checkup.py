"""Shows what a model folder takes and gives, where it comes from, and whether it answers as when it was made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from decider.golden import check_longest, moved_by_company
from decider.manifest import GOLDEN_FILE, MODEL_FILE, Manifest, read_manifest
from decider.model import TOLERANCE, Decider, read_golden
from decider.onnx_header import read_header
from decider.session import open_session

# How far asking together may move a logit; float32 sums in another order move it by less.
TOGETHER: Final = 1e-4
LICENCES: Final = ("LICENSE", "NOTICE")


@dataclass(frozen=True, slots=True)
class Checkup:
    """Lines to print, and what is wrong: nothing, for a folder that can be relied on."""

    lines: tuple[str, ...]
    faults: tuple[str, ...]


def check_folder(folder: Path, provider: str = "auto", threads: int | None = None) -> Checkup:
    """Open a folder and ask its golden requests, alone and together; raises DeciderError where it cannot be opened."""
    manifest = read_manifest(folder)
    decider = Decider.load(folder, provider, threads)
    golden = folder / GOLDEN_FILE
    cases, difference = len(read_golden(golden)), decider.check_golden()
    together, allowed = moved_by_company(decider, golden), TOLERANCE[decider.provider]
    longest = check_longest(decider)
    lines = (
        *_described(folder, manifest),
        f"provider     {decider.provider}" + (f" ({decider.provider_reason})" if decider.provider_reason else ""),
        f"golden       {cases} requests, largest difference of a logit {difference:.2g} (allowed: {allowed:g})",
        f"in company   largest difference of a logit {together:.2g} (allowed: {TOGETHER:g})",
        f"longest row  {longest} tokens",
    )
    faults = []
    if not difference <= allowed:
        faults.append("the golden requests are not answered as they were when the folder was written")
    if not together <= TOGETHER:
        faults.append("an answer depends on what else is asked: the graph ignores its mask, or rounds activations")
    return Checkup(lines, tuple(faults))


def _described(folder: Path, manifest: Manifest) -> Iterator[str]:
    path = folder / MODEL_FILE
    yield f"name         {manifest.name}" + (f", released {manifest.released}" if manifest.released else "")
    kind = type(manifest.layout).__name__.lower()
    yield f"layout       {kind}, format {manifest.format}, precision {manifest.precision}"
    yield f"model        {path.stat().st_size / 1e6:.1f} MB, sha256 {manifest.sha256}"
    if (header := read_header(path)) is not None:
        opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in sorted(header.opsets.items()))
        yield f"opset        {opsets}; IR version {header.ir_version}; written by {header.producer or 'nobody named'}"
    session = open_session(path, "cpu", 1).session
    if session is not None:
        for what, ports in (("input", session.get_inputs()), ("output", session.get_outputs())):
            yield from (f"{what:12} {port.name}: {port.type} {_shape(port.shape)}" for port in ports)
    limits = manifest.limits
    yield f"limits       state {limits.state}, question {limits.question}, refused {limits.state_refused} (tokens)"
    temperatures = ", ".join(f"{kind} {value:.3g}" for kind, value in manifest.calibration.temperatures.items())
    yield f"calibration  {manifest.calibration.name}" + (f": {temperatures}" if temperatures else "")
    for name, value in _plain(manifest.training):
        yield f"training     {name}: {value}"
    found = [name for name in LICENCES if (folder / name).is_file()]
    yield f"licence      {', '.join(found) or 'no file says'}"


def _shape(shape: Any) -> str:
    return "(" + ", ".join(str(size) for size in shape) + ")"


def _plain(training: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """What of a training record fits in a line each."""
    yield from ((name, value) for name, value in training.items() if isinstance(value, str | int | float))
