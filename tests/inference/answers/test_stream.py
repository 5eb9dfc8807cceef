"""Files of answers: every format, in order, whole after any interruption."""

from __future__ import annotations

import csv
import json
import random
import shutil

import pyarrow as pa
import pyarrow.parquet
import pytest

from plait.errors import DataError, Interrupted, RunError, UsageError
from plait.inference.answers import journal, stream
from plait.inference.predictor import Predictor

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


@pytest.mark.parametrize(
    ("given", "ending"),
    [("csv", "tsv"), ("tsv", "jsonl"), ("jsonl", "parquet"), ("parquet", "csv")],
)
def test_every_format_comes_in_and_out(model, tmp_path, given, ending):
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
        UsageError, match="need a column 'predicted_mood', which the file already has"
    ):
        model.predict_file(write(tmp_path / "y.csv", taken), tmp_path / "y.jsonl", tasks=["mood"])


ODD = ["a\rb", 'q"q', "x\ty", "line\nline", "ü ☃ 𝄞", "-0", " end "]


@pytest.mark.parametrize("ending", ENDINGS)
def test_odd_texts_come_back(model, tmp_path, ending):
    rows = [{"id": str(i), "text": text, "note": text} for i, text in enumerate(ODD)]
    path = write(tmp_path / "x.jsonl", rows)
    model.predict_file(path, tmp_path / f"out.{ending}", tasks=["mood"])
    assert [row["note"] for row in read(tmp_path / f"out.{ending}")] == ODD
    if ending != "parquet":  # which no other program reads but by its own library
        again = tmp_path / f"again.{ending}"
        model.predict_file(tmp_path / f"out.{ending}", again, tasks=["mood"])
        assert [row["note"] for row in read(again)] == ODD


# --- going on ----------------------------------------------------------------------------


class Stop:
    """Ctrl-C at the so many-th word of progress."""

    def __init__(self, after):
        self.left = after

    def __call__(self, *_):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("ending", "after"), [("csv", 0), ("tsv", 1), ("jsonl", 3), ("parquet", 5), ("parquet", 1)]
)
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
        f"stopped; {8 * after} of 43 rows are kept. Continue with: the same call and resume=True"
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


@pytest.fixture
def begun(model, tmp_path):
    """A file of answers that was stopped."""
    path, out = write(tmp_path / "x.csv"), tmp_path / "out.csv"
    with pytest.raises(Interrupted):
        model.predict_file(path, out, tasks=["mood"], progress=Stop(2))
    return path, out


def test_only_the_same_goes_on(model, begun, tiny_run, tmp_path):
    path, out = begun
    with pytest.raises(RunError, match=r"out\.csv\.part is from an interrupted prediction"):
        model.predict_file(path, out, tasks=["mood"])
    with pytest.raises(RunError, match=r"started with other tasks \(mood: .*0\.5"):
        model.predict_file(path, out, tasks=["mood"], threshold=0.5, resume=True)
    with pytest.raises(RunError, match=r"started with other tasks \(mood, now same\)"):
        model.predict_file(path, out, tasks=["same"], resume=True)
    with pytest.raises(RunError, match=r"started with other probabilities \(false, now true\)"):
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


def test_a_threshold_chosen_on_dev(model):
    chosen = model.choose_threshold("mood", 0.3)
    scores = model.evaluate("dev", tasks=["mood"])
    assert chosen.num_rows == 18
    assert chosen.share == 1.0  # so little is asked that every row will do
    assert chosen.accuracy == pytest.approx(scores.primary["mood"])
    with pytest.raises(UsageError, match="kind 'score'"):
        model.choose_threshold("near", 0.5)
    with pytest.raises(UsageError, match="has no test files for mood"):
        model.choose_threshold("mood", 0.5, "test")


# --- what does not go --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("out", "options", "told"),
    [
        ("x.csv", {}, r"x\.csv is named twice"),
        ("out.txt", {}, r"out\.txt should end in \.csv, \.tsv, \.jsonl or \.parquet"),
        ("no/out.csv", {}, "there is no folder"),
        ("there.csv", {}, "exists already and is not overwritten"),
        ("out.csv", {"review": "r.csv"}, "a review file needs a threshold"),
        ("out.csv", {"review": "out.csv", "threshold": 0.5}, r"out\.csv is named twice"),
        ("out.csv", {"threshold": 1.5}, "a threshold must be a probability"),
        ("out.csv", {"text": ["a", "b"]}, "needs 1 text columns, got 2"),
        ("out.csv", {"tasks": ["mod"]}, "did you mean 'mood'"),
        ("out.csv", {"tasks": None}, "name the task with --task"),
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
