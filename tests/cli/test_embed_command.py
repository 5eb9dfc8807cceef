"""`plait embed`: vectors of arguments, lines and files, and kind refusals."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from plait import load


def test_arguments_become_lines_of_json(plait, trained):
    done = plait("embed", trained, "a good day", "a bad day", "--precision", "run")
    assert (done.code, done.err) == (0, "")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row["text"] for row in rows] == ["a good day", "a bad day"]
    expected = load(trained).embed(["a good day", "a bad day"])
    assert np.array_equal(np.array([row["vector"] for row in rows], np.float32), expected)


def test_lines_of_standard_input(plait, trained):
    done = plait("embed", trained, "--normalize", stdin=b"one\ntwo\n")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [(row["id"], row["text"]) for row in rows] == [("0", "one"), ("1", "two")]
    assert sum(number**2 for number in rows[1]["vector"]) == pytest.approx(1)


def test_a_file(plait, trained, tmp_path):
    (tmp_path / "in.csv").write_text("text;n\none;1\n;2\n")
    out = tmp_path / "out.npy"
    words = ["embed", trained, "--input", tmp_path / "in.csv", "--separator", ";", "--output", out]
    assert "line 3" in plait(*words).complaint()
    done = plait(*words, "--skip-empty")
    assert done.code == 0, done.err
    width = np.load(out).shape[1]
    assert f"1 vector of {width} is in {out}" in done.err.replace("\n", " ")
    assert "1 of 2 rows lacks a text and has no vector" in done.err
    assert "finished already" in plait(*words, "--resume").err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["a", "--output", "x.npy"], "give that one with --input"),
        (["--input", "IN"], "name it with --output"),
        (["--input", "IN", "--output", "x.csv"], "should end in .npy"),
        (["--input", "IN", "--output", "x.npy", "--column", "tex"], "there is no column 'tex'"),
        (["a", "--format", "npy"], "nothing for a terminal"),
        (["a", "--resume"], "--resume goes on with a file"),
        (["a", "--input", "IN", "--output", "x.npy"], "not both"),
        (["a", "--column", "text"], "give the file with --input"),
        (["a", "--separator", ";"], "say how a file is read"),
        (["  "], "one of the texts is empty"),
        (["--input", "no.csv", "--output", "x.npy"], "there is no file no.csv"),
        (["--input", "..", "--output", "x.npy"], ".. is a folder; name one of its files"),
    ],
)
def test_what_is_refused(plait, trained, tmp_path, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "IN").write_text("text\none\n")
    assert told in plait("embed", trained, *words).complaint()


def test_an_ensemble_has_none(plait, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "other")
    plait("ensemble", trained, tmp_path / "other", "--out", tmp_path / "two")
    assert "name a member" in plait("embed", tmp_path / "two", "a").complaint()
