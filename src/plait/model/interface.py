"""What every encoder offers: token ids in, one vector per token (and perhaps per row) out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

    from plait.types import Tokens


@dataclass(frozen=True, slots=True)
class Encoded:
    """What an encoder makes of a batch. Padded positions hold finite values of no meaning."""

    hidden: Tensor
    """[rows, length, width], output of the last layer."""
    layers: tuple[Tensor, ...]
    """Output of the embeddings, then of each layer; each [rows, length, width]."""
    pooled: Tensor | None
    """[rows, width], output of the pooler; None where the encoder has none."""


class Encoder(nn.Module):
    """An encoder whose input can be entered at the word embeddings."""

    config: dict[str, Any]
    """The encoder's config.json; enough to build it again without its weights."""
    width: int
    num_layers: int
    max_positions: int
    """Longest input in tokens, special ones included."""
    pad_id: int
    has_pooler: bool
    notes: str = ""
    """What a user should know about these weights; empty when there is nothing."""

    def word_embeddings(self, ids: Tensor) -> Tensor:
        """Look up [rows, length] ids in the word table alone: [rows, length, width]."""
        raise NotImplementedError

    def forward(self, tokens: Tokens, embeddings: Tensor | None = None) -> Encoded:
        """Encode a batch; `embeddings` stand in for the word embeddings of its ids.

        Positions, segments, LayerNorm and dropout come after them, either way.
        """
        raise NotImplementedError

    def layer_of(self, name: str) -> int:
        """Say where a parameter sits: 0 embeddings, 1..num_layers, num_layers + 1 pooler."""
        raise NotImplementedError

    def set_dropout(self, p: float) -> None:
        """Give every dropout of the encoder the same probability."""
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = p
            for name, value in vars(module).items():
                # Dropout inside fused attention has no module, only a number.
                if "dropout" in name and isinstance(value, float):
                    setattr(module, name, p)
