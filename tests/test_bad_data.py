"""Data that say little or nothing: a model where one is possible, else one sentence."""

from __future__ import annotations

import csv
import math
from typing import TYPE_CHECKING, Any

import pytest

from plait import TextClassifier, TextRegressor, load
from plait.analysis.draft import Draft, Request, draft_recipe
from plait.config import RunConfig
from plait.config.reading import resolve
from plait.errors import DataError, PlaitError, UsageError
from plait.training.listeners import Listener
from plait.training.runs import train

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

THINGS = ("film", "book", "song", "meal", "walk", "room", "game", "story", "train", "garden")


def text(number: int) -> str:
    """Make a text of its own for each number below 40, which says whether the number is even."""
    extra = "very " * (number // len(THINGS))
    return f"the {THINGS[number % 10]} {extra}was {('fine', 'dull')[number % 2]} ."


def rows(labels: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [(text(i), label) for i, label in enumerate(labels)]


def pairs(labels: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [(text(i), text(i + 1), label) for i, label in enumerate(labels)]


def write(path: Path, columns: Sequence[str], lines: Sequence[Sequence[Any]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *lines])
    return path


class Notes(Listener):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def note(self, text: str) -> None:
        self.heard.append(text)


# --- recipes -----------------------------------------------------------------------------

MOOD = {"kind": "classes", "labels": ["bad", "fine", "mild"], "text": "text"}
MANY = {"kind": "classes", "labels": 30, "text": "text"}
TAGS = {"kind": "labels", "labels": ["long", "loud"], "text": "text"}
STARS = {"kind": "score", "range": [0, 5], "text": "text"}
SAME = {"kind": "binary", "text": ["a", "b"]}
NEAR = {"kind": "score", "range": [0, 5], "text": ["a", "b"]}

TRAINED: dict[str, tuple[dict[str, Any], list[Any], list[Any], str]] = {
    "one class only": (MOOD, rows(["bad"] * 12), rows(["bad"] * 4), "no training row has"),
    "one row only": (MOOD, rows(["bad"]), rows(["bad"] * 4), "no training row has"),
    "more classes than rows": (MANY, rows(range(10)), rows(range(4)), "and 15 more"),
    "a label seen only in dev": (
        MOOD,
        rows(["bad", "fine"] * 6),
        rows(["mild"] * 4),
        "no training row has the label mild, so the model cannot learn it",
    ),
    "no label ever": (TAGS, rows([""] * 12), rows(["long"] * 4), "so the model cannot learn them"),
    "constant scores": (STARS, rows([2.5] * 12), rows([1, 2, 3]), ""),
    "equal pairs with different scores": (
        NEAR | {"loss": "mse"},
        [("the film .", "the film .", i % 6) for i in range(12)],
        pairs([1, 2]),
        "",
    ),
    "pairs of one class": (SAME, pairs([1] * 12), pairs([0, 1]), "no training row has"),
}
ALWAYS = {"one class only": 0, "pairs of one class": 1, "constant scores": 2.5}
"""What is answered where every training row has the same answer."""


def make(
    folder: Path, encoder: Path, task: dict[str, Any], known: list[Any], dev: list[Any]
) -> RunConfig:
    columns = [task["text"]] if isinstance(task["text"], str) else task["text"]
    write(folder / "train.csv", [*columns, "label"], known)
    write(folder / "dev.csv", [*columns, "label"], dev)
    table = {
        "name": "bad",
        "device": "cpu",
        "listeners": [],
        "data": {"root": str(folder)},
        "encoder": {"source": str(encoder), "max_length": 32},
        "train": {"epochs": 1},
        "tasks": {"task": {**task, "label": "label", "train": "train.csv", "dev": "dev.csv"}},
    }
    return resolve(table, (), "bad")


@pytest.mark.parametrize("name", TRAINED)
def test_a_recipe_trains_and_answers(tmp_path, tiny_encoder, name):
    task, known, dev, said = TRAINED[name]
    notes = Notes()
    config = make(tmp_path, tiny_encoder, task, known, dev)
    run = train(config, tmp_path / "run", listeners=[notes]).folder
    assert any(said in note for note in notes.heard)
    model = load(run, device="cpu")
    texts = [tuple(row[:-1]) if len(row) > 2 else row[0] for row in dev]
    for answer in model.predict("task", texts):
        score = answer.value if task["kind"] == "score" else 0.0
        assert all(map(math.isfinite, (*answer.probabilities, score)))
    if name in ALWAYS:
        unseen = "a lovely garden ."
        given = unseen if isinstance(task["text"], str) else (unseen, unseen)
        (answer,) = model.predict("task", [given])
        assert answer.value == pytest.approx(ALWAYS[name], abs=0.1)


def test_an_empty_text_is_refused_with_its_line(tmp_path, tiny_encoder):
    known = rows(["bad", "fine"] * 6)
    known[3] = ("  ", "fine")
    config = make(tmp_path, tiny_encoder, MOOD, known, rows(["bad"]))
    with pytest.raises(DataError, match=r"train\.csv, line 5: column 'text' is empty; .*skip"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- plait new ---------------------------------------------------------------------------

REFUSED: dict[str, tuple[Sequence[str], list[Any], str]] = {
    "one class only": (
        ("text", "label"),
        rows(["bad"] * 20),
        "every training row has the same label in column 'label', so there is nothing to learn",
    ),
    "constant scores": (
        ("text", "score"),
        rows([2.5] * 20),
        "every training row has the same label in column 'score', so there is nothing to learn",
    ),
    "as many classes as rows": (
        ("text", "label"),
        rows([f"class {i}" for i in range(20)]),
        "column 'label' has 20 different values in 20 rows, too many for classes",
    ),
    "empty texts": (
        ("text", "label"),
        [("", ("bad", "fine")[i % 2]) for i in range(20)],
        r"no row can be trained on: .*\(20 empty text; first at line 2\)",
    ),
}


def draft(file: Path, **more: Any) -> Draft:
    label = file.read_text(encoding="utf-8").splitlines()[0].split(",")[-1]
    return draft_recipe([file], Request(text=["text"], label=[label], **more))


@pytest.mark.parametrize("name", REFUSED)
def test_a_draft_says_why_there_is_none(tmp_path, name):
    columns, lines, said = REFUSED[name]
    file = write(tmp_path / "rows.csv", columns, lines)
    with pytest.raises(PlaitError, match=said) as caught, draft(file) as made:
        made.write(tmp_path / "new")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "new").exists()


def test_a_draft_of_equal_texts_has_no_dev(tmp_path):
    lines = [("the film .", ("bad", "fine")[i % 2]) for i in range(20)]
    with draft(write(tmp_path / "rows.csv", ("text", "label"), lines)) as made:
        (task,) = made.tasks
    assert task.dev_fraction is None
    assert any("too few different texts could be held out" in note for note in task.notes)


# --- estimators --------------------------------------------------------------------------

TEXTS = [text(i) for i in range(6)]
EVEN = ["bad", "fine"] * 3


@pytest.fixture
def settings(tiny_encoder):
    return {"encoder": str(tiny_encoder), "max_length": 32, "device": "cpu", "epochs": 1}


@pytest.mark.parametrize(
    ("cls", "texts", "y", "said"),
    [
        (TextClassifier, TEXTS, ["bad"] * 6, "needs two classes or more, and y has 1"),
        (TextRegressor, TEXTS, [2.5] * 6, "needs finite scores that are not all the same"),
        (TextClassifier, ["", *TEXTS[1:]], EVEN, "example 0: the text is empty"),
        (TextRegressor, [*TEXTS[:5], "  "], range(6), "example 5: the text is empty"),
        (TextClassifier, [], [], "needs two classes or more, and y has 0"),
    ],
    ids=["one class", "constant scores", "empty text", "blank text", "nothing"],
)
def test_an_estimator_says_why_it_cannot_be_fitted(settings, cls, texts, y, said):
    with pytest.raises((UsageError, DataError), match=said) as caught:
        cls(**settings).fit(texts, y)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("texts", "y"),
    [
        (TEXTS, list("abcdef")),
        (["the film ."] * 6, EVEN),
        ([(one, one) for one in TEXTS[:2]], EVEN[:2]),
    ],
    ids=["as many classes as rows", "equal texts", "two pairs"],
)
def test_a_classifier_is_fitted_to_little(settings, texts, y):
    model = TextClassifier(**settings).fit(texts, y)
    chances = model.predict_proba(texts)
    assert chances.shape == (len(texts), len(set(y)))
    assert chances.sum(axis=1) == pytest.approx(1)


def test_a_regressor_is_fitted_to_little(settings):
    texts = [("the film .", "a .")] * 6
    found = TextRegressor(**settings).fit(texts, [1, 2, 3, 4, 5, 6]).predict(texts)
    assert ((found >= 1) & (found <= 6)).all()
