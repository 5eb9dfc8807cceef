"""Rows are found, trained by `plait train`, and leave records that the page can read."""

from __future__ import annotations

import json
import sys

import pytest

from reproduction.__main__ import main
from reproduction.few_shot import draw_rows
from reproduction.few_shot import main as few_shot
from reproduction.published import HERE, Row
from reproduction.records import Record
from reproduction.run import Job, Request, find_rows


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["a/pcgrad"], ["a/pcgrad"]),
        (["A/2"], ["a/annealed", "a/proportional", "a/square-root"]),
        (["minbert", "a/annealed-ce"], 5),
        ([], 63),
    ],
)
def test_rows_are_found_by_words(words, found):
    names = [row.recipe for row in find_rows(words)]
    assert sorted(names) == found if isinstance(found, list) else len(names) == found


def test_what_is_not_there_is_named(capsys):
    assert main(["run", "a/pcgrat"]) == 2
    assert "no row is called 'a/pcgrat'" in capsys.readouterr().err
    assert main(["run", "--profile", "large"]) == 2
    assert "there is no profile 'large'" in capsys.readouterr().err


def test_the_command_of_a_run(tmp_path):
    request = Request(data="course", overrides=("train.epochs=1",), runs=tmp_path)
    words = Job("a/pcgrad", 5, request).command()[1:]
    folder = tmp_path / "small" / "a" / "pcgrad" / "5"
    assert words[:6] == ["-m", "plait", "train", "a/pcgrad", "--out", str(folder)]
    profile = str(HERE / "profiles" / "small.toml")
    settings = [word for word in words if word.endswith("toml") or "=" in word]
    assert settings == [profile, "train.epochs=1", "seed=5"]
    folder.mkdir(parents=True)
    assert Job("a/pcgrad", 5, request).command()[-1] == "--resume"


@pytest.fixture
def task(tmp_path):
    """A recipe with one task and its small files."""
    rows = [f"the film was {word} {i} .,{word}" for i in range(9) for word in ("good", "bad")]
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows, ""]))
    (tmp_path / "dev.csv").write_text("\n".join(["text,label", *rows[:8], ""]))
    (tmp_path / "task.toml").write_text(
        'name = "task"\nstages = ["finetune"]\n[encoder]\nsource = "packaged"\n'
        '[tasks.mood]\nkind = "classes"\n'
        'labels = ["good", "bad"]\ntext = "text"\nlabel = "label"\n'
        'train = "train.csv"\ndev = "dev.csv"\n[train]\nmax_steps = 2\n'
    )
    return tmp_path / "task.toml"


@pytest.mark.slow
def test_a_row_is_trained_once(task, tmp_path, monkeypatch, capsys):
    row = Row(recipe=str(task), system="A", row="")
    monkeypatch.setattr("reproduction.run.find_rows", lambda words: [row])
    path, folder = tmp_path / "records" / "seed.json", tmp_path / "runs" / "one"
    monkeypatch.setattr(Job, "folder", property(lambda job: folder))
    monkeypatch.setattr(Job, "record", lambda job: path)
    words = ["run", "--profile", "packaged", "-o", "device=cpu", "--data", str(tmp_path)]
    assert main(words) == 0
    record = Record.model_validate_json(path.read_bytes())
    assert (record.seed, record.steps) == (11711, 2)
    assert record.dev.get("overall") is not None
    assert record.curves
    assert record.encoder["sha256"]
    assert not folder.exists()
    capsys.readouterr()
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("0 runs to train")
    assert main([*words, "-o", "train.max_steps=3"]) == 2
    assert "was made with other settings (train.max_steps)" in capsys.readouterr().err


@pytest.mark.slow
def test_few_shots(task, tmp_path, monkeypatch, capsys):
    out = tmp_path / "scores.json"
    words = ["few_shot", str(task), "--shots", "2", "--draws", "1"]
    words += ["--data", str(tmp_path), "--out", str(out), "-o", "device=cpu"]
    monkeypatch.setattr(sys, "argv", words)
    few_shot()
    assert "raw, 2 a class: " in capsys.readouterr().out
    assert list(json.loads(out.read_text())["raw"]) == ["2"]


def test_rows_of_each_class_are_drawn(task, tmp_path):
    source, drawn = tmp_path / "train.csv", {}
    for count in (2, 3):
        draw_rows(source, tmp_path / "drawn.csv", "label", count, draw=1)
        lines = (tmp_path / "drawn.csv").read_text().splitlines()
        assert lines[0] == "text,label"
        drawn[count] = set(lines[1:])
        assert len(drawn[count]) == 2 * count
    assert drawn[2] < drawn[3] < set(source.read_text().splitlines())
