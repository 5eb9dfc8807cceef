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


def test_files_follow_one_another(root: Path) -> None:
    assert ids(task(train=("b.csv", "a.csv")), root) == [*range(100, 200), *range(100)]


@pytest.mark.parametrize("path", ["[ab].csv", "*.csv", "."])
def test_patterns_and_folders_are_their_files(root: Path, path: str) -> None:
    """Read, and named in the cache, as if the recipe had listed them."""
    listed = task(train=("a.csv", "b.csv"), fraction=0.3)
    one, many = (
        Split("t", config, "train", root, "error", 1, labelled=True)
        for config in (task(train=("a.csv", "b.csv")), task(train=path))
    )
    assert ids(task(train=path), root) == list(range(200))
    assert many.describe() == one.describe()
    assert ids(task(train=path, fraction=0.3), root) == ids(listed, root)


@pytest.mark.parametrize(
    ("paths", "told"),
    [
        (("a.csv", "*.csv"), r"a\.csv and \*\.csv both stand for a\.csv"),
        (("*.csv", "b.csv"), r"\*\.csv and b\.csv both stand for b\.csv"),
        (("[ab].csv", "?.csv"), r"\[ab\]\.csv and \?\.csv both stand for a\.csv"),
        ((".", "b.csv"), r"\. and b\.csv both stand for b\.csv"),
        (("./a.csv", "a*"), r"\./a\.csv and a\* both stand for a\.csv"),
        (("*.csv", "*.csv"), r"\*\.csv and \*\.csv both stand for a\.csv"),
        (({"path": "a.csv", "count": 5}, "*.csv"), r"a\.csv and \*\.csv both stand for a\.csv"),
    ],
)
@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_what_a_folder_or_pattern_takes_in_twice_is_refused(root, paths, told, split) -> None:
    with pytest.raises(
        RecipeError, match=rf"^tasks\.t\.{split}: {told}, so that its rows would be"
    ):
        ids(task(**{split: paths}), root, split)


def test_a_link_beside_its_file_is_that_file(root: Path) -> None:
    (root / "latest.csv").symlink_to(root / "b.csv")
    told = (
        r"^tasks\.t\.train: \* stands for b\.csv and latest\.csv, which are one file, so that its"
    )
    with pytest.raises(RecipeError, match=told):
        ids(task(train="*"), root)


def test_what_is_meant_twice_is_read_twice(root: Path) -> None:
    assert ids(task(train=("a.csv", "a.csv")), root) == [*range(100)] * 2
    other = {"path": "?.csv", "text": "id"}
    assert ids(task(train=("?.csv", other)), root) == [*range(200)] * 2


def test_a_pattern_is_drawn_from_as_a_whole(root: Path) -> None:
    config = task(train={"path": "?.csv", "count": 60})
    found = ids(config, root)
    assert len(found) == 60
    assert found == sorted(found)
    assert 0 < sum(i < 100 for i in found) < 60
    assert ids(config, root) == found
    told = r"^\?.csv: count = 201 asks for more train rows than the 200 there are"
    with pytest.raises(DataError, match=told):
        ids(task(train={"path": "?.csv", "count": 201}), root)
    # Drawn together or one by one, rows differ, and so must the names of cache entries.
    one_by_one = task(train=tuple({"path": f"{name}.csv", "count": 60} for name in "ab"))
    described = [
        Split("t", each, "train", root, "error", 1, True).describe()
        for each in (config, one_by_one, task(train={"path": "*.csv", "count": 60}))
    ]
    assert len({str(own) for own in described}) == 3


def test_errors_name_the_file_of_a_pattern(root: Path) -> None:
    with (root / "b.csv").open("a", encoding="utf-8") as file:
        file.write("\n200,fine,7\n")
    with pytest.raises(DataError, match=r"b.csv, line 102: label '7' is not 0 or 1"):
        ids(task(train="*.csv"), root)
    source = Split("t", task(train="*.csv", bad_rows="skip"), "train", root, "error", 1, True)
    list(source.rows())
    assert [str(report) for report in source.reports] == [
        "a.csv: 100 rows",
        "b.csv: 1 row skipped (1 label out of range; first at line 102)",
    ]
    assert str(source.places([150])[0]) == f"{root / 'b.csv'}, line 52"


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


def test_each_file_is_drawn_on_its_own(root: Path) -> None:
    config = task(train=({"path": "a.csv", "count": 3}, "b.csv"))
    found = ids(config, root)
    assert found[3:] == list(range(100, 200))
    assert ids(task(train=("b.csv", {"path": "a.csv", "count": 3})), root)[-3:] == found[:3]


def test_draws_differ_between_files(root: Path) -> None:
    both = ids(task(train=tuple({"path": f"{n}.csv", "count": 20} for n in "ab")), root)
    assert both[:20] != [i - 100 for i in both[20:]]


def test_the_task_draws_out_of_all_its_files(root: Path) -> None:
    files = ({"path": "a.csv", "count": 50}, "b.csv")
    out_of = ids(task(train=files), root)
    found = ids(task(train=files, count=60), root)
    assert len(found) == 60
    assert found == [i for i in out_of if i in set(found)]
    assert len(ids(task(train=files, fraction=0.5), root)) == 75
    # dev is never thinned by it
    assert len(ids(task(dev="a.csv", count=10), root, "dev")) == 100


def test_all_rows_may_be_drawn(root: Path) -> None:
    assert ids(task(train={"path": "a.csv", "count": 100}), root) == list(range(100))
    assert ids(task(train={"path": "a.csv", "fraction": 1.0}), root) == list(range(100))
    assert len(ids(task(train={"path": "a.csv", "fraction": 0.001}), root)) == 1


def test_too_many(root: Path) -> None:
    told = r"a.csv: count = 101 asks for more train rows than the 100 there are"
    with pytest.raises(DataError, match=told):
        ids(task(train={"path": "a.csv", "count": 101}), root)
    with pytest.raises(DataError, match=r"task 't': count = 300 .* than the 200 there are"):
        ids(task(train=("a.csv", "b.csv"), count=300), root)


def test_count_and_fraction(root: Path) -> None:
    with pytest.raises(RecipeError, match="give count or fraction, not both"):
        ids(task(train={"path": "a.csv", "count": 5, "fraction": 0.5}), root)


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


def test_bad_rows_of_the_task_come_first(root: Path) -> None:
    (root / "c.csv").write_text("id,text,label\n1,x,\n2,y,1\n", encoding="utf-8")
    assert ids(task(train="c.csv", bad_rows="skip"), root) == [2]
    with pytest.raises(DataError, match=r"c.csv, line 2: the label is missing"):
        ids(task(train="c.csv"), root)


def test_draws_are_out_of_good_rows(root: Path) -> None:
    (root / "c.csv").write_text("id,text,label\n1,x,\n2,y,1\n3,z,0\n", encoding="utf-8")
    config = task(train={"path": "c.csv", "count": 2}, bad_rows="skip")
    assert ids(config, root) == [2, 3]


def test_no_rows(root: Path) -> None:
    (root / "c.csv").write_text("id,text,label\n1,x,\n", encoding="utf-8")
    told = r"task 't' has no train rows to use \(c.csv: 1 row skipped .*: the label is missing\)"
    with pytest.raises(DataError, match=told):
        ids(task(train="c.csv", bad_rows="skip"), root)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "task 't' has no train files"),
        ({"train": "a.csv", "label": None}, "tasks.t.label must name the column of the label"),
        ({"train": {"path": "a.csv", "text": ("x", "y")}}, "names 2 text columns, the task 1"),
    ],
)
def test_recipes_that_cannot_be_read(root: Path, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(RecipeError, match=told):
        ids(task(**settings), root)


def test_progress(root: Path) -> None:
    source = Split("t", task(train=("a.csv", "b.csv")), "train", root, "error", 1, True)
    told: list[tuple[int, int, int]] = []
    for _ in source.rows(lambda *numbers: told.append(numbers)):
        pass
    total = sum((root / f"{n}.csv").stat().st_size for n in "ab")
    assert told[-1] == (200, total, total)
    assert told == sorted(told)


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


def test_a_bad_row_among_the_chosen_is_told_with_its_line(table: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"3|4"):
        ids(task(train={"path": table, "where": {"part": ("b", "c")}}), tmp_path)


def test_where_nothing_is_chosen(table: str, tmp_path: Path) -> None:
    told = r"has no train rows to use .*5 others passed over: column 'part' holds 'a', 'b', 'c', ''"
    with pytest.raises(DataError, match=told):
        ids(task(train={"path": table, "where": {"part": "d"}}), tmp_path)
    with pytest.raises(DataError, match="part_of"):
        ids(task(train={"path": table, "where": {"part_of": "a"}}), tmp_path)


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


def test_the_cache_tells_the_chosen_apart(root: Path) -> None:
    """And what chooses nothing has the name it always had."""
    described = [
        Split("t", task(train=file), "train", root, "error", 1, labelled=True).describe()
        for file in (
            "a.csv",
            {"path": "a.csv", "where": {"label": 1}},
            {"path": "a.csv", "where": {"label": (0, 1)}},
        )
    ]
    assert "where" not in described[0]["files"][0]
    assert len({json.dumps(one, sort_keys=True) for one in described}) == 3


@pytest.mark.parametrize("where", [{"part": ()}, {"part": {"a": 1}}, {"part": (None,)}])
def test_what_where_cannot_be(where: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a text, a number, true or false, or a list of some"):
        task(train={"path": "a.csv", "where": where})
