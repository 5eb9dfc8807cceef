"""One encoder, one head per task: tokens of a task become its outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn

from plait.model.encoder import pool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.model.encoder import Encoder
    from plait.model.heads import Head
    from plait.types import Tokens

Pooling = Literal["cls-pooler", "cls", "mean"]


class MultitaskModel(nn.Module):
    """The shared encoder and every task's head."""

    def __init__(self, encoder: Encoder, heads: Mapping[str, Head], pooling: Pooling):
        super().__init__()
        self.encoder, self.pooling = encoder, pooling
        # The prefix keeps a task called 'type' or 'keys' from clashing with ModuleDict.
        self.heads = nn.ModuleDict({f"task-{name}": head for name, head in heads.items()})

    def embed(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return one vector per row, [rows, width]."""
        return pool(self.encoder(tokens, embeddings), tokens.mask, self.pooling)

    def forward(self, task: str, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return a task's outputs, [examples, num_outputs].

        `embeddings`, where given, stands in for the word embeddings of `tokens`.
        """
        outputs: Tensor = self.heads[f"task-{task}"](self.embed(tokens, embeddings))
        return outputs

    def shared_parameters(self) -> dict[str, nn.Parameter]:
        """Return what every task trains: the encoder."""
        return {f"encoder.{name}": p for name, p in self.encoder.named_parameters()}

    def head_parameters(self, task: str) -> dict[str, nn.Parameter]:
        """Return what one task alone trains: its head."""
        prefix = f"heads.task-{task}."
        return {prefix + n: p for n, p in self.heads[f"task-{task}"].named_parameters()}
