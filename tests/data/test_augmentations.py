"""Training rows get changed copies, labels kept; dev, test and what is unlabelled get none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plait.config import TaskConfig
from plait.data import Dataset, Tokenizer, load_split
from plait.data.augmentations import AUGMENTATIONS
from plait.data.split import Split
from plait.registry import load_plugin

ROWS = [
    ("1", "He ran", "it ran", "1"),
    ("2", "a film", "bad film", "0"),
    ("3", "the film", "her film", "0"),
]
SWAPPED = [("She ran", "it ran"), ("the film", "his film")]
TASK = {"kind": "binary", "text": ("a", "b"), "label": "label", "id": "id"}
FILES = {"train": "rows.csv", "dev": "rows.csv", "test": "rows.csv"}

Load = Callable[..., Dataset]


@pytest.fixture
def load(tmp_path: Path, tokenizer: Tokenizer) -> Load:
    lines = ["id,a,b,label", *(",".join(row) for row in ROWS)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def run(augment: Any = (), split: Any = "train", *, seed: int = 1, **given: Any) -> Dataset:
        task = {key: given.pop(key) for key in ("count", "train") if key in given}
        config = TaskConfig.model_validate(TASK | FILES | {"augment": augment} | task)
        return load_split(
            "pairs",
            config,
            split,
            root=tmp_path,
            tokenizer=tokenizer,
            max_length=16,
            bad_rows="error",
            seed=seed,
            **given,
        )

    return run


def test_copies_are_added_where_the_text_changes(load: Load) -> None:
    dataset = load("gender-swap")
    assert dataset.texts() == [*((a, b) for _, a, b, _ in ROWS), *SWAPPED]
    assert dataset.labels is not None
    assert dataset.labels.tolist() == [1, 0, 0, 1, 0]
    assert list(dataset.ids) == ["1", "2", "3", "1~gender-swap", "3~gender-swap"]
    assert len(dataset.fingerprints) == len(dataset) == 5
    assert [str(report) for report in dataset.report] == ["rows.csv: 3 rows, 2 more by gender-swap"]
    again = load("gender-swap")  # out of the cache
    assert (again.report, again.key) == (dataset.report, dataset.key)
    assert again.texts([3]) == SWAPPED[:1]


def test_the_cache_tells_them_apart(load: Load) -> None:
    pairs = [["film", "book"]]
    keys = {
        load(augment, seed=seed).key
        for augment, seed in [
            ((), 1),
            ("gender-swap", 1),
            ("gender-swap", 2),
            ({"name": "gender-swap", "share": 0.5}, 1),
            ({"name": "gender-swap", "pairs": pairs}, 1),
            (("gender-swap", {"name": "gender-swap", "pairs": pairs}), 1),
        ]
    }
    assert len(keys) == 6
    # without one, the seed is no part of the name
    assert load((), seed=1).key == load((), seed=2).key
    # and a setting spelled out is the same as left out
    spelled = load({"name": "gender-swap", "share": 1.0})
    assert spelled.key == load("gender-swap").key


def test_every_file_has_its_own_count(load: Load, tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("id,a,b,label\n9,boy,x,1\n8,y,z,\n", encoding="utf-8")
    files = ("rows.csv", "more.csv")
    task = TaskConfig.model_validate(TASK | {"train": files, "augment": "gender-swap"})
    split = Split("pairs", task, "train", tmp_path, "skip", 1, labelled=True)
    assert sum(map(len, split.rows())) == 3 + 2 + 1 + 1
    assert [str(report) for report in split.reports] == [
        "rows.csv: 3 rows, 2 more by gender-swap",
        "more.csv: 1 row skipped (1 missing label; first at line 3), 1 more by gender-swap",
    ]


def test_a_share_of_the_rows(tmp_path: Path) -> None:
    rows = [f"he {i},x,1" for i in range(1000)]
    (tmp_path / "many.csv").write_text("\n".join(["a,b,label", *rows]), encoding="utf-8")
    base = {"kind": "binary", "text": ("a", "b"), "label": "label", "train": "many.csv"}
    table = {"name": "gender-swap", "share": 0.3}
    task = TaskConfig.model_validate(base | {"augment": table})

    def added(seed: int, name: str = "t") -> list[str]:
        split = Split(name, task, "train", tmp_path, "error", seed, labelled=True)
        return [i for rows in split.rows() for i in rows.ids.to_pylist() if "~" in i]

    found = added(1)
    assert 250 < len(found) < 350
    assert len(set(found)) == len(found)
    assert added(1) == found
    assert added(2) != found
    assert added(1, "other") != found


OWN = '''
from dataclasses import dataclass
from plait.data.augmentations import AUGMENTATIONS, Augmentation

@AUGMENTATIONS.register("shout")
@dataclass(kw_only=True)
class Shout(Augmentation):
    """Shouts."""

    def __call__(self, texts, generator):
        return tuple(text.upper() for text in texts)
'''


def test_what_a_stranger_adds_depends_on_his_code(tmp_path, monkeypatch):
    """Else rows that another version of the file made would be taken from the cache."""
    monkeypatch.setattr(AUGMENTATIONS, "_parts", dict(AUGMENTATIONS._parts))
    plugin, described = tmp_path / "mine.py", []
    for source in (OWN, OWN, OWN.replace("upper", "lower")):
        plugin.write_text(source)
        load_plugin(plugin)
        described.append(AUGMENTATIONS.build("shout", "augment").describe())
    assert described[0] == described[1] != described[2]
    ours = AUGMENTATIONS.build("other-order", "augment").describe()
    assert ours == {"class": "OtherOrder", "share": 1.0}  # whose entries keep their names
