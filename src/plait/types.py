"""The few shapes that travel between rooms: a task, a batch of it, and an answer."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, model_validator

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Kind = Literal["classes", "binary", "labels", "score"]
Inputs = Literal["joined", "apart"]
Truncate = Literal["head", "head-tail"]
"""What is kept of a text that is too long: its beginning, or half of the room each for beginning
and end."""


class TaskSpec(BaseModel):
    """What a task is, apart from the files it is read from.

    A task is data, not code: one or two texts in; a class, a yes/no, any number of labels or a
    score out.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )

    kind: Kind
    """A class out of several, yes or no, any number of labels, or a score."""
    labels: tuple[str, ...] = ()
    """Words for the classes or labels, in the order of their numbers, or how many there are."""
    threshold: float = 0.5
    """Probability from which on a label holds. Only for labels."""
    range: tuple[float, float] = (0.0, 1.0)
    """Lowest and highest score. Only for a score."""
    text: tuple[str, ...]
    """Names of the text columns: one, which may stand without a list, or two for a pair."""
    inputs: Inputs = "joined"
    """A pair in one input ([CLS] a [SEP] b [SEP]), or each text encoded apart."""
    both_orders: bool = False
    """Whether a pair is answered in both orders, of which the mean is the answer: then it does not
    matter which text comes first. Twice the work."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        values = dict(values)
        if isinstance(values.get("text"), str):
            values["text"] = (values["text"],)
        if isinstance(values.get("labels"), int):
            values["labels"] = tuple(str(i) for i in range(values["labels"]))
        if values.get("kind") == "binary" and not values.get("labels"):
            values["labels"] = ("no", "yes")
        return values

    @model_validator(mode="after")
    def _check(self) -> TaskSpec:
        if not 1 <= len(self.text) <= 2:
            raise ValueError(f"text names {len(self.text)} columns; a task has one or two")
        if len(self.text) == 1 and self.inputs == "apart":
            raise ValueError("inputs = 'apart' needs two text columns")
        if len(self.text) == 1 and self.both_orders:
            raise ValueError("both_orders needs two text columns")
        if self.kind == "classes" and len(self.labels) < 2:
            raise ValueError("labels must give the number of classes, or their names, two or more")
        if self.kind == "binary" and len(self.labels) != 2:
            raise ValueError(f"a binary task has 2 labels, not {len(self.labels)}")
        if self.kind == "labels" and not self.labels:
            raise ValueError("labels must give the number of labels, or their names")
        if self.kind != "labels" and self.threshold != 0.5:
            raise ValueError(f"threshold is for a task of kind 'labels', not {self.kind!r}")
        if not 0 < self.threshold < 1:
            raise ValueError(f"threshold is a probability between 0 and 1, not {self.threshold}")
        if self.kind == "score" and self.labels:
            raise ValueError("a score has a range, not labels")
        if twice := [label for label in set(self.labels) if self.labels.count(label) > 1]:
            raise ValueError(f"labels has {min(twice)!r} twice")
        if self.range[0] >= self.range[1]:
            raise ValueError(f"range runs from {self.range[0]} to {self.range[1]}: nothing between")
        return self

    @property
    def is_pair(self) -> bool:
        """Whether an example has two texts."""
        return len(self.text) == 2


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
    """At least the number of real tokens; None where nobody counted. Where it is there, an
    encoder can leave the padding out without asking the device how much there is."""

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
    """One answer: a class, labels that hold, or a score in the task's own units."""

    task: str
    value: int | float | tuple[int, ...]
    """Number of the class, numbers of the labels that hold, or the score."""
    label: str
    """The class or the labels in words ('none' where no label holds), or the score with two
    decimals."""
    probabilities: tuple[float, ...] = ()
    """One per class, adding up to 1; or one per label, each by itself. Empty for a score."""
    words: tuple[str, ...] = ()
    """The labels that hold, one by one; empty for other kinds of task."""

    @property
    def word_probabilities(self) -> tuple[float, ...]:
        """Each of `words`' own probability."""
        held = self.value if isinstance(self.value, tuple) else ()
        return tuple(self.probabilities[i] for i in held)

    @property
    def confidence(self) -> float | None:
        """Probability that the whole answer is right; None for a score.

        Of labels, that these hold and no others: the product over all labels of what each was
        given, as if they held independently of one another. It is never above any one label's own.
        """
        if not self.probabilities:
            return None
        if isinstance(self.value, tuple):
            return prod(p if i in self.value else 1 - p for i, p in enumerate(self.probabilities))
        return max(self.probabilities)
