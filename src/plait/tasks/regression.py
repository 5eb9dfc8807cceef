"""Linear models of frozen vectors, fitted with scikit-learn: where a head begins, and a baseline.

The outputs are what a task's loss takes: a logit for each class, the log-odds of a yes, or the
number itself. Features are divided by their spread (one number for all of them) before they are
fitted, so that a strength means the same for each encoder: some put all texts close together.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


Floats = NDArray[np.float64]

STRENGTH = 10.0
"""C of the logistic regressions of classes and labels."""
PAIR_STRENGTH = 1.0
"""C of those that compare the two vectors of a pair."""
SCORE_STRENGTH = 0.1
"""C of the logistic regression of a score: as a start it wants far more regularisation."""
RIDGE_STRENGTH = 1 / 30
"""1 / alpha of the ridge regression of a score."""
MOST_STEPS = 200
"""Iterations of L-BFGS; on vectors of length 1 it needs fewer."""


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear map of features [rows, width] to outputs [rows, outputs]."""

    weight: Floats
    """[outputs, width]"""
    bias: Floats
    """[outputs]"""

    def __call__(self, features: Floats) -> Floats:
        """Return the outputs."""
        outputs: Floats = features @ self.weight.T + self.bias
        return outputs


def fit_classes(
    features: Floats, labels: NDArray[Any], num_classes: int, strength: float = STRENGTH
) -> Linear:
    """Fit a multinomial logistic regression: a logit for each class.

    A class without rows gets a constant logit: that of half a row more.
    """
    labels = np.asarray(labels).astype(np.int64)
    counts = np.bincount(labels, minlength=num_classes)
    weight = np.zeros((num_classes, features.shape[1]))
    bias = np.log((counts + 0.5) / (counts.sum() + 0.5 * num_classes))
    there = np.flatnonzero(counts)
    if len(there) < 2:
        return Linear(weight, bias)
    found = _logistic(features, labels, strength)
    if len(there) == 2:  # one row of odds stands for two classes
        weight[there] = np.stack([-found.weight[0], found.weight[0]]) / 2
        bias[there] = np.array([-found.bias[0], found.bias[0]]) / 2
    else:
        weight[there], bias[there] = found.weight, found.bias
    missing = np.setdiff1d(np.arange(num_classes), there)
    if len(missing):
        # Far enough below the others' mean to be as rare as half a row.
        mean = (features @ weight[there].T + bias[there]).mean()
        bias[missing] = mean + np.log(0.5 / counts.sum())
    return Linear(weight, bias)


def fit_yes(features: Floats, shares: Floats, strength: float = STRENGTH) -> Linear:
    """Fit a logistic regression for each column of `shares`: the log-odds of a yes.

    `shares` [rows, columns] are 0 and 1, or anything between: a row of .3 counts as three tenths of
    a yes and seven tenths of a no. A column with one value alone gets a constant.
    """
    shares = np.asarray(shares, dtype=np.float64)
    weight = np.zeros((shares.shape[1], features.shape[1]))
    mean = (shares.sum(axis=0) + 0.5) / (len(shares) + 1)
    bias = np.log(mean / (1 - mean))
    for column, yes in enumerate(shares.T):
        if yes.min() == yes.max():
            continue
        if np.isin(yes, (0, 1)).all():
            found = _logistic(features, yes.astype(np.int64), strength)
        else:
            twice = np.concatenate([features, features])
            answers = np.repeat([1, 0], len(yes))
            found = _logistic(twice, answers, strength, np.concatenate([yes, 1 - yes]))
        weight[column], bias[column] = found.weight[0], found.bias[0]
    return Linear(weight, bias)


def fit_numbers(features: Floats, numbers: Floats, strength: float = RIDGE_STRENGTH) -> Linear:
    """Fit a ridge regression: the number itself."""
    from sklearn.linear_model import Ridge

    numbers = np.asarray(numbers, dtype=np.float64)
    spread = _spread(features)
    found = Ridge(alpha=1 / strength).fit(features / spread, numbers)
    return Linear(found.coef_.reshape(1, -1) / spread, np.array([float(found.intercept_)]))


def fits_better(first: Floats, second: Floats, shares: Floats, strengths: Sequence[float]) -> bool:
    """Say whether features predict left-out rows better than others: by log loss, in five folds."""
    if len(shares) < 10:
        return True
    folds = np.arange(len(shares)) % 5
    losses = []
    for features, strength in zip((first, second), strengths, strict=True):
        loss = 0.0
        for fold in range(5):
            kept, left = folds != fold, folds == fold
            odds = fit_yes(features[kept], shares[kept], strength)(features[left])
            loss += float((np.logaddexp(0, odds) - shares[left] * odds).sum())
        losses.append(loss)
    return losses[0] <= losses[1]


def _logistic(
    features: Floats, labels: NDArray[np.int64], strength: float, weights: Floats | None = None
) -> Linear:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=strength, max_iter=MOST_STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mean, spread = _mean(features), _spread(features)
        model.fit(_scale(features, mean, spread), labels, sample_weight=weights)
    weight = model.coef_ / spread
    # Centred for L-BFGS to converge soon; the model is that of the features as they were.
    return Linear(weight, model.intercept_ - (weight * mean).sum(axis=1))


def _scale(features: Floats, mean: Floats, spread: float) -> Floats:
    scaled: Floats = features if hasattr(features, "tocsr") else (features - mean) / spread
    return scaled


def _mean(features: Floats) -> Floats:
    """Return the mean row; zeros for sparse features, which centring would make dense."""
    if hasattr(features, "tocsr"):
        return np.zeros(1)
    mean: Floats = features.mean(axis=0)
    return mean


def _spread(features: Floats) -> float:
    """Return the root mean square distance of the rows from their mean; 1 where all are alike.

    Sparse features are taken as they are.
    """
    if hasattr(features, "tocsr"):
        return 1.0
    spread = float(np.sqrt(features.var(axis=0).sum()))
    return spread if spread > 1e-9 else 1.0
