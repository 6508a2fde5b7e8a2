"""Makes a model folder from an ONNX file, or a PyTorch module, and its tokenizer.

    python -m decider.export model.onnx tokenizer.json FOLDER --name my-model --layout pair

The folder is written as a whole or not at all: the graph is held against the layout, the longest row is tried, the
fixed requests are answered, alone and together, and a PyTorch module is compared with the file that was made of it.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from decider.answers import Calibration
from decider.checkup import TOGETHER
from decider.errors import DeciderError, MissingPackageError, ModelFileError
from decider.golden import FIXED_REQUESTS, FixedRequest, check_longest, moved_by_company, write_golden
from decider.layout import INPUT_NAMES
from decider.manifest import (
    FORMAT,
    GOLDEN_FILE,
    MODEL_FILE,
    TOKENIZER_FILE,
    Manifest,
    Precision,
    sha256,
    write_manifest,
)
from decider.model import Decider
from decider.rows import Limits, collate
from decider.specs import Causal, Pair, Shared, Spec

if TYPE_CHECKING:
    import torch  # pyright: ignore[reportMissingImports]  # only the extra `train` brings it

PARITY: Final = 1e-4
OPSET: Final = 17
# The longest side of an example that the graph is recorded with; the sizes stay free.
EXAMPLE_TOKENS: Final = 8


@dataclass(frozen=True, slots=True)
class Exported:
    """A folder that was written, and what was measured on the fixed requests, in logits.

    `parity` is the largest difference between the PyTorch module and the file (None: there was no module), `together`
    that between asking alone and in company, `longest` the tokens of the longest row that was tried.
    """

    folder: Path
    parity: float | None
    together: float
    longest: int


def export_model(
    source: Path | torch.nn.Module,
    tokenizer: Path,
    folder: Path,
    layout: Spec,
    *,
    name: str,
    limits: Limits | None = None,
    calibration: Calibration | None = None,
    precision: Precision = "float32",
    released: str = "",
    provenance: Mapping[str, object] | None = None,
    requests: Sequence[FixedRequest] = FIXED_REQUESTS,
) -> Exported:
    """Write a model folder.

    `source` is an ONNX file, or a PyTorch module that takes the layout's inputs by their names and returns the logits,
    or an object with `logits`. `provenance` is kept under `training` in decider.json: where the model came from, its
    licence. `requests` become golden.json. Raises ModelFileError for whatever does not fit, and where a module and its
    file differ by more than 1e-4; MissingPackageError without torch where a module is given.
    """
    if folder.exists():
        raise ModelFileError(folder, "it is there already", "Give a path that is free.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as directory:
        made = Path(directory) / "model"
        made.mkdir()
        if isinstance(source, Path):
            _copy(source, made / MODEL_FILE)
        else:
            _record(source, layout, made / MODEL_FILE)
        _copy(tokenizer, made / TOKENIZER_FILE)
        digests = sha256(made / MODEL_FILE), sha256(made / TOKENIZER_FILE)
        manifest = Manifest(
            FORMAT,
            name,
            *digests,
            layout,
            limits or Limits(),
            calibration or Calibration(),
            provenance or {},
            precision=precision,
            released=released,
        )
        write_manifest(made, manifest)
        decider = Decider.load(made, "cpu")
        longest = check_longest(decider)
        write_golden(decider, requests, made / GOLDEN_FILE)
        together = moved_by_company(decider, made / GOLDEN_FILE)
        if not together <= TOGETHER:
            raise ModelFileError(
                made / MODEL_FILE,
                f"answers depend on what else is in the batch: a logit moves by {together:.2g}",
                "Let the network look at its mask.",
            )
        parity = None if isinstance(source, Path) else _parity(source, decider, requests)
        made.rename(folder)
    return Exported(folder, parity, together, longest)


def _copy(source: Path, target: Path) -> None:
    if not source.is_file():
        raise ModelFileError(source, "the file is not there", "Check the path.")
    shutil.copyfile(source, target)


def _inputs(layout: Spec) -> tuple[str, ...]:
    return INPUT_NAMES if isinstance(layout, Shared) else layout.inputs


def _record(module: torch.nn.Module, layout: Spec, path: Path) -> None:
    """Write a module as ONNX with free numbers of rows and tokens."""
    torch = _torch()
    names = _inputs(layout)
    output = "logits" if isinstance(layout, Shared) else layout.output

    class ByName(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        """Gives the inputs by name and returns the logits alone."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *tensors: Any) -> Any:
            return _logits(self.module(**dict(zip(names, tensors, strict=True))))

    example = tuple(torch.ones((2, EXAMPLE_TOKENS), dtype=torch.int64) for _ in names)
    axes = {0: "rows", 1: "tokens"}
    outputs = {0: "rows"} if isinstance(layout, Pair) else axes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter announces its own successor on every call
        torch.onnx.export(
            ByName().eval(),
            example,
            str(path),
            input_names=list(names),
            output_names=[output],
            dynamic_axes=dict.fromkeys(names, axes) | {output: outputs},
            opset_version=OPSET,
            dynamo=False,
        )


def _parity(module: torch.nn.Module, decider: Decider, requests: Sequence[FixedRequest]) -> float:
    """Return the largest difference of what is read, row by row; raises ModelFileError above PARITY."""
    torch = _torch()
    module.eval()
    largest = 0.0
    for state, questions in requests:
        for row in decider.encode(state, questions).request.rows:
            batch = collate([row], decider.layout.graph.padding)
            with torch.no_grad():
                wanted = _logits(module(**{key: torch.from_numpy(values) for key, values in batch.items()}))
            given = decider.run(batch)
            for question_id, values in row.pick(wanted.numpy()[0]).items():
                difference = np.abs(values - row.pick(given[0])[question_id]).max()
                largest = float(np.maximum(largest, difference))  # NaN stays NaN
    if not largest <= PARITY:
        raise ModelFileError(
            decider.folder / MODEL_FILE,
            f"the PyTorch module and the ONNX file made of it differ by {largest:.3g}, more than {PARITY}",
            "Look for what the exporter cannot record, such as branches on the content of a tensor.",
        )
    return largest


def _limits(text: str) -> Limits:
    """Read --limits; raises ValueError for names that are not known and numbers that are none."""
    given = msgspec.json.decode(text, type=dict[str, int])
    unknown = given.keys() - set(Limits.__slots__)
    if unknown:
        raise ValueError(f"--limits: {min(unknown)!r} is no limit; allowed are {', '.join(Limits.__slots__)}")
    return Limits(**given)


def _logits(output: Any) -> Any:
    return getattr(output, "logits", output)


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise MissingPackageError("torch", f"it cannot be imported ({error})", "Install torch.") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a folder from an ONNX file and say what was measured."""
    parser = argparse.ArgumentParser(
        prog="python -m decider.export", description="Make a model folder of an ONNX file."
    )
    parser.add_argument("onnx", type=Path, help="the ONNX file")
    parser.add_argument("tokenizer", type=Path, help="its tokenizer.json")
    parser.add_argument("folder", type=Path, help="the folder to write")
    parser.add_argument("--name", required=True, help="the name that answers carry")
    parser.add_argument(
        "--layout", default="pair", help='"pair", or the layout as JSON: {"kind": "causal", "pad": "<pad>"}'
    )
    parser.add_argument("--limits", default="{}", help='lengths as JSON: {"state": 352, "question": 160}')
    parser.add_argument("--source", default="", help="where the model comes from, and its licence")
    options = parser.parse_args(arguments)
    text = '{"kind": "pair"}' if options.layout == "pair" else options.layout
    try:
        layout: Shared | Pair | Causal = msgspec.json.decode(text, type=Shared | Pair | Causal)
        limits = _limits(options.limits)
        provenance = {"source": options.source} if options.source else {}
        done = export_model(
            options.onnx,
            options.tokenizer,
            options.folder,
            layout,
            name=options.name,
            limits=limits,
            provenance=provenance,
        )
    except (DeciderError, ValueError, OSError) as error:  # msgspec's errors are ValueErrors
        sys.stderr.write(f"decider.export: {error}\n")
        return 2
    sys.stdout.write(
        f"{done.folder} was written. Rows of up to {done.longest} tokens run; asking together moves logits by at most "
        f"{done.together:.2g}.\nSee it with: decider check {done.folder}\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
