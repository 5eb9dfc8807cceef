"""Every row of a Dataset knows where it stands in its file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plait.config import TaskConfig
from plait.data import Dataset, Place, Tokenizer, load_split
from plait.errors import DataError

Load = Callable[..., Dataset]
WORDS = ("good", "bad", "film", "the")


@pytest.fixture
def load(tmp_path: Path, tokenizer: Tokenizer) -> Load:
    """Load a split of a task on one text out of files in tmp_path."""

    def run(*files: str, **settings: Any) -> Dataset:
        table = {"kind": "binary", "text": ("a",), "label": "label", "train": files, **settings}
        return load_split(
            "task",
            TaskConfig.model_validate(table),
            "train",
            root=tmp_path,
            tokenizer=tokenizer,
            max_length=16,
            bad_rows="skip",
            seed=1,
        )

    return run


def test_lines_count_headers_blanks_quotes_and_skipped_rows(tmp_path, load):
    text = 'a,label\ngood,1\n\n"bad\nfilm",0\nthe,7\nfilm,1\n'
    (tmp_path / "x.csv").write_text(text, encoding="utf-8")
    places = load("x.csv").find_places([0, 1, 2])
    assert [place.number for place in places] == [2, 4, 7]
    assert str(places[0]) == f"{tmp_path / 'x.csv'}, line 2"


@pytest.mark.parametrize(
    ("name", "first", "unit"),
    [("x.csv", 2, "line"), ("x.tsv", 2, "line"), ("x.jsonl", 1, "line"), ("x.parquet", 1, "row")],
)
def test_every_format_over_several_files(tmp_path, write_rows, load, name, first, unit):
    write_rows(tmp_path / name, [{"a": word, "label": 1} for word in WORDS])
    write_rows(tmp_path / f"more-{name}", [{"a": word, "label": 0} for word in WORDS])
    dataset = load(name, f"more-{name}")
    assert dataset.find_places([5, 0, 5]) == [
        Place(tmp_path / f"more-{name}", first + 1, unit),
        Place(tmp_path / name, first, unit),
        Place(tmp_path / f"more-{name}", first + 1, unit),
    ]


def test_drawn_added_and_selected_rows_lead_back(tmp_path, load):
    lines = ["a,label", *(f"he {word} {i},1" for i in range(30) for word in WORDS)]
    (tmp_path / "x.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    dataset = load("x.csv", count=20, augment="gender-swap")
    assert len(dataset) == 40
    for chosen in (dataset, dataset.select([33, 2, 17])):
        rows = range(len(chosen))
        for (text,), place in zip(chosen.texts(), chosen.find_places(rows), strict=True):
            assert lines[place.number - 1] == text.replace("she", "he") + ",1"


def test_a_file_that_changed_is_told(tmp_path, load):
    (tmp_path / "x.csv").write_text("a,label\ngood,1\n", encoding="utf-8")
    dataset = load("x.csv")
    (tmp_path / "x.csv").write_text("a,label\nbad,1\n", encoding="utf-8")
    with pytest.raises(DataError, match="have changed meanwhile"):
        dataset.find_places([0])


def test_texts_by_hand_stand_nowhere(tokenizer):
    with pytest.raises(ValueError, match="stand in no file"):
        Dataset.from_texts([("good",)], tokenizer, 16).find_places([0])
