"""The network: a BERT encoder whose attention mask is derived from the layout's integers, and a head for three logits.

The lower layers read the state and each question text by itself, as the encoder was pretrained to; only the upper ones
let questions look into the state. A logit is the sum of two terms: what the head reads off the marker, and how well
the question or option, pooled over its own tokens, matches the state, pooled by attention (a cosine, as between two
sentences). The second term is meaningful before any training, which makes the first steps of training fast.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from decider.layout import STATE
from decider.train.base import Base, Shape

LOGITS: Final = 3  # column 0 for a Noul, column 1 for an option, column 2: can it be answered from this state?
UNSEEN: Final = -1e9
READS_ALONE: Final = 0.5  # the share of layers, from below, in which questions do not see the state


# Parameters that no base brings.
NEW: Final = ("dense", "out", "marker_words", "focus", "match_")


class Layer(nn.Module):
    """Self-attention and a feed-forward part, each followed by a sum and a normalisation, as in BERT."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.projected = nn.Linear(shape.hidden, 3 * shape.hidden)
        self.joined = nn.Linear(shape.hidden, shape.hidden)
        self.attention_norm = nn.LayerNorm(shape.hidden, eps=shape.epsilon)
        self.widen = nn.Linear(shape.hidden, shape.inner)
        self.narrow = nn.Linear(shape.inner, shape.hidden)
        self.output_norm = nn.LayerNorm(shape.hidden, eps=shape.epsilon)

    def forward(self, hidden: Tensor, sees: Tensor) -> Tensor:
        """Return the next hidden states, (rows, tokens, hidden); `sees` is boolean, (rows, 1, tokens, tokens)."""
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.projected(hidden).chunk(3, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=_as_bias(sees, query.dtype))
        hidden = self.attention_norm(hidden + self.joined(mixed.transpose(1, 2).flatten(2)))
        normed: Tensor = self.output_norm(hidden + self.narrow(functional.gelu(self.widen(hidden))))
        return normed


class Network(nn.Module):
    """Four integer arrays (rows, tokens) in, logits (rows, tokens, 3) out."""

    def __init__(self, base: Base) -> None:
        super().__init__()
        shape = base.shape
        self.markers = base.markers
        self.words = nn.Embedding(shape.vocabulary, shape.hidden)
        self.places = nn.Embedding(shape.positions, shape.hidden)
        self.norm = nn.LayerNorm(shape.hidden, eps=shape.epsilon)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.dense = nn.Linear(shape.hidden, shape.hidden)
        self.out = nn.Linear(shape.hidden, LOGITS)
        self.focus = nn.Linear(shape.hidden, 1)
        self.match_state = nn.Linear(shape.hidden, shape.hidden)
        self.match_own = nn.Linear(shape.hidden, shape.hidden)
        self.match_scale = nn.Parameter(torch.tensor([4.0, 10.0, 4.0]))
        self.match_bias = nn.Parameter(torch.zeros(LOGITS))
        self._start_as_plain_cosine()
        # Tells the two markers apart where questions begin to look into the state; the vocabulary stays as it was.
        self.marker_words = nn.Parameter(torch.zeros(2, shape.hidden))
        if base.weights:
            missing, unexpected = self.load_state_dict(base.weights, strict=False)
            if unexpected or any(not name.startswith(NEW) for name in missing):
                raise ValueError(f"the base does not fit the network: missing {missing}, unexpected {unexpected}")
        self.words.weight.requires_grad_(False)
        self.places.weight.requires_grad_(False)

    def freeze_below(self, layers: int) -> None:
        """Keep the lowest layers as they were pretrained; training then costs less and forgets less."""
        if layers:
            self.norm.requires_grad_(False)
        for layer in self.layers[:layers]:
            layer.requires_grad_(False)

    def forward(self, input_ids: Tensor, position_ids: Tensor, question_ids: Tensor, option_ids: Tensor) -> Tensor:
        """Return the logits; see decider.layout for the meaning of the inputs."""
        is_noul, is_option = input_ids == self.markers.noul, input_ids == self.markers.option
        hidden = self.words(input_ids) + self.places(position_ids)
        hidden = self.norm(hidden)
        sees = who_sees_whom(question_ids, option_ids, is_option)
        sees_own = sees & (question_ids.unsqueeze(2) == question_ids.unsqueeze(1)).unsqueeze(1)
        alone = int(len(self.layers) * READS_ALONE)
        for index, layer in enumerate(self.layers):
            if index == alone:
                markers = torch.stack((is_noul, is_option), dim=-1).to(hidden.dtype)
                hidden = hidden + markers @ self.marker_words
            hidden = layer(hidden, sees_own if index < alone else sees)
        matches = self._matches(hidden, question_ids, option_ids)
        logits: Tensor = self.out(functional.gelu(self.dense(hidden))) + matches * self.match_scale + self.match_bias
        return logits

    def _matches(self, hidden: Tensor, question_ids: Tensor, option_ids: Tensor) -> Tensor:
        """Return the cosine of each token's own text (its stem or its option) with the state, (rows, tokens, 1)."""
        weights = self.focus(hidden).squeeze(-1).masked_fill(question_ids != STATE, -1e9).softmax(-1)
        state = self.match_state((hidden * weights.unsqueeze(-1)).sum(1, keepdim=True))
        same_question = question_ids.unsqueeze(2) == question_ids.unsqueeze(1)
        own = (same_question & (option_ids.unsqueeze(2) == option_ids.unsqueeze(1))).to(hidden.dtype)
        pooled = self.match_own(own @ hidden / own.sum(-1, keepdim=True))
        return (_unit(pooled) * _unit(state)).sum(-1, keepdim=True)

    @torch.no_grad()
    def _start_as_plain_cosine(self) -> None:
        nn.init.zeros_(self.focus.weight)
        nn.init.zeros_(self.focus.bias)
        for linear in (self.match_state, self.match_own):
            nn.init.eye_(linear.weight)
            nn.init.zeros_(linear.bias)


def _unit(vectors: Tensor) -> Tensor:
    """Return the vectors at length 1."""
    return vectors / vectors.norm(dim=-1, keepdim=True).clamp_min(1e-6)


def _as_bias(sees: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the mask as numbers to add to the scores: 0, or so little that the share becomes exactly 0.

    A boolean mask would be exported as three more passes over every head's scores, in every layer.
    """
    return torch.zeros_like(sees, dtype=dtype).masked_fill(~sees, UNSEEN)


def who_sees_whom(question_ids: Tensor, option_ids: Tensor, is_option_marker: Tensor) -> Tensor:
    """Return the mask of shape (rows, 1, tokens, tokens): entry [.., i, j] says whether token i sees token j."""
    question, other_question = question_ids.unsqueeze(2), question_ids.unsqueeze(1)
    option, other_option = option_ids.unsqueeze(2), option_ids.unsqueeze(1)
    both_markers = is_option_marker.unsqueeze(2) & is_option_marker.unsqueeze(1)
    within = (other_option == 0) | (option == other_option) | both_markers
    return ((other_question == STATE) | ((question == other_question) & within)).unsqueeze(1)
