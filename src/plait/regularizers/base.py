"""The contract of the regularizers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from plait.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from plait.model.multitask import MultitaskModel
    from plait.types import Batch


class Regularizer(ABC):
    """Model, batch and its outputs in, a scalar to add to the task's loss out.

    `model(task, batch.tokens, embeddings)` runs the forward pass again, on perturbed word
    embeddings where given (`model.encoder.word_embeddings(batch.tokens.ids)` are the plain ones).
    """

    @abstractmethod
    def __call__(self, model: MultitaskModel, task: str, batch: Batch, outputs: Tensor) -> Tensor:
        """Return the term, its own weight included."""


REGULARIZERS: Registry[Regularizer] = Registry(
    "regularizer", "model, batch and outputs -> a term of the loss"
)
