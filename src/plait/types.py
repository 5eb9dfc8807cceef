"""The few shapes that travel between rooms: a task, a batch of it, and an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Truncate = Literal["head", "head-tail"]
"""What is kept of a text that is too long: its beginning, or half of the room each for beginning
and end."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Padded encoder input, every tensor [rows, length]."""

    ids: Tensor
    """int64 token ids."""
    types: Tensor
    """int64 segment ids: 0 for the first text, 1 for the second."""
    mask: Tensor
    """bool, True at real tokens, False at padding."""
    total: int | None = None
    """An upper bound on the number of real tokens, or None. With it, an encoder can skip the
    padding without waiting for the device."""

    def to(self, device: torch.device) -> Tokens:
        """Return the same tokens on another device."""
        ids, types, mask = (
            t.to(device, non_blocking=True) for t in (self.ids, self.types, self.mask)
        )
        return Tokens(ids, types, mask, self.total)


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples of one task.

    Where a task's texts are encoded apart, `tokens` has two rows per example:
    all first texts, then all second texts, so that one pass encodes both.
    """

    tokens: Tokens
    labels: Tensor | None
    """[examples]: int64 class numbers, or float32 for binary and score; [examples, labels] float32
    of 0 and 1 for labels; None if unlabelled."""
    whole: int | None = None
    """Examples of the batch of which this is one worker's share; None where it is all there is."""

    @property
    def num_examples(self) -> int:
        """How many are labelled, over all workers."""
        if self.whole is not None:
            return self.whole
        return 0 if self.labels is None else len(self.labels)

    def to(self, device: torch.device) -> Batch:
        """Return the same batch on another device."""
        labels = None if self.labels is None else self.labels.to(device, non_blocking=True)
        return Batch(self.tokens.to(device), labels, self.whole)


@dataclass(frozen=True, slots=True)
class Prediction:
    """One answer: a class, the labels that hold, or a number in the task's own units."""

    task: str
    value: int | float | tuple[int, ...]
    """Number of the class, numbers of the labels that hold, or the number."""
    label: str
    """The class or the labels in words ('none' without any), or the number with two decimals."""
    probabilities: tuple[float, ...] = ()
    """One per class, adding up to 1; or one per label. Empty for a number."""
    confidence: float | None = None
    """Probability that the whole answer is right; None for a number. Of several labels, that
    exactly these hold, as if they were independent."""
    words: tuple[str, ...] = ()
    """The labels that hold, one by one; empty for other kinds of task."""

    @property
    def word_probabilities(self) -> tuple[float, ...]:
        """Each of `words`' own probability."""
        held = self.value if isinstance(self.value, tuple) else ()
        return tuple(self.probabilities[i] for i in held)
