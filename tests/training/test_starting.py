"""Runs that start from a run: what is taken over, what is kept, what is scored, what is resumed."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import plait
from plait.config import read_recipe
from plait.data.storage import hash_file
from plait.errors import RecipeError, RunError
from plait.inference.folders import RunFolder
from plait.training.listeners import Listener

NEW = """
name = "added"
seed = 3
device = "cpu"
listeners = []

[data]
root = "{root}"

[train]
epochs = 2
batch_size = 8
lr = 3e-3

[tasks.topic]
kind = "binary"
labels = ["other", "story"]
text = "text"
label = "label"
train = "topic-train.csv"
dev = "topic-dev.csv"
"""

OLD = ("mood", "same", "near")


class Notes(Listener):
    """Remembers what it was told."""

    def __init__(self):
        self.told = []

    def note(self, text):
        self.told.append(text)


class Stop(Listener):
    """Ends a run after some updates, as a kill would."""

    def __init__(self, after):
        self.after = after

    def step(self, record):
        if record.total_steps == self.after:
            raise KeyboardInterrupt


def write_recipe(folder):
    """Write a recipe of one new task and its data into a folder."""
    folder.mkdir()
    for split, count in (("train", 32), ("dev", 16)):
        with (folder / f"topic-{split}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            for i in range(count):
                thing = ("film", "story", "meal", "book")[i % 4]
                word = ("fine", "dull", "plain")[i % 3] + (" and sad" if i % 5 else "")
                writer.writerow([f"the {thing} of the {split} was {word} .", int(i % 2)])
    path = folder / "new.toml"
    path.write_text(NEW.format(root=folder), encoding="utf-8")
    return path


@pytest.fixture
def recipe(tmp_path):
    """A recipe of one new task in a folder of its own."""
    return write_recipe(tmp_path / "new")


@pytest.fixture
def add(recipe, tiny_run, tmp_path):
    """Train the new recipe from the tiny run, or from another."""

    def start(out, *overrides, run=tiny_run, **options):
        config = read_recipe(recipe, [f"start={json.dumps(str(run))}", *overrides])
        return plait.train(config, tmp_path / out, **options)

    return start


def answers(folder, tasks=OLD):
    """A run's answers to the tiny dev rows."""
    model = plait.load(folder)
    dev = model.load_split("dev", tasks=list(tasks))
    return {task: model.answer(task, dev[task]) for task in tasks}


def append(recipe, text):
    recipe.write_text(f"{recipe.read_text(encoding='utf-8')}\n{text}\n", encoding="utf-8")


FROZEN = ("tasks.topic.touch_encoder=false", "tasks.topic.adapter='lora'")


# --- what is taken over ------------------------------------------------------------------


@pytest.fixture(scope="module")
def frozen(tiny_run, tmp_path_factory):
    """A run that added the new task, leaving the encoder alone; the run it began with is gone."""
    folder = tmp_path_factory.mktemp("frozen")
    run = shutil.copytree(tiny_run, folder / "run")
    path = write_recipe(folder / "new")
    config = read_recipe(path, [f"start={json.dumps(str(run))}", *FROZEN, "save_every=1"])
    outcome = plait.train(config, folder / "out")
    shutil.rmtree(run)
    return outcome


def test_a_task_that_leaves_the_encoder_alone_changes_no_old_answer(frozen, tiny_run):
    before, after = answers(tiny_run), answers(frozen.folder)
    for task in OLD:
        assert np.array_equal(before[task], after[task]), task
    old, new = (load_file(run / "model.safetensors") for run in (tiny_run, frozen.folder))
    assert all(torch.equal(new[name], tensor) for name, tensor in old.items())
    assert any(name.startswith("heads.task-topic") for name in new.keys() - old.keys())
    figures = {task: frozen.result["dev"]["primary"][task] for task in OLD}
    assert frozen.result["before"] == figures


def test_the_folder_says_where_it_came_from_and_answers_without_it(frozen, tiny_run):
    info = json.loads((frozen.folder / "run.json").read_text())
    sha256 = hash_file(tiny_run / "model.safetensors")
    assert info["start"]["sha256"] == sha256
    assert info["encoder"] == json.loads((tiny_run / "run.json").read_text())["encoder"]
    for name in ("encoder.json", "tokenizer.json"):
        assert (frozen.folder / name).read_bytes() == (tiny_run / name).read_bytes()
    model = plait.load(frozen.folder)
    assert list(model.tasks) == [*OLD, "topic"]
    assert model.predict("topic", ["the story was fine ."])[0].label in ("other", "story")


def test_training_the_encoder_moves_the_old_answers(add, tiny_run):
    outcome = add("out")
    before, after = answers(tiny_run), answers(outcome.folder)
    assert not any(np.array_equal(before[task], after[task]) for task in OLD)
    assert set(outcome.result["before"]) == set(OLD)
    assert set(outcome.result["dev"]["primary"]) == {*OLD, "topic"}
    assert list(outcome.result["baseline"]["primary"]) == ["topic"]  # the old are not trained on


def test_the_same_recipe_trains_on(tiny_run, tmp_path):
    path = tiny_run.parent / "tiny" / "recipe.toml"
    config = read_recipe(path, [f"start='{tiny_run}'", "train.max_steps=1"])
    assert config.train.tasks is None
    outcome = plait.train(config, tmp_path / "out")
    finished = json.loads((tiny_run / "scores.json").read_text())
    assert outcome.result["before"] == pytest.approx(finished["dev"]["primary"])


def test_a_run_can_start_from_a_run_that_started_from_a_run(add, frozen, tiny_run, recipe):
    text = recipe.read_text(encoding="utf-8").replace("tasks.topic", "tasks.subject")
    recipe.write_text(text, encoding="utf-8")
    settings = ["tasks.subject.touch_encoder=false", "train.max_steps=2"]
    second = add("two", *settings, run=frozen.folder).folder
    assert list(plait.load(second).tasks) == [*OLD, "topic", "subject"]
    after = answers(second)
    assert all(np.array_equal(old, after[task]) for task, old in answers(tiny_run).items())


def test_what_is_not_taken_over_is_noted(add, tiny_run, tmp_path):
    """A task that means something else, a calibration, fewer tokens, files that are gone."""
    run = shutil.copytree(tiny_run, tmp_path / "run")
    (run / "calibration.json").write_text("{}")
    text = (run / "recipe.toml").read_text(encoding="utf-8")
    (run / "recipe.toml").write_text(text.replace("near-dev.csv", "gone.csv"), encoding="utf-8")
    length = RunFolder(run).read_config().encoder.max_length
    notes = Notes()
    outcome = add(
        "out",
        "train.max_steps=1",
        "tasks.mood.labels=['bad', 'so-so', 'good', 'divine']",
        f"encoder.max_length={length - 1}",
        run=run,
        listeners=[notes],
    )
    assert set(outcome.result["before"]) == {"same"}
    told = "\n".join(notes.told)
    assert "labels changed since" in told
    assert f"the calibration of {run} is not taken over" in told
    assert f"`plait calibrate {outcome.folder}`" in told
    assert not (outcome.folder / "calibration.json").exists()
    assert f"{run} used {length}; keep it" in told
    assert "near is kept but not scored: data file" in told


# --- which tasks take part ---------------------------------------------------------------


def test_a_task_that_is_named_takes_part(recipe, tiny_run):
    """What its table does not say is the run's."""
    append(recipe, "[tasks.mood]\nweight = 0.5")
    config = read_recipe(recipe, [f"start='{tiny_run}'"])
    assert config.train.tasks == ("topic", "mood")
    assert config.trained_tasks == ("mood", "topic")
    assert config.tasks["mood"].weight == 0.5
    assert config.tasks["mood"].labels == ("bad", "so-so", "good")
    root = tiny_run.parent / "tiny"
    assert config.tasks["mood"].train[0].path == str(root / "mood-train.csv")
    assert config.encoder == read_recipe(tiny_run / "recipe.toml").encoder


@pytest.mark.parametrize(
    ("root", "found"), [("here", "{cwd}/here/x.csv"), ("@sample", "@sample/x.csv"), (None, "x.csv")]
)
def test_files_of_the_run_stay_where_they_are(recipe, tiny_run, tmp_path, monkeypatch, root, found):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    text = (tiny_run / "recipe.toml").read_text(encoding="utf-8").replace("mood-dev.csv", "x.csv")
    named = "" if root is None else f'root = "{root}"'
    old = f'root = "{tiny_run.parent / "tiny"}"'
    assert old in text
    (run / "recipe.toml").write_text(text.replace(old, named), encoding="utf-8")
    config = read_recipe(recipe, [f"start='{run}'"])
    assert config.tasks["mood"].dev[0].path == found.format(cwd=tmp_path)
    assert config.tasks["topic"].dev[0].path == "topic-dev.csv"


def test_replay_and_a_teacher_together(add, tiny_run, recipe):
    """The old task learns from the run it was, the new one from its labels."""
    append(recipe, "[tasks.mood]")
    kind = f"train.kind={{name='distill', teacher='{tiny_run}', weight=1.0, tasks=['mood']}}"
    outcome = add("out", kind, "train.max_steps=2")
    info = json.loads((outcome.folder / "run.json").read_text())
    assert list(info["teachers"]) == ["finetune"]
    assert list(load_file(outcome.folder / "teacher" / "finetune.safetensors")) == ["mood"]


def test_a_teacher_of_tasks_that_are_not_trained_is_refused(add, tiny_run):
    kind = f"train.kind={{name='distill', teacher='{tiny_run}', tasks=['mood']}}"
    with pytest.raises(RecipeError, match="names 'mood', which the stage does not train"):
        add("out", kind)


def test_old_tasks_can_be_left_behind(add):
    outcome = add("out", "start.keep=false", "train.max_steps=1")
    assert list(plait.load(outcome.folder).tasks) == ["topic"]
    assert "before" not in outcome.result


# --- going on ----------------------------------------------------------------------------


def test_resumed_it_is_the_same(add, recipe, frozen, tiny_run, tmp_path, monkeypatch):
    """A resumed run compares which run it started from, not how that was written."""
    run, out = shutil.copytree(tiny_run, tmp_path / "run"), tmp_path / "out"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        add("out", *FROZEN, "save_every=1", run="run", listeners=[Stop(3)])
    assert 'run = "run"' in (out / "recipe.toml").read_text()

    def changes(name):
        config = read_recipe(recipe, [f"start={json.dumps(str(name))}", *FROZEN, "save_every=1"])
        return RunFolder(out).find_changes(config)

    (tmp_path / "link").symlink_to(run)
    (tmp_path / "other").mkdir()
    for spelled in (run, "other/../run", "run/", "link"):
        assert not changes(spelled)
    (change,) = changes(tiny_run)
    assert change.startswith("start.run: ")
    monkeypatch.chdir(tmp_path / "other")
    assert not changes("../run")
    shutil.rmtree(run)  # the run that it started from is not needed any more
    broken = plait.train(read_recipe(out / "recipe.toml"), out, resume=True)
    for name in ("model.safetensors", "checkpoint.safetensors"):
        a, b = (load_file(outcome.folder / name) for outcome in (frozen, broken))
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a), name
    for key in ("before", "dev", "baseline"):
        assert frozen.result[key] == broken.result[key]


# --- what is refused ---------------------------------------------------------------------


def test_what_is_no_run(recipe, tmp_path):
    with pytest.raises(RecipeError, match="start names nowhere, which is not a run"):
        read_recipe(recipe, ["start=nowhere"])
    (tmp_path / "ensemble.toml").touch()
    with pytest.raises(RecipeError, match="which is an ensemble; name one of its members"):
        read_recipe(recipe, [f"start='{tmp_path}'"])
    with pytest.raises(RecipeError, match=r"start: runn is not a setting; did you mean 'run'"):
        read_recipe(recipe, ["start={runn='x'}"])
    append(recipe, "[encoder]\nsource = 'packaged'")
    with pytest.raises(RunError, match="there is no run at nowhere to start from"):
        plait.train(read_recipe(recipe, ["start=nowhere"]), tmp_path / "out")


def test_a_damaged_model_is_no_start(add, tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    weights = load_file(run / "model.safetensors")
    name = next(name for name in weights if name.startswith("encoder."))
    weights[name].view(-1)[0] = float("inf")
    save_file(weights, run / "model.safetensors")
    with pytest.raises(RunError, match=f"is damaged: {name} has NaN or infinite values"):
        add("out", run=run)


def test_a_run_without_a_model(add, tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    (run / "model.safetensors").unlink()
    with pytest.raises(RunError, match=r"its model\.safetensors is missing"):
        add("out", run=run)
    (run / "run.json").unlink()
    with pytest.raises(RunError, match="has a recipe but no model; train it with"):
        add("out", run=run)
    (run / "export.json").touch()
    with pytest.raises(RunError, match="is an exported folder, not a run; name the run it was"):
        add("out", run=run)


def test_another_encoder(add):
    with pytest.raises(
        RecipeError, match=r"encoder\.source = 'packaged', but .* remove the setting"
    ):
        add("out", "encoder.source=packaged")
    with pytest.raises(RecipeError, match=r"encoder\.pooling = 'cls', but"):
        add("out", "encoder.pooling=cls")
