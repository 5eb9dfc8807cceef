"""Texts and answers in memory become a trained model, in the manner of scikit-learn.

The protocol is theirs (https://scikit-learn.org/stable/developers/develop.html), so that their
`cross_val_score`, `clone` and `GridSearchCV` take these classes. Their package is not needed.
"""

# ruff: noqa: N803 - X is what their protocol calls it

from __future__ import annotations

import inspect
import json
import math
import re
import tempfile
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from plait.config.reading import resolve
from plait.data.store import check_texts
from plait.errors import (
    DeviceMemoryError,
    Interrupted,
    PlaitError,
    RecipeError,
    UsageError,
    suggest,
)
from plait.inference.folders import is_taken
from plait.inference.predictor import Predictor, require_list
from plait.tasks.metrics import accuracy
from plait.training.runs import train

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from plait.config import RunConfig
    from plait.inference.predictor import Text
    from plait.tasks.kind import Floats

TASK = "task"
"""What the one task is called in the run."""

KEYS = {
    "encoder": "encoder.source",
    "epochs": "train.epochs",
    "batch_size": "train.batch_size",
    "lr": "train.lr",
    "max_length": "encoder.max_length",
    "seed": "seed",
    "device": "device",
}
"""What an argument is called in a recipe."""
CHOSEN = ("epochs", "batch_size", "lr")
"""Arguments that plait.config.choose fills in where they are None."""


class TextEstimator:
    """What a classifier and a regressor of texts share: their settings, and how they train."""

    _estimator_type = ""

    def __init__(
        self,
        encoder: str = "packaged",
        *,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        max_length: int = 128,
        seed: int = 11711,
        device: str = "auto",
        overrides: Sequence[str] = (),
        out: str | Path | None = None,
    ):
        self.encoder, self.epochs, self.batch_size, self.lr = encoder, epochs, batch_size, lr
        self.max_length, self.seed, self.device = max_length, seed, device
        self.overrides, self.out = overrides, out

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - the protocol's
        """Return the settings by name."""
        return {name: getattr(self, name) for name in _settings(type(self))}

    def set_params(self, **params: Any) -> Self:
        """Change settings by name."""
        for name, value in params.items():
            if name not in _settings(type(self)):
                near = suggest(name, _settings(type(self)))
                raise UsageError(f"{type(self).__name__} has no setting {name!r}{near}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = _settings(type(self))
        params = self.get_params().items()
        changed = [f"{name}={value!r}" for name, value in params if value != defaults[name]]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        """Say what scikit-learn, the only one to ask, wants to know of an estimator."""
        theirs = import_module("sklearn.utils")
        is_classifier = self._estimator_type == "classifier"
        return theirs.Tags(
            estimator_type=self._estimator_type,
            target_tags=theirs.TargetTags(required=True),
            classifier_tags=theirs.ClassifierTags() if is_classifier else None,
            regressor_tags=None if is_classifier else theirs.RegressorTags(),
            input_tags=theirs.InputTags(one_d_array=True, two_d_array=False, string=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        """Say whether it was trained."""
        return hasattr(self, "model_")

    def _fit(self, X: Sequence[Text], labels: Sequence[Any], task: dict[str, Any]) -> None:
        """Train a run of one task, in a folder that is gone afterwards unless one is named."""
        rows = _rows(X)
        require_list(rows)
        examples = [check_texts(i, _texts(example)) for i, example in enumerate(rows)]
        _refuse_unequal(len(examples), len(labels))
        widths = {len(texts) for texts in examples}
        if len(widths) != 1:
            raise UsageError("X must have at least one text or pair of texts")
        names = ["text"] if widths == {1} else ["first", "second"]
        files = {"text": names, "label": "label", "train": "train.jsonl"}
        config = self._make_config(task | files)
        self._refuse_taken()
        with tempfile.TemporaryDirectory(prefix="plait-") as folder:
            with (Path(folder) / "train.jsonl").open("w", encoding="utf-8") as file:
                for texts, label in zip(examples, labels, strict=True):
                    row = dict(zip(names, texts, strict=True)) | {"label": label}
                    file.write(f"{json.dumps(row)}\n")
            run = Path(folder) / "run" if self.out is None else Path(self.out)
            with self._own_words():
                train(config, run, data=folder)
            self.model_ = Predictor.load(run, device=self.device)
            self.model_.fingerprint()  # which it remembers, and the folder may go

    def _make_config(self, task: dict[str, Any]) -> RunConfig:
        """Build the recipe; errors use the names of the arguments, not the recipe's keys."""
        own = type(self).__name__
        table: dict[str, Any] = {"name": own, "listeners": [], "tasks": {TASK: task}}
        for name, key in KEYS.items():
            if name in CHOSEN and getattr(self, name) is None:
                continue
            section, _, last = key.rpartition(".")
            place = table.setdefault(section, {}) if section else table
            place[last] = _plain(getattr(self, name))
        try:
            config = resolve(table, (), own)
        except RecipeError as error:
            message = str(error)
            for name, key in KEYS.items():
                message = message.replace(f"{own}: {key} = ", f"{own}: {name} = ")
            raise UsageError(message) from error
        if not self.overrides:
            return config
        if isinstance(self.overrides, str) or not all(isinstance(o, str) for o in self.overrides):
            raise UsageError(
                f"{own}: overrides = {self.overrides!r}: should be a list of words such as "
                "'train.warmup=0.1'"
            )
        return resolve(table, self.overrides, f"{own}: overrides")

    @contextmanager
    def _own_words(self) -> Iterator[None]:
        """Rewrite errors so that they name arguments instead of recipe keys and commands."""
        try:
            yield
        except Interrupted as error:
            when = str(error).partition(";")[0]
            kept = "nothing is kept"
            if self.out is not None:
                kept = (
                    f"the run in {str(self.out)!r} is not finished, and fit does not go on with it"
                )
            # A hyperparameter search of scikit-learn treats every other error as a failed fit.
            raise KeyboardInterrupt(f"{when}; {kept}") from None
        except DeviceMemoryError as error:
            whole = self.batch_size or 16
            size, length = max(1, whole // 2), max(8, self.max_length // 2)
            fewer = f"batch_size={size} with overrides=['train.accumulate=2'], or "
            less = f"{fewer * (whole > 1)}max_length={length}"
            raise DeviceMemoryError(f"out of memory while training: try {less}") from error
        except PlaitError as error:
            error.args = (self._rename(str(error)),)
            raise

    def _rename(self, message: str) -> str:
        """Replace recipe keys by argument names, except for keys in `overrides`."""
        for name, key in KEYS.items():
            if not any(override.startswith(key) for override in self.overrides):
                message = re.sub(rf"`-o {re.escape(key)}=(\S+)`", rf"{name}='\1'", message)
                message = re.sub(rf"(?<![\w.]){re.escape(key)}(?![\w.]*\w)", name, message)
        message = re.sub(r" in stage '\w+'\), add warmup, or set clip = 1", "), or set overrides="
                         "['train.warmup=0.1', 'train.clip=1']", message)  # fmt: skip
        return message.replace(f"the loss of {TASK} is", "the loss is").replace("--out", "out")

    def _refuse_taken(self) -> None:
        """Raise UsageError if the output folder exists and is not empty."""
        out = None if self.out is None else Path(self.out)
        if out is not None and is_taken(out):
            raise UsageError(
                f"{type(self).__name__}: out = {str(out)!r} exists already and is not overwritten; "
                "choose another folder"
            )

    def _answer(self, X: Sequence[Text]) -> Floats:
        if not hasattr(self, "model_"):
            raise UsageError(f"this {type(self).__name__} is not fitted: call fit first")
        rows = _rows(X)
        require_list(rows)
        return self.model_.answer(TASK, self.model_.tokenise([_texts(row) for row in rows]))


class TextClassifier(TextEstimator):
    """Learns classes of texts, or of pairs of texts: `fit(X, y)`, then `predict(X)`.

    `X` is a list of texts, or of tuples of two; `y` has the classes, as words or numbers. The
    settings are those of a recipe: `encoder` is its source, and `overrides` are any others, as on
    the command line ("train.warmup=0.1"). Those that are None follow from the rows and classes
    (plait.config.choose). `out` keeps the run in a folder. There is no dev set:
    the model after the last update is kept. After `fit`, `classes_` are the classes in the order of
    the probabilities and `model_` is the Predictor, whose task is called 'task'.
    """

    _estimator_type = "classifier"

    def fit(self, X: Sequence[Text], y: ArrayLike) -> Self:
        """Train on texts and their classes."""
        try:
            classes, numbers = np.unique(_one_each(y), return_inverse=True)
        except TypeError as error:  # they have no order
            raise UsageError("y has both strings and numbers as classes; use one type") from error
        if len(classes) < 2:
            raise UsageError(f"a classifier needs two classes or more, and y has {len(classes)}")
        # Words of our own in the file: theirs may be numbers, or differ in case alone.
        words = [f"class {number}" for number in range(len(classes))]
        task = {
            "kind": "classes",
            "labels": [str(name) for name in classes],
            "label_map": dict(zip(words, range(len(classes)), strict=True)),
        }
        self._fit(X, [words[number] for number in numbers.ravel()], task)
        self.classes_ = classes
        return self

    def predict(self, X: Sequence[Text]) -> NDArray[Any]:
        """Return each text's class."""
        numbers = self.predict_proba(X).argmax(axis=1)
        chosen: NDArray[Any] = self.classes_[numbers]
        return chosen

    def predict_proba(self, X: Sequence[Text]) -> Floats:
        """Return each text's probabilities, [texts, classes], in the order of `classes_`."""
        return self._answer(X)

    def score(self, X: Sequence[Text], y: ArrayLike) -> float:
        """Return the accuracy."""
        true, found = _one_each(y).ravel(), self.predict(X)
        _refuse_unequal(len(found), len(true))
        return accuracy(np.ones(len(true)), found == true)


class TextRegressor(TextEstimator):
    """Learns scores of texts, or of pairs of texts: `fit(X, y)`, then `predict(X)`.

    As TextClassifier, with numbers for `y`. Answers stay between the least and the greatest
    number of `y`.
    """

    _estimator_type = "regressor"

    def fit(self, X: Sequence[Text], y: ArrayLike) -> Self:
        """Train on texts and their scores."""
        scores = _numbers(y)
        if not len(scores) or not np.isfinite(scores).all() or scores.min() == scores.max():
            raise UsageError("a regressor needs finite scores that are not all the same")
        span = [float(scores.min()), float(scores.max())]
        self._fit(X, scores.tolist(), {"kind": "score", "range": span})
        return self

    def predict(self, X: Sequence[Text]) -> Floats:
        """Return each text's score."""
        return self._answer(X)

    def score(self, X: Sequence[Text], y: ArrayLike) -> float:
        """Return R squared: 1 for answers that are right, 0 for those of the mean."""
        true, found = _numbers(y), self.predict(X)
        _refuse_unequal(len(found), len(true))
        spread = float(((true - true.mean()) ** 2).sum())
        error = float(((true - found) ** 2).sum())
        return 1 - error / spread if spread else math.nan


def _settings(cls: type) -> dict[str, Any]:
    """Return the settings' names and defaults: what the class is made with."""
    parameters = list(inspect.signature(cls).parameters.values())
    return {parameter.name: parameter.default for parameter in parameters}


def _plain(value: Any) -> Any:
    """Return an argument as a recipe has it: a grid of settings holds NumPy's numbers."""
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, Path) else value


def _one_each(y: ArrayLike) -> NDArray[Any]:
    """Return the classes, refusing several of one text."""
    try:
        classes: NDArray[Any] = np.asarray(y)
    except ValueError:  # lists of unequal length
        classes = np.empty((0, 0))
    of_column = classes.ndim == 1 or classes.shape[1:] == (1,)
    if not of_column or any(isinstance(entry, set | list | tuple) for entry in classes.flat):
        raise UsageError(
            "y has several answers for one text; a classifier learns one class, and a recipe with "
            "a task of kind 'labels' any number of them"
        )
    # Before NumPy makes words of them: NaN beside words becomes the word 'nan'.
    for number, entry in enumerate(np.asarray(y, dtype=object).flat):
        if entry is None or type(entry).__name__ == "NAType" or entry != entry:
            raise UsageError(f"y has no class for example {number}; remove such examples")
    return classes


def _numbers(y: ArrayLike) -> Floats:
    """Return the scores, refusing what is no number."""
    try:
        return np.asarray(y, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise UsageError(f"y must contain numbers: {error}") from error


def _refuse_unequal(num_texts: int, num_answers: int) -> None:
    if num_texts != num_answers:
        raise UsageError(f"there are {num_texts} texts and {num_answers} answers")


def _rows(X: Any) -> Iterable[Text]:
    """Return the examples one by one; a data frame would give the names of its columns."""
    rows: Iterable[Text] = X.to_numpy() if hasattr(X, "to_numpy") else X
    return rows


def _texts(example: Text) -> tuple[str, ...]:
    return tuple(example) if isinstance(example, tuple | list | np.ndarray) else (example,)
