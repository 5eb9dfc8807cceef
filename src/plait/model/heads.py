"""Heads: from pooled vectors to a task's outputs.

A head sees the vectors of one batch, [rows, width]. Where a task joins its texts into one
input, rows are examples. Where it encodes them apart, the first half of the rows are the
first texts u, the second half the second texts v, and `features` says how they meet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plait.registry import Registry
from plait.tasks.regression import PAIR_STRENGTH, SCORE_STRENGTH, STRENGTH, fits_better

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plait.methods.losses import Loss
    from plait.tasks.regression import Floats

Feature = Literal["u", "v", "|u-v|", "u*v", "cos"]
PAIR: tuple[Feature, ...] = ("u", "v")


class Head(nn.Module):
    """Contract of the family: vectors [rows, width] -> outputs [examples, num_outputs].

    `forward` is called with the pooled vectors, or with those of all tokens and their mask where
    `takes` says so.
    """

    gives: ClassVar[Literal["logits", "cosine"]] = "logits"
    """What the outputs are, which is what the task's loss must take."""
    takes: ClassVar[Literal["pooled", "hidden"]] = "pooled"
    """One vector per row; or the vectors of all tokens, [rows, length, width], with a mask, bool
    [rows, length], that is True at real ones: what stands at padding has no meaning."""
    begins: ClassVar[bool] = False
    """Whether `begin` sets its parameters before training."""

    def begin(self, vectors: Tensor, labels: Tensor, loss: Loss) -> None:
        """Set the parameters from the untrained encoder's vectors of the training rows."""


HEADS: Registry[Head] = Registry("head", "pooled vectors of a batch -> a task's outputs")


class _Features(nn.Module):
    """Vectors of one text, or of two set side by side, after dropout."""

    def __init__(self, width: int, apart: bool, features: tuple[Feature, ...], dropout: float):
        super().__init__()
        if not features:
            raise ValueError("features is empty; name at least one")
        self.names = features if apart else ()
        self.width = sum(1 if f == "cos" else width for f in features) if apart else width
        self.dropout = nn.Dropout(dropout)

    def forward(self, vectors: Tensor) -> Tensor:
        if not self.names:
            return self._drop(vectors)
        u, v = _halves(vectors)
        made = {
            "u": lambda: u,
            "v": lambda: v,
            "|u-v|": lambda: (u - v).abs(),
            "u*v": lambda: u * v,
            "cos": lambda: _cosine(u, v),
        }
        return self._drop(torch.cat([made[name]() for name in self.names], dim=-1))

    def _drop(self, features: Tensor) -> Tensor:
        dropped: Tensor = self.dropout(features)
        return dropped


def _halves(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first texts' vectors and the second's.

    Not by `chunk`, of which tracing makes a graph for one number of rows alone.
    """
    u, v = vectors.unflatten(0, (2, -1)).unbind()
    return u, v


def _cosine(u: Tensor, v: Tensor) -> Tensor:
    return F.cosine_similarity(u.float(), v.float(), dim=-1).unsqueeze(-1)


@HEADS.register("linear")
class LinearHead(Head):
    """Dropout, then one linear layer.

    `features` matters only where the texts are apart: ["u", "v"], ["u", "v", "|u-v|"],
    ["u", "v", "cos"], with "u*v" besides.
    """

    def __init__(
        self,
        width: int,
        num_outputs: int,
        apart: bool,
        *,
        dropout: float = 0.1,
        features: tuple[Feature, ...] = PAIR,
    ):
        super().__init__()
        self.features = _Features(width, apart, features, dropout)
        self.out = nn.Linear(self.features.width, num_outputs)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.out(self.features(vectors))
        return logits


@HEADS.register("mlp")
class MLPHead(Head):
    """Linear, tanh, dropout, linear. `features` as in linear; `hidden` is the width unless set."""

    def __init__(
        self,
        width: int,
        num_outputs: int,
        apart: bool,
        *,
        dropout: float = 0.1,
        hidden: int | None = None,
        features: tuple[Feature, ...] = PAIR,
    ):
        super().__init__()
        if hidden is not None and hidden < 1:
            raise ValueError(f"hidden must be 1 or more, not {hidden}")
        self.features = _Features(width, apart, features, dropout=0.0)
        self.hidden = nn.Linear(self.features.width, hidden or width)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(hidden or width, num_outputs)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return logits."""
        hidden = torch.tanh(self.hidden(self.features(vectors)))
        logits: Tensor = self.out(self.dropout(hidden))
        return logits


@HEADS.register("regression")
class RegressionHead(Head):
    """A linear layer on vectors of length 1 that begins as the regression on the frozen encoder.

    Before the first update the layer is fitted to the training rows' vectors: a logistic
    regression for classes, labels and scores, a ridge regression under mse. Then it is trained
    with the encoder ("LP-FT", Kumar et al. 2022, arXiv 2202.10054). Where the texts of a pair are
    apart it reads both vectors, their difference, their product and their cosine. Classes begin as
    a function of the last three; a score as one of all, or of the cosine alone where that predicts
    left-out training rows as well.
    """

    begins = True

    def __init__(self, width: int, num_outputs: int, apart: bool, *, dropout: float = 0.1):
        super().__init__()
        self.apart, self.width = apart, width
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(4 * width + 1 if apart else width, num_outputs)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.out(self.dropout(self._features(vectors)))
        return logits

    def _features(self, vectors: Tensor) -> Tensor:
        vectors = F.normalize(vectors.float(), dim=-1)
        if not self.apart:
            return vectors
        u, v = _halves(vectors)
        cosine = (u * v).sum(-1, keepdim=True)
        return torch.cat([u, v, (u - v).abs(), u * v, cosine], dim=-1)

    def begin(self, vectors: Tensor, labels: Tensor, loss: Loss) -> None:
        """Become the regression; without two different labels only the bias says something."""
        with torch.no_grad():
            features = self._features(vectors).double().cpu().numpy()
            columns = np.arange(features.shape[1])
            if self.apart:
                columns = self._choose_columns(features, labels, loss)
            strength = PAIR_STRENGTH if self.apart and loss.spec.kind.form != "number" else None
            found = loss.fit(features[:, columns], labels, strength)
            self.out.weight.zero_()
            weight = torch.from_numpy(found.weight).to(self.out.weight)
            self.out.weight[:, torch.from_numpy(columns).to(weight.device)] = weight
            self.out.bias.copy_(torch.from_numpy(found.bias))

    def _choose_columns(self, features: Floats, labels: Tensor, loss: Loss) -> NDArray[np.int64]:
        """Return the features that a pair begins with."""
        everything = np.arange(features.shape[1])
        if loss.spec.kind.form != "number":
            return everything[2 * self.width :]
        low, high = loss.spec.range
        shares = ((labels.double().numpy() - low) / (high - low)).clip(0, 1)[:, None]
        strengths = (STRENGTH, SCORE_STRENGTH)
        is_enough = fits_better(features[:, -1:], features, shares, strengths)
        return everything[-1:] if is_enough else everything


@HEADS.register("cosine")
class CosineHead(Head):
    """Cosine of the two texts' vectors, each after dropout; without parameters."""

    gives = "cosine"

    def __init__(
        self,
        width: int,  # noqa: ARG002
        num_outputs: int,
        apart: bool,
        *,
        dropout: float = 0.0,
    ):
        super().__init__()
        if not apart:
            raise ValueError("the cosine head compares two vectors: set inputs = 'apart'")
        if num_outputs != 1:
            raise ValueError("the cosine head gives one number")
        self.dropout = nn.Dropout(dropout)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return cosines in -1 to 1."""
        u, v = _halves(self.dropout(vectors))
        return _cosine(u, v)
