"""Estimators: scikit-learn's own tools take them, and they learn."""

# ruff: noqa: N806 - X is what their protocol calls it

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import plait
from plait import TextClassifier, TextRegressor
from plait.errors import DataError, DeviceMemoryError, RecipeError, RunError, UsageError
from plait.training.memory import explain_scoring
from plait.training.run import _refuse_divergence

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


@pytest.mark.parametrize("names", [[3, 7], [True, False], [0.5, 1.5], ["1", "0"]])
def test_classes_of_any_type(make, names):
    X, y = ["the film was great .", "the film was awful ."] * 8, names * 8
    model = make().fit(X, y)
    assert sorted(model.classes_.tolist()) == sorted(names)
    assert model.predict(X[:2]).tolist() == names


def test_pairs(make):
    X = [("great", "great"), ("great", "sad")] * 8
    model = make(epochs=2).fit(X, [1, 0] * 8)
    assert model.predict(X).shape == (16,)
    assert (model.predict(np.array(X)) == model.predict(X)).all()


def test_columns_of_a_data_frame(make, moods):
    """Its rows are the examples, not the names of its columns."""
    frames = pytest.importorskip("pandas")
    X, y = moods
    frame = frames.DataFrame({"first": X, "second": X[::-1], "mood": y}).iloc[::-1]
    for columns in ("first", ["first"], ["first", "second"]):
        listed = list(map(tuple, frame[columns].to_numpy())) if len(columns) == 2 else X[::-1]
        expected = make(epochs=1).fit(listed, y[::-1]).predict_proba(listed)
        model = make(epochs=1).fit(frame[columns], frame["mood"])
        assert model.predict_proba(frame[columns]) == pytest.approx(expected)


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


def test_a_column_of_answers_has_the_same_score(make, moods):
    X, names = moods
    column = np.array(names).reshape(-1, 1)
    model = make(epochs=2).fit(X, column)
    assert model.score(X, column) == model.score(X, names)
    y = np.array([float(name == "Good") for name in names])
    regressor = make(TextRegressor, epochs=2).fit(X, y)
    assert regressor.score(X, y.reshape(-1, 1)) == regressor.score(X, y)
    for fitted, answers in ((model, names), (regressor, y)):
        with pytest.raises(UsageError, match="there are 60 texts and 59 answers"):
            fitted.score(X, answers[:-1])


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


def test_the_same_seed_gives_the_same_model(make, moods):
    X, y = moods
    first, second = (make(epochs=1).fit(X, y).predict_proba(X) for _ in range(2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, make(epochs=1, seed=5).fit(X, y).predict_proba(X))


# --- scikit-learn ------------------------------------------------------------------------


def test_params(make):
    model = make(lr=1e-3)
    assert model.get_params()["lr"] == 1e-3
    assert model.set_params(lr=2e-3, epochs=4) is model
    assert (model.lr, model.epochs) == (2e-3, 4)
    with pytest.raises(UsageError, match="no setting 'lrr'; did you mean 'lr'"):
        model.set_params(lrr=1)
    assert repr(TextClassifier(lr=0.1, epochs=5)) == "TextClassifier(epochs=5, lr=0.1)"


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
    scores = selection.cross_val_score(make(), X, y, cv=2)
    assert scores.shape == (2,)
    assert scores.mean() > 0.6  # chance is .33
    search = selection.GridSearchCV(make(), {"epochs": [1, 8]}, cv=2).fit(X, y)
    assert search.best_params_ == {"epochs": 8}
    numbers = [float(name == "Good") for name in y]
    assert selection.cross_val_score(make(TextRegressor), X, numbers, cv=2).shape == (2,)


def test_their_pipeline(make, moods):
    pipeline = pytest.importorskip("sklearn.pipeline")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    X, y = moods
    lower = preprocessing.FunctionTransformer(lambda texts: [text.lower() for text in texts])
    model = pipeline.make_pipeline(lower, make(epochs=1)).fit(X, y)
    assert len(model.predict(X)) == 60


def test_scikit_learn_is_not_needed():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from plait import TextClassifier\n"
        "TextClassifier(lr=1.0).set_params(lr=2.0).get_params()"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- mistakes ----------------------------------------------------------------------------


def test_mistakes(make):
    with pytest.raises(UsageError, match="is not trained yet: call fit first"):
        make().predict(["a"])
    with pytest.raises(UsageError, match="two classes or more, and y has 1"):
        make().fit(["a", "b"], [1, 1])
    with pytest.raises(UsageError, match="there are 2 texts and 3 answers"):
        make().fit(["a", "b"], [1, 2, 1])
    with pytest.raises(UsageError, match="at least one of them"):
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
    "y",
    [
        ["good", None, "bad"],
        ["good", float("nan"), "bad"],
        [1.0, float("nan"), 2.0],
        np.array(["good", np.nan, "bad"], dtype=object),
        [["good"], [None], ["bad"]],
    ],
)
def test_a_missing_class_is_no_class(make, y):
    with pytest.raises(UsageError, match="no class for example 1; leave such examples out"):
        make().fit(["one", "two", "three"], y)


def test_answers_that_are_of_no_use(make):
    with pytest.raises(UsageError, match="words and numbers among its classes"):
        make().fit(["one", "two"], np.array(["good", 1], dtype=object))
    with pytest.raises(UsageError, match=r"y is for scores, and has .*'good'"):
        make(TextRegressor).fit(["one", "two"], ["good", "bad"])


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


def test_a_training_that_goes_astray_is_told_without_recipes_and_commands(make, moods, monkeypatch):
    stage = SimpleNamespace(name="finetune", config=SimpleNamespace(lr=1.0))
    record = SimpleNamespace(total_steps=7)

    def diverge(*_, **__):
        _refuse_divergence({"task": float("nan")}, record, stage)

    def run_out(*_, **__):
        raise explain_scoring("plait train RECIPE --resume")

    monkeypatch.setattr("plait.training.estimator.train", diverge)
    with pytest.raises(RunError) as caught:
        make().fit(*moods)
    assert str(caught.value) == (
        "the loss is not a number any more at update 7: the training has diverged; try a lower "
        "rate than 1, or overrides=['train.warmup=0.1', 'train.clip=1']"
    )
    monkeypatch.setattr("plait.training.estimator.train", run_out)
    with pytest.raises(DeviceMemoryError) as told:
        make(batch_size=8, max_length=32).fit(*moods)
    assert str(told.value) == (
        "out of memory while training: try batch_size=4 with overrides=['train.accumulate=2'], or "
        "max_length=16"
    )
    with pytest.raises(DeviceMemoryError, match=r"training: try max_length=16$"):
        make(batch_size=1, max_length=32).fit(*moods)


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


def test_a_folder_that_holds_something_is_left_alone(make, moods, tmp_path):
    (tmp_path / "mine").mkdir()
    make(epochs=1, out=tmp_path / "mine").fit(*moods)  # an empty one is as good as none
    words = r"^TextClassifier: out = '.*mine' exists already and is not overwritten; choose another"
    with pytest.raises(UsageError, match=words):
        make(out=tmp_path / "mine").fit(*moods)


def test_arguments_of_a_grid_and_a_path(make, moods, tiny_encoder):
    """Grids are often made with NumPy, folders with pathlib."""
    expected = make(epochs=1).fit(*moods).predict_proba(moods[0])
    model = make(epochs=np.int64(1), lr=np.float32(5e-3)).set_params(encoder=Path(tiny_encoder))
    assert model.fit(*moods).predict_proba(moods[0]) == pytest.approx(expected, abs=1e-4)
