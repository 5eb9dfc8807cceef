"""Estimators: scikit-learn's own tools take them, and they learn."""

# ruff: noqa: N806 - X is what their protocol calls it

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest

import plait
from plait import TextClassifier, TextRegressor
from plait.errors import DataError, RecipeError, UsageError

MOODS = {"Good": ["great", "lovely"], "bad": ["awful", "sad"], "BAD": ["plain", "dull"]}


@pytest.fixture
def make(tiny_encoder):
    """Factory: an estimator small enough for a test."""

    def make(cls=TextClassifier, **params):
        small = {"epochs": 8, "batch_size": 8, "lr": 5e-3, "max_length": 24, "device": "cpu"}
        return cls(**({"encoder": str(tiny_encoder)} | small | params))

    return make


@pytest.fixture
def moods():
    """Texts and their classes, two of which differ in case alone."""
    draw = random.Random(2)
    y = [draw.choice(list(MOODS)) for _ in range(60)]
    return [f"the film was {draw.choice(MOODS[name])} ." for name in y], y


def test_classes_are_learnt_and_come_back_as_they_were(make, moods):
    X, y = moods
    model = make().fit(X, y)
    assert model.classes_.tolist() == ["BAD", "Good", "bad"]
    assert model.score(X, y) > 0.9
    chances = model.predict_proba(X)
    assert chances.shape == (60, 3)
    assert chances.sum(axis=1) == pytest.approx(1)
    assert (model.predict(X) == model.classes_[chances.argmax(axis=1)]).all()
    assert np.mean(model.predict(X) == np.array(y)) == model.score(X, y)
    assert set(model.predict(np.array(X[:5]))) <= set(MOODS)


@pytest.mark.parametrize("names", [[True, False], [0.5, 1.5]])
def test_classes_of_any_type(make, names):
    X, y = ["the film was great .", "the film was awful ."] * 8, names * 8
    model = make().fit(X, y)
    assert sorted(model.classes_.tolist()) == sorted(names)
    assert model.predict(X[:2]).tolist() == names


def test_scores_are_learnt(make, moods):
    X, names = moods
    y = [{"Good": 9.0, "bad": -1.0, "BAD": 4.0}[name] for name in names]
    model = make(TextRegressor, epochs=12).fit(X, y)
    found = model.predict(X)
    assert found.min() >= -1
    assert found.max() <= 9
    assert model.score(X, y) > 0.5
    metrics = pytest.importorskip("sklearn.metrics")
    assert model.score(X, y) == pytest.approx(metrics.r2_score(y, found))


def test_the_model_outlives_its_folder(make, moods, tmp_path):
    X, y = moods
    model = make(epochs=1).fit(X, y)
    assert not model.model_.folder.exists()
    (tmp_path / "x.csv").write_text("text\n" + "".join(f"{text}\n" for text in X))
    for copy in (model, pickle.loads(pickle.dumps(model))):
        out = tmp_path / f"{id(copy)}.csv"
        assert copy.model_.predict_file(tmp_path / "x.csv", out).num_rows == 60
        assert copy.model_.fingerprint() == model.model_.fingerprint()
    assert model.model_.identify() != make(epochs=1, seed=5).fit(X, y).model_.identify()


def test_settings_and_overrides_reach_the_recipe(make, moods, tmp_path):
    X, y = moods
    model = make(epochs=1, overrides=["train.warmup=0.25"], out=tmp_path / "run", seed=4)
    model.fit(X, y)
    config = plait.load(tmp_path / "run").config
    assert (config.seed, config.train.epochs, config.train.warmup) == (4, 1, 0.25)
    assert config.tasks["task"].labels == ("BAD", "Good", "bad")
    again = plait.load(tmp_path / "run", device="cpu").predict("task", X[:3])
    assert [answer.label for answer in again] == model.predict(X[:3]).tolist()


# --- scikit-learn ------------------------------------------------------------------------


def test_their_clone_and_their_questions(make, moods):
    base = pytest.importorskip("sklearn.base")
    model = make(lr=1e-3)
    copy = base.clone(model)
    assert copy is not model
    assert copy.get_params() == model.get_params()
    assert base.is_classifier(model)
    assert base.is_regressor(make(TextRegressor))
    assert not base.is_classifier(make(TextRegressor))
    validation = pytest.importorskip("sklearn.utils.validation")
    with pytest.raises(Exception, match="not fitted"):
        validation.check_is_fitted(model)
    validation.check_is_fitted(make(epochs=1).fit(*moods))


def test_their_cross_validation_and_search(make, moods):
    selection = pytest.importorskip("sklearn.model_selection")
    X, y = moods
    search = selection.GridSearchCV(make(), {"epochs": [1, 8]}, cv=2).fit(X, y)
    assert search.best_params_ == {"epochs": 8}
    assert search.best_score_ > 0.6  # chance is .33
    numbers = [float(name == "Good") for name in y]
    assert selection.cross_val_score(make(TextRegressor), X, numbers, cv=2).shape == (2,)


# --- mistakes ----------------------------------------------------------------------------


def test_mistakes(make):
    with pytest.raises(UsageError, match="is not fitted: call fit first"):
        make().predict(["a"])
    with pytest.raises(UsageError, match="two classes or more, and y has 1"):
        make().fit(["a", "b"], [1, 1])
    with pytest.raises(UsageError, match="there are 2 texts and 3 answers"):
        make().fit(["a", "b"], [1, 2, 1])
    with pytest.raises(UsageError, match="at least one text"):
        make().fit(["a", ("b", "c")], [1, 2])
    with pytest.raises(DataError, match="example 1: the text is empty"):
        make().fit(["a", " "], [1, 2])
    with pytest.raises(DataError, match="example 0: None is not a text"):
        make().fit([None, "a"], [1, 2])
    with pytest.raises(UsageError, match="give a list of texts, not a single one"):
        make().fit("abcd", [1, 2, 1, 2])
    with pytest.raises(UsageError, match="give a list of texts, not a single one"):
        make(epochs=1).fit(["a", "b"], [1, 2]).predict("hello")
    with pytest.raises(UsageError, match="not all the same"):
        make(TextRegressor).fit(["a", "b"], [1.0, 1.0])
    with pytest.raises(UsageError, match="finite"):
        make(TextRegressor).fit(["a", "b"], [1.0, float("nan")])


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"epochs": 0}, "TextClassifier: epochs = 0: .*greater than or equal to 1"),
        ({"epochs": 1.5}, r"TextClassifier: epochs = 1\.5: .*integer"),
        ({"batch_size": 0}, "TextClassifier: batch_size = 0: "),
        ({"lr": "fast"}, "TextClassifier: lr = 'fast': .*number"),
        ({"max_length": 4}, "TextClassifier: max_length = 4: "),
        ({"seed": None}, "TextClassifier: seed = None: .*integer"),
        ({"device": 0}, "TextClassifier: device = 0: .*string"),
        ({"overrides": "train.lr=1"}, r"TextClassifier: overrides = 'train\.lr=1': .* list"),
        ({"overrides": [3]}, r"TextClassifier: overrides = \[3\]: .* list of words"),
    ],
)
def test_a_wrong_argument_is_told_by_its_own_name(make, moods, params, words):
    with pytest.raises(UsageError, match=f"^{words}"):
        make(**params).fit(*moods)


def test_a_wrong_override_is_told_as_it_was_written(make, moods):
    with pytest.raises(RecipeError, match=r"^TextClassifier: overrides: train\.lrr is not .*'lr'"):
        make(overrides=["train.lrr=1"]).fit(*moods)
    with pytest.raises(RecipeError, match=r"^TextClassifier: overrides: train\.epochs = 0: "):
        make(overrides=["train.epochs=0"]).fit(*moods)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"max_length": 5000}, "max_length = 5000, but this encoder reads at most"),
        ({"encoder": "no/such/folder"}, "encoder = 'no/such/folder' is not 'packaged', a folder"),
        ({"out": "/dev/null/run"}, "cannot write in .*; choose another out$"),
        ({"overrides": ["encoder.max_length=5000"]}, r"encoder\.max_length = 5000, but"),
    ],
)
def test_what_training_finds_wrong_is_told_by_the_same_names(make, moods, params, words):
    with pytest.raises(UsageError, match=f"^{words}"):
        make(**params).fit(*moods)


STOP = """
import signal
from plait.training.listeners import LISTENERS, Listener

@LISTENERS.register("stop")
class Stop(Listener):
    '''Ctrl-C after the first update.'''

    def step(self, record):
        signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.parametrize("named", [False, True])
def test_a_fit_that_is_stopped_names_no_command(make, moods, tmp_path, named):
    """It ends as any program's does: scikit-learn goes on after any other error."""
    (tmp_path / "stop.py").write_text(STOP)
    overrides = [f"plugins=['{tmp_path / 'stop.py'}']", "listeners=[{name='stop'}]"]
    out = tmp_path / "run" if named else None
    with pytest.raises(KeyboardInterrupt) as caught:
        make(epochs=5, overrides=overrides, out=out).fit(*moods)
    kept = f"the run in {str(out)!r} is not finished, and fit does not go on with it"
    told = kept if named else "nothing is kept"
    assert str(caught.value) == f"stopped after 1 update; {told}"
