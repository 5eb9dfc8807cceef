"""Losses: what a head's outputs should become, and how to read them afterwards.

A loss turns (outputs [examples, num_outputs], labels [examples]) into one scalar, the mean
over the examples of the batch, a smaller last batch included. Because the same outputs
mean different things under different losses, it also decodes them into answers:
probabilities [examples, classes], or scores [examples] in the task's own units; and it
says how to measure the distance of two outputs, as distributions or as numbers.

Everything is computed in fp32 at least: half precision is widened, fp64 kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
import torch.nn.functional as F

from plait.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from plait.types import Kind, TaskSpec


BERNOULLI_MARGIN = 1e-4
"""How near a score taken for a probability may come to 0 and 1: the logarithm stays finite."""


class Loss(ABC):
    """Contract of the family."""

    kinds: ClassVar[tuple[Kind, ...]]
    """Kinds of task it can be used for."""
    takes: ClassVar[Literal["logits", "cosine"]] = "logits"
    """What the head must give."""

    def __init__(self, spec: TaskSpec):
        if spec.kind not in self.kinds:
            raise ValueError(f"this loss is for {' or '.join(self.kinds)}, not {spec.kind!r}")
        self.spec = spec

    @property
    def num_outputs(self) -> int:
        """Numbers the head gives per example."""
        return 1

    @abstractmethod
    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch."""

    @abstractmethod
    def decode(self, outputs: Tensor) -> Tensor:
        """Return probabilities [examples, classes] or scores [examples]."""

    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """Return the outputs as a distribution, [examples, classes] logarithms.

        A score is the chance of a yes: its share of the range, held a margin away from 0 and
        1. Unless a loss knows better, both are read off the decoded answers.
        """
        answers = self.decode(outputs)
        if self.spec.kind == "score":
            return _bernoulli(self._to_unit(answers))
        return answers.clamp(min=torch.finfo(answers.dtype).tiny).log()

    def value(self, outputs: Tensor) -> Tensor:
        """Return the number a score's squared distance is taken on, [examples], unclamped.

        In the loss's own scale, so that the distance is of the same size as the loss.
        """
        if self.spec.kind != "score":
            raise TypeError(f"a task of kind {self.spec.kind!r} has no value, only probabilities")
        return self.decode(outputs)

    def _to_unit(self, labels: Tensor) -> Tensor:
        low, high = self.spec.range
        return (labels - low) / (high - low)

    def _from_unit(self, unit: Tensor) -> Tensor:
        low, high = self.spec.range
        return low + (high - low) * unit


LOSSES: Registry[Loss] = Registry("loss", "outputs and labels of a batch -> one scalar")


@LOSSES.register("cross-entropy")
class CrossEntropy(Loss):
    """Softmax cross entropy over the classes, one logit each."""

    kinds = ("classes", "binary")

    def __init__(self, spec: TaskSpec, *, smoothing: float = 0.0):
        super().__init__(spec)
        if not 0 <= smoothing < 1:
            raise ValueError(f"smoothing is a share from 0 to 1, not {smoothing}")
        self.smoothing = smoothing

    @property
    def num_outputs(self) -> int:
        """One logit per class."""
        return len(self.spec.labels)

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean of -log(probability of the label), smoothed."""
        return F.cross_entropy(_full(outputs), labels.long(), label_smoothing=self.smoothing)

    def decode(self, outputs: Tensor) -> Tensor:
        """Softmax."""
        return _full(outputs).softmax(dim=-1)

    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """Log-softmax."""
        return _full(outputs).log_softmax(dim=-1)


@LOSSES.register("bce")
class BinaryCrossEntropy(Loss):
    """Binary cross entropy on one logit: the probability of the second label."""

    kinds = ("binary",)

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean of -log(probability of the label)."""
        logits = _full(outputs).squeeze(-1)
        return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))

    def decode(self, outputs: Tensor) -> Tensor:
        """Sigmoid, and what is left of 1 for the first label."""
        yes = _full(outputs).squeeze(-1).sigmoid()
        return torch.stack([1 - yes, yes], dim=-1)

    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """No and yes: a softmax over the one logit would always be 1."""
        return _log_sigmoids(outputs)


@LOSSES.register("mse")
class MeanSquaredError(Loss):
    """Squared error of one output against the score.

    `scale = "unit"` measures on labels mapped to 0-1, so that the loss is of the same size as
    a cross entropy; `"raw"` measures in the task's units (25 times as large on a 0-5 score).
    """

    kinds = ("score",)

    def __init__(self, spec: TaskSpec, *, scale: Literal["unit", "raw"] = "unit"):
        super().__init__(spec)
        self.scale = scale

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean squared error, in the scale set."""
        target = self._to_unit(labels) if self.scale == "unit" else labels
        return F.mse_loss(self.value(outputs), target)

    def decode(self, outputs: Tensor) -> Tensor:
        """Back to the task's units, held inside its range."""
        scores = self.value(outputs)
        return (self._from_unit(scores) if self.scale == "unit" else scores).clamp(*self.spec.range)

    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """The score's share of the range as the chance of a yes; flat outside the range."""
        value = self.value(outputs)
        return _bernoulli(value if self.scale == "unit" else self._to_unit(value))

    def value(self, outputs: Tensor) -> Tensor:
        """The output itself."""
        return _full(outputs).squeeze(-1)


@LOSSES.register("cosine-mse")
class CosineMSE(Loss):
    """Squared error of a score read off a cosine, which lies in -1 to 1.

    `map` says how: "clipped" takes range x max(cos, 0), "plain" range x cos,
    "shifted" range x (cos + 1) / 2. On a 0-5 score: 5 cos without its negative half, 5 cos,
    2.5 (cos + 1). Under "clipped" a pair of opposite vectors has no gradient.
    `scale` as in mse.
    """

    kinds = ("score",)
    takes = "cosine"

    def __init__(
        self,
        spec: TaskSpec,
        *,
        map: Literal["clipped", "plain", "shifted"] = "clipped",
        scale: Literal["unit", "raw"] = "unit",
    ):
        super().__init__(spec)
        self.map, self.scale = map, scale

    def _unit(self, outputs: Tensor) -> Tensor:
        cosine = _full(outputs).squeeze(-1)
        if self.map == "clipped":
            return cosine.clamp(min=0)
        return cosine if self.map == "plain" else (cosine + 1) / 2

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean squared error of the mapped cosine, in the scale set."""
        target = self._to_unit(labels) if self.scale == "unit" else labels
        return F.mse_loss(self.value(outputs), target)

    def decode(self, outputs: Tensor) -> Tensor:
        """The mapped cosine, held inside the range."""
        return self._from_unit(self._unit(outputs)).clamp(*self.spec.range)

    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """The mapped cosine as the chance of a yes; flat outside 0 to 1."""
        return _bernoulli(self._unit(outputs))

    def value(self, outputs: Tensor) -> Tensor:
        """The mapped cosine, in the scale set."""
        unit = self._unit(outputs)
        return unit if self.scale == "unit" else self._from_unit(unit)


@LOSSES.register("score-cross-entropy")
class ScoreCrossEntropy(Loss):
    """Cross entropy between sigmoid(logit) and the score scaled to 0-1."""

    kinds = ("score",)

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross entropy, lowest where the answer is the score."""
        return F.binary_cross_entropy_with_logits(_full(outputs).squeeze(-1), self._to_unit(labels))

    def decode(self, outputs: Tensor) -> Tensor:
        """Sigmoid, stretched over the range."""
        return self._from_unit(self.value(outputs))

    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """The sigmoid as the chance of a yes."""
        return _log_sigmoids(outputs)

    def value(self, outputs: Tensor) -> Tensor:
        """Sigmoid: the score scaled to 0-1."""
        return _full(outputs).squeeze(-1).sigmoid()


def _full(outputs: Tensor) -> Tensor:
    """Widen to fp32, or leave what is wider."""
    return outputs.to(torch.promote_types(outputs.dtype, torch.float32))


def _log_sigmoids(logits: Tensor) -> Tensor:
    """Turn one logit [examples, 1] into log-probabilities of no and yes, [examples, 2]."""
    logits = _full(logits)
    return F.logsigmoid(torch.cat([-logits, logits], dim=-1))


def _bernoulli(yes: Tensor) -> Tensor:
    """Turn the chance of a yes [examples] into log-probabilities of no and yes."""
    yes = yes.clamp(BERNOULLI_MARGIN, 1 - BERNOULLI_MARGIN)
    return torch.stack([1 - yes, yes], dim=-1).log()


DEFAULT_LOSSES: dict[Kind, str] = {
    "classes": "cross-entropy",
    "binary": "bce",
    "score": "score-cross-entropy",
}
