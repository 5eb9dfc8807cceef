"""Folders of answers: every row once, whatever stops the work, and a key to put them in order."""

from __future__ import annotations

import csv
import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet
import pytest

from plait.errors import DataError, Interrupted, RunError, UsageError
from plait.inference.answers.folder import answer_folder
from plait.inference.answers.manifest import Manifest
from plait.inference.answers.parts import (
    find_files,
    make_plan,
)
from plait.inference.predictor import Predictor

SIZES = {"a": 25, "b": 1, "c": 20}
"""Rows of each file; parts have ten, so that one file ends with a part and one within."""

MOODS = ("awful", "plain", "great", "lovely", "dull")


def make_rows(name):
    return [
        {"key": f"{name}{i}", "text": f"the film was {MOODS[i % 5]} ." + " very" * (i % 7)}
        for i in range(SIZES[name])
    ]


def write(path, rows):
    if path.suffix == ".parquet":
        pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def read(path):
    if path.suffix == ".parquet":
        return pa.parquet.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def read_all(out):
    return [row for path in sorted(out.glob("part-*")) for row in read(path)]


@pytest.fixture(scope="module")
def model(tiny_run):
    return Predictor.load(tiny_run)


@pytest.fixture
def plan(model, tmp_path, monkeypatch):
    """Factory: write the files and plan their answers, in parts of ten rows."""
    monkeypatch.chdir(tmp_path)

    def make(ending="csv", **options):
        (tmp_path / "rows").mkdir(exist_ok=True)
        for name in SIZES:
            path = tmp_path / "rows" / f"{name}.{ending}"
            if not path.exists():
                write(path, make_rows(name))
        files = find_files(f"rows/*.{ending}")
        settings = {"tasks": ["mood"], "part_rows": 10, **options}
        return make_plan(model, files, tmp_path / "out", **settings)

    return make


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_every_row_is_answered_as_in_a_file_of_its_own(model, plan, tmp_path, ending):
    done = answer_folder(model, plan(ending))
    assert (done.num_rows, done.num_parts) == (46, 6)
    found = read_all(tmp_path / "out")
    for name in SIZES:
        alone = tmp_path / f"{name}-alone.{ending}"
        model.predict_file(tmp_path / "rows" / f"{name}.{ending}", alone, tasks=["mood"])
        own = [row for row in found if row["input_file"] == f"rows/{name}.{ending}"]
        assert [int(row["input_row"]) for row in own] == list(range(SIZES[name]))
        added = ("input_file", "input_row", "id")
        rows = [{k: v for k, v in row.items() if k not in added} for row in own]
        assert rows == [{k: v for k, v in row.items() if k != "id"} for row in read(alone)]


class Stopper:
    """Ends the work after some parts."""

    def __init__(self, num_parts):
        self.left = num_parts

    def __call__(self, what, done, total):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.mark.parametrize("num_parts", [1, 4, 6])
def test_a_stopped_job_answers_only_what_is_missing(model, plan, tmp_path, num_parts):
    wanted, out = plan(), tmp_path / "out"
    with pytest.raises(Interrupted, match="rows are kept"):
        answer_folder(model, wanted, progress=Stopper(num_parts))
    before = {path: path.stat().st_mtime_ns for path in out.glob("part-*")}
    assert len(before) == num_parts
    (out / ".part-00000-000000000000.csv.abc.tmp").write_text("of a killed worker")
    done = answer_folder(model, wanted, resume=True)
    assert done.num_rows == 46
    assert {path: path.stat().st_mtime_ns for path in before} == before  # none a second time
    assert list(out.glob(".*")) == []
    keys = Counter((row["input_file"], row["input_row"]) for row in read_all(out))
    assert (len(keys), set(keys.values())) == (46, {1})
    again = answer_folder(model, wanted, resume=True)
    assert again == done


def test_another_job_does_not_go_on_here(model, plan, tmp_path):
    answer_folder(model, plan())
    with pytest.raises(RunError, match="exists already and is not overwritten; continue"):
        answer_folder(model, plan())
    with pytest.raises(RunError, match="was started with other probabilities"):
        answer_folder(model, plan(probabilities=True), resume=True)
    write(tmp_path / "rows" / "a.csv", make_rows("a")[:-1])
    with pytest.raises(RunError, match="was started with another input"):
        answer_folder(model, plan(), resume=True)


def test_going_on_needs_something_that_was_begun(model, plan, tmp_path):
    with pytest.raises(RunError, match="leave out --resume"):
        answer_folder(model, plan(), resume=True)
    answer_folder(model, plan())
    next((tmp_path / "out").glob("part-*")).unlink()
    with pytest.raises(RunError, match="is missing; put it back"):
        answer_folder(model, plan(), resume=True)
    (tmp_path / "out" / "_manifest.jsonl").write_text("nonsense\n")
    with pytest.raises(RunError, match="is damaged"):
        answer_folder(model, plan(), resume=True)


def test_a_bad_row_is_named_and_what_came_before_is_kept(model, plan, tmp_path):
    wanted = plan()
    (tmp_path / "rows" / "c.csv").write_text("key,text\nc0,fine\nc1,\n")
    with pytest.raises(DataError, match=r"c\.csv, line 3"):
        answer_folder(model, wanted)
    assert len(read_all(tmp_path / "out")) == 26


def test_files_that_do_not_belong_together_are_refused(model, plan, tmp_path):
    plan()
    write(tmp_path / "rows" / "d.csv", [{"other": "x", "text": "the film ."}])
    with pytest.raises(DataError, match=r"d\.csv: the columns differ from those of rows/a\.csv"):
        plan()
    write(tmp_path / "rows" / "d.csv", [{"key": "k", "text": "t", "input_row": 1}])
    with pytest.raises(DataError, match="has a column 'input_row'"):
        make_plan(model, [tmp_path / "rows" / "d.csv"], tmp_path / "out", tasks=["mood"])
    with pytest.raises(UsageError, match="no file matches"):
        find_files("rows/*.txt")
    files = [tmp_path / "rows" / "a.csv", tmp_path / "rows" / "a.tsv"]
    with pytest.raises(UsageError, match="have different formats"):
        make_plan(model, files, tmp_path / "out", tasks=["mood"])


def test_a_file_is_done_once_all_before_its_last_part_is(tmp_path):
    """Parts that several workers answer come in any order."""
    manifest = Manifest(tmp_path / "out", {})
    with manifest.opened(resume=False):
        for start, is_done in ((20, False), (0, False), (10, True)):
            rows = 5 if start == 20 else 10
            manifest.add({"file": 1, "start": start, "rows": rows, "is_last": start == 20})
            assert manifest.is_done(1) == is_done
            assert not manifest.is_done(0)
    assert manifest.done_starts(1) == {0, 10, 20}
