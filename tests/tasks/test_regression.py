"""Linear models of features against scikit-learn, and where there is little to fit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression, Ridge

from plait.tasks import TaskSpec
from plait.tasks.regression import (
    RIDGE_STRENGTH,
    STRENGTH,
    fit_classes,
    fit_numbers,
    fit_yes,
)

ROWS, WIDTH = 60, 5


@pytest.fixture
def features():
    """Rows whose root mean square distance from their mean is 1."""
    found = np.random.default_rng(1).normal(size=(ROWS, WIDTH))
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found / np.sqrt(((found - found.mean(axis=0)) ** 2).sum(axis=1).mean())


@pytest.fixture
def classes(features):
    """Three classes that the features tell apart, but for some noise."""
    noise = np.random.default_rng(2).normal(scale=0.3, size=(ROWS, 3))
    return (features[:, :3] + noise).argmax(axis=1)


# --- classes -----------------------------------------------------------------------------


def test_two_classes_have_the_odds_of_one(features, classes):
    two = (classes > 0).astype(int)
    theirs = LogisticRegression(C=STRENGTH, max_iter=1000).fit(features, two)
    found = fit_classes(features, two, 2)
    np.testing.assert_allclose(
        softmax(found(features), axis=1), theirs.predict_proba(features), atol=1e-3
    )
    np.testing.assert_allclose(found.weight.sum(axis=0), 0, atol=1e-12)


@pytest.mark.parametrize("there", [(0, 2, 4), (1, 3)])
def test_a_class_without_rows_is_rare_and_takes_none(features, classes, there):
    labels = np.array(there)[classes % len(there)]
    found = fit_classes(features, labels, 5)
    assert (found.weight.shape, found.bias.shape) == ((5, WIDTH), (5,))
    probabilities = softmax(found(features), axis=1)
    missing = [number for number in range(5) if number not in there]
    assert np.isin(probabilities.argmax(axis=1), there).all()
    assert 0 < probabilities[:, missing].mean() < 1 / ROWS
    alone = fit_classes(features, np.searchsorted(there, labels), len(there))
    np.testing.assert_allclose(
        probabilities[:, there] / probabilities[:, there].sum(axis=1, keepdims=True),
        softmax(alone(features), axis=1),
        atol=1e-6,
    )


@pytest.mark.parametrize("spread", [1e-3, 1.0, 50.0])
def test_the_spread_of_the_features_does_not_matter(features, classes, spread):
    far = spread * (3.0 + features)  # a regression's constant takes the mean
    for fit in (
        lambda rows: fit_classes(rows, classes, 3),
        lambda rows: fit_yes(rows, (classes > 0)[:, None]),
        lambda rows: fit_numbers(rows, classes.astype(float)),
    ):
        np.testing.assert_allclose(fit(far)(far), fit(features)(features), atol=0.05)


# --- yes or no ---------------------------------------------------------------------------


def test_each_label_is_a_regression_by_itself(features, classes):
    yes = np.stack([classes == 0, classes != 1], axis=1).astype(float)
    found = expit(fit_yes(features, yes)(features))
    for column in range(2):
        theirs = LogisticRegression(C=STRENGTH, max_iter=1000).fit(features, yes[:, column])
        expected = theirs.predict_proba(features)[:, 1]
        np.testing.assert_allclose(found[:, column], expected, atol=1e-3)


def test_a_share_is_so_much_of_a_yes_and_the_rest_of_a_no(features):
    tenths = np.random.default_rng(3).integers(0, 11, size=ROWS)
    found = fit_yes(features, (tenths / 10)[:, None], strength=2.0)
    rows = np.repeat(features, 10, axis=0)
    answers = np.concatenate([[1] * n + [0] * (10 - n) for n in tenths])
    # Ten rows for each, so a tenth of the strength; the spread is the same.
    theirs = LogisticRegression(C=2.0 / 10, max_iter=1000).fit(rows, answers)
    np.testing.assert_allclose(found.weight, theirs.coef_, atol=2e-3)
    np.testing.assert_allclose(found.bias, theirs.intercept_, atol=2e-3)


# --- numbers -----------------------------------------------------------------------------


def test_numbers_are_a_ridge_regression(features):
    numbers = features @ np.arange(WIDTH) + 3
    theirs = Ridge(alpha=1 / RIDGE_STRENGTH).fit(features, numbers)
    found = fit_numbers(features, numbers)(features)
    np.testing.assert_allclose(found[:, 0], theirs.predict(features))


# --- tasks -------------------------------------------------------------------------------

SPECS = {
    "classes": TaskSpec(kind="classes", labels=("a", "b", "c"), text="t"),
    "binary": TaskSpec(kind="binary", text="t"),
    "labels": TaskSpec(kind="labels", labels=("a", "b"), text="t"),
    "score": TaskSpec(kind="score", range=(0.0, 2.0), text="t"),
}


@pytest.mark.parametrize("kind", SPECS)
def test_answers_have_the_form_of_the_kind(features, classes, kind):
    labels = np.stack([classes > 0, classes > 1], axis=1) if kind == "labels" else classes
    labels = (labels > 0) if kind == "binary" else labels
    spec = SPECS[kind]
    answers = spec.kind.linear_answers(
        spec.kind.fit(features, labels.astype(float), STRENGTH)(features)
    )
    is_score = kind == "score"
    assert answers.shape == ((ROWS,) if is_score else (ROWS, len(spec.labels)))
    assert answers.min() >= 0
    assert answers.max() <= (spec.range[1] if is_score else 1)
    if kind in ("classes", "binary"):
        np.testing.assert_allclose(answers.sum(axis=1), 1)
        assert (answers.argmax(axis=1) == labels).mean() > 0.6
