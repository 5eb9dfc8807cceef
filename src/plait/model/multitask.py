"""One encoder, one head per task: tokens of a task become its outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from plait.model.encoder import pool
from plait.model.interface import Adapter, Encoded

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from plait.model.encoder import Encoder
    from plait.model.heads import Head
    from plait.types import Tokens

Pooling = Literal["cls-pooler", "cls", "mean"]


class MultitaskModel(nn.Module):
    """The shared encoder, every task's head, and the adapters of those tasks that have one.

    Tasks named in `readers` read the encoder but never train it: no gradient of theirs reaches
    its parameters.
    """

    def __init__(
        self,
        encoder: Encoder,
        heads: Mapping[str, Head],
        pooling: Pooling,
        adapters: Mapping[str, Adapter] | None = None,
        readers: Collection[str] = (),
    ):
        super().__init__()
        self.encoder, self.pooling, self.readers = encoder, pooling, frozenset(readers)
        # The prefix keeps a task called 'type' or 'keys' from clashing with ModuleDict.
        self.heads = nn.ModuleDict({f"task-{name}": head for name, head in heads.items()})
        given = adapters or {}
        self.adapters = nn.ModuleDict({f"task-{name}": part for name, part in given.items()})

    def embed(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return one vector per row, [rows, width], of the encoder as it is for no task."""
        return pool(self.encoder(tokens, embeddings), tokens.mask, self.pooling)

    def forward(self, task: str, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return a task's outputs, [examples, num_outputs].

        `embeddings`, where given, stands in for the word embeddings of `tokens`.
        """
        encoded = self._encode(task, tokens, embeddings)
        head = self.heads[f"task-{task}"]
        if head.takes == "hidden":
            outputs: Tensor = head(encoded.hidden)
        else:
            outputs = head(pool(encoded, tokens.mask, self.pooling))
        return outputs

    def add_head(self, task: str, head: Head) -> None:
        """Put in one more head."""
        self.heads[f"task-{task}"] = head

    def drop_head(self, task: str) -> None:
        """Take a head out again."""
        del self.heads[f"task-{task}"]

    def _encode(self, task: str, tokens: Tokens, embeddings: Tensor | None) -> Encoded:
        """Run the encoder as a task sees it: with its adapter, trainable by it or not."""
        key = f"task-{task}"
        adapter = self.adapters[key] if key in self.adapters else None  # noqa: SIM401 - no get
        given = (tokens, embeddings, adapter)
        if self.touches_encoder(task) or not torch.is_grad_enabled():
            return self.encoder(*given)  # type: ignore[no-any-return]
        # The same tensors outside the graph. The adapter's own are no part of the encoder.
        detached = {name: p.detach() for name, p in self.encoder.named_parameters()}
        return torch.func.functional_call(self.encoder, detached, given)  # type: ignore[no-any-return]

    def touches_encoder(self, task: str) -> bool:
        """Say whether a task trains the shared encoder."""
        return task not in self.readers

    def reads_first_only(self) -> bool:
        """Say whether of the last layer's output only the first token is ever read."""
        return self.pooling != "mean" and all(h.takes == "pooled" for h in self.heads.values())

    def shared_parameters(self) -> dict[str, nn.Parameter]:
        """Return what every task trains: the encoder."""
        return {f"encoder.{name}": p for name, p in self.encoder.named_parameters()}

    def head_parameters(self, task: str) -> dict[str, nn.Parameter]:
        """Return what one task alone trains: its head, and its adapter if it has one."""
        key = f"task-{task}"
        return {
            f"{place}.{key}.{name}": parameter
            for place, parts in (("heads", self.heads), ("adapters", self.adapters))
            if key in parts
            for name, parameter in parts[key].named_parameters()
        }
