"""Files of answers: every format, in order, whole after any interruption."""

from __future__ import annotations

import csv
import json
import random
import shutil
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet
import pytest

from plait.errors import DataError, Interrupted, RunError, UsageError
from plait.inference.answers import formats, journal, stream
from plait.inference.answers.columns import AnswerColumns, rename_taken
from plait.inference.answers.formats import choose_format
from plait.inference.answers.journal import journal_place
from plait.inference.predictor import Predictor
from plait.tasks import TaskSpec
from plait.types import Prediction

WORDS = ["the", "film", "was", "great", "dull", "plain", "very", "not", "song", "meal", "."]


def make_rows(count):
    draw = random.Random(5)

    def say():
        return " ".join(draw.choices(WORDS, k=draw.randint(1, 20)))

    return [{"key": f"k{i}", "text": say(), "a": say(), "b": say(), "n": i} for i in range(count)]


ROWS = make_rows(43)


def write(path, rows=ROWS):
    if path.suffix == ".parquet":
        pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            separator = "\t" if path.suffix == ".tsv" else ","
            writer = csv.DictWriter(file, list(rows[0]), delimiter=separator)
            writer.writeheader()
            writer.writerows(rows)
    return path


def read(path):
    """Read a file of answers back, every cell as the format has it."""
    if path.suffix == ".parquet":
        return pa.parquet.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(stream, "CHUNK", 8)
    monkeypatch.setattr(journal, "SAVE_SECONDS", -1.0)


@pytest.fixture(scope="module")
def model(tiny_run):
    return Predictor.load(tiny_run, device="cpu", precision="fp32")


def median(model):
    """A threshold that holds back about half of the rows."""
    answers = model.predict("mood", [row["text"] for row in ROWS])
    return sorted(answer.confidence for answer in answers)[20] + 1e-6


ENDINGS = ["csv", "tsv", "jsonl", "parquet"]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("given", ENDINGS)
def test_every_format_into_every_format(model, tmp_path, given, ending):
    path, out = write(tmp_path / f"x.{given}"), tmp_path / f"out.{ending}"
    done = model.predict_file(path, out, tasks=["mood"], probabilities=True)
    assert (done.path, done.num_rows, done.num_review) == (out, 43, {})
    expected = model.predict("mood", [row["text"] for row in ROWS])
    found = read(out)
    assert [row["key"] for row in found] == [row["key"] for row in ROWS]
    assert [(row["text"], int(row["n"])) for row in found] == [(r["text"], r["n"]) for r in ROWS]
    if ending == "jsonl":
        answers = [(r["mood"]["value"], r["mood"]["label"]) for r in found]
        chances = [list(r["mood"]["probabilities"].values()) for r in found]
    else:
        assert list(found[0])[:6] == ["id", *ROWS[0]]
        answers = [(int(r["mood"]), r["mood_label"]) for r in found]
        chances = [[float(r[f"mood_p_{name}"]) for name in ("bad", "so-so", "good")] for r in found]
    assert answers == [(answer.value, answer.label) for answer in expected]
    for ours, answer in zip(chances, expected, strict=True):
        assert ours == pytest.approx(answer.probabilities, abs=1e-4)
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == sorted(
        [path.name, out.name]
    )


def test_types_stay_in_parquet(model, tmp_path):
    model.predict_file(write(tmp_path / "x.parquet"), tmp_path / "out.parquet", tasks=["mood"])
    kinds = {
        field.name: str(field.type) for field in pa.parquet.read_schema(tmp_path / "out.parquet")
    }
    assert (kinds["n"], kinds["text"]) == ("int64", "string")
    assert (kinds["mood"], kinds["mood_confidence"]) == ("int64", "double")


def test_several_tasks_read_their_own_columns(model, tmp_path):
    """One column goes to mood, a pair to the others; texts read by two tasks are read once."""
    path, out = write(tmp_path / "x.csv"), tmp_path / "out.jsonl"
    model.predict_file(path, out, tasks=["same", "near"])
    pairs = [(row["a"], row["b"]) for row in ROWS]
    for task in ("same", "near"):
        expected = [answer.value for answer in model.predict(task, pairs)]
        assert [row[task]["value"] for row in read(out)] == pytest.approx(expected, abs=1e-5)
    model.predict_file(path, tmp_path / "turned.jsonl", tasks=["near"], text=["b", "a"])
    turned = model.predict("near", [(b, a) for a, b in pairs])
    assert [row["near"]["value"] for row in read(tmp_path / "turned.jsonl")] == pytest.approx(
        [answer.value for answer in turned], abs=1e-5
    )


def test_a_column_called_as_the_task_is_kept(model, tmp_path):
    rows = [{"text": "the film", "mood": "bad", "mood_label": "mine"}] * 3
    model.predict_file(write(tmp_path / "x.csv", rows), tmp_path / "out.csv", tasks=["mood"])
    names = list(read(tmp_path / "out.csv")[0])
    assert names[:4] == ["id", "text", "mood", "mood_label"]
    assert names[4:] == [f"predicted_mood{end}" for end in ("", "_label", "_confidence")]
    taken = [{**rows[0], "predicted_mood": "x"}]
    with pytest.raises(
        UsageError, match="would need a column 'predicted_mood', which the file has"
    ):
        model.predict_file(write(tmp_path / "y.csv", taken), tmp_path / "y.jsonl", tasks=["mood"])


def test_which_columns_each_task_reads():
    """Its recipe's; where the file has none such, those of the first task."""
    specs = {task: TaskSpec(kind="binary", text=(name,)) for task, name in (("x", "a"), ("y", "b"))}
    config = SimpleNamespace(tasks=dict.fromkeys(specs, SimpleNamespace(label_separator=";")))
    model = SimpleNamespace(task=lambda name: SimpleNamespace(spec=specs[name]), config=config)

    def names_read(*there, text=None):
        return [c.text[0] for c in stream.choose_columns(model, ["x", "y"], there, text=text)]

    assert names_read("a", "b") == ["a", "b"]
    assert names_read("a", "c") == ["a", "a"]
    assert names_read("a", "b", "c", text=["c"]) == ["c", "c"]


def test_columns_of_two_tasks_are_told_apart():
    """One task may be called as another one's column is."""
    spec = TaskSpec(kind="binary", text=("text",))
    columns = [AnswerColumns(task, spec, ("text",), task) for task in ("mood", "mood_label")]
    assert [c.name for c in rename_taken(columns, ["text"])] == ["mood", "predicted_mood_label"]


def test_an_answer_as_sure_as_wanted_is_not_for_review():
    spec = TaskSpec(kind="binary", text=("text",))
    column = AnswerColumns("mood", spec, ("text",), "mood", threshold=0.75)
    sure, unsure = (Prediction("mood", 1, "yes", (1 - p, p)) for p in (0.75, 0.74))
    assert [column.is_unsure(answer) for answer in (sure, unsure, None)] == [False, True, False]


@pytest.mark.parametrize("text", ["a\rb", 'q"q', "x\ty", "line\nline", "ü ☃ 𝄞", "-0", " end "])
@pytest.mark.parametrize("ending", ENDINGS)
def test_odd_texts_come_back(model, tmp_path, ending, text):
    rows = [{"id": "0", "text": text, "note": text}]
    path = write(tmp_path / "x.jsonl", rows)
    model.predict_file(path, tmp_path / f"out.{ending}", tasks=["mood"])
    assert (read(tmp_path / f"out.{ending}")[0])["note"] == text
    if ending != "parquet":  # which no other program reads but by its own library
        again = tmp_path / f"again.{ending}"
        model.predict_file(tmp_path / f"out.{ending}", again, tasks=["mood"])
        assert read(again)[0]["note"] == text


def test_half_a_surrogate_pair_and_no_number(model, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "a", "note": "\\ud800", "x": NaN}\n')
    for ending in ENDINGS:
        model.predict_file(path, tmp_path / f"out.{ending}", tasks=["mood"])
    line = (tmp_path / "out.jsonl").read_text()
    assert json.loads(line)["note"] == "\ud800"
    assert "NaN" not in line
    assert read(tmp_path / "out.csv")[0]["note"] == "?"


# --- going on ----------------------------------------------------------------------------


class Stop:
    """Ctrl-C at the so many-th word of progress."""

    def __init__(self, after):
        self.left = after

    def __call__(self, *_):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("after", [0, 1, 3, 5])
def test_what_was_stopped_goes_on_to_the_same_bytes(model, tmp_path, ending, after):
    path = write(tmp_path / "x.csv")
    options = {"tasks": ["mood"], "threshold": median(model), "probabilities": True}
    whole, seen = tmp_path / f"whole.{ending}", tmp_path / f"whole-review.{ending}"
    expected = model.predict_file(path, whole, review=seen, **options)
    assert 0 < expected.num_review["mood"] < 43
    out, review = tmp_path / f"out.{ending}", tmp_path / f"review.{ending}"
    with pytest.raises(Interrupted) as caught:
        model.predict_file(path, out, review=review, progress=Stop(after), **options)
    assert str(caught.value) == (
        f"stopped; {8 * after} of 43 rows are kept. Go on with: the same call and resume=True"
    )
    assert not out.exists()
    part = tmp_path / f"out.{ending}.part"
    with part.open("ab") as file:  # what a kill in the middle of a line leaves
        file.write(b'"torn, \n')
    done = model.predict_file(path, out, review=review, resume=True, **options)
    assert out.read_bytes() == whole.read_bytes()
    assert review.read_bytes() == seen.read_bytes()
    assert (done.num_rows, done.num_review) == (43, expected.num_review)
    assert list(tmp_path.glob("*.part*")) == []


def test_stopped_again_and_again(model, tmp_path):
    path, out = write(tmp_path / "x.parquet"), tmp_path / "out.jsonl"
    model.predict_file(path, tmp_path / "whole.jsonl", tasks=["same", "near"])
    for _ in range(5):
        with pytest.raises(Interrupted):
            model.predict_file(path, out, tasks=["same", "near"], resume=True, progress=Stop(3))
    model.predict_file(path, out, tasks=["same", "near"], resume=True)
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_progress_goes_on_where_it_stopped(model, tmp_path):
    """Rows without a text count as answered: here those of the whole third chunk."""
    rows = [{**row, "a": "" if 16 <= i < 24 else row["a"]} for i, row in enumerate(ROWS)]
    path, out = write(tmp_path / "x.csv", rows), tmp_path / "out.csv"
    asked = {"tasks": ["same", "near"], "skip_empty": True}
    with pytest.raises(Interrupted):
        model.predict_file(path, out, progress=Stop(3), **asked)
    told = []
    model.predict_file(path, out, resume=True, progress=lambda *now: told.append(now[1:]), **asked)
    done = [now for now, _ in told]
    assert done == sorted(done)
    assert done[0] > 2 * 8
    assert told[-1] == (2 * 43, 2 * 43)
    with pytest.raises(UsageError, match="exists already and is not overwritten"):
        model.predict_file(path, out, resume=True, **asked)


def test_stopped_while_the_files_get_their_names(model, tmp_path, monkeypatch):
    path, out, review = write(tmp_path / "x.csv"), tmp_path / "out.csv", tmp_path / "review.csv"
    options = {"tasks": ["mood"], "threshold": median(model)}
    model.predict_file(path, tmp_path / "w.csv", review=tmp_path / "wr.csv", **options)
    place = formats.put_in_place

    def stop_at_review(part, path):
        if path == review:
            raise KeyboardInterrupt
        place(part, path)

    monkeypatch.setattr(formats, "put_in_place", stop_at_review)
    with pytest.raises(Interrupted):
        model.predict_file(path, out, review=review, **options)
    assert out.exists()
    assert not review.exists()
    monkeypatch.setattr(formats, "put_in_place", place)
    model.predict_file(path, out, review=review, resume=True, **options)
    assert out.read_bytes() == (tmp_path / "w.csv").read_bytes()
    assert review.read_bytes() == (tmp_path / "wr.csv").read_bytes()


def test_files_of_one_name_in_two_folders_go_on(model, tmp_path):
    path, options = write(tmp_path / "x.csv"), {"tasks": ["mood"], "threshold": median(model)}
    for folder in ("whole", "whole/review", "stopped", "stopped/review"):
        (tmp_path / folder).mkdir()
    whole, stopped = (
        (tmp_path / name / "out.csv", tmp_path / name / "review" / "out.csv")
        for name in ("whole", "stopped")
    )
    model.predict_file(path, whole[0], review=whole[1], **options)
    with pytest.raises(Interrupted):
        model.predict_file(path, stopped[0], review=stopped[1], progress=Stop(3), **options)
    model.predict_file(path, stopped[0], review=stopped[1], resume=True, **options)
    assert [p.read_bytes() for p in stopped] == [p.read_bytes() for p in whole]


@pytest.fixture
def begun(model, tmp_path):
    """A file of answers that was stopped."""
    path, out = write(tmp_path / "x.csv"), tmp_path / "out.csv"
    with pytest.raises(Interrupted):
        model.predict_file(path, out, tasks=["mood"], progress=Stop(2))
    return path, out


def test_only_the_same_goes_on(model, begun, tiny_run, tmp_path):
    path, out = begun
    with pytest.raises(
        RunError, match=r"out\.csv\.part is there from a prediction that was stopped"
    ):
        model.predict_file(path, out, tasks=["mood"])
    with pytest.raises(RunError, match=r"begun with other tasks \(mood: .*0\.5"):
        model.predict_file(path, out, tasks=["mood"], threshold=0.5, resume=True)
    with pytest.raises(RunError, match=r"begun with other tasks \(mood, now same\)"):
        model.predict_file(path, out, tasks=["same"], resume=True)
    with pytest.raises(RunError, match=r"begun with other probabilities \(false, now true\)"):
        model.predict_file(path, out, tasks=["mood"], probabilities=True, resume=True)
    other = tmp_path / "run"
    shutil.copytree(tiny_run, other)
    with (other / "recipe.toml").open("a") as file:
        file.write("\n")
    with pytest.raises(RunError, match=r"another model \(its weights, recipe, calibration"):
        Predictor.load(other).predict_file(path, out, tasks=["mood"], resume=True)
    with path.open("a") as file:
        file.write("k43,more,x,y,43\n")
    with pytest.raises(RunError, match=r"another input \(x\.csv has changed since\)"):
        model.predict_file(path, out, tasks=["mood"], resume=True)


def test_damaged_or_missing_journals(model, begun):
    path, out = begun
    place = journal_place(out)
    kept = place.read_text()
    place.write_text(kept[:-20])
    with pytest.raises(RunError, match=r"out\.csv\.part\.json is damaged"):
        model.predict_file(path, out, tasks=["mood"], resume=True)
    place.write_text(kept)
    part = out.parent / "out.csv.part"
    part.write_bytes(part.read_bytes()[:-1])
    short = part.read_bytes()
    with pytest.raises(RunError, match=r"out\.csv\.part is shorter than was noted: remove it and"):
        model.predict_file(path, out, tasks=["mood"], resume=True)
    assert part.read_bytes() == short
    part.unlink()
    with pytest.raises(RunError, match=r"out\.csv\.part is missing: remove out\.csv\.part\.json"):
        model.predict_file(path, out, tasks=["mood"], resume=True)


def test_two_processes_do_not_write_one_file(model, begun):
    fcntl = pytest.importorskip("fcntl")
    path, out = begun
    with (out.parent / "out.csv.part").open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RunError, match="another process is writing"):
            model.predict_file(path, out, tasks=["mood"], resume=True)
    model.predict_file(path, out, tasks=["mood"], resume=True)


def test_who_comes_second_empties_nothing(model, tmp_path):
    """The first has begun its file, and has not noted so yet."""
    fcntl = pytest.importorskip("fcntl")
    path, out, part = write(tmp_path / "x.csv"), tmp_path / "out.csv", tmp_path / "out.csv.part"
    part.write_text("id,text\n")
    with part.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RunError, match="another process is writing"):
            model.predict_file(path, out, tasks=["mood"])
    assert part.read_text() == "id,text\n"
    model.predict_file(path, out, tasks=["mood"])
    assert not part.exists()
    assert len(read(out)) == len(ROWS)


# --- holding back ------------------------------------------------------------------------


def test_rows_for_review(model, tmp_path):
    path, out, review = write(tmp_path / "x.csv"), tmp_path / "out.csv", tmp_path / "review.jsonl"
    answers = model.predict("mood", [row["text"] for row in ROWS])
    least = median(model)
    done = model.predict_file(path, out, tasks=["mood"], threshold=least, review=review)
    unsure = [answer.confidence < least for answer in answers]
    assert [row["mood_review"] for row in read(out)] == [str(u).lower() for u in unsure]
    assert done.num_review == {"mood": sum(unsure)} == {"mood": 21}
    held = read(review)
    assert [row["key"] for row in held] == [
        row["key"] for row, held_back in zip(ROWS, unsure, strict=True) if held_back
    ]
    assert all(row["mood"]["review"] for row in held)


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_for_review(model, tmp_path, ending):
    path, review = write(tmp_path / "x.csv"), tmp_path / f"review.{ending}"
    done = model.predict_file(
        path, tmp_path / "out.csv", tasks=["mood"], threshold=0.0, review=review, probabilities=True
    )
    assert done.num_review == {"mood": 0}
    assert read(review) == []


def test_a_threshold_for_one_task_of_two(model, tmp_path):
    path, out = write(tmp_path / "x.csv"), tmp_path / "out.csv"
    done = model.predict_file(path, out, tasks=["same", "near"], threshold={"same": 0.6})
    assert list(done.num_review) == ["same"]
    assert "same_review" in read(out)[0]
    assert "near_review" not in read(out)[0]
    with pytest.raises(UsageError, match="task 'near' is of kind 'score', and only answers of"):
        model.predict_file(path, tmp_path / "no.csv", tasks=["same", "near"], threshold=0.6)


def test_a_threshold_chosen_on_dev(model):
    chosen = model.choose_threshold("mood", 0.3)
    scores = model.evaluate("dev", tasks=["mood"])
    assert chosen.num_rows == 18
    assert chosen.share == 1.0  # so little is asked that every row will do
    assert chosen.accuracy == pytest.approx(scores.primary["mood"])
    with pytest.raises(UsageError, match="kind 'score'"):
        model.choose_threshold("near", 0.5)
    with pytest.raises(UsageError, match="names no test files for mood"):
        model.choose_threshold("mood", 0.5, "test")


# --- what does not go --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("out", "options", "told"),
    [
        ("x.csv", {}, r"x\.csv is named twice"),
        ("out.txt", {}, r"out\.txt should end in \.csv, \.tsv, \.jsonl or \.parquet"),
        ("no/out.csv", {}, "there is no folder"),
        ("there.csv", {}, "exists already and is not overwritten"),
        ("out.csv", {"review": "r.csv"}, "a file for review needs a threshold"),
        ("out.csv", {"review": "out.csv", "threshold": 0.5}, r"out\.csv is named twice"),
        ("out.csv", {"threshold": 1.5}, "a threshold is a probability"),
        ("out.csv", {"text": ["a", "b"]}, "takes 1 text columns, not 2"),
        ("out.csv", {"tasks": ["mod"]}, "did you mean 'mood'"),
        ("out.csv", {"tasks": None}, "say which task"),
    ],
)
def test_mistakes(model, tmp_path, monkeypatch, out, options, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.csv").write_text("mine")
    path = write(tmp_path / "x.csv")
    with pytest.raises(UsageError, match=told):
        model.predict_file(path, out, **{"tasks": ["mood"], **options})
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["there.csv", "x.csv"]


def test_a_bad_row_is_found_before_anything_is_written(model, tmp_path):
    path = write(tmp_path / "x.csv", [*ROWS, {**ROWS[0], "text": " "}])
    with pytest.raises(DataError, match=r"x\.csv, line 45: column 'text' is empty"):
        model.predict_file(path, tmp_path / "out.csv", tasks=["mood"])
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["x.csv"]
    with pytest.raises(UsageError, match="there is no file"):
        model.predict_file(tmp_path / "nowhere.csv", tmp_path / "out.csv", tasks=["mood"])


@pytest.mark.parametrize("ending", ENDINGS)
def test_rows_without_a_text_have_empty_answers(model, tmp_path, ending):
    """The others' are what they would be alone, also where a whole chunk lacks them."""
    rows = [{**row, "a": "" if 8 <= i < 17 else row["a"]} for i, row in enumerate(ROWS)]
    path, out = write(tmp_path / "x.csv", rows), tmp_path / f"out.{ending}"
    asked = {"tasks": ["same", "near"], "threshold": {"same": 0.5}, "probabilities": True}
    done = model.predict_file(path, out, **asked, skip_empty=True)
    assert (done.num_rows, done.num_empty) == (43, 9)
    found = read(out)
    assert [row["key"] for row in found] == [row["key"] for row in ROWS]
    pairs = [(row["a"], row["b"]) for row in rows if row["a"]]
    scores = [
        row["near"]["value"] if ending == "jsonl" and row["near"] else row["near"] for row in found
    ]
    expected = [answer.value for answer in model.predict("near", pairs)]
    assert [float(score) for score in scores[:8] + scores[17:]] == pytest.approx(expected, abs=1e-4)
    added = [name for name in found[8] if name not in rows[0] and name != "id"]
    assert {found[8][name] for name in added} == {None if ending in ("jsonl", "parquet") else ""}


def test_what_was_stopped_goes_on_past_them(model, tmp_path):
    rows = [{**row, "text": "" if i % 3 == 0 else row["text"]} for i, row in enumerate(ROWS)]
    path, out, whole = write(tmp_path / "x.csv", rows), tmp_path / "o.csv", tmp_path / "w.csv"
    asked = {"tasks": ["mood"], "skip_empty": True}
    model.predict_file(path, whole, **asked)
    with pytest.raises(Interrupted):
        model.predict_file(path, out, progress=Stop(2), **asked)
    done = model.predict_file(path, out, resume=True, **asked)
    assert out.read_bytes() == whole.read_bytes()
    assert (done.num_rows, done.num_empty) == (43, 15)


def test_objects_of_json_may_lack_the_key(model, tmp_path):
    path, out = tmp_path / "x.jsonl", tmp_path / "out.jsonl"
    path.write_text('{"n": 1, "text": "good"}\n{"n": 2}\n{"n": 3, "text": null}\n')
    told = "line 2: there is no key 'text'; the line has 'n'; fill it in, or leave it unanswered"
    with pytest.raises(DataError, match=told):
        model.predict_file(path, out, tasks=["mood"])
    done = model.predict_file(path, out, tasks=["mood"], skip_empty=True)
    assert (done.num_rows, done.num_empty) == (3, 2)
    assert [row["mood"] is None for row in read(out)] == [False, True, True]
    assert "text" not in read(out)[1]
    told = "there is no column 'body'; the file has 'n', 'text'; --column"
    with pytest.raises(DataError, match=told):  # one that none has is a mistake
        model.predict_file(
            path, tmp_path / "no.csv", tasks=["mood"], text=["body"], skip_empty=True
        )
    with pytest.raises(
        DataError, match=r"there is no key 'body'; .*; --column \(from Python, text"
    ):
        model.predict_file(path, tmp_path / "no.jsonl", tasks=["mood"], text=["body"])


def test_a_row_may_lack_the_text_of_one_task_alone(model, tmp_path):
    path = write(tmp_path / "x.csv", [{**ROWS[0], "text": ""}, ROWS[1]])
    records = stream.open_records(
        model,
        path,
        columns := [
            *stream.choose_columns(model, ["mood"], list(ROWS[0])),
            *stream.choose_columns(model, ["near"], list(ROWS[0])),
        ],
        skip_empty=True,
    )
    ((_, answers),) = stream.answer_records(model, columns, records.slices(8))
    assert [answer is None for answer in answers["mood"]] == [True, False]
    assert [answer is None for answer in answers["near"]] == [False, False]
    assert stream.count_empty(answers) == records.survey().num_empty == 1


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_without_rows(model, tmp_path, ending):
    (tmp_path / "x.csv").write_text("id,text\n")
    out = tmp_path / f"out.{ending}"
    assert model.predict_file(tmp_path / "x.csv", out, tasks=["mood"]).num_rows == 0
    assert read(out) == []


def test_an_ending_may_be_in_capitals(tmp_path):
    assert choose_format(tmp_path / "X.CSV") == "csv"


@pytest.mark.parametrize(
    ("size", "groups"),
    [
        (1, [10, 10, 10, 10, 10, 10, 3]),
        (4, [10, 2] * 5 + [3]),
        (10, [10, 10, 10, 10, 10, 10, 3]),
        (25, [10, 10, 5, 10, 10, 5, 10, 3]),
    ],
)
def test_parquet_is_laid_out_once_a_group_is_full(tmp_path, monkeypatch, size, groups):
    """So that no more rows are in memory than a group has, and those of one batch."""
    monkeypatch.setattr(formats, "ROW_GROUP", 10)
    part, path = tmp_path / "rows.part", tmp_path / "rows.parquet"
    rows = pa.table({"n": list(range(63))})
    with pa.OSFile(str(part), "wb") as file, pa.ipc.new_stream(file, rows.schema) as stream:
        stream.write_table(rows, max_chunksize=size)
    formats.lay_out(part, path, rows.schema)
    assert pa.parquet.read_table(path).equals(rows)
    assert not part.exists()
    about = pa.parquet.ParquetFile(path).metadata
    assert [about.row_group(i).num_rows for i in range(about.num_row_groups)] == groups
