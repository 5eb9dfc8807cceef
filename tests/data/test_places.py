"""Every row of a Dataset knows where it stands in its file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plait.config import TaskConfig
from plait.data import Dataset, Place, Tokenizer, load_split

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
