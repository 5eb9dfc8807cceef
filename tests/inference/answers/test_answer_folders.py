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
    pack_records,
    read_parts,
    unpack_records,
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


def test_parts_may_be_of_another_format(model, plan, tmp_path):
    answer_folder(model, plan("csv", form="parquet"))
    table = pa.parquet.read_table(tmp_path / "out")  # as readers of many files take it
    assert len(table) == 46
    assert table.schema.field("input_row").type == pa.int64()


def test_objects_need_not_have_the_same_keys(model, plan, tmp_path):
    (tmp_path / "rows").mkdir()
    write(tmp_path / "rows" / "b.jsonl", [{"text": "the film", "more": 1}])
    assert answer_folder(model, plan("jsonl")).num_rows == 46
    (row,) = [row for row in read_all(tmp_path / "out") if row["input_file"] == "rows/b.jsonl"]
    assert row.keys() == {"input_file", "input_row", "text", "more", "mood"}


class Stopper:
    """Ends the work after some parts."""

    def __init__(self, num_parts):
        self.left = num_parts

    def __call__(self, what, done, total):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.mark.parametrize("num_parts", [1, 3, 4, 6])
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


def test_a_part_that_was_written_and_not_noted_is_the_same_part_again(model, plan, tmp_path):
    wanted, out = plan(), tmp_path / "out"
    answer_folder(model, wanted)
    whole = {path.name: path.read_bytes() for path in out.glob("part-*")}
    lines = (out / "_manifest.jsonl").read_text().splitlines(keepends=True)
    (out / "_manifest.jsonl").write_text("".join(lines[:3]) + lines[3][:20])  # killed in a line
    answer_folder(model, wanted, resume=True)
    assert {path.name: path.read_bytes() for path in out.glob("part-*")} == whole
    notes = [json.loads(line) for line in (out / "_manifest.jsonl").read_text().splitlines()]
    assert Counter(note.get("part") for note in notes[1:-1]) == Counter(dict.fromkeys(whole, 1))


def test_what_is_for_review_is_counted_over_sittings(model, plan, tmp_path):
    wanted = plan(threshold={"mood": 0.4})
    with pytest.raises(Interrupted):
        answer_folder(model, wanted, progress=Stopper(2))
    done = answer_folder(model, wanted, resume=True)
    unsure = [row for row in read_all(tmp_path / "out") if row["mood_review"] == "true"]
    assert done.num_review == {"mood": len(unsure)}
    assert 0 < len(unsure) < 46


def test_another_job_does_not_go_on_here(model, plan, tmp_path):
    answer_folder(model, plan())
    with pytest.raises(RunError, match="exists already and is not overwritten; go on"):
        answer_folder(model, plan())
    with pytest.raises(RunError, match="was begun with other probabilities"):
        answer_folder(model, plan(probabilities=True), resume=True)
    write(tmp_path / "rows" / "a.csv", make_rows("a")[:-1])
    with pytest.raises(RunError, match="was begun with another input"):
        answer_folder(model, plan(), resume=True)


def test_going_on_needs_something_that_was_begun(model, plan, tmp_path):
    with pytest.raises(RunError, match="leave out --resume"):
        answer_folder(model, plan(), resume=True)
    answer_folder(model, plan())
    next((tmp_path / "out").glob("part-*")).unlink()
    with pytest.raises(RunError, match="noted to be done and is not there"):
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


def test_what_is_refused_before_the_first_part_leaves_no_folder(model, plan, tmp_path):
    with pytest.raises(DataError, match="there is no column 'body'"):
        answer_folder(model, plan(text=["body"]))
    assert not (tmp_path / "out").exists()
    assert answer_folder(model, plan()).num_rows == 46


@pytest.mark.parametrize(
    ("field", "told"),
    [("input_file", "input_file"), ("input_row", "input_row"), ("mood", "mood")],
)
def test_an_object_with_a_field_that_answers_are_to_have_is_refused(
    model, plan, tmp_path, field, told
):
    """A later object has what the first, by which the columns are chosen, has not."""
    wanted = plan("jsonl")
    row = json.dumps({"text": "the film .", field: "its own"})
    lines = ['{"text": "fine"}', "", row.replace("_", "\\u005f")]
    (tmp_path / "rows" / "c.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=rf"c\.jsonl, line 3: the row has a field '{told}', as its"):
        answer_folder(model, wanted)
    assert len(read_all(tmp_path / "out")) == 26


def test_files_that_do_not_belong_together_are_refused(model, plan, tmp_path):
    plan()
    write(tmp_path / "rows" / "d.csv", [{"other": "x", "text": "the film ."}])
    with pytest.raises(DataError, match=r"d\.csv: the columns are not those of rows/a\.csv"):
        plan()
    write(tmp_path / "rows" / "d.csv", [{"key": "k", "text": "t", "input_row": 1}])
    with pytest.raises(DataError, match="has a column 'input_row'"):
        make_plan(model, [tmp_path / "rows" / "d.csv"], tmp_path / "out", tasks=["mood"])
    with pytest.raises(UsageError, match="no file is called"):
        find_files("rows/*.txt")
    files = [tmp_path / "rows" / "a.csv", tmp_path / "rows" / "a.tsv"]
    with pytest.raises(UsageError, match="is not of the format"):
        make_plan(model, files, tmp_path / "out", tasks=["mood"])


def test_what_writers_of_folders_leave_behind_is_passed_over(plan, tmp_path):
    plan()
    (tmp_path / "rows" / "_notes.csv").write_text("other\n")
    assert [path.stem for path in plan().files] == sorted(SIZES)


def test_files_are_read_as_they_are_said_to_be_written(model, plan, tmp_path):
    plan()
    for name in "ab":
        lines = ["key|text", 'k|a "film', 'l|was "great']
        (tmp_path / "rows" / f"{name}.csv").write_text("\n".join(lines) + "\n")
    files = find_files("rows/[ab].csv")
    settings = {"tasks": ["mood"], "separator": "|", "quoting": False}
    wanted = make_plan(model, files, tmp_path / "out", **settings)
    assert answer_folder(model, wanted).num_rows == 4
    assert [row["text"] for row in read_all(tmp_path / "out")] == ['a "film', 'was "great'] * 2
    other = make_plan(model, files, tmp_path / "out", **{**settings, "quoting": True})
    with pytest.raises(RunError, match="was begun with another quoting"):
        answer_folder(model, other, resume=True)


def test_a_file_that_is_found_in_two_ways_is_answered_once(plan):
    plan()
    assert find_files("**/**/a.csv") == find_files("rows/a.csv")


def test_rows_of_json_stay_json(plan):
    with pytest.raises(UsageError, match="written as jsonl"):
        plan("jsonl", form="csv")


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_rows_come_through_another_process_as_they_are(plan, ending):
    for _, records in read_parts(plan(ending), 0):
        back = unpack_records(pack_records(records))
        assert back.rows() == records.rows()
        assert back.examples(["text"]) == records.examples(["text"])
        assert back.numbers.tolist() == records.numbers.tolist()


def test_a_folder_goes_on_past_rows_without_a_text(model, plan, tmp_path):
    """Parts are not looked through beforehand, so the way past may be asked for later."""
    wanted = plan()
    lines = (tmp_path / "rows" / "c.csv").read_text().splitlines(keepends=True)
    (tmp_path / "rows" / "c.csv").write_text("".join([*lines[:15], "c14,\n", *lines[16:]]))
    with pytest.raises(DataError, match=r"c\.csv, line 16: column 'text' is empty; fill it in, or"):
        answer_folder(model, wanted)
    done = answer_folder(model, plan(skip_empty=True), resume=True)
    assert (done.num_rows, done.num_empty) == (46, 1)
    found = read_all(tmp_path / "out")
    assert [row["key"] for row in found if not row["mood"]] == ["c14"]


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
