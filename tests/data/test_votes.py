"""Several opinions on one score: their mean, out of several columns or a list."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plait.config import TaskConfig
from plait.data import load_split
from plait.errors import DataError, RecipeError

NLI = {"contradiction": 0.0, "neutral": 3.0, "entailment": 5.0}
COLUMNS = ("label1", "label2", "label3")


@pytest.fixture
def load(tmp_path: Path, tokenizer, write_rows, monkeypatch) -> Callable[..., Any]:
    """Write rows of votes into a file and read them as a task with a score of 0 to 5."""
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "cache"))

    def read(name: str, rows: list[dict[str, Any]], bad_rows: str = "error", **settings: Any):
        table = {"kind": "score", "range": (0.0, 5.0), "text": "text", "train": name}
        task = TaskConfig(**table | {"label": COLUMNS, "label_map": NLI} | settings)
        write_rows(tmp_path / name, rows)
        return load_split(
            "x",
            task,
            "train",
            root=tmp_path,
            tokenizer=tokenizer,
            max_length=16,
            bad_rows=bad_rows,
            seed=1,
        )

    return read


def rows_of(*votes: tuple[Any, ...]) -> list[dict[str, Any]]:
    named = (dict(zip(COLUMNS, some, strict=True)) for some in votes)
    return [{"text": f"the film {i}", **some} for i, some in enumerate(named)]


VOTES = rows_of(
    ("entailment", "entailment", "neutral"),
    ("neutral", "contradiction", ""),
    ("contradiction", " ", None),
)
MEANS = [pytest.approx(13 / 3), 1.5, 0.0]


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_columns_of_votes(load, kind):
    assert load(f"x.{kind}", VOTES).labels.tolist() == MEANS


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_list_of_votes(load, kind):
    rows = [{"text": r["text"], "votes": [r[c] for c in COLUMNS if r[c]]} for r in VOTES]
    assert load(f"x.{kind}", rows, label="votes").labels.tolist() == MEANS
    with pytest.raises(DataError, match="the label is missing"):
        load(f"y.{kind}", [*rows, {"text": "one", "votes": []}], label="votes")


def test_rows_without_any_vote_and_unknown_votes_are_named(load):
    with pytest.raises(DataError, match="line 3: no label column has a value"):
        load("x.csv", rows_of(("neutral", "", ""), ("", "", "")))
    with pytest.raises(DataError, match="line 2: column 'label2': label '-' is none of"):
        load("y.csv", rows_of(("neutral", "-", "")))
    some = rows_of(("", "", ""), ("neutral", "-", ""), ("neutral", "", ""))
    assert load("z.csv", some, bad_rows="skip").labels.tolist() == [3.0]


def test_votes_are_for_scores(load):
    with pytest.raises(ValueError, match="one label column, not a list"):
        load("x.csv", VOTES, kind="classes", labels=("a", "b"))
    with pytest.raises(RecipeError, match=r"x\.csv: a task of kind 'binary' has one label column"):
        load(
            "x.csv",
            VOTES,
            kind="binary",
            label="is",
            label_map={},
            train={"path": "x.csv", "label": COLUMNS},
        )
