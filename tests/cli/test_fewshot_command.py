"""`plait fewshot` as a user meets it."""

from __future__ import annotations

import json

import pytest

TASK = """
[tasks.verdict]
kind = "classes"
labels = ["bad", "so-so", "good"]
text = "text"
label = "label"
train = "mood-train.csv"
dev = "mood-dev.csv"
bad_rows = "skip"

[train]
epochs = 1
"""


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "verdict.toml"
    path.write_text(TASK)
    return path


def test_a_table_and_a_file(plait, trained, task, tmp_path):
    out = tmp_path / "new" / "shots.json"
    words = ("--task", task, "--shots", "6,12", "--draws", 2, "--data", trained.parent / "data")
    done = plait("fewshot", trained, *words, "--against", trained, "--out", out)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("verdict: accuracy on 18 dev rows, mean ± standard deviation of 2")
    assert lines[1].split() == ["encoder", "6", "examples", "12", "examples"]
    assert lines[2].split()[0] == "raw"
    assert lines[3].split()[0] == str(trained)
    assert lines[-1] == f"Every figure is in {out}."
    assert "names mood-dev.csv too" in done.err
    told = json.loads(out.read_text())
    assert told["encoders"].keys() == {"raw", str(trained)}
    assert [len(f["draws"]) for f in told["encoders"]["raw"]] == [2, 2]
    assert told["settings"]["epochs"] == 1


def test_stopped_it_says_what_is_kept(plait, trained, task, monkeypatch):
    from plait.fewshot import measuring

    words = ("--task", task, "--shots", "6", "--draws", 1, "--data", trained.parent / "data")
    with monkeypatch.context() as patch:
        score = measuring.Scorer.score
        figures = iter([score])

        def stop(scorer, data):
            if not (real := next(figures, None)):
                raise KeyboardInterrupt
            return real(scorer, data)

        patch.setattr(measuring.Scorer, "score", stop)
        done = plait("fewshot", trained, *words)
    assert done.code == 130
    told = "plait: stopped with 1 trial of 2 finished and kept; the same command goes on from there"
    assert done.err.splitlines()[-1] == told
    done = plait("fewshot", trained, *words)
    assert done.code == 0
    assert "note: going on with 1 trial of a measurement" in done.err


def test_one_draw_has_no_spread(plait, trained, task):
    words = ("--task", task, "--shots", "6", "--draws", 1, "--data", trained.parent / "data")
    done = plait("fewshot", trained, *words, "-o", "train.max_steps=1")
    assert done.code == 0, done.err
    assert "±" not in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--shots", "16;32"), "--shots '16;32' is not of the form 16,32,64"),
        (("--shots", "0"), "--shots '0' is not of the form 16,32,64"),
        (("--shots", "6,46"), "46 shots are more than the 45 training rows of verdict"),
        (("-o", "tasks.verdict.dev=[]"), "tasks.verdict names no dev files"),
        (("--against", "nowhere"), "there is no run at nowhere"),
    ],
)
def test_errors_in_one_sentence(plait, trained, task, words, message):
    data = trained.parent / "data"
    done = plait("fewshot", trained, "--task", task, "--data", data, *words)
    assert done.code == 2
    assert message in done.err.splitlines()[-1]
    assert done.out == ""
    assert "Traceback" not in done.err


def test_no_such_file(plait, trained):
    done = plait("fewshot", trained, "--task", "nowhere.toml")
    assert done.complaint() == "there is no recipe file nowhere.toml"


def test_what_is_there_is_not_overwritten(plait, trained, task, tmp_path):
    out = tmp_path / "shots.json"
    out.write_text("mine")
    done = plait("fewshot", trained, "--task", task, "--shots", "6", "--out", out)
    assert done.code == 2
    assert "exists already and is not overwritten" in done.err
    assert out.read_text() == "mine"


def test_a_folder_that_cannot_be_is_told_before_the_work(plait, trained, task, tmp_path):
    (tmp_path / "file").write_text("mine")
    words = ("--task", task, "--shots", "6", "--draws", 1, "--data", trained.parent / "data")
    done = plait("fewshot", trained, *words, "--out", tmp_path / "file" / "shots.json")
    assert done.code == 2
    assert done.out == ""
    assert "Traceback" not in done.err
