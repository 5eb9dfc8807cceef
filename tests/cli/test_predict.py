"""`plait predict` and `plait embed`: texts, lines, files, patterns and splits."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pyarrow.parquet
import pytest

from plait import load
from plait.cli.display import Display
from plait.inference.answers import journal, stream
from plait.inference.predictor import Predictor

TEXTS = ["the film was great .", "the book was awful .", "the meal, plain .", 'a "sad" song']


def rows(text, separator=","):
    return list(csv.DictReader(io.StringIO(text), delimiter=separator))


def read_table(path):
    return list(csv.reader(path.read_text(encoding="utf-8").splitlines()))


@pytest.fixture
def table(tmp_path):
    """A CSV file of the texts, with ids."""
    path = tmp_path / "x.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "text"], *([f"r{i}", t] for i, t in enumerate(TEXTS))])
    return path


# --- arguments and lines -----------------------------------------------------------------


def test_texts_are_predicted_in_words(plait, trained):
    done = plait("predict", trained, "--task", "mood", *TEXTS[:2])
    assert (done.code, done.err) == (0, "")
    answers = Predictor.load(trained).predict("mood", TEXTS[:2])
    expected = [
        line
        for text, answer in zip(TEXTS, answers, strict=False)
        for line in (text, f"  mood: {answer.label} ({answer.confidence:.0%})")
    ]
    assert done.out.splitlines() == expected


def test_pairs_for_every_task_named(plait, trained):
    done = plait("predict", trained, "--task", "same", "--task", "near", *TEXTS)
    lines = done.out.splitlines()
    assert lines[0] == f"{TEXTS[0]} | {TEXTS[1]}"
    assert [line.split(":")[0].strip() for line in lines[1:3]] == ["same", "near"]


def test_one_text_for_the_tasks_that_take_one(plait, trained):
    done = plait("predict", trained, TEXTS[0], "--probabilities")
    assert [line.split()[1] for line in done.out.splitlines()[2:]] == ["bad", "so-so", "good"]


def test_control_characters_are_shown(plait, trained):
    done = plait("predict", trained, "--task", "mood", "a \x1b]0;title\x07 film")
    assert done.out.splitlines()[0] == "a ␛]0;title␇ film"
    done = plait("predict", trained, "--task", "mood", "--format", "csv", "a \x1b[2J film")
    assert "a \x1b[2J film" in done.out  # a file keeps its content


def test_lines_of_standard_input(plait, trained):
    done = plait("predict", trained, "--task", "mood", stdin="\n".join(TEXTS).encode())
    assert [row["text"] for row in rows(done.out)] == TEXTS
    pairs = plait("predict", trained, "--task", "near", stdin=b"\xef\xbb\xbfa\tb\r\nc\td\r\n")
    assert [(row["a"], row["b"]) for row in rows(pairs.out)] == [("a", "b"), ("c", "d")]
    words = ("--task", "mood", "--skip-empty")
    done = plait("predict", trained, *words, stdin=b"good\n\nbad\n")
    assert [bool(row["mood"]) for row in rows(done.out)] == [True, False, True]
    assert done.err == "note: 1 of 3 rows have no text and no prediction\n"


def test_data_is_utf8_whatever_the_terminal_has(trained):
    words = [sys.executable, "-m", "plait", "predict", trained, "--task", "mood", "--format", "tsv"]
    env = os.environ | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(
        words, input="日本 ü\n".encode(), env=env, capture_output=True, check=True
    )
    assert "日本 ü" in done.stdout.decode("utf-8")


# --- a file ------------------------------------------------------------------------------


def test_a_file_keeps_its_columns_and_order(plait, trained, table, tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "CHUNK", 3)
    done = plait("predict", trained, "--task", "mood", "--input", table)
    assert (done.code, done.err) == (0, "")
    answers = Predictor.load(trained).predict("mood", TEXTS)
    found = rows(done.out)
    assert [(r["id"], r["text"]) for r in found] == [(f"r{i}", t) for i, t in enumerate(TEXTS)]
    assert [(int(r["mood"]), r["mood_label"]) for r in found] == [
        (a.value, a.label) for a in answers
    ]
    out = tmp_path / "out.parquet"
    done = plait("predict", trained, "--task", "mood", "--input", table, "--out", out)
    assert done.err == f"note: 4 rows predicted in {out}\n"
    assert pyarrow.parquet.read_table(out)["text"].to_pylist() == TEXTS


def test_another_column_and_jsonl_with_probabilities(plait, trained, tmp_path):
    (tmp_path / "x.csv").write_text("body\none\ntwo\n")
    args = ["predict", trained, "--task", "mood", "--input", tmp_path / "x.csv"]
    assert "there is no column 'text'; the file has 'body'" in plait(*args).complaint()
    out = tmp_path / "answers.jsonl"
    done = plait(*args, "--column", "body", "--out", out, "--probabilities")
    assert done.code == 0, done.err
    for line in map(json.loads, out.read_text(encoding="utf-8").splitlines()):
        chances = line["mood"]["probabilities"]
        assert sum(chances.values()) == pytest.approx(1, abs=1e-5)
        assert line["mood"]["label"] == max(chances, key=chances.get)


def test_columns_choose_the_tasks(plait, trained, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("body,reply\nfine,good\n", encoding="utf-8")
    one = plait("predict", trained, "--input", path, "--column", "body")
    assert "mood_label" in one.out
    two = plait("predict", trained, "--input", path, "--column", "body", "--column", "reply")
    assert ("same_label" in two.out, "near" in two.out, "mood" in two.out) == (True, True, False)
    assert "name the task with --task" in plait("predict", trained, "--input", path).complaint()


def test_separators(plait, trained, tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("text|n\nthe film, it was great|1\n", encoding="utf-8")
    done = plait("predict", trained, "--task", "mood", "--input", path, "--separator", "|")
    assert [row["text"] for row in rows(done.out)] == ["the film, it was great"]
    path.write_text("text\tn\nthe book, it was dull\t2\n", encoding="utf-8")
    tabs = plait("predict", trained, "--task", "mood", "--input", path, "--separator", r"\t")
    assert [row["text"] for row in rows(tabs.out, "\t")] == ["the book, it was dull"]


def test_empty_rows_stop_it_or_are_skipped(plait, trained, tmp_path):
    path, out = tmp_path / "x.csv", tmp_path / "out.csv"
    path.write_text('id,text\na," "\nc,good\n')
    args = ["predict", trained, "--task", "mood", "--input", path, "--out", out]
    assert "line 2: column 'text' is empty" in plait(*args).complaint()
    assert not out.exists()
    done = plait(*args, "--skip-empty")
    assert done.code == 0
    assert "1 of 2 rows have no text and no prediction" in done.err
    assert [bool(row["mood_label"]) for row in rows(out.read_text())] == [False, True]


def test_an_interrupted_file_is_continued(plait, trained, table, tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "CHUNK", 2)
    monkeypatch.setattr(journal, "SAVE_SECONDS", -1.0)
    args = ["predict", trained, "--task", "mood", "--input", table, "--out"]
    assert plait(*args, tmp_path / "whole.csv").code == 0
    out = tmp_path / "out.csv"

    def stop(_, __, now, ___, **____):
        if now >= 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Display, "work", stop)
        patch.setattr(Display, "reading", lambda *_: None)
        done = plait(*args, out)
    assert done.code == 130
    assert "2 of 4 rows are kept" in done.complaint()
    assert done.err.rstrip().endswith(f"--out {out} --resume")
    assert plait(*args, out, "--resume").code == 0
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert plait(*args, out, "--resume").err == f"note: {out} is already finished\n"


def test_abstaining(plait, trained, table, tmp_path):
    args = ["predict", trained, "--task", "mood", "--precision", "fp32"]
    answers = Predictor.load(trained).predict("mood", TEXTS)
    least = sorted(answer.confidence for answer in answers)[2] - 1e-6
    out, review = tmp_path / "out.csv", tmp_path / "review.csv"
    files = ["--input", table, "--out", out, "--review", review]
    done = plait(*args, *files, "--threshold", least)
    assert "note: mood: abstained on 2 of 4 rows\n" in done.err
    held = [f"r{i}" for i, answer in enumerate(answers) if answer.confidence < least]
    assert [row["id"] for row in rows(review.read_text())] == held
    wish = [*args, "--format", "jsonl", "--accuracy"]
    done = plait(*wish, "0.2", stdin=b"the film\n")
    assert json.loads(done.out)["mood"]["review"] in (True, False)
    assert "of 18 dev rows answered, accuracy " in done.err
    assert "accuracy of 0.99 on 18 rows" in plait(*wish, "0.99", "a").complaint()


# --- several files -----------------------------------------------------------------------


def test_a_pattern_becomes_a_folder_of_parts(plait, trained, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("key,text\nk,the film was great .\n")
    words = ["predict", trained, "--task", "mood", "--out", tmp_path / "out"]
    words += ["--input", tmp_path / "*.csv", "--threshold", "0.99"]
    done = plait(*words)
    assert done.code == 0, done.err
    assert "mood: abstained on 2 of 2 rows" in done.err
    assert f"2 rows of 2 files predicted in {tmp_path / 'out'}" in done.err
    assert len(list((tmp_path / "out").glob("part-*.csv"))) == 2
    assert "--resume" in plait(*words).complaint()
    assert plait(*words, "--resume").code == 0


@pytest.mark.parametrize(("pattern", "out"), [("rows/**", "rows/out"), ("**/*.csv", "out")])
def test_parts_are_not_written_where_the_pattern_finds_them(
    plait, trained, tmp_path, monkeypatch, pattern, out
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "a.csv").write_text("text\nfine\n")
    words = ["predict", trained, "--task", "mood", "--input", pattern, "--out", out]
    assert f"{pattern} would match the predictions" in plait(*words).complaint()
    assert not list((tmp_path / out).glob("part-*"))


# --- a split of the recipe ---------------------------------------------------------------


def test_a_split_in_the_tasks_own_format(plait, trained, tmp_path):
    out = tmp_path / "a" / "predictions"
    done = plait("predict", trained, "--split", "dev", "--out", out)
    assert (done.code, done.err) == (0, "")
    names = ["mood-dev", "near-dev", "para-dev"]
    assert sorted(p.name for p in out.iterdir()) == [f"{name}-output.csv" for name in names]
    dev = read_table(out / "mood-dev-output.csv")
    assert dev[0] == ["id", "Predicted_Mood"]
    assert [row[0] for row in dev[1:]] == [f"m{i}" for i in range(19)]  # m18 has no label
    assert {row[1] for row in dev[1:]} <= {"0", "1", "2"}
    near = read_table(out / "near-dev-output.csv")
    assert all(0 <= float(row[1]) <= 5 and len(row[1]) == 6 for row in near[1:])

    (out / "mood-test-output.csv").write_text("old")
    done = plait("predict", trained, "--split", "test", "--out", out)
    assert done.out == f"{out / 'mood-test-output.csv'}: 3 predictions\n"
    test = read_table(out / "mood-test-output.csv")
    assert [row[0] for row in test[1:]] == ["t0", "t1", "t2"]  # t1 has no text


def test_labels_that_are_numbers_are_written_themselves(plait, trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    recipe = (run / "recipe.toml").read_text().replace('"so-so"', '"20"')
    recipe = recipe.replace('"bad"', '"10"').replace('"good"', '"30"')
    (run / "recipe.toml").write_text(recipe)
    written = []
    for folder in (trained, run):
        out = tmp_path / f"to-{folder.name}-{len(written)}"
        assert plait("predict", folder, "--split", "test", "--out", out).code == 0
        written.append([r[1] for r in read_table(out / "mood-test-output.csv")[1:]])
    assert written[1] == [f"{int(number) + 1}0" for number in written[0]]


# --- vectors -----------------------------------------------------------------------------


def test_vectors_of_texts_and_lines(plait, trained):
    done = plait("embed", trained, "a good day", "a bad day", "--precision", "run")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [row["text"] for row in found] == ["a good day", "a bad day"]
    expected = load(trained).embed(["a good day", "a bad day"])
    assert np.array_equal(np.array([row["vector"] for row in found], np.float32), expected)
    done = plait("embed", trained, "--normalize", stdin=b"one\ntwo\n")
    row = json.loads(done.out.splitlines()[1])
    assert (row["id"], row["text"]) == ("1", "two")
    assert sum(number**2 for number in row["vector"]) == pytest.approx(1)


def test_vectors_of_a_file(plait, trained, tmp_path):
    (tmp_path / "in.csv").write_text("text;n\none;1\n;2\n")
    out = tmp_path / "out.npy"
    words = ["embed", trained, "--input", tmp_path / "in.csv", "--separator", ";", "--out", out]
    assert "line 3" in plait(*words).complaint()
    done = plait(*words, "--skip-empty")
    assert done.code == 0, done.err
    assert f"note: 1 vector of {np.load(out).shape[1]} dimensions in {out}" in done.err
    assert "1 of 2 rows have no text and no vector" in done.err
    assert "already finished" in plait(*words, "--resume").err


def test_an_ensemble_has_no_vectors(plait, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "other")
    plait("ensemble", trained, tmp_path / "other", "--out", tmp_path / "two")
    assert "use one of its members" in plait("embed", tmp_path / "two", "a").complaint()
