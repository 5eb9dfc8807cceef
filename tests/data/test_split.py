"""Files are concatenated with their own settings, and rows drawn without replacement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait.config import RunConfig, TaskConfig
from plait.config.checking import validate
from plait.data import find_held_out
from plait.data.split import Split
from plait.errors import DataError, RecipeError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, first in (("a", 0), ("b", 100)):
        rows = [f"{first + i},text {first + i},{i % 2}" for i in range(100)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["id,text,label", *rows]), encoding="utf-8")
    return tmp_path


def task(**settings: Any) -> TaskConfig:
    basics = {"kind": "binary", "text": "text", "label": "label", "id": "id"}
    return TaskConfig.model_validate(basics | settings)


def ids(
    config: TaskConfig, root: Path, split: Any = "train", *, seed: int = 1, name: str = "t"
) -> list[int]:
    source = Split(name, config, split, root, "error", seed, labelled=True)
    return [int(i) for rows in source.rows() for i in rows.ids.to_pylist()]


@pytest.mark.parametrize(
    ("paths", "told"),
    [
        (("a.csv", "*.csv"), r"a\.csv and \*\.csv both name a\.csv"),
        (("*.csv", "b.csv"), r"\*\.csv and b\.csv both name b\.csv"),
        (("[ab].csv", "?.csv"), r"\[ab\]\.csv and \?\.csv both name a\.csv"),
        ((".", "b.csv"), r"\. and b\.csv both name b\.csv"),
        (("./a.csv", "a*"), r"\./a\.csv and a\* both name a\.csv"),
        (("*.csv", "*.csv"), r"\*\.csv and \*\.csv both name a\.csv"),
        (({"path": "a.csv", "count": 5}, "*.csv"), r"a\.csv and \*\.csv both name a\.csv"),
    ],
)
@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_what_a_folder_or_pattern_takes_in_twice_is_refused(root, paths, told, split) -> None:
    with pytest.raises(RecipeError, match=rf"^tasks\.t\.{split}: {told}, so its rows would be"):
        ids(task(**{split: paths}), root, split)


def test_a_pattern_is_drawn_from_as_a_whole(root: Path) -> None:
    config = task(train={"path": "?.csv", "count": 60})
    found = ids(config, root)
    assert len(found) == 60
    assert found == sorted(found)
    assert 0 < sum(i < 100 for i in found) < 60
    assert ids(config, root) == found
    told = r"^\?.csv: count = 201 is more than the 200 train rows that exist"
    with pytest.raises(DataError, match=told):
        ids(task(train={"path": "?.csv", "count": 201}), root)
    # Drawn together or one by one, rows differ, and so must the names of cache entries.
    one_by_one = task(train=tuple({"path": f"{name}.csv", "count": 60} for name in "ab"))
    described = [
        Split("t", each, "train", root, "error", 1, True).describe()
        for each in (config, one_by_one, task(train={"path": "*.csv", "count": 60}))
    ]
    assert len({str(own) for own in described}) == 3


@pytest.mark.parametrize("share", [{"count": 25}, {"fraction": 0.25}])
def test_draws(root: Path, share: dict[str, float]) -> None:
    """Without replacement, in the order of the file, the same for the same seed."""
    config = task(train={"path": "a.csv", **share})
    found = ids(config, root)
    assert len(found) == len(set(found)) == 25
    assert found == sorted(found)
    assert ids(config, root) == found
    assert ids(config, root, seed=2) != found
    assert ids(config, root, name="other") != found
    assert ids(task(dev={"path": "a.csv", **share}), root, "dev") != found


def test_a_file_has_settings_of_its_own(root: Path) -> None:
    (root / "c.txt").write_text("x|say|sure\n1|it's \"so|1\n2|it is|5\n", encoding="utf-8")
    other = {
        "path": "c.txt",
        "text": ("say",),
        "label": "sure",
        "id": "",  # this file has none
        "label_map": {"5": 1, "1": 0},
        "separator": "|",
        "quoting": False,
    }
    source = Split("t", task(train=("a.csv", other)), "train", root, "error", 1, True)
    chunks = list(source.rows())
    assert chunks[-1].texts[0].to_pylist() == ["it's \"so", "it is"]
    assert chunks[-1].labels is not None
    assert chunks[-1].labels.tolist() == [0, 1]
    assert chunks[-1].ids.to_pylist() == ["0", "1"]


# --- where ---------------------------------------------------------------------------------

TABLE = [
    {"id": 0, "text": "zero", "label": 1, "part": "a", "year": 2019, "old": True},
    {"id": 1, "text": "one", "label": 0, "part": " b ", "year": 2020, "old": False},
    {"id": 2, "text": "two", "label": 7, "part": "c", "year": 2021, "old": False},
    {"id": 3, "text": "three", "label": 1, "part": "b", "year": 2021, "old": False},
    {"id": 4, "text": "four", "label": 0, "part": None, "year": 2022, "old": True},
]


@pytest.fixture(params=["csv", "jsonl", "parquet"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    name = f"table.{request.param}"
    if request.param == "parquet":
        pq.write_table(pa.Table.from_pylist(TABLE), tmp_path / name)
    elif request.param == "jsonl":
        (tmp_path / name).write_text("\n".join(map(json.dumps, TABLE)), encoding="utf-8")
    else:
        lines = [",".join("" if v is None else _written(v) for v in row.values()) for row in TABLE]
        text = "\n".join([",".join(TABLE[0]), *lines])
        (tmp_path / name).write_text(text, encoding="utf-8")
    return name


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"part": "b"}, [1, 3]),  # spaces around do not count
        ({"part": ("a", "b")}, [0, 1, 3]),
        ({"part": "b", "year": 2021}, [3]),
        ({"year": (2019, "2022")}, [0, 4]),
        ({"old": True}, [0, 4]),
        ({"part": ""}, [4]),
        ({"id": 3}, [3]),  # a column that is read for something else as well
    ],
)
def test_rows_are_chosen_by_other_columns(
    table: str, tmp_path: Path, where: dict[str, Any], found: list[int]
) -> None:
    """A row that is passed over is not looked at: a label that cannot be read is no trouble."""
    config = task(train={"path": table, "where": where})
    split = Split("t", config, "train", tmp_path, "error", 1, labelled=True)
    chunks = list(split.rows())
    assert [int(i) for rows in chunks for i in rows.ids.to_pylist()] == found
    assert [report.others for report in split.reports] == [len(TABLE) - len(found)]
    assert f"{len(found)} rows, {len(TABLE) - len(found)} others passed over" in str(
        split.reports[0]
    )
    assert split.places([len(found) - 1])[0].number == found[-1] + (2 if "csv" in table else 1)


def test_one_file_may_be_both_train_and_dev(table: str, tmp_path: Path) -> None:
    whole = {
        "train": {"path": table, "where": {"part": "b"}},
        "dev": {"path": table, "where": {"part": "a"}},
    }
    config = validate(
        RunConfig,
        {"name": "x", "tasks": {"t": task(**whole).model_dump()}, "data": {"drop_overlap": True}},
        "x",
    )
    held_out = find_held_out(config, tmp_path)
    assert len(held_out.texts) == 1
    split = Split(
        *("t", config.tasks["t"], "train", tmp_path, "error", 1, True),
        drop_overlap=True,
        held_out=held_out,
    )
    assert [len(rows) for rows in split.rows()] == [2]
    assert ids(task(**whole), tmp_path, "dev") == [0]
