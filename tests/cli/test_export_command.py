"""`plait export`, and what can be done with what it leaves."""

from __future__ import annotations

import json
import sys

import pytest

pytest.importorskip("onnxruntime")


@pytest.fixture
def exported(session_folder, trained, plait):
    """The trained run's graphs for one task, made once."""
    folder = session_folder / "exported"
    if not folder.exists():
        done = plait("export", trained, "--task", "mood", "--out", folder)
        assert done.code == 0, done.err
    return folder


def test_what_is_said(trained, plait, tmp_path):
    done = plait(
        "export", trained, "--task", "near", "--precision", "int8", "--out", tmp_path / "o"
    )
    lines = done.out.splitlines()
    heads = ["task", "figure", "dev rows", "run", "int8", "equal answers", "largest difference"]
    assert lines[0].split() == " ".join(heads).split()
    assert lines[1].split()[:3] == ["near", "pearson", "12"]
    assert lines[-1] == f"The export is in {tmp_path / 'o'}; its README.md says how to use it."
    told = json.loads((tmp_path / "o" / "export.json").read_text())["measured"]["tasks"]["near"]
    assert told["rows"] == 12


def test_an_export_is_evaluated_and_asked(trained, exported, plait):
    both = [plait("evaluate", run, "--task", "mood", "--json") for run in (trained, exported)]
    scores = [json.loads(done.out)["primary"] for done in both]
    assert scores[0] == pytest.approx(scores[1])
    words = [
        plait("predict", run, "--task", "mood", "the film was great .").out
        for run in (trained, exported)
    ]
    assert words[0] == words[1]


def test_mistakes_and_submissions_of_an_export(trained, exported, plait, tmp_path):
    for run in (trained, exported):
        assert plait("mistakes", run, "--task", "mood").code == 0
        done = plait("submit", run, "--out", tmp_path / run.name)
        assert done.code == 0, done.err
    files = [path.name for path in (tmp_path / exported.name).iterdir() if "mood" in path.name]
    assert len(files) > 1
    for name in files:
        run, onnx = ((tmp_path / of.name / name).read_text() for of in (trained, exported))
        assert run == onnx


def test_an_export_is_no_run_to_train_on(exported, plait):
    done = plait("average", exported, exported, "--out", exported.parent / "soup")
    assert done.code == 2
    assert "plait: " in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--format", "keras"], "'keras' is not one of"),
        (["--format", "hf"], "--format hf holds one task: name it with --task"),
        (["--format", "hf", "--task", "mood"], "has a head 'linear' on pooling 'mean'"),
        (["--task", "moood"], "has no task 'moood'; did you mean 'mood'?"),
        (["--format", "hf", "--task", "mood", "--precision", "int8"], "int8 is for --format onnx"),
        (["--data", "nowhere"], "there is no data folder nowhere (set by --data)"),
    ],
)
def test_wrong_words(trained, plait, tmp_path, words, said):
    done = plait("export", trained, "--out", tmp_path / "o", *words)
    assert done.code == 2
    assert said in done.complaint()
    assert not (tmp_path / "o").exists()


def test_wrong_folders(exported, plait, tmp_path):
    assert "there is no run at" in plait("export", tmp_path / "none").complaint()
    (tmp_path / "file").write_text("here")
    taken = plait("export", exported, "--out", tmp_path / "file").complaint()
    assert taken.endswith("exists already and is not overwritten; choose another --out")
    (tmp_path / "empty").mkdir()
    assert "is not a run: it has no recipe.toml" in plait("export", tmp_path / "empty").complaint()


def test_without_the_extra(trained, exported, plait, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    wanted = "ONNX needs the package onnxruntime: pip install 'plait[export]'"
    assert plait("export", trained, "--out", tmp_path / "o").complaint() == wanted
    assert plait("predict", exported, "--task", "mood", "fine .").complaint() == wanted


def test_stopping_leaves_nothing(trained, plait, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("plait.export.onnx._write_graph", stop)
    done = plait("export", trained, "--out", tmp_path / "o")
    assert (done.code, done.err) == (130, "plait: stopped\n")
    assert {path.name for path in tmp_path.iterdir()} <= {"cache"}
