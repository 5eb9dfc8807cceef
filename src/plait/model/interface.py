"""What every encoder offers: token ids in, one vector per token (and perhaps per row) out.

And what a task may hand it along with its tokens: an Adapter, which changes the layers'
work for that task alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from plait.errors import EncoderError

if TYPE_CHECKING:
    from torch import Tensor

    from plait.types import Tokens


@dataclass(frozen=True, slots=True)
class Encoded:
    """What an encoder makes of a batch. Padded positions hold finite values of no meaning."""

    hidden: Tensor
    """[rows, length, width], output of the last layer, and of what an adapter has above it."""
    layers: tuple[Tensor, ...]
    """Output of the embeddings, then of each layer; each [rows, length, width]. None where
    the encoder left the padding out on its way."""
    pooled: Tensor | None
    """[rows, width], output of the pooler; None where the encoder has none."""


class LayerAdapter:
    """What a task does to one layer. Each hook gets a value and gives it back, here unchanged."""

    def attention(self, qkv: Tensor, hidden: Tensor) -> Tensor:  # noqa: ARG002
        """Change the queries, keys and values [rows, length, 3 * width] made of the input."""
        return qkv

    def output(self, out: Tensor, mixed: Tensor) -> Tensor:  # noqa: ARG002
        """Change the attention's output [rows, length, width], made of the mixed values."""
        return out

    def after(self, total: Tensor, hidden: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002
        """Change what the layer's last LayerNorm normalises; `hidden` is the layer's input.

        `mask` [rows, 1, 1, length] is True at real tokens.
        """
        return total


class Adapter(nn.Module):
    """What a task adds to an encoder's layers; its parameters are the task's own."""

    def at(self, layer: int) -> LayerAdapter:
        """Return what it does in a layer, counted from 0 at the bottom."""
        raise NotImplementedError

    def finish(self, hidden: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002
        """Change the last layer's output [rows, length, width], here not at all.

        `mask` [rows, 1, 1, length] is True at real tokens.
        """
        return hidden

    def merge(self, encoder: Encoder) -> bool:  # noqa: ARG002
        """Put it into the encoder's own weights for good, and say so; few adapters can."""
        return False


class Encoder(nn.Module):
    """An encoder whose input can be changed at the word embeddings, or behind them."""

    config: dict[str, Any]
    """The encoder's config.json; enough to build it again without its weights."""
    width: int
    num_layers: int
    num_heads: int
    """Attention heads of a layer."""
    max_positions: int
    """Longest input in tokens, special ones included."""
    pad_id: int
    has_pooler: bool
    takes_adapters: bool = False
    """Whether `forward` can do anything with an adapter."""
    notes: str = ""
    """What a user should know about these weights; empty when there is nothing."""

    def word_table(self) -> Tensor:
        """Return the word embeddings themselves, [vocabulary, width]."""
        raise NotImplementedError

    def word_embeddings(self, ids: Tensor) -> Tensor:
        """Look up [rows, length] ids in the word table alone: [rows, length, width]."""
        raise NotImplementedError

    def forward(
        self,
        tokens: Tokens,
        embeddings: Tensor | None = None,
        adapter: Adapter | None = None,
        shift: Tensor | None = None,
    ) -> Encoded:
        """Encode a batch; `embeddings` stand in for the word embeddings of its ids.

        Positions, segments, LayerNorm and dropout come after them, either way. An adapter
        takes part in every layer. `shift`, [rows, length, width], is added to what the first
        layer is given.
        """
        raise NotImplementedError

    def layer_of(self, name: str) -> int:
        """Say where a parameter sits: 0 embeddings, 1..num_layers, num_layers + 1 above them."""
        raise NotImplementedError

    def is_pooler(self, name: str) -> bool:
        """Say whether a parameter is the pooler's, on which `hidden` does not depend."""
        return "pooler" in name.split(".")

    def set_dropout(self, p: float | None, attention: float | None = None) -> None:
        """Give every dropout of the encoder the same probability, attention's its own.

        None leaves as it is what would be set.
        """
        if p is not None:
            self._set_every_dropout(p)
        if attention is not None:
            self._set_attention_dropout(attention)

    def drops_out(self) -> bool:
        """Say whether any of its dropouts is above 0."""
        return any(
            value > 0
            for module in self.modules()
            for name, value in vars(module).items()
            if isinstance(value, int | float)
            and (name == "p" if isinstance(module, nn.Dropout) else "dropout" in name)
        )

    def _set_attention_dropout(self, p: float) -> None:  # noqa: ARG002
        """Raise EncoderError: other models use other names for this setting."""
        raise EncoderError(
            "encoder.attention_dropout works only with plait's own BERT: set encoder.architecture "
            '= "bert", or remove it'
        )

    def _set_every_dropout(self, p: float) -> None:
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = p
            for name, value in vars(module).items():
                # Dropout inside fused attention has no module, only a number.
                if "dropout" in name and isinstance(value, float):
                    setattr(module, name, p)
