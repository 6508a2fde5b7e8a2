"""Makes the layout that a manifest describes."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from decider.causal import CausalLayout
from decider.errors import ModelFileError
from decider.layout import Layout
from decider.manifest import MANIFEST_FILE
from decider.pair import PairLayout
from decider.rows import AnyLayout, Limits
from decider.specs import Causal, Pair, Spec


def open_layout(folder: Path, tokenizer: Tokenizer, spec: Spec, limits: Limits) -> AnyLayout:
    """Return the layout; raises ModelFileError where it does not fit the tokenizer or contradicts itself."""
    try:
        return _layout(tokenizer, spec, limits)
    except ValueError as error:
        raise ModelFileError(
            folder / MANIFEST_FILE, f"its layout cannot be used: {error}", "Correct it, or bring the right tokenizer."
        ) from error


def read_tokenizer(path: Path) -> Tokenizer:
    """Read tokenizer.json; raises ModelFileError for what is none."""
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises no class of its own
        raise ModelFileError(
            path, f"it is not a tokenizer ({error})", "Bring the tokenizer.json of the model."
        ) from error


def _layout(tokenizer: Tokenizer, spec: Spec, limits: Limits) -> AnyLayout:
    if isinstance(spec, Pair):
        return PairLayout(tokenizer, spec, limits)
    if isinstance(spec, Causal):
        return CausalLayout(tokenizer, spec, limits)
    for name in spec.markers.__slots__:
        token = getattr(spec.markers, name)
        if tokenizer.id_to_token(token) is None:
            raise ValueError(f"the tokenizer has no token {token}, which is the marker {name!r}")
    return Layout(tokenizer, spec.markers, limits)
