"""`plait predict`: texts from arguments, lines and files; answers in words, CSV and JSONL."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from plait.predict import Predictor

module = importlib.import_module("plait.cli.predict")  # the package's own `predict` is the command

TEXTS = ["the film was great .", "the book was awful .", "the meal, plain .", 'a "sad" song']


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


# --- arguments and lines -----------------------------------------------------------------


def test_texts_are_answered_in_words(plait, trained):
    done = plait("predict", trained, "--task", "mood", *TEXTS[:2])
    assert (done.code, done.err) == (0, "")
    answers = Predictor.load(trained).predict("mood", TEXTS[:2])
    expected = [
        line
        for text, answer in zip(TEXTS, answers, strict=False)
        for line in (text, f"  mood: {answer.label} ({answer.confidence:.0%} sure)")
    ]
    assert done.out.splitlines() == expected


def test_pairs_go_two_by_two_to_every_task_asked(plait, trained):
    done = plait("predict", trained, "--task", "same", "--task", "near", *TEXTS)
    lines = done.out.splitlines()
    assert lines[0] == f"{TEXTS[0]} | {TEXTS[1]}"
    assert lines[3] == f"{TEXTS[2]} | {TEXTS[3]}"
    assert [line.split(":")[0].strip() for line in lines[1:3]] == ["same", "near"]


def test_one_text_goes_to_the_tasks_that_take_one(plait, trained):
    done = plait("predict", trained, TEXTS[0], "--probabilities")
    assert done.out.splitlines()[1].startswith("  mood: ")
    assert [line.split()[1] for line in done.out.splitlines()[2:]] == ["bad", "so-so", "good"]


def test_lines_of_standard_input(plait, trained):
    done = plait("predict", trained, "--task", "mood", stdin="\n".join(TEXTS).encode())
    assert done.code == 0
    assert [row["text"] for row in rows(done.out)] == TEXTS
    assert [row["id"] for row in rows(done.out)] == ["0", "1", "2", "3"]
    pairs = plait("predict", trained, "--task", "near", stdin=b"\xef\xbb\xbfa\tb\r\nc\td\r\n")
    assert [(row["a"], row["b"]) for row in rows(pairs.out)] == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    ("args", "stdin", "told"),
    [
        (["--task", "mood"], b"good\n\n", "<stdin>, line 2: the text is empty"),
        (["--task", "mood"], b"caf\xe9\n", "<stdin>, line 1: the text is not UTF-8"),
        (["--task", "near"], b"a\tb\nc\n", "<stdin>, line 2: a pair is two texts with one tab"),
    ],
)
def test_bad_lines_are_named(plait, trained, args, stdin, told):
    done = plait("predict", trained, *args, "--format", "words", stdin=stdin)
    assert done.code == 2
    assert told in done.complaint()


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["a", "b"], "say which task with --task, since some take one text and some two: mood (1)"),
        (["a", "--task", "same"], "takes texts two by two, and 1 were given"),
        (["a", "--task", "sam"], "has no task 'sam'; did you mean 'same'?"),
        (["", "--task", "mood"], "one of the texts is empty"),
        (["a", "--input", "x.csv"], "not both"),
        (["a", "--column", "x"], "give the file with --input"),
        (["--input", "nowhere.csv"], "there is no file nowhere.csv"),
        (["a", "--output", "x.txt"], "should end in .csv or .jsonl, or give --format"),
        (["a", "--output", "nowhere/x.csv"], "there is no folder nowhere"),
    ],
)
def test_mistakes_are_told_in_one_line(plait, trained, args, told):
    done = plait("predict", trained, *args)
    assert done.code == 2
    assert told in done.complaint()


def test_without_anything_to_answer(plait, trained):
    done = plait("predict", trained, "--task", "mood", stdin=None)
    assert "give texts as arguments, a file with --input, or lines" in done.complaint()


# --- files -------------------------------------------------------------------------------


def write(path, column="text"):
    ids = [f"r{i}" for i in range(len(TEXTS))]
    table = {"id": ids, column: TEXTS}
    if path.name == "x.parquet":
        pa.parquet.write_table(pa.table(table), path)
        return
    file = io.StringIO()
    if "jsonl" in path.name:
        for i, text in zip(ids, TEXTS, strict=True):
            file.write(json.dumps({"id": i, column: text}) + "\n")
    else:
        writer = csv.writer(file, delimiter="\t" if "tsv" in path.name else ",")
        writer.writerows([table.keys(), *zip(*table.values(), strict=True)])
    data = file.getvalue().encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.csv.gz", "x.jsonl", "x.parquet"])
def test_every_kind_of_file_in_its_order(plait, trained, tmp_path, name, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 3)
    write(tmp_path / name)
    done = plait("predict", trained, "--task", "mood", "--input", tmp_path / name)
    assert (done.code, done.err) == (0, "")
    answers = Predictor.load(trained).predict("mood", TEXTS)
    found = rows(done.out)
    assert [(r["id"], r["text"]) for r in found] == [(f"r{i}", t) for i, t in enumerate(TEXTS)]
    assert [(int(r["mood"]), r["mood_label"]) for r in found] == [
        (a.value, a.label) for a in answers
    ]


def test_another_column_and_jsonl_with_probabilities(plait, trained, tmp_path):
    write(tmp_path / "x.csv", "body")
    args = ["predict", trained, "--task", "mood", "--input", tmp_path / "x.csv"]
    assert "there is no column 'text'; the file has 'id', 'body'" in plait(*args).complaint()
    out = tmp_path / "answers.jsonl"
    done = plait(*args, "--column", "body", "--output", out, "--probabilities")
    assert (done.code, done.out, done.err) == (0, "", "")
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [line["texts"] for line in lines] == [[text] for text in TEXTS]
    for line in lines:
        chances = line["mood"]["probabilities"]
        assert list(chances) == ["bad", "so-so", "good"]
        assert sum(chances.values()) == pytest.approx(1, abs=1e-5)
        assert line["mood"]["label"] == max(chances, key=chances.get)
    assert "takes 1 text columns, not 2" in plait(*args, "--column", "a", "--column", "b").err


def test_what_is_there_is_not_overwritten(plait, trained, tmp_path):
    out = tmp_path / "x.csv"
    out.write_text("mine")
    done = plait("predict", trained, "--task", "mood", "a", "--output", out)
    assert done.code == 2
    assert "exists already and is not overwritten" in done.complaint()
    assert out.read_text() == "mine"


def test_a_bad_row_is_found_before_the_first_answer(plait, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 1)
    (tmp_path / "x.csv").write_text("text\ngood\ngood\n \n")
    args = ["predict", trained, "--task", "mood", "--input", tmp_path / "x.csv"]
    done = plait(*args)
    assert done.code == 2
    assert "x.csv, line 4: column 'text' is empty" in done.complaint()
    assert plait(*args, "--output", tmp_path / "out.csv").code == 2
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["x.csv"]


def test_files_without_rows(plait, trained, tmp_path):
    (tmp_path / "x.csv").write_text("")
    done = plait("predict", trained, "--task", "mood", "--input", tmp_path / "x.csv")
    assert (done.code, done.complaint()) == (2, f"{tmp_path / 'x.csv'}: the file is empty")
    (tmp_path / "x.csv").write_text("id,text\n")
    done = plait("predict", trained, "--task", "mood", "--input", tmp_path / "x.csv")
    assert (done.code, done.out) == (0, "id,text,mood,mood_label,mood_confidence\n")


def test_rows_are_taken_as_they_are_answered(trained, monkeypatch):
    """Memory must not grow with the input: an endless one is answered, too."""
    monkeypatch.setattr(module, "CHUNK", 8)
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield str(taken), ("the film was great .",)

    answers = module._answer(Predictor.load(trained), ["mood"], endless(), 0, None)
    assert [next(answers)[0] for _ in range(20)] == [str(i) for i in range(1, 21)]
    assert taken <= 24


def test_progress_counts_every_answer(plait, trained, tmp_path, monkeypatch):
    monkeypatch.setattr("plait.cli.display.PLAIN_SECONDS", -1)
    monkeypatch.setattr(module, "CHUNK", 2)
    (tmp_path / "x.csv").write_text("a,b\n" + "one,two\n" * 5)
    args = ["predict", trained, "--task", "same", "--task", "near", "--input", tmp_path / "x.csv"]
    err = plait(*args, "--output", tmp_path / "out.csv").err
    counts = [line.split()[1].rstrip(",") for line in err.splitlines()]
    assert counts == ["2/10", "4/10", "6/10", "8/10", "9/10", "10/10"]
