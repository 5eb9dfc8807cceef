"""`plait evaluate`: tables, JSON, and splits that cannot be scored."""

from __future__ import annotations

import json
import shutil

import pytest

from plait.cli.evaluate import _class_rows
from plait.inference.predictor import Predictor
from plait.tasks import TaskSpec


def test_every_task_is_shown(plait, trained):
    done = plait("evaluate", trained)
    assert (done.code, done.err) == (0, "")
    assert "mood, 18 dev rows" in done.out
    assert "same, 16 dev rows" in done.out
    assert "pearson" in done.out
    assert "0 bad " in done.out
    assert "  as 0  as 1  as 2" in done.out
    assert done.out.splitlines()[-1].startswith("overall ")


def test_json_is_what_the_predictor_says(plait, trained):
    done = plait("evaluate", trained, "--json", "--split", "train", "--task", "mood")
    assert (done.code, done.err) == (0, "")
    values = json.loads(done.out)
    assert (values.pop("run"), values.pop("split")) == (str(trained), "train")
    scores = Predictor.load(trained).evaluate("train", tasks=["mood"])
    assert values == json.loads(json.dumps(scores.to_json()))


def test_a_run_that_is_not_finished_is_scored_as_far_as_it_is(plait, trained, tmp_path):
    begun = tmp_path / "begun"
    shutil.copytree(trained, begun)
    (begun / "scores.json").unlink()
    done = plait("evaluate", begun)
    assert done.code == 0
    assert done.err == f"note: {begun} is not finished: this is its best model so far\n"


def test_files_elsewhere(plait, trained, tiny_recipe):
    other = tiny_recipe("other", seed="another").parent
    here, there = plait("evaluate", trained), plait("evaluate", trained, "--data", other)
    assert there.code == 0
    assert here.out != there.out


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--split", "test"], "mood-test.csv has no column 'label', so task 'mood' cannot be"),
        (["--split", "test"], "`plait submit` writes answers"),
        (["--split", "tset"], "invalid value for '--split': 'tset' is not one of 'dev', 'train'"),
        (["--split", "test", "--task", "same"], "names no test files for same"),
        (["--task", "mod"], "has no task 'mod'; did you mean 'mood'?"),
        (["--data", "nowhere"], "no data folder nowhere"),
        (["--device", "abacus"], "device = 'abacus' cannot be used here"),
    ],
)
def test_mistakes_are_told_in_one_line(plait, trained, args, told):
    done = plait("evaluate", trained, *args)
    assert done.code == 2
    assert told in done.complaint()


@pytest.mark.parametrize("command", ["evaluate", "predict", "submit"])
def test_what_is_no_run_is_told(plait, tmp_path, command):
    done = plait(command, tmp_path / "nowhere")
    assert (done.code, done.complaint()) == (2, f"there is no run at {tmp_path / 'nowhere'}")
    assert "is not a run" in plait(command, tmp_path).complaint()


def test_long_work_is_told_while_it_goes_on(plait, trained, monkeypatch):
    monkeypatch.setattr("plait.cli.display.PLAIN_SECONDS", -1)
    err = plait("evaluate", trained).err
    assert "scoring mood: 18/18\n" in err
    assert "reading mood dev: 100%\n" in err


def table(labels):
    spec = TaskSpec(kind="classes", labels=labels, text=("text",))
    chances = [[float(i == j) for j in range(len(labels))] for i in range(len(labels))]
    return _class_rows(spec.kind.score(list(range(len(labels))), chances))


def test_long_labels_are_cut_and_many_classes_are_not_crossed():
    rows = table(("x" * 100, "y"))
    assert rows[1][0] == "0 " + "x" * 31 + "…"
    assert len(rows[0]) == 5 + 2
    many = table(tuple(f"class {i}" for i in range(30)))
    assert {len(row) for row in many} == {5}
    assert len(many) == 31


def test_labels_that_are_numbers_have_no_others_beside_them():
    rows = table(("1", "2", "3"))
    assert rows[0][5:] == ["as 1", "as 2", "as 3"]
    assert [row[0] for row in rows[1:]] == ["1", "2", "3"]
    assert table(("1 star", "2 stars"))[0][5:] == ["as 0", "as 1"]


def test_pairs_that_follow_from_training_are_left_out(plait, trained, tiny_recipe):
    """a-b, b-c in train: dev's a-c follows and its own a-b is there; two others do not follow."""
    folder = tiny_recipe("other").parent
    head = (folder / "same-train.csv").read_text(encoding="utf-8").splitlines()[0]
    assert head == "id,a,b,label"
    train = ["1,red,blue,1", "2,Blue!,green,1", "3,tree,house,0"]
    dev = ["1,green,red,1", "2,red,blue,0", "3,red,tree,0", "4,tree,house,1"]
    for name, rows in (("train", train), ("dev", dev)):
        text = "\n".join([head, *rows, ""])
        (folder / f"same-{name}.csv").write_text(text, encoding="utf-8")
    args = ("evaluate", trained, "--data", folder, "--without-implied")
    done = plait(*args, "--json")
    assert (done.code, done.err) == (0, "")
    values = json.loads(done.out)
    rest = values["without_implied"]
    assert rest["left_out"] == {"same": 2}
    assert values["tasks"]["same"]["num_examples"] == 4
    assert rest["tasks"]["same"]["num_examples"] == 2
    assert rest["tasks"]["mood"] == values["tasks"]["mood"]
    dataset = Predictor.load(trained).load_split("dev", data=str(folder), tasks=["same"])["same"]
    answers = Predictor.load(trained).answer("same", dataset)[2:]
    right = float((answers.argmax(axis=1) == [0, 1]).mean())
    assert rest["tasks"]["same"]["metrics"]["accuracy"] == right
    shown = plait(*args).out
    assert "without pairs that follow from training pairs" in shown
    (folder / "same-dev.csv").write_text("\n".join([head, *dev[:2], ""]), encoding="utf-8")
    assert "task 'same': every pair follows from training pairs" in plait(*args).complaint()


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--split", "train"], "leaves no training pair; score dev or test with it"),
        (["--task", "mood"], "asks of pairs whether they are the same"),
    ],
)
def test_nothing_to_leave_out(plait, trained, args, told):
    assert told in plait("evaluate", trained, "--without-implied", *args).complaint()


def test_a_finished_run_without_its_weights(plait, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    told = plait("evaluate", tmp_path / "run").complaint()
    assert "is a finished run, but its model.safetensors is gone" in told
