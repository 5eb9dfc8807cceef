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
from plait.training.alone import plan_alone
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


@pytest.fixture
def recipe(tmp_path):
    """A recipe of one new task in a folder of its own."""
    folder = tmp_path / "new"
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


FROZEN = "tasks.topic.touch_encoder=false"


# --- what is taken over ------------------------------------------------------------------


@pytest.mark.parametrize("more", [[], ["tasks.topic.adapter='lora'"]], ids=["head", "adapter"])
def test_a_task_that_leaves_the_encoder_alone_changes_no_old_answer(add, tiny_run, more):
    outcome = add("out", FROZEN, *more)
    before, after = answers(tiny_run), answers(outcome.folder)
    for task in OLD:
        assert np.array_equal(before[task], after[task]), task
    old, new = (load_file(run / "model.safetensors") for run in (tiny_run, outcome.folder))
    assert all(torch.equal(new[name], tensor) for name, tensor in old.items())
    assert any(name.startswith("heads.task-topic") for name in new.keys() - old.keys())
    figures = {task: outcome.result["dev"]["primary"][task] for task in OLD}
    assert outcome.result["before"] == figures


def test_training_the_encoder_moves_the_old_answers(add, tiny_run):
    outcome = add("out")
    before, after = answers(tiny_run), answers(outcome.folder)
    assert not any(np.array_equal(before[task], after[task]) for task in OLD)
    assert set(outcome.result["before"]) == set(OLD)
    assert set(outcome.result["dev"]["primary"]) == {*OLD, "topic"}
    assert list(outcome.result["baseline"]["primary"]) == ["topic"]  # the old are not trained on


def test_the_same_recipe_trains_on(tiny_run, tmp_path):
    config = read_recipe(tiny_run.parent / "tiny" / "recipe.toml", [f"start='{tiny_run}'"])
    assert config.train.tasks is None
    outcome = plait.train(config, tmp_path / "out")
    finished = json.loads((tiny_run / "scores.json").read_text())
    assert outcome.result["before"] == pytest.approx(finished["dev"]["primary"])


def test_the_folder_says_where_it_came_from(add, tiny_run):
    folder = add("out", FROZEN).folder
    info = json.loads((folder / "run.json").read_text())
    sha256 = hash_file(tiny_run / "model.safetensors")
    assert info["start"] == {"run": str(tiny_run.resolve()), "sha256": sha256}
    assert info["encoder"] == json.loads((tiny_run / "run.json").read_text())["encoder"]
    for name in ("encoder.json", "tokenizer.json"):
        assert (folder / name).read_bytes() == (tiny_run / name).read_bytes()


def test_it_answers_without_the_run_it_came_from(add, tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    folder = add("out", FROZEN, run=run).folder
    shutil.rmtree(run)
    model = plait.load(folder)
    assert list(model.tasks) == [*OLD, "topic"]
    assert model.predict("mood", ["the film was superb ."])[0].label
    assert model.predict("topic", ["the story was fine ."])[0].label in ("other", "story")


def test_a_run_can_start_from_a_run_that_started_from_a_run(add, tiny_run, recipe):
    first = add("one", FROZEN).folder
    text = recipe.read_text(encoding="utf-8").replace("tasks.topic", "tasks.subject")
    recipe.write_text(text, encoding="utf-8")
    second = add("two", "tasks.subject.touch_encoder=false", run=first).folder
    assert list(plait.load(second).tasks) == [*OLD, "topic", "subject"]
    after = answers(second)
    assert all(np.array_equal(old, after[task]) for task, old in answers(tiny_run).items())


def test_a_task_that_means_something_else_begins_anew(add):
    notes = Notes()
    labels = "tasks.mood.labels=['bad', 'so-so', 'good', 'divine']"
    outcome = add("out", "train.max_steps=1", labels, listeners=[notes])
    assert set(outcome.result["before"]) == {"same", "near"}
    assert any(text.startswith("mood: its labels changed") for text in notes.told)


def test_other_weights_of_the_same_loss_are_no_other_meaning(add):
    weights = "tasks.mood.loss={name='cross-entropy', weights='balanced'}"
    assert "mood" in add("out", "train.max_steps=1", weights).result["before"]


def test_a_calibration_is_left_behind_and_said_to_be(add, tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    plain = Notes()
    add("plain", "train.max_steps=1", run=run, listeners=[plain])
    assert not any("calibration" in text for text in plain.told)
    (run / "calibration.json").write_text("{}")
    notes = Notes()
    outcome = add("out", "train.max_steps=1", run=run, listeners=[notes])
    (told,) = (text for text in notes.told if "calibration" in text)
    assert told.startswith(f"the calibration of {run} belongs to its model")
    assert f"`plait calibrate {outcome.folder}`" in told
    assert not (outcome.folder / "calibration.json").exists()
    nothing = Notes()  # of its tasks is taken over
    add("none", "train.max_steps=1", "start.keep=false", run=run, listeners=[nothing])
    assert not any("calibration" in text for text in nothing.told)


def test_fewer_tokens_than_the_run_read_are_noted(add, tiny_run):
    theirs = RunFolder(tiny_run).read_config().encoder.max_length
    notes = {}
    for length, keep in ((theirs, "true"), (theirs - 1, "true"), (theirs - 1, "false")):
        notes[length, keep] = Notes()
        settings = (f"encoder.max_length={length}", f"start.keep={keep}", "train.max_steps=1")
        add(f"{length}-{keep}", *settings, listeners=[notes[length, keep]])
    (told,) = (text for text in notes.pop((theirs - 1, "true")).told if "tokens of an" in text)
    assert told.startswith(f"mood, same, near: {tiny_run} read {theirs} tokens of an input")
    assert f"-o encoder.max_length={theirs} " in told
    assert not any("tokens of an" in text for heard in notes.values() for text in heard.told)


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
    outcome = add("out", kind)
    info = json.loads((outcome.folder / "run.json").read_text())
    assert list(info["teachers"]) == ["finetune"]
    assert list(load_file(outcome.folder / "teacher" / "finetune.safetensors")) == ["mood"]
    old, kept = answers(tiny_run)["mood"], answers(outcome.folder)["mood"]
    lost = answers(add("plain", "train.tasks=['topic']").folder)["mood"]
    assert np.abs(old - kept).mean() < np.abs(old - lost).mean()


def test_a_teacher_of_tasks_that_are_not_trained_is_refused(add, tiny_run):
    kind = f"train.kind={{name='distill', teacher='{tiny_run}', tasks=['mood']}}"
    with pytest.raises(RecipeError, match="names 'mood', which the stage does not train"):
        add("out", kind)


def test_old_tasks_can_be_left_behind(add):
    outcome = add("out", "start.keep=false")
    assert list(plait.load(outcome.folder).tasks) == ["topic"]
    assert "before" not in outcome.result


def test_a_recipe_without_tasks_trains_those_of_the_run(tiny_run, tmp_path):
    path = tmp_path / "more.toml"
    path.write_text(f"name = 'more'\nstart = '{tiny_run}'\n[train]\nepochs = 1\n")
    config = read_recipe(path)
    assert tuple(config.tasks) == config.trained_tasks == OLD


def test_each_alone_starts_from_the_run_without_its_tasks(recipe, tiny_run):
    alone = plan_alone(read_recipe(recipe, [f"start='{tiny_run}'"]), {"topic": 32})
    assert list(alone) == ["topic"]
    assert list(alone["topic"].config.tasks) == ["topic"]
    assert alone["topic"].config.start.keep is False


def test_files_of_old_tasks_that_are_gone_are_noted(add, tiny_run, tmp_path):
    notes, run = Notes(), shutil.copytree(tiny_run, tmp_path / "run")
    text = (run / "recipe.toml").read_text(encoding="utf-8")
    (run / "recipe.toml").write_text(text.replace("mood-dev.csv", "gone.csv"), encoding="utf-8")
    outcome = add("out", "train.max_steps=1", run=run, listeners=[notes])
    assert set(outcome.result["before"]) == {"same", "near"}
    assert any(text.startswith("mood is kept, but not scored: data file") for text in notes.told)


# --- going on ----------------------------------------------------------------------------


def test_resumed_it_is_the_same(add, tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    whole = add("whole", "save_every=1", run=run)
    with pytest.raises(KeyboardInterrupt):
        add("broken", "save_every=1", run=run, listeners=[Stop(3)])
    (run / "model.safetensors").unlink()  # what it began with is not needed any more
    broken = add("broken", "save_every=1", run=run, resume=True)
    for name in ("model.safetensors", "checkpoint.safetensors"):
        a, b = (load_file(outcome.folder / name) for outcome in (whole, broken))
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a), name
    for key in ("before", "dev", "baseline"):
        assert whole.result[key] == broken.result[key]


def test_its_own_recipe_resumes_it_without_the_run(add, tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        add("out", "save_every=1", run=run, listeners=[Stop(3)])
    shutil.rmtree(run)
    out = tmp_path / "out"
    outcome = plait.train(read_recipe(out / "recipe.toml"), out, resume=True)
    assert set(outcome.result["before"]) == set(OLD)


@pytest.mark.parametrize("spelling", ["absolute", "relative", "slash", "link", "elsewhere"])
def test_the_run_may_be_spelled_otherwise(recipe, tiny_run, tmp_path, monkeypatch, spelling):
    """A resumed run compares which run it started from, not how that was written."""
    run, out = shutil.copytree(tiny_run, tmp_path / "run"), tmp_path / "out"
    (tmp_path / "link").symlink_to(run)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)

    def start(name, **options):
        config = read_recipe(recipe, [f"start={json.dumps(str(name))}", "save_every=1"])
        return plait.train(config, out, **options)

    with pytest.raises(KeyboardInterrupt):
        start("run", listeners=[Stop(3)])
    if spelling == "elsewhere":
        monkeypatch.chdir(tmp_path / "other")
    spelled = {"absolute": run, "relative": "other/../run", "slash": "run/", "link": "link"}
    outcome = start(spelled.get(spelling, "../run"), resume=True)
    assert set(outcome.result["before"]) == set(OLD)
    assert 'run = "run"' in (out / "recipe.toml").read_text()


def test_another_run_is_another_setting(add, tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        add("out", "save_every=1", listeners=[Stop(3)])
    with pytest.raises(RunError, match=r"started with another recipe \(start\.run: "):
        add("out", "save_every=1", run=run, resume=True)


# --- what is refused ---------------------------------------------------------------------


def test_what_is_no_run(recipe, tmp_path):
    with pytest.raises(RecipeError, match="start names nowhere, which is no run"):
        read_recipe(recipe, ["start=nowhere"])
    (tmp_path / "ensemble.toml").touch()
    with pytest.raises(RecipeError, match="which is an ensemble; name one of its members"):
        read_recipe(recipe, [f"start='{tmp_path}'"])
    with pytest.raises(RecipeError, match=r"start: runn is not a setting; did you mean 'run'"):
        read_recipe(recipe, ["start={runn='x'}"])
    append(recipe, "[encoder]\nsource = 'packaged'")
    with pytest.raises(RunError, match="there is no run at nowhere to start from"):
        plait.train(read_recipe(recipe, ["start=nowhere"]), tmp_path / "out")


@pytest.mark.parametrize("wrong", ["train=3", "tasks=3", "tasks.topic=3", "encoder=3"])
def test_what_is_no_table(recipe, tiny_run, wrong):
    key = wrong.split("=")[0]
    with pytest.raises(RecipeError, match=f"{key} = 3: should be a table"):
        read_recipe(recipe, [f"start='{tiny_run}'", wrong])
    text = f"name = 'x'\nstart = '{tiny_run}'\n{key} = 3\n"
    recipe.write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError, match=r"should be a table|tasks must be set"):
        read_recipe(recipe)


def test_a_damaged_model_is_no_start(add, tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    weights = load_file(run / "model.safetensors")
    name = next(name for name in weights if name.startswith("encoder."))
    weights[name].view(-1)[0] = float("inf")
    save_file(weights, run / "model.safetensors")
    with pytest.raises(RunError, match=f"is damaged: {name} holds what is no number"):
        add("out", run=run)


def test_a_run_without_a_model(add, tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    (run / "model.safetensors").unlink()
    with pytest.raises(RunError, match=r"its model\.safetensors is gone"):
        add("out", run=run)
    (run / "run.json").unlink()
    with pytest.raises(RunError, match="has a recipe and no model; train it with"):
        add("out", run=run)
    (run / "export.json").touch()
    with pytest.raises(RunError, match="is an exported folder, not a run; name the run it was"):
        add("out", run=run)


def test_another_encoder(add):
    with pytest.raises(RecipeError, match=r"encoder\.source = 'packaged', but .* leave it out"):
        add("out", "encoder.source=packaged")
    with pytest.raises(RecipeError, match=r"encoder\.pooling = 'cls', but"):
        add("out", "encoder.pooling=cls")
