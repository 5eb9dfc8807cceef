"""Whole runs with a task of any number of labels: trained, combined, distilled, written."""

from __future__ import annotations

import json
import random
import shutil

import numpy as np
import pytest

import plait
from csv_rows import read_rows, write_rows
from plait.cli import main
from plait.config import read_recipe
from plait.data.loading import load_data
from plait.training.build import build, build_stage
from plait.training.loop import TrainState, run_stage

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


ALONE = ["train.tasks=['moods']", "train.epochs=30"]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory, tiny_run):
    """The tiny recipe with a task of labels beside its three."""
    folder = shutil.copytree(tiny_run.parent / "tiny", tmp_path_factory.mktemp("labels") / "tiny")
    for split, count in (("train", 60), ("dev", 24)):
        write_rows(folder / f"moods-{split}.csv", rows_of(count, split))
    path = folder / "recipe.toml"
    text = path.read_text(encoding="utf-8").replace(str(tiny_run.parent / "tiny"), str(folder))
    path.write_text(text + TASK, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def learned(recipe):
    """A run that learnt the task alone."""
    loss = "tasks.moods.loss={name='label-bce', weights='balanced'}"
    return plait.train(read_recipe(recipe, [*ALONE, loss]), recipe.parent / "learned").folder


@pytest.fixture
def run(recipe, tmp_path):
    def start(out, *overrides):
        return plait.train(read_recipe(recipe, overrides), tmp_path / out).folder

    return start


def test_it_learns_which_labels_hold(learned):
    model = plait.load(learned)
    scores = model.evaluate("dev", tasks=["moods"])
    baseline = json.loads((learned / "scores.json").read_text())["baseline"]["primary"]["moods"]
    assert scores.primary["moods"] == scores.tasks["moods"].metrics["micro_f1"]
    assert scores.primary["moods"] > max(0.8, baseline)
    both, none = model.predict("moods", ["the film was happy weak .", "the book was ."])
    assert (both.value, both.label, both.words) == ((0, 1), "glad, tired", ("glad", "tired"))
    assert (none.value, none.label) == ((), "none")
    assert len(both.probabilities) == 3


@pytest.mark.parametrize(
    "settings",
    [
        [
            "train.regularizers=[{name='smart'}, {name='smart-unit', variant=2}, 'bregman']",
            "train.aggregator='pcgrad'",
            "train.schedule={name='round-robin', together=true}",
        ],
        [
            "tasks.moods.adapter='lora'",
            "tasks.moods.touch_encoder=false",
            "tasks.moods.head='mlp'",
            "train.weighting='uncertainty'",
        ],
        ["train.kind={name='reptile'}", "train.batch_size=4"],
    ],
    ids=str,
)
def test_it_goes_with_every_technique(recipe, settings):
    config = read_recipe(recipe, ["train.max_steps=4", *settings])
    parts = build(config)
    stage = build_stage(parts, 0, load_data(config, parts.tokenizer, "train"))
    for record in run_stage(stage, TrainState()):
        assert all(loss.isfinite() for loss in record.result.losses.values())


def test_it_is_distilled(run, learned):
    """From where on a label holds may be another matter to the student."""
    kind = f"stage.distill.kind={{name='distill', teacher='{learned}', weight=1.0}}"
    settings = ["stages=['distill']", kind, "tasks.moods.threshold=0.999"]
    student = plait.load(run("student", *ALONE, *settings))
    texts = [f"the film was {words} ." for words in ("happy", "weak mild", "bright dull plain")]
    a, b = (model.predict("moods", texts) for model in (plait.load(learned), student))
    near = np.array([p.probabilities for p in a]) - [p.probabilities for p in b]
    assert np.abs(near).mean() < 0.2
    assert all(p.label == "none" for p in b)


# --- the command line --------------------------------------------------------------------


def test_what_commands_print(learned, capsys, tmp_path):
    def type_(*args):
        with pytest.raises(SystemExit) as ended:
            main([*map(str, args)])
        said = capsys.readouterr()
        assert ended.value.code in (0, None), said.err
        return said.out

    text = "the film was happy weak ."
    shown = type_("predict", learned, "--task", "moods", text, "the book was .")
    assert "  moods: glad (" in shown
    assert "), tired (" in shown
    assert "  moods: none (" in shown
    jsonl = ("--format", "jsonl", "--probabilities")
    line = json.loads(type_("predict", learned, "--task", "moods", text, *jsonl))
    assert line["moods"]["value"] == [0, 1]
    assert line["moods"]["label"] == ["glad", "tired"]
    assert set(line["moods"]["probabilities"]) == {"glad", "tired", "calm"}
    shown = type_("evaluate", learned, "--task", "moods")
    assert "micro_f1" in shown
    type_("predict", learned, "--out", tmp_path / "answers", "--split", "test")
    rows = read_rows(tmp_path / "answers" / "moods-test-output.csv")
    assert len(rows) == 24
    labels = ";".join(row["Predicted_moods"] for row in rows).split(";")
    assert set(labels) - {""} == set(SIGNS)
