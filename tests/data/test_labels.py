"""Any number of labels a row: in one column, in a list, or in columns of 0 and 1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plait.config import TaskConfig
from plait.data import load_split
from plait.errors import DataError, RecipeError

WORDS = ("anger", "joy", "fear")


@pytest.fixture
def load(tmp_path: Path, tokenizer, write_rows, monkeypatch) -> Callable[..., Any]:
    """Write rows into a file and read them as a task of labels."""
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "cache"))

    def read(name: str, rows: list[dict[str, Any]], **settings: Any) -> Any:
        table = {"kind": "labels", "labels": WORDS, "text": "text", "label": "mood", "train": name}
        task = TaskConfig(**table | settings)
        write_rows(tmp_path / name, rows)
        return load_split(
            "x",
            task,
            "train",
            root=tmp_path,
            tokenizer=tokenizer,
            max_length=16,
            bad_rows="error",
            seed=1,
        )

    return read


def rows_of(*moods: Any) -> list[dict[str, Any]]:
    return [{"text": f"the film {i}", "mood": mood} for i, mood in enumerate(moods)]


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_words_with_a_sign_between_them(load, kind):
    data = load(f"x.{kind}", rows_of("joy", "fear; Anger", "", "joy;", "anger;joy;fear;joy"))
    assert data.labels.tolist() == [[0, 1, 0], [1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]]
    assert data.select([1, 3]).labels.tolist() == [[1, 0, 1], [0, 1, 0]]


def test_another_sign_and_numbers(load):
    data = load("x.csv", rows_of("0 2", "1", "2.0 1"), label_separator=" ")
    assert data.labels.tolist() == [[1, 0, 1], [0, 1, 0], [0, 1, 1]]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_lists(load, kind):
    data = load(f"x.{kind}", rows_of(["joy", "fear"], [], ["anger"]))
    assert data.labels.tolist() == [[0, 1, 1], [0, 0, 0], [1, 0, 0]]


def test_a_listed_word_is_not_split(load):
    data = load("x.jsonl", rows_of(["a;b"], ["c", "a;b"], [0]), labels=("a;b", "c"))
    assert data.labels.tolist() == [[1, 0], [1, 1], [1, 0]]


def test_a_map_names_labels(load):
    data = load("x.csv", rows_of("angry;joy", "glad"), label_map={"angry": 0.0, "glad": 1.0})
    assert data.labels.tolist() == [[1, 1, 0], [0, 1, 0]]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_columns_of_0_and_1(load, kind):
    rows = [{"text": "one", "anger": 1, "joy": 0}, {"text": "two", "anger": 1, "joy": 1}]
    columns = {"label": ("anger", "joy"), "labels": ()}
    data = load(f"x.{kind}", rows, **columns)
    assert data.labels.tolist() == [[1, 0], [1, 1]]
    named = load(f"y.{kind}", rows, label=("anger", "joy"), labels=("Wrath", "Delight"))
    assert named.labels.tolist() == [[1, 0], [1, 1]]


@pytest.mark.parametrize(
    ("kind", "value", "sentence"),
    [
        ("csv", "joy;angr", "x.csv, line 2: label 'angr' is none of anger, joy, fear"),
        ("csv", "3", "x.csv, line 2: label '3' is not 0 to 2"),
        ("jsonl", None, "x.jsonl, line 1: the label is missing"),
        ("jsonl", ["joy", "angr"], "x.jsonl, line 1: label 'angr' is none of"),
        ("parquet", ["angr"], "x.parquet: row 1: label 'angr' is none of"),
    ],
)
def test_mistakes_are_named(load, kind, value, sentence):
    with pytest.raises(DataError, match=sentence):
        load(f"x.{kind}", rows_of(value))


def test_a_column_that_is_not_0_or_1_is_named(load):
    rows = [{"text": "one", "anger": 1, "joy": 2}]
    with pytest.raises(DataError, match="line 2: column 'joy': label '2' is not 0 or 1"):
        load("x.csv", rows, label=("anger", "joy"), labels=())


def test_a_list_under_a_class_is_told(load):
    with pytest.raises(DataError, match="the label is a list, which is for kind = 'labels'"):
        load("x.jsonl", rows_of(["joy"]), kind="classes")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"kind": "classes", "label": ("a", "b", "c")}, "one label column, not a list"),
        ({"label": ("a", "b")}, "2 columns for 3 labels"),
        ({"label": ("a",), "labels": ()}, "two or more"),
    ],
)
def test_columns_that_do_not_suit_are_refused(load, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        load("x.csv", rows_of("joy"), **settings)


def test_a_file_with_other_columns_needs_as_many(load):
    with pytest.raises(RecipeError, match=r"x\.csv names 2 label columns"):
        load("x.csv", rows_of("joy"), train={"path": "x.csv", "label": ("a", "b")})


def test_the_threshold_does_not_change_what_is_read(load):
    one, two = (load("x.csv", rows_of("joy"), threshold=t) for t in (0.5, 0.3))
    assert one.key == two.key
    assert load("x.csv", rows_of("joy"), label_separator=",").key != one.key
