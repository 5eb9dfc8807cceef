"""The model: one shared encoder and one head per task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from plait.model.encoder import pool
from plait.model.interface import Adapter, Encoded
from plait.types import Tokens

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from plait.model.encoder import Encoder
    from plait.model.heads import Head
    from plait.types import Batch

Pooling = Literal["cls-pooler", "cls", "mean"]


@dataclass(frozen=True, slots=True)
class Group:
    """Batches of several tasks that are encoded in one pass."""

    tasks: tuple[str, ...]
    batches: tuple[Batch, ...]
    tokens: Tokens
    """Those of all batches, one after the other."""

    @classmethod
    def of(cls, batches: Mapping[str, Batch], total: int | None = None) -> Group:
        """Concatenate batches of equal length; `total` is an upper bound on the real tokens."""
        tokens = [batch.tokens for batch in batches.values()]
        if len(tokens) == 1:
            return cls(tuple(batches), tuple(batches.values()), tokens[0])
        ids, types, mask = (
            torch.cat([getattr(part, name) for part in tokens]) for name in ("ids", "types", "mask")
        )
        joined = Tokens(ids, types, mask, total)
        return cls(tuple(batches), tuple(batches.values()), joined)

    def only(self, tasks: Collection[str]) -> Group:
        """Return the group that contains only some of the tasks."""
        if len(tasks) == len(self.tasks):
            return self
        pairs = zip(self.tasks, self.batches, strict=True)
        return Group.of({t: batch for t, batch in pairs if t in tasks}, self.tokens.total)


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
        """Return one embedding per row, [rows, width], of the encoder without adapters."""
        return pool(self.encoder(tokens, embeddings), tokens.mask, self.pooling)

    def forward(
        self,
        task: str | Group,
        tokens: Tokens,
        embeddings: Tensor | None = None,
        shift: Tensor | None = None,
    ) -> Tensor | list[Tensor]:
        """Return a task's outputs, [examples, num_outputs]; or those of each task of a group.

        `embeddings`, where given, stands in for the word embeddings of `tokens`; `shift` is added
        to what the encoder's first layer is given.
        """
        if isinstance(task, str):
            return self.read_out(task, self._encode(task, tokens, embeddings, shift), tokens.mask)
        if len(task.tasks) == 1:
            (alone,) = task.tasks
            encoded = self._encode(alone, tokens, embeddings, shift)
            return [self.read_out(alone, encoded, tokens.mask)]
        encoded = self.encoder(tokens, embeddings, None, shift)
        counts = [len(batch.tokens.ids) for batch in task.batches]
        hidden, masks = encoded.hidden.split(counts), tokens.mask.split(counts)
        pooled = [None] * len(counts) if encoded.pooled is None else encoded.pooled.split(counts)
        parts = zip(task.tasks, hidden, pooled, masks, strict=True)
        return [self.read_out(name, Encoded(h, (), p), mask) for name, h, p, mask in parts]

    def answer_together(self, tasks: Sequence[str], tokens: Tokens) -> list[Tensor]:
        """Return several tasks' outputs for the same rows, after one pass through the encoder.

        A task with an adapter needs a separate pass, so it must be the only task.
        """
        encoded = self._encode(tasks[0], tokens, None, None)
        return [self.read_out(task, encoded, tokens.mask) for task in tasks]

    def encode(self, task: str, tokens: Tokens) -> Encoded:
        """Return the encoder's output for a task's rows, the input of its head."""
        return self._encode(task, tokens, None, None)

    def has_adapter(self, task: str) -> bool:
        """Say whether a task sees the encoder otherwise than the others do."""
        return f"task-{task}" in self.adapters

    def read_out(self, task: str, encoded: Encoded, mask: Tensor) -> Tensor:
        """Return a task's outputs, [examples, num_outputs], from the encoder's output."""
        head = self.heads[f"task-{task}"]
        if head.takes == "hidden":
            outputs: Tensor = head(encoded.hidden, mask)
        else:
            outputs = head(pool(encoded, mask, self.pooling))
        return outputs

    def shares_a_pass(self, task: str) -> bool:
        """Return whether a task's rows can be encoded together with those of other tasks."""
        return self.touches_encoder(task) and not self.has_adapter(task)

    def add_head(self, task: str, head: Head) -> None:
        """Add a head."""
        self.heads[f"task-{task}"] = head

    def drop_head(self, task: str) -> None:
        """Remove a head."""
        del self.heads[f"task-{task}"]

    def _encode(
        self, task: str, tokens: Tokens, embeddings: Tensor | None, shift: Tensor | None
    ) -> Encoded:
        """Run the encoder as a task sees it: with its adapter, trainable by it or not."""
        key = f"task-{task}"
        adapter = self.adapters[key] if key in self.adapters else None  # noqa: SIM401 - no get
        given = (tokens, embeddings, adapter, shift)
        if self.touches_encoder(task) or not torch.is_grad_enabled():
            return self.encoder(*given)  # type: ignore[no-any-return]
        # The same tensors outside the graph. The adapter's own are no part of the encoder.
        detached = {name: p.detach() for name, p in self.encoder.named_parameters()}
        return torch.func.functional_call(self.encoder, detached, given)  # type: ignore[no-any-return]

    def touches_encoder(self, task: str) -> bool:
        """Return whether a task trains the shared encoder."""
        return task not in self.readers

    def reads_first_only(self) -> bool:
        """Return whether only the first token of the last layer's output is used."""
        return self.pooling != "mean" and all(h.takes == "pooled" for h in self.heads.values())

    def shared_parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters of the encoder, which all tasks train."""
        return {f"encoder.{name}": p for name, p in self.encoder.named_parameters()}

    def head_parameters(self, task: str) -> dict[str, nn.Parameter]:
        """Return the parameters of a task's head and of its adapter, if it has one."""
        key = f"task-{task}"
        return {
            f"{place}.{key}.{name}": parameter
            for place, parts in (("heads", self.heads), ("adapters", self.adapters))
            if key in parts
            for name, parameter in parts[key].named_parameters()
        }
