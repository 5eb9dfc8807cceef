"""Losses: what a head's outputs should become, and how to read them afterwards.

A loss turns (outputs [examples, num_outputs], labels [examples], or [examples, labels] where any
number of them holds) into one scalar, the mean over the examples of the batch, a smaller last
batch included. Because the same outputs mean different things under different losses, it also
decodes them into answers: probabilities [examples, classes], or scores [examples] in the task's
own units; and it says how to measure the distance of two outputs, as distributions or as numbers.

Everything is computed in fp32 at least: half precision is widened, fp64 kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
import torch.nn.functional as F

from plait.errors import suggest
from plait.registry import Registry
from plait.tasks import TASK_KINDS
from plait.tasks.regression import (
    RIDGE_STRENGTH,
    SCORE_STRENGTH,
    STRENGTH,
    fit_classes,
    fit_numbers,
    fit_yes,
)

if TYPE_CHECKING:
    from torch import Tensor

    from plait.tasks import Kind, TaskSpec
    from plait.tasks.kind import Form
    from plait.tasks.regression import Floats, Linear


BERNOULLI_MARGIN = 1e-4
"""How near a score taken for a probability may come to 0 and 1: the logarithm stays finite."""


class Loss(ABC):
    """Contract of the family."""

    forms: ClassVar[tuple[Form, ...]]
    """Forms of answers it can be used for."""
    takes: ClassVar[Literal["logits", "cosine"]] = "logits"
    """What the head must give."""

    def __init__(self, spec: TaskSpec):
        if not self.suits(spec.kind):
            known = [name for name in TASK_KINDS if self.suits(TASK_KINDS[name])]
            raise ValueError(f"this loss is for {' or '.join(known)}, not {spec.kind.name!r}")
        self.spec = spec

    @classmethod
    def suits(cls, kind: Kind | type[Kind]) -> bool:
        """Return whether it can be used for tasks of a kind."""
        return kind.form in cls.forms

    @property
    def num_outputs(self) -> int:
        """Numbers the head gives per example."""
        return 1

    def begin(self, labels: Tensor, device: torch.device) -> None:  # noqa: B027
        """Look at all training labels before a stage begins to train on `device`.

        For what a loss must know of them, as how many there are of each class; it may be called
        more than once.
        """

    @abstractmethod
    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch."""

    @abstractmethod
    def decode(self, outputs: Tensor) -> Tensor:
        """Return probabilities [examples, classes] or scores [examples]."""

    def fit(self, features: Floats, labels: Tensor, strength: float | None = None) -> Linear:  # noqa: ARG002
        """Return the linear map of fixed features, [examples, width], with a small loss.

        A head may begin there. Only losses of a linear model's own outputs have one. `strength` is
        C of a logistic regression; what suits the kind of task unless given.
        """
        raise ValueError(
            f"{type(self).__name__} does not support heads that are initialized with a linear model"
        )

    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """Return the outputs as a distribution, [examples, classes] logarithms.

        A score is the chance of a yes: its share of the range, held a margin away from 0 and
        1. Labels are a no and a yes each, [examples, labels, 2]. Unless a loss knows better, all
        are read off the decoded answers.
        """
        answers = self.decode(outputs)
        if self.spec.kind.form == "number":
            return _bernoulli(self._to_unit(answers))
        if self.spec.kind.form == "independent":
            answers = torch.stack([1 - answers, answers], dim=-1)
        return answers.clamp(min=torch.finfo(answers.dtype).tiny).log()

    def value(self, outputs: Tensor) -> Tensor:
        """Return the number a score's squared distance is taken on, [examples], unclamped.

        In the loss's own scale, so that the distance is of the same size as the loss.
        """
        if self.spec.kind.form != "number":
            raise TypeError(
                f"a task of kind {self.spec.kind.name!r} has no value, only probabilities"
            )
        return self.decode(outputs)

    def _to_unit(self, labels: Tensor) -> Tensor:
        low, high = self.spec.range
        return (labels - low) / (high - low)

    def _from_unit(self, unit: Tensor) -> Tensor:
        low, high = self.spec.range
        return low + (high - low) * unit


LOSSES: Registry[Loss] = Registry("loss", "outputs and labels of a batch -> one scalar")


Weights = Literal["balanced", "sqrt"] | tuple[float, ...] | dict[str, float] | None
"""What a class counts: by how rare it is among the training labels, or given, in the order of the
classes or by their words (1 where a word is left out); all alike where None."""


def weigh_classes(counts: Tensor, power: float) -> Tensor:
    """Return a weight per class, proportional to counts^-power, whose mean over the rows is 1.

    `counts` [..., classes] are rows of each class. With a power of 1 this is rows / (classes x
    count), what scikit-learn calls balanced. A class without rows has weight 1 and no part in it.
    """
    there = counts > 0
    inverse = torch.where(there, counts.double() ** -power, 0.0)
    scale = counts.sum(-1, keepdim=True) / (counts * inverse).sum(-1, keepdim=True)
    return torch.where(there, inverse * scale, 1.0).float()


class _Weighted(Loss):
    """A loss whose classes may count differently.

    It stays the mean over the examples, each times its class's weight. (Dividing by the sum of
    the weights instead, as torch does, would make a batch's loss depend on which classes
    happen to be together in it.)
    """

    def __init__(self, spec: TaskSpec, weights: Weights):
        super().__init__(spec)
        self._power = {"balanced": 1.0, "sqrt": 0.5}[weights] if isinstance(weights, str) else None
        self._weights: Tensor | None = None
        if weights is not None and not isinstance(weights, str):
            self._weights = self._spread(torch.tensor(_given_weights(spec, weights)))

    def begin(self, labels: Tensor, device: torch.device) -> None:
        """Weigh the classes by how many labels there are of each."""
        if self._power is not None:
            self._weights = weigh_classes(self._count(labels), self._power)
        if self._weights is not None:
            self._weights = self._weights.to(device)

    @property
    def weights(self) -> Tensor | None:
        """What counts how much; None where all do alike."""
        if self._power is not None and self._weights is None:
            raise RuntimeError("weights by the training labels are not known before begin()")
        return self._weights

    def _count(self, labels: Tensor) -> Tensor:
        """Count the labels of each class."""
        return labels.long().bincount(minlength=len(self.spec.labels))

    def _spread(self, given: Tensor) -> Tensor:
        """Turn one weight per word into the shape of what the labels are counted in."""
        return given


def _given_weights(spec: TaskSpec, weights: tuple[float, ...] | dict[str, float]) -> list[float]:
    """Return weights from a recipe in the order of the labels, checked."""
    if isinstance(weights, dict):
        for word in weights:
            if word not in spec.labels:
                raise ValueError(f"weights names {word!r}{suggest(word, spec.labels)}")
        weights = tuple(weights.get(word, 1.0) for word in spec.labels)
    if len(weights) != len(spec.labels):
        raise ValueError(f"weights has {len(weights)} numbers for {len(spec.labels)} labels")
    if min(weights) < 0 or max(weights) == 0:
        raise ValueError("weights must be 0 or more, and not all 0")
    return list(weights)


@LOSSES.register("cross-entropy")
class CrossEntropy(_Weighted):
    """Softmax cross entropy over the classes, one logit each.

    `weights` makes some classes count more: "balanced" by how rare they are among the training
    labels (rows / (classes x count)), "sqrt" by the root of that, or numbers, in the order of the
    classes or by their words.
    """

    forms = ("distribution",)

    def __init__(self, spec: TaskSpec, *, smoothing: float = 0.0, weights: Weights = None):
        super().__init__(spec, weights)
        if not 0 <= smoothing < 1:
            raise ValueError(f"smoothing must be from 0 to 1, not {smoothing}")
        self.smoothing = smoothing

    @property
    def num_outputs(self) -> int:
        """One logit per class."""
        return len(self.spec.labels)

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean of -log(probability of the label), smoothed and weighted."""
        outputs, weights = _full(outputs), self.weights
        if weights is None:
            return F.cross_entropy(outputs, labels.long(), label_smoothing=self.smoothing)
        each = F.cross_entropy(
            outputs,
            labels.long(),
            weights.to(outputs.dtype),
            label_smoothing=self.smoothing,
            reduction="none",
        )
        return each.mean()

    def fit(self, features: Floats, labels: Tensor, strength: float | None = None) -> Linear:
        """Fit a multinomial logistic regression."""
        return fit_classes(features, labels.numpy(), self.num_outputs, strength or STRENGTH)

    def decode(self, outputs: Tensor) -> Tensor:
        """Softmax."""
        return _full(outputs).softmax(dim=-1)

    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """Log-softmax."""
        return _full(outputs).log_softmax(dim=-1)


@LOSSES.register("bce")
class BinaryCrossEntropy(_Weighted):
    """Binary cross entropy on one logit: the probability of the second label.

    `weights` as in cross-entropy, of the first label and the second.
    """

    forms = ("distribution",)

    @classmethod
    def suits(cls, kind: Kind | type[Kind]) -> bool:
        """Return whether label 1 means yes."""
        return kind.is_yes_no

    def __init__(self, spec: TaskSpec, *, weights: Weights = None):
        super().__init__(spec, weights)

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean of -log(probability of the label), weighted."""
        logits = _full(outputs).squeeze(-1)
        weights = None if self.weights is None else self.weights.to(logits.dtype)[labels.long()]
        return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), weights)

    def fit(self, features: Floats, labels: Tensor, strength: float | None = None) -> Linear:
        """Fit a logistic regression."""
        return fit_yes(features, labels.numpy()[:, None], strength or STRENGTH)

    def decode(self, outputs: Tensor) -> Tensor:
        """Sigmoid, and what is left of 1 for the first label."""
        yes = _full(outputs).squeeze(-1).sigmoid()
        return torch.stack([1 - yes, yes], dim=-1)

    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """No and yes: a softmax over the one logit would always be 1."""
        return _log_sigmoids(outputs)


@LOSSES.register("label-bce")
class LabelBinaryCrossEntropy(_Weighted):
    """Binary cross entropy of every label by itself, one logit each; the mean over the labels.

    `weights` makes the rows that have a label count more for it: "balanced" weighs each label's
    rows with and without it by how rare they are among the training labels (rows / (2 x count)),
    "sqrt" by the root of that. Numbers, in the order of the labels or by their words, are
    weights of a yes against 1 for a no (torch's pos_weight).
    """

    forms = ("independent",)

    def __init__(self, spec: TaskSpec, *, weights: Weights = None):
        super().__init__(spec, weights)

    @property
    def num_outputs(self) -> int:
        """One logit per label."""
        return len(self.spec.labels)

    def _count(self, labels: Tensor) -> Tensor:
        """Count rows without and with each label, [labels, 2]."""
        yes = labels.long().sum(dim=0)
        return torch.stack([len(labels) - yes, yes], dim=-1)

    def _spread(self, given: Tensor) -> Tensor:
        return torch.stack([torch.ones_like(given), given], dim=-1)

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean of -log(probability of a label, or of its absence), weighted."""
        logits = _full(outputs)
        labels = labels.to(logits.dtype)
        weights = None
        if self.weights is not None:
            no, yes = self.weights.to(logits.dtype).unbind(-1)
            weights = no + (yes - no) * labels
        return F.binary_cross_entropy_with_logits(logits, labels, weights)

    def fit(self, features: Floats, labels: Tensor, strength: float | None = None) -> Linear:
        """Fit a logistic regression for each label."""
        return fit_yes(features, labels.numpy(), strength or STRENGTH)

    def decode(self, outputs: Tensor) -> Tensor:
        """Sigmoid: every label's own probability."""
        return _full(outputs).sigmoid()

    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """No and yes of each label, [examples, labels, 2]."""
        return _log_sigmoids(outputs.unsqueeze(-1))


@LOSSES.register("mse")
class MeanSquaredError(Loss):
    """Squared error of one output against the score.

    `scale = "unit"` measures on labels mapped to 0-1, so that the loss is of the same size as
    a cross entropy; `"raw"` measures in the task's units (25 times as large on a 0-5 score).
    """

    forms = ("number",)

    def __init__(self, spec: TaskSpec, *, scale: Literal["unit", "raw"] = "unit"):
        super().__init__(spec)
        self.scale = scale

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean squared error, in the scale set."""
        target = self._to_unit(labels) if self.scale == "unit" else labels
        return F.mse_loss(self.value(outputs), target)

    def fit(self, features: Floats, labels: Tensor, strength: float | None = None) -> Linear:
        """Fit a ridge regression, in the scale set."""
        target = self._to_unit(labels) if self.scale == "unit" else labels
        return fit_numbers(features, target.numpy(), strength or RIDGE_STRENGTH)

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
class CosineMSE(MeanSquaredError):  # noqa: N818 - an error to be made small, none to be raised
    """Squared error of a score read off a cosine, which lies in -1 to 1.

    `map` says how: "clipped" takes range x max(cos, 0), "plain" range x cos,
    "shifted" range x (cos + 1) / 2. On a 0-5 score: 5 cos without its negative half, 5 cos,
    2.5 (cos + 1). Under "clipped" a pair of opposite vectors has no gradient.
    `scale` as in mse.
    """

    takes = "cosine"

    def __init__(
        self,
        spec: TaskSpec,
        *,
        map: Literal["clipped", "plain", "shifted"] = "clipped",
        scale: Literal["unit", "raw"] = "unit",
    ):
        super().__init__(spec, scale=scale)
        self.map = map

    fit = Loss.fit  # a cosine is no linear map of features

    def _unit(self, outputs: Tensor) -> Tensor:
        cosine = _full(outputs).squeeze(-1)
        if self.map == "clipped":
            return cosine.clamp(min=0)
        return cosine if self.map == "plain" else (cosine + 1) / 2

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

    forms = ("number",)

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross entropy, lowest where the answer is the score."""
        return F.binary_cross_entropy_with_logits(_full(outputs).squeeze(-1), self._to_unit(labels))

    def fit(self, features: Floats, labels: Tensor, strength: float | None = None) -> Linear:
        """Fit a logistic regression of which a score is a part yes and a part no."""
        shares = self._to_unit(labels.double()).clamp(0, 1).numpy()[:, None]
        usual = STRENGTH if features.shape[1] == 1 else SCORE_STRENGTH
        return fit_yes(features, shares, strength or usual)

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
    """Turn logits [..., 1] into log-probabilities of no and yes, [..., 2]."""
    logits = _full(logits)
    return F.logsigmoid(torch.cat([-logits, logits], dim=-1))


def _bernoulli(yes: Tensor) -> Tensor:
    """Turn the chance of a yes [examples] into log-probabilities of no and yes."""
    yes = yes.clamp(BERNOULLI_MARGIN, 1 - BERNOULLI_MARGIN)
    return torch.stack([1 - yes, yes], dim=-1).log()
