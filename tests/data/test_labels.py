"""Any number of labels a row: in one column, in a list, or in columns of 0 and 1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plait.config import TaskConfig
from plait.data import load_split
from plait.errors import DataError

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


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_lists(load, kind):
    data = load(f"x.{kind}", rows_of(["joy", "fear"], [], ["anger"]))
    assert data.labels.tolist() == [[0, 1, 1], [0, 0, 0], [1, 0, 0]]


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
