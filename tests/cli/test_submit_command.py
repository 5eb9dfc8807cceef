"""`plait submit`: one file per task and split, every row answered."""

from __future__ import annotations

import csv
import shutil
import tomllib

import tomli_w


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_every_row_is_answered(plait, trained, tmp_path):
    out = tmp_path / "a" / "predictions"
    done = plait("submit", trained, "--out", out)
    assert (done.code, done.err) == (0, "")
    names = ["mood-dev", "mood-test", "near-dev", "para-dev"]
    assert sorted(p.name for p in out.iterdir()) == [f"{name}-output.csv" for name in names]
    assert done.out.count("answers\n") == 4

    dev = read(out / "mood-dev-output.csv")
    assert dev[0] == ["id", "Predicted_Mood"]
    assert [row[0] for row in dev[1:]] == [f"m{i}" for i in range(19)]  # m18 has no label
    assert {row[1] for row in dev[1:]} <= {"0", "1", "2"}
    test = read(out / "mood-test-output.csv")
    assert [row[0] for row in test[1:]] == ["t0", "t1", "t2"]  # t1 has no text
    same = read(out / "para-dev-output.csv")
    assert same[0] == ["id", "Predicted_same"]
    assert {row[1] for row in same[1:]} <= {"0", "1"}
    near = read(out / "near-dev-output.csv")
    assert all(0 <= float(row[1]) <= 5 and len(row[1]) == 6 for row in near[1:])


def test_labels_that_are_numbers_are_written_themselves(plait, trained, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    recipe = run / "recipe.toml"
    told = tomllib.loads(recipe.read_text(encoding="utf-8"))
    told["tasks"]["mood"]["labels"] = ["10", "20", "30"]
    recipe.write_text(tomli_w.dumps(told), encoding="utf-8")
    before, after = tmp_path / "before", tmp_path / "after"
    for folder, out in ((trained, before), (run, after)):
        assert plait("submit", folder, "--out", out, "--split", "test").code == 0
    numbers = [row[1] for row in read(before / "mood-test-output.csv")[1:]]
    written = [row[1] for row in read(after / "mood-test-output.csv")[1:]]
    assert written == [f"{int(number) + 1}0" for number in numbers]


def test_long_work_is_told_while_it_goes_on(plait, trained, tmp_path, monkeypatch):
    monkeypatch.setattr("plait.cli.display.PLAIN_SECONDS", -1)
    err = plait("submit", trained, "--out", tmp_path, "--split", "dev").err
    assert "answering mood: 19/19\n" in err


def test_one_split_and_a_second_time(plait, trained, tmp_path):
    (tmp_path / "mood-test-output.csv").write_text("old")
    done = plait("submit", trained, "--out", tmp_path, "--split", "test")
    assert done.out == f"{tmp_path / 'mood-test-output.csv'}: 3 answers\n"
    assert len(read(tmp_path / "mood-test-output.csv")) == 4


def test_a_split_without_files_is_told(plait, tiny_recipe, tmp_path):
    run = tmp_path / "run"
    assert plait("train", tiny_recipe(), "--out", run, "-o", "train.max_steps=1").code == 0
    done = plait("submit", run, "--out", tmp_path / "out", "--split", "test")
    assert done.code == 2
    assert done.complaint() == f"the recipe of {run} names no test files"
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_told(plait, trained, tmp_path):
    (tmp_path / "file").touch()
    done = plait("submit", trained, "--out", tmp_path / "file")
    assert done.code == 2
    assert str(tmp_path / "file") in done.complaint()
