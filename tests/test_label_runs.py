"""Whole runs with a task of any number of labels: trained, combined, distilled, written."""

from __future__ import annotations

import csv
import json
import random

import numpy as np
import pytest

import plait
from plait.config import read_recipe
from plait.inference.ensemble import make_ensemble

SIGNS = {"glad": ("happy", "bright"), "tired": ("dull", "weak"), "calm": ("mild", "plain")}


def rows_of(count: int, seed: str) -> list[dict[str, str]]:
    """Texts that say which labels hold, word by word; some have none."""
    draw, rows = random.Random(seed), []
    for i in range(count):
        held = [label for label in SIGNS if draw.random() < 0.4]
        words = [draw.choice(SIGNS[label]) for label in held]
        thing = draw.choice(("film", "book", "song", "walk"))
        text = " ".join(["the", thing, "was", *words, "."])
        rows.append({"id": f"r{i}", "text": text, "moods": ";".join(held)})
    return rows


TASK = """
[tasks.moods]
kind = "labels"
labels = ["glad", "tired", "calm"]
text = "text"
label = "moods"
id = "id"
head = "linear"
train = "moods-train.csv"
dev = "moods-dev.csv"
test = "moods-dev.csv"
"""


@pytest.fixture
def recipe(tiny_recipe):
    """The tiny recipe with a task of labels beside its three."""
    path = tiny_recipe()
    for split, count in (("train", 60), ("dev", 24)):
        with (path.parent / f"moods-{split}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["id", "text", "moods"])
            writer.writeheader()
            writer.writerows(rows_of(count, split))
    path.write_text(path.read_text(encoding="utf-8") + TASK, encoding="utf-8")
    return path


@pytest.fixture
def run(recipe, tmp_path):
    def start(out, *overrides):
        return plait.train(read_recipe(recipe, overrides), tmp_path / out).folder

    return start


ALONE = ["train.tasks=['moods']", "train.epochs=30"]


def test_it_learns_which_labels_hold(run):
    folder = run("run", *ALONE, "tasks.moods.loss={name='label-bce', weights='balanced'}")
    model = plait.load(folder)
    scores = model.evaluate("dev", tasks=["moods"])
    baseline = json.loads((folder / "scores.json").read_text())["baseline"]["primary"]["moods"]
    assert scores.primary["moods"] == scores.tasks["moods"].metrics["micro_f1"]
    assert scores.primary["moods"] > max(0.8, baseline)
    both, none = model.predict("moods", ["the film was happy weak .", "the book was ."])
    assert (both.value, both.label, both.words) == ((0, 1), "glad, tired", ("glad", "tired"))
    assert (none.value, none.label) == ((), "none")
    assert len(both.probabilities) == 3


def test_a_threshold_of_its_own(run):
    model = plait.load(run("run", "train.epochs=1", "tasks.moods.threshold=0.999"))
    assert model.predict("moods", ["the film was happy ."])[0].label == "none"


@pytest.mark.parametrize(
    "settings",
    [
        ["train.regularizers=[{name='smart'}]"],
        ["train.regularizers=[{name='smart-unit', variant=2}]"],
        ["train.regularizers=[{name='bregman'}]"],
        ["train.aggregator='pcgrad'", "train.schedule={name='round-robin', together=true}"],
        ["tasks.moods.adapter='lora'", "tasks.moods.touch_encoder=false"],
        ["tasks.moods.head='mlp'", "train.weighting='uncertainty'"],
        ["train.kind={name='reptile'}", "train.batch_size=4"],
    ],
    ids=str,
)
def test_it_goes_with_every_technique(run, settings):
    folder = run("run", "train.max_steps=4", *settings)
    assert plait.load(folder).evaluate("dev").tasks["moods"].num_examples == 24


@pytest.mark.parametrize("how", ["mode", "mean"])
def test_several_answer_as_one(run, tmp_path, how):
    members = [run(str(seed), f"seed={seed}", "train.max_steps=6") for seed in (1, 2, 3)]
    ensemble = plait.load(make_ensemble(members, tmp_path / "all", how))
    texts = ["the film was happy weak .", "the walk was plain ."]
    each = np.stack(
        [[p.probabilities for p in plait.load(m).predict("moods", texts)] for m in members]
    )
    found = ensemble.predict("moods", texts)
    if how == "mean":
        assert np.allclose([p.probabilities for p in found], each.mean(axis=0))
    votes = (each >= 0.5).sum(axis=0) >= 2
    if how == "mode":
        assert [p.value for p in found] == [tuple(np.flatnonzero(row)) for row in votes]


def test_it_is_distilled(run):
    teacher = run("teacher", *ALONE)
    kind = f"stage.distill.kind={{name='distill', teacher='{teacher}', weight=1.0}}"
    student = run("student", *ALONE, "stages=['distill']", kind)
    texts = [f"the film was {words} ." for words in ("happy", "weak mild", "bright dull plain")]
    a, b = (plait.load(folder).predict("moods", texts) for folder in (teacher, student))
    assert [p.value for p in a] == [p.value for p in b]
    # From where on a label holds may be another matter to the student.
    eager = ["tasks.moods.threshold=0.3", "train.max_steps=1"]
    run("eager", *ALONE, "stages=['distill']", kind, *eager)


# --- the command line --------------------------------------------------------------------


@pytest.fixture
def words(capsys):
    """Run a command; return what it prints."""

    def type_(*args):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            plait_main([str(arg) for arg in args])
        said = capsys.readouterr()
        assert ended.value.code in (0, None), said.err
        return said.out

    from plait.cli import main as plait_main

    return type_


def test_what_commands_print(run, words, tmp_path):
    folder = run("run", *ALONE)
    text = "the film was happy weak ."
    shown = words("predict", folder, "--task", "moods", text, "the book was .")
    assert "  moods: glad (" in shown
    assert "%), tired (" in shown
    assert "  moods: none (" in shown
    line = json.loads(
        words("predict", folder, "--task", "moods", text, "--format", "jsonl", "--probabilities")
    )
    assert line["moods"]["value"] == [0, 1]
    assert line["moods"]["label"] == ["glad", "tired"]
    assert set(line["moods"]["probabilities"]) == {"glad", "tired", "calm"}
    rows = list(
        csv.DictReader(
            words("predict", folder, "--task", "moods", text, "--format", "csv").splitlines()
        )
    )
    assert (rows[0]["moods"], rows[0]["moods_label"]) == ("0;1", "glad;tired")
    shown = words("evaluate", folder, "--task", "moods")
    assert "micro_f1" in shown
    assert "label" in shown.splitlines()[2]
    words("predict", folder, "--split", "test", "--out", tmp_path / "answers")
    with (tmp_path / "answers" / "moods-test-output.csv").open() as file:
        answers = {row["id"]: row["Predicted_moods"] for row in csv.DictReader(file)}
    assert len(answers) == 24
    assert set(";".join(answers.values()).split(";")) - {""} == set(SIGNS)
