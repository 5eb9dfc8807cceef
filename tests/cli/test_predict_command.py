"""`plait predict`: texts from arguments, lines and files; answers in words, CSV and JSONL."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet
import pytest

from plait.cli.display import Display
from plait.data import Records
from plait.inference.answers import journal, stream
from plait.inference.folders import RunFolder
from plait.inference.predictor import Predictor

TEXTS = ["the film was great .", "the book was awful .", "the meal, plain .", 'a "sad" song']


def rows(text, separator=","):
    return list(csv.DictReader(io.StringIO(text), delimiter=separator))


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


def test_a_run_that_is_not_finished_is_told_as_one(plait, trained, tmp_path):
    begun = tmp_path / "begun"
    shutil.copytree(trained, begun)
    (begun / "scores.json").unlink()
    (tmp_path / "a.csv").write_text(f"text\n{TEXTS[0]}\n")
    told = f"note: {begun} is not finished: this is its best model so far\n"
    done = plait("predict", begun, "--task", "mood", TEXTS[0])
    assert (done.code, done.err) == (0, told)
    asked = ("--task", "mood", "--input", tmp_path / "*.csv", "--output", tmp_path / "out")
    done = plait("predict", begun, *asked)
    assert done.code == 0
    assert told in done.err
    assert told in plait("export", begun, "--format", "hf", "--task", "mood", "--out", "x").err


def test_words_show_what_a_terminal_would_obey(plait, trained):
    done = plait("predict", trained, "--task", "mood", "a \x1b]0;title\x07 film")
    assert done.out.splitlines()[0] == "a ␛]0;title␇ film"
    done = plait("predict", trained, "--task", "\x1b[2J", "a film")
    assert "\x1b" not in done.err
    assert done.code == 2
    done = plait("predict", trained, "--task", "mood", "--format", "csv", "a \x1b[2J film")
    assert "a \x1b[2J film" in done.out  # a file's contents are another program's to read


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


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
def test_data_is_utf8_whatever_the_terminal_has(trained, form):
    words = [sys.executable, "-m", "plait", "predict", trained, "--task", "mood", "--format", form]
    env = os.environ | {"PYTHONIOENCODING": "latin-1"}
    typed = "日本 ü\n".encode()
    done = subprocess.run(words, input=typed, env=env, capture_output=True, check=True)
    assert "日本 ü" in done.stdout.decode("utf-8")


@pytest.mark.parametrize(
    ("args", "stdin", "told"),
    [
        (["--task", "mood"], b"good\n\n", "<stdin>, line 2: the text is empty"),
        (["--task", "mood"], b"good\nb\0d\n", "<stdin>, line 2: the text holds a NUL"),
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
        (["a", "--task", "same"], "same takes texts two by two, and 1 was given"),
        (["a", "--task", "sam"], "has no task 'sam'; did you mean 'same'?"),
        (["", "--task", "mood"], "one of the texts is empty"),
        (["caf\udce9", "--task", "mood"], r"the text 'caf\udce9' is not UTF-8"),
        (["a", "--input", "x.csv"], "not both"),
        (["a", "--column", "x"], "give the file with --input"),
        (["--input", "nowhere.csv"], "there is no file nowhere.csv"),
        (["a", "--output", "x.txt"], "should end in .csv, .tsv, .jsonl or .parquet"),
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
    monkeypatch.setattr(stream, "CHUNK", 3)
    write(tmp_path / name)
    done = plait("predict", trained, "--task", "mood", "--input", tmp_path / name)
    assert (done.code, done.err) == (0, "")
    answers = Predictor.load(trained).predict("mood", TEXTS)
    found = rows(done.out, "\t" if "tsv" in name else ",")
    assert [(r["id"], r["text"]) for r in found] == [(f"r{i}", t) for i, t in enumerate(TEXTS)]
    assert [(int(r["mood"]), r["mood_label"]) for r in found] == [
        (a.value, a.label) for a in answers
    ]


def test_a_file_of_bare_lines_is_for_standard_input(plait, trained, tmp_path):
    (tmp_path / "x.txt").write_text("What a fine day\nWell then\n")
    done = plait("predict", trained, "--task", "mood", "--input", tmp_path / "x.txt")
    assert done.code == 2
    assert "bare lines of text are read from standard input (< FILE)" in done.complaint()


def test_as_many_columns_as_a_task_takes_choose_the_tasks(plait, trained, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("body,reply\nfine,good\n", encoding="utf-8")
    one = plait("predict", trained, "--input", path, "--column", "body")
    assert "mood_label" in one.out
    assert "same" not in one.out
    two = plait("predict", trained, "--input", path, "--column", "body", "--column", "reply")
    assert ("same_label" in two.out, "near" in two.out, "mood" in two.out) == (True, True, False)
    both = plait("predict", trained, "--input", path)
    assert "say which task with --task" in both.complaint()


def test_columns_of_the_file_choose_the_tasks(plait, trained, tmp_path):
    path, out = tmp_path / "x.csv", tmp_path / "answers.csv"
    columns = {name: task.text for name, task in RunFolder(trained).read_config().tasks.items()}
    path.write_text(f"{','.join(columns['mood'])}\nfine\n", encoding="utf-8")
    assert "mood_label" in plait("predict", trained, "--input", path).out
    assert plait("predict", trained, "--input", path, "--output", out).code == 0
    assert "mood_label" in out.read_text(encoding="utf-8")
    path.write_text(f"{','.join(columns['same'])}\nfine,good\n", encoding="utf-8")
    done = plait("predict", trained, "--input", path)
    assert ("same_label" in done.out, "mood" in done.out) == (True, False)
    parts = tmp_path / "parts"
    assert plait("predict", trained, "--input", tmp_path / "x*.csv", "--output", parts).code == 0
    assert "same_label" in next(parts.glob("*.csv")).read_text(encoding="utf-8")
    both = [*columns["mood"], *columns["same"]]
    path.write_text(f"{','.join(both)}\nfine,good,well\n", encoding="utf-8")
    assert "say which task with --task" in plait("predict", trained, "--input", path).complaint()


def test_another_column_and_jsonl_with_probabilities(plait, trained, tmp_path):
    write(tmp_path / "x.csv", "body")
    args = ["predict", trained, "--task", "mood", "--input", tmp_path / "x.csv"]
    told = (
        "there is no column 'text'; the file has 'id', 'body'; --column (from Python, text) names"
    )
    assert told in plait(*args).complaint()
    out = tmp_path / "answers.jsonl"
    done = plait(*args, "--column", "body", "--output", out, "--probabilities")
    assert (done.code, done.out, done.err) == (0, "", f"note: 4 rows are answered in {out}\n")
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [(line["id"], line["body"]) for line in lines] == [
        (f"r{i}", text) for i, text in enumerate(TEXTS)
    ]
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
    monkeypatch.setattr(stream, "CHUNK", 1)
    (tmp_path / "x.csv").write_text("text\ngood\ngood\n \n")
    args = ["predict", trained, "--task", "mood", "--input", tmp_path / "x.csv"]
    done = plait(*args)
    assert done.code == 2
    assert (
        "line 4: column 'text' is empty; fill it in, or leave it unanswered with --skip-empty"
        in (done.complaint())
    )
    assert plait(*args, "--output", tmp_path / "out.csv").code == 2
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["x.csv"]


def test_rows_without_a_text_may_be_left_unanswered(plait, trained, tmp_path, monkeypatch):
    """They keep their places, and it is told how many there are."""
    monkeypatch.setattr(stream, "CHUNK", 2)
    path, out = tmp_path / "x.csv", tmp_path / "out.csv"
    path.write_text('id,text\na," "\nb,\nc,good\n')
    args = ["predict", trained, "--task", "mood", "--input", path, "--skip-empty"]
    said = "note: 2 of 3 rows lack a text and are left unanswered\n"
    done = plait(*args)
    assert (done.code, done.err) == (0, said)
    found = rows(done.out)
    assert [row["id"] for row in found] == ["a", "b", "c"]
    assert found[0] == {"id": "a", "text": " ", **dict.fromkeys(list(found[0])[2:], "")}
    assert [bool(row["mood_label"]) for row in found] == [False, False, True]
    filed = plait(*args, "--output", out)
    assert (filed.code, filed.err) == (0, f"{said}note: 1 row is answered in {out}\n")
    assert out.read_text() == done.out
    words = plait(*args, "--format", "words").out.splitlines()
    assert words[1] == "  mood: no answer, since a text is empty"
    parts = tmp_path / "parts"
    several = ["--input", tmp_path / "x*.csv", "--skip-empty", "--output", parts]
    done = plait(*args[:4], *several)
    told = f"{said}note: 1 row of 1 file is answered in {parts}, in 1 part\n"
    assert (done.code, done.err) == (0, told)


def test_lines_and_arguments_without_a_text(plait, trained):
    mood = ["predict", trained, "--task", "mood", "--skip-empty"]
    done = plait(*mood, stdin=b"good\n\nbad\n")
    assert [bool(row["mood"]) for row in rows(done.out)] == [True, False, True]
    assert done.err == "note: 1 of 3 rows lacks a text and is left unanswered\n"
    near = plait("predict", trained, "--task", "near", "--skip-empty", stdin=b"a\tb\n\nc\t\n")
    assert [bool(row["near"]) for row in rows(near.out)] == [True, False, False]
    assert plait(*mood, "").out == "\n  mood: no answer, since a text is empty\n"


def test_answers_have_tabs_where_the_file_has_them(plait, trained, tmp_path):
    """Unless the output's name, or --format, says otherwise."""
    args = ["predict", trained, "--task", "mood", "--input"]
    (tmp_path / "tabs.csv").write_text("id\ttext\n1\tgood, really\n")
    (tmp_path / "one.tsv").write_text("text\ngood, really\n")
    for name in ("tabs.csv", "one.tsv"):
        assert rows(plait(*args, tmp_path / name).out, "\t")[0]["text"] == "good, really"
    out = tmp_path / "out.csv"
    assert plait(*args, tmp_path / "tabs.csv", "--output", out).code == 0
    assert rows(out.read_text())[0]["text"] == "good, really"
    assert rows(plait(*args, tmp_path / "tabs.csv", "--format", "csv").out)[0]["id"] == "1"
    done = plait(*args, tmp_path / "tabs*.csv", "--output", tmp_path / "parts")
    assert done.code == 0
    (part,) = (tmp_path / "parts").glob("part-*")
    assert part.suffix == ".tsv"
    assert rows(part.read_text(), "\t")[0]["text"] == "good, really"


def test_files_without_rows(plait, trained, tmp_path):
    (tmp_path / "x.csv").write_text("")
    done = plait("predict", trained, "--task", "mood", "--input", tmp_path / "x.csv")
    assert (done.code, done.complaint()) == (2, f"{tmp_path / 'x.csv'}: the file is empty")
    (tmp_path / "x.csv").write_text("id,text\n")
    done = plait("predict", trained, "--task", "mood", "--input", tmp_path / "x.csv")
    assert (done.code, done.out) == (0, "id,text,mood,mood_label,mood_confidence\n")


def test_rows_are_taken_as_they_are_answered(trained):
    """Memory must not grow with the input: an endless one is answered, too."""
    taken = 0

    def endless():
        nonlocal taken
        while True:
            yield Records.of({"text": ["the film was great ."] * 8}, taken)
            taken += 8

    model = Predictor.load(trained)
    columns = stream.choose_columns(model, ["mood"], ["text"])
    answered = stream.answer_records(model, columns, endless())
    assert [next(answered)[0].numbers[0] for _ in range(3)] == [0, 8, 16]
    assert taken <= 24


def test_progress_counts_every_answer(plait, trained, tmp_path, monkeypatch):
    monkeypatch.setattr("plait.cli.display.PLAIN_SECONDS", -1)
    monkeypatch.setattr(stream, "CHUNK", 2)
    (tmp_path / "x.csv").write_text("a,b\n" + "one,two\n" * 5)
    args = ["predict", trained, "--task", "same", "--task", "near", "--input", tmp_path / "x.csv"]
    err = plait(*args, "--output", tmp_path / "out.csv").err
    checked, *answered, last = err.splitlines()
    assert last == f"note: 5 rows are answered in {tmp_path / 'out.csv'}"
    assert checked == f"reading {tmp_path / 'x.csv'}: 100%"
    counts = [line.split()[1].rstrip(",") for line in answered]
    assert counts == ["2/10", "4/10", "6/10", "8/10", "9/10", "10/10"]


# --- going on, and holding back ----------------------------------------------------------


def stop_at(done):
    """Ctrl-C once so many answers are there."""

    def work(_, __, now, ___, **____):
        if now >= done:
            raise KeyboardInterrupt

    return work


def test_what_was_stopped_goes_on(plait, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "CHUNK", 2)
    monkeypatch.setattr(journal, "SAVE_SECONDS", -1.0)
    write(tmp_path / "x.csv")
    args = ["predict", trained, "--task", "mood", "--input", tmp_path / "x.csv", "--output"]
    assert plait(*args, tmp_path / "whole.csv").code == 0
    out = tmp_path / "out.csv"
    with monkeypatch.context() as patch:
        patch.setattr(Display, "work", stop_at(3))
        patch.setattr(Display, "reading", lambda *_: None)
        done = plait(*args, out)
    assert done.code == 130
    assert done.complaint() == (
        "stopped; 2 of 4 rows are kept. Go on with: the same command and --resume"
    )
    kept = {path.name: path.read_bytes() for path in tmp_path.glob("out.csv*")}
    assert kept.keys() == {"out.csv.part", "out.csv.part.json"}
    done = plait("predict", trained, "--task", "mood", TEXTS[0], "--output", out)
    assert done.code == 2
    assert "out.csv.part is there from a prediction that was stopped" in done.complaint()
    assert {path.name: path.read_bytes() for path in tmp_path.glob("out.csv*")} == kept
    assert "go on with --resume" in plait(*args, out).complaint()
    assert plait(*args, out, "--resume") == (0, "", f"note: 4 rows are answered in {out}\n")
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    again = plait(*args, out, "--resume")
    assert (again.code, again.err) == (0, f"note: {out} is finished already\n")


def test_rows_that_are_not_sure_enough(plait, trained, tmp_path):
    write(tmp_path / "x.csv")
    args = ["predict", trained, "--task", "mood", "--precision", "fp32"]
    answers = Predictor.load(trained).predict("mood", TEXTS)
    least = sorted(answer.confidence for answer in answers)[2] - 1e-6
    out, review = tmp_path / "out.csv", tmp_path / "review.csv"
    files = ["--input", tmp_path / "x.csv", "--output", out, "--review", review]
    done = plait(*args, *files, "--threshold", least)
    said = f"note: mood: 2 of 4 rows are for review\nnote: 4 rows are answered in {out}\n"
    assert (done.code, done.err) == (0, said)
    held = [f"r{i}" for i, answer in enumerate(answers) if answer.confidence < least]
    assert [row["id"] for row in rows(review.read_text())] == held
    words = plait(*args, "--threshold", 1, TEXTS[0]).out
    assert words.splitlines()[1].endswith("sure), for review")


def test_a_wanted_accuracy(plait, trained):
    args = ["predict", trained, "--task", "mood", "--format", "jsonl", "--accuracy"]
    done = plait(*args, "0.2", stdin=b"the film\n")
    assert done.code == 0
    assert json.loads(done.out)["mood"]["review"] in (True, False)
    assert done.err.startswith("note: mood: answers at least ")
    assert "of 18 dev rows" in done.err
    done = plait(*args, "0.99", "a")
    assert done.code == 2
    assert "no threshold makes an accuracy of 0.99 certain on 18 rows" in done.complaint()


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["a", "--threshold", "2"], "a threshold is a probability from 0 to 1"),
        (["a", "--threshold", ".5", "--accuracy", ".5"], "not both"),
        (["a", "--data", "x"], "--data is where --accuracy finds the dev files"),
        (["a", "--review", "x.csv", "--threshold", ".5"], "--review goes with --input and"),
        (["a", "--resume"], "give the same --input and --output"),
        (["a", "--format", "parquet"], "name a file with --output"),
        (["a", "b", "--task", "near", "--threshold", ".5"], "task 'near' is of kind 'score'"),
    ],
)
def test_what_does_not_go_together(plait, trained, args, told):
    task = [] if "near" in args else ["--task", "mood"]
    done = plait("predict", trained, *task, *args)
    assert done.code == 2
    assert told in done.complaint()


def test_lines_into_parquet(plait, trained, tmp_path):
    out = tmp_path / "out.parquet"
    args = ["predict", trained, "--task", "mood", "--output"]
    assert plait(*args, out, stdin=b"good\nbad\n") == (0, "", "")
    table = pa.parquet.read_table(out)
    assert table["id"].to_pylist() == ["0", "1"]
    assert table["text"].to_pylist() == ["good", "bad"]
    assert plait(*args, out, stdin=b"a\n").code == 2
    assert plait(*args, tmp_path / "b.csv", stdin=b"a\n\n").code == 2
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["out.parquet"]


def test_files_that_are_separated_otherwise(plait, trained, tmp_path):
    """As `separator` and `quoting` of a recipe's file."""
    path = tmp_path / "x.txt"
    path.write_text('text|n\nthe "film, it was great|1\nthe book| 2\n', encoding="utf-8")
    asked = ("predict", trained, "--task", "mood", "--input", path)
    wrong = plait(*asked)
    assert wrong.code == 2
    assert "there is no column 'text'; the file has 'text|n'" in wrong.err
    ways = ("--separator", "|", "--no-quoting")
    done = plait(*asked, *ways)
    assert (done.code, done.err) == (0, "")
    assert [row["text"] for row in rows(done.out)] == ['the "film, it was great', "the book"]
    out = tmp_path / "answers.csv"
    assert plait(*asked, *ways, "--output", out).code == 0
    assert out.read_text(encoding="utf-8") == done.out
    path.write_text("text;n\nthe book, it was dull;2\n", encoding="utf-8")
    assert [row["text"] for row in rows(plait(*asked).out)] == ["the book, it was dull"]
    path.write_text("text,n\tx\nthe book, it was dull\t2\n", encoding="utf-8")
    tabs = plait(*asked, "--column", "text,n", "--separator", r"\t")
    assert [row["text,n"] for row in rows(tabs.out, "\t")] == ["the book, it was dull"]


@pytest.mark.parametrize("way", [("--separator", ";"), ("--no-quoting",)])
def test_ways_to_read_need_a_file(plait, trained, way):
    done = plait("predict", trained, "--task", "mood", TEXTS[0], *way)
    assert done.code == 2
    assert done.err.startswith("plait: --separator and --no-quoting say how a file is read")
    assert done.err.count("\n") == 1
