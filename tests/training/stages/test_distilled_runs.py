"""Whole runs that learn from a teacher."""

from __future__ import annotations

import json
import shutil
import signal
from hashlib import sha256
from itertools import pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import plait
from plait.config import read_recipe
from plait.errors import Interrupted, RecipeError, RunError
from plait.inference.calibration import Fit, Scaling, dump_calibration
from plait.inference.ensemble import make_ensemble
from plait.inference.folders import RunFolder
from plait.model.weights import read_metadata
from plait.training import run as run_module
from plait.training.alone import plan_alone
from plait.training.listeners import Listener

TASKS = ("mood", "same", "near")
ONE = ["train.max_steps=1", "save_every=1"]


@pytest.fixture
def recipe(tiny_recipe):
    return tiny_recipe()


@pytest.fixture
def run(recipe, tmp_path):
    def start(out, *overrides, **options):
        return plait.train(read_recipe(recipe, overrides), tmp_path / out, **options).folder

    return start


@pytest.fixture
def teacher(tiny_run, tmp_path):
    """A copy of the tiny run, to change or delete."""
    return shutil.copytree(tiny_run, tmp_path / "teacher")


@pytest.fixture(scope="module")
def other_run(train_once):
    """A run with other weights."""
    return train_once("seed=3", "train.epochs=1")


def distill(teacher, **settings):
    """Overrides of a recipe whose one stage distils."""
    table = {"name": "distill", "teacher": str(teacher), **settings}
    words = ", ".join(f"{key}={json.dumps(value)}" for key, value in table.items())
    return ["stages=['distill']", f"stage.distill.kind={{{words}}}"]


class Asked(Listener):
    """Remembers how far a teacher's answers were."""

    def __init__(self):
        self.heard = []

    def asking(self, task, done, total):
        self.heard.append((task, done, total))

    @property
    def tasks(self):
        """The tasks that the teacher was asked about."""
        return {task for task, _, _ in self.heard}


def kept_answers(student):
    return load_file(student / "teacher" / "distill.safetensors")


# --- what is learnt ----------------------------------------------------------------------


def test_a_student_comes_nearer_to_its_teacher(run, train_once, tiny_run):
    """Than one that has the same labels, rows and updates, and no teacher."""
    settings = ["train.epochs=6", "seed=3"]
    student = run("student", *settings, *distill(tiny_run, weight=1.0))
    models = [plait.load(folder) for folder in (student, train_once(*settings), tiny_run)]
    for task in TASKS:
        near, far, taught = (m.answer(task, m.load_split("dev")[task]) for m in models)
        assert np.abs(near - taught).mean() < np.abs(far - taught).mean(), task


def test_the_answers_are_those_of_the_teacher(run, tiny_run):
    """To the training rows, and each asked about once."""
    asked = Asked()
    student = run("student", *ONE, *distill(tiny_run), listeners=[asked])
    kept = kept_answers(student)
    model = plait.load(tiny_run, precision="auto")
    rows = model.load_split("train")
    assert kept.keys() == rows.keys()
    for task, answers in kept.items():
        expected = torch.from_numpy(model.answer(task, rows[task])).float()
        assert torch.equal(answers, expected)
    last = {task: (done, total) for task, done, total in asked.heard}
    assert last == {"mood": (45, 45), "same": (32, 32), "near": (24, 24)}
    done = [done for task, done, _ in asked.heard if task == "mood"]
    assert all(a < b for a, b in pairwise(done))
    digest = sha256((tiny_run / "model.safetensors").read_bytes()).hexdigest()
    told = json.loads((student / "run.json").read_text())["teachers"]["distill"]
    assert [member["sha256"] for member in told] == [digest]


def test_answers_are_cached(run, teacher, other_run, tmp_path, monkeypatch):
    """By rows and weights: another student of the same teacher does not ask again."""

    def ask(out, teacher, *settings):
        asked = Asked()
        folder = run(out, *ONE, *settings, *distill(teacher, weight=0.4), listeners=[asked])
        return folder, asked.tasks

    _, first = ask("first", teacher)
    assert first == set(TASKS)
    student, again = ask("again", teacher, "seed=3")
    assert not again
    assert ask("fewer", teacher, "tasks.mood.train.count=7")[1] == {"mood"}
    # A calibration is not part of what a student learns unless it asks for it.
    fits = {"mood": Fit(Scaling(3.0), 18, {}, {})}
    model = plait.load(teacher)
    (teacher / "calibration.json").write_text(dump_calibration(model.identify(), fits, "dev"))
    assert plait.load(teacher).scalings == {"mood": Scaling(3.0)}
    assert not ask("calibrated", teacher)[1]
    for how in ("mean", "mode"):  # the same models combined otherwise
        both = make_ensemble([teacher, other_run], tmp_path / how, how)
        folder, asked = ask(f"of-{how}", both)
        assert asked == set(TASKS), how
    told = json.loads((folder / "run.json").read_text())["teachers"]["distill"]
    assert [member["run"] for member in told] == [str(teacher), str(other_run)]
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "another"))
    fresh, asked = ask("fresh", teacher, "seed=3")
    assert asked == set(TASKS)
    name = "model.safetensors"
    assert (student / name).read_bytes() == (fresh / name).read_bytes()


def test_weight_0_is_fine_tuning(run, tiny_run):
    two = "train.max_steps=2"
    plain = run("plain", two, "stages=['distill']")
    student = run("student", two, *distill(tiny_run, weight=0.0))
    name = "model.safetensors"
    assert (plain / name).read_bytes() == (student / name).read_bytes()


def test_only_the_tasks_of_the_stage_are_asked(run, recipe, tiny_run, tmp_path):
    settings = ["stages=['finetune', 'distill']", *ONE, distill(tiny_run)[1]]
    student = run("student", *settings, "stage.distill.tasks=['mood', 'near']")
    assert kept_answers(student).keys() == {"mood", "near"}
    config = read_recipe(recipe, ["train.epochs=1", *distill(tiny_run)])
    alone = plan_alone(config, {"mood": 45, "same": 32, "near": 24})["same"].config
    student = plait.train(alone, tmp_path / "alone").folder
    assert kept_answers(student).keys() == {"same"}


ROWS = ["tasks.mood.augment='gender-swap'", "tasks.same.count=20", "tasks.near.fraction=0.5"]


def test_the_rows_are_the_students_own(run, recipe, tiny_run):
    """Drawn and augmented by its recipe and seed, whatever the teacher was trained on."""
    path = recipe.parent / "mood-train.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines, "m90,he was a fine king .,good"]) + "\n", "utf-8")
    student = run("student", *ONE, "seed=5", *ROWS, *distill(tiny_run))
    kept = kept_answers(student)
    assert {task: len(answers) for task, answers in kept.items()} == {
        "mood": len(lines) - 1 + 1 + 1,
        "same": 20,
        "near": 12,
    }
    model, own = plait.load(tiny_run), plait.load(student)
    texts = own.load_split("train")["same"].texts()
    expected = [prediction.probabilities for prediction in model.predict("same", texts)]
    np.testing.assert_allclose(kept["same"].numpy(), expected, atol=2e-3)


def test_a_teacher_with_another_tokenizer(run, recipe, tiny_encoder, tmp_path):
    """Its words have other numbers and it cuts texts elsewhere; the rows are the same.

    Tasks on the same texts are asked about apart.
    """
    folder = tmp_path / "other-encoder"
    shutil.copytree(tiny_encoder, folder)
    words = json.loads((folder / "tokenizer.json").read_text())
    vocab = words["model"]["vocab"]
    swapped = {"film": "book", "book": "film", "fine": "sad", "sad": "fine"}
    words["model"]["vocab"] = {word: vocab[swapped.get(word, word)] for word in vocab}
    (folder / "tokenizer.json").write_text(json.dumps(words))
    table = "{kind='classes', labels=['bad', 'so-so', 'good'], text='text', label='label'"
    more = f"tasks.again={table}, train='mood-train.csv', dev='mood-dev.csv', head='linear'}}"
    odd = run("odd", more, f"encoder.source='{folder}'", "encoder.max_length=24")
    kept = kept_answers(run("student", more, *ONE, *distill(odd)))
    model = plait.load(odd, precision="auto")
    rows = model.load_split("train")
    for task, answers in kept.items():
        expected = torch.from_numpy(model.answer(task, rows[task])).float()
        assert torch.equal(answers, expected)
    assert not torch.equal(kept["mood"], kept["again"])


@pytest.mark.parametrize(
    "settings",
    [
        [
            "train.regularizers=['smart', 'bregman']",
            "train.aggregator='pcgrad'",
            "train.schedule={name='round-robin', together=true}",
            "tasks.mood.loss={name='cross-entropy', smoothing=0.1}",
        ],
        ["train.weighting='famo'", "train.schedule={name='round-robin', together=true}"],
        ["train.mode='last-layer'", "train.tasks=['mood', 'same']", "train.accumulate=2"],
    ],
    ids=["surgery", "famo", "heads"],
)
def test_it_goes_with_every_other_part(run, tiny_run, settings):
    student = run("student", "train.max_steps=2", *settings, *distill(tiny_run))
    assert json.loads((student / "scores.json").read_text())["steps"] == 2


# --- going on ----------------------------------------------------------------------------


class Crash(BaseException):
    """What no code of plait's catches, like a kill."""


class Stop(Listener):
    """Crashes after an update."""

    def __init__(self, after=1):
        self.after = after

    def step(self, record):
        if record.total_steps == self.after:
            raise Crash


def test_a_resumed_run_does_not_ask_again(run, teacher, recipe, tmp_path, monkeypatch):
    """It compares which folder taught it, not how that was written."""
    monkeypatch.chdir(tmp_path)
    settings = ["save_every=1", "train.max_steps=6", *distill("teacher", temperature=3.0)]
    whole = run("whole", *settings)
    with pytest.raises(Crash):
        run("broken", *settings, listeners=[Stop(4)])

    def changes(folder):
        config = read_recipe(recipe, [*settings, *distill(folder, temperature=3.0)])
        return RunFolder(tmp_path / "broken").find_changes(config)

    (tmp_path / "link").symlink_to(teacher)
    (tmp_path / "other").mkdir()
    for spelled in (teacher, "teacher/", "other/../teacher", "link"):
        assert not changes(spelled)
    (change,) = changes("other")
    assert change.startswith("stage.distill.kind.teacher: ")
    monkeypatch.chdir(tmp_path / "other")
    assert not changes("../teacher")

    shutil.rmtree(teacher)  # all that is needed of it is kept
    broken = run("broken", *settings[:2], *distill("../teacher", temperature=3.0), resume=True)
    for name in ("model.safetensors", "metrics.jsonl"):
        assert (whole / name).read_bytes() == (broken / name).read_bytes()
    assert 'teacher = "teacher"' in (broken / "recipe.toml").read_text()


def test_a_teacher_that_changed_meanwhile(run, teacher, other_run, tmp_path):
    both = tmp_path / "both"
    make_ensemble([teacher, other_run], both, "mean")
    saved = ["train.max_steps=3", "save_every=1"]
    one, two = ([*saved, *distill(folder)] for folder in (teacher, both))
    for out, settings in (("one", one), ("two", two)):
        with pytest.raises(Crash):
            run(out, *settings, listeners=[Stop(2)])
    before = json.loads((tmp_path / "two" / "run.json").read_text())
    assert before["teacher_folders"] == {"distill": str(both)}
    shutil.copy(other_run / "model.safetensors", teacher / "model.safetensors")
    with pytest.raises(RunError, match=r"the teacher of stage\.distill changed since"):
        run("one", *one, resume=True)
    shutil.rmtree(both)
    make_ensemble([teacher, other_run], both, "mode")
    with pytest.raises(RunError, match=r"the teacher of stage\.distill changed since"):
        run("two", *two, resume=True)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda notes: notes | {"data": {}}, "has predictions for other rows, and the teacher of"),
        (lambda notes: notes | {"unseen": True}, "has predictions for other rows, and the teacher"),
        (lambda _: None, "does not name the teacher of its predictions; delete it"),
    ],
)
def test_kept_answers_of_another_do_not_replace_a_teacher_that_is_gone(
    run, teacher, tmp_path, change, told
):
    settings = [*ONE, *distill(teacher)]
    with pytest.raises(Crash):
        run("student", *settings, listeners=[Stop()])
    shutil.rmtree(teacher)
    path = tmp_path / "student" / "teacher" / "distill.safetensors"
    notes = change(json.loads(read_metadata(path)["notes"]))
    save_file(load_file(path), path, {} if notes is None else {"notes": json.dumps(notes)})
    with pytest.raises(RunError, match=told):
        run("student", *settings, resume=True)


def test_a_stop_while_the_teacher_answers(run, tiny_run, tmp_path):
    class Terminate(Listener):
        def asking(self, task, done, total):
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted, match="stopped while the teacher predicted"):
        run("student", *ONE, *distill(tiny_run), listeners=[Terminate()])
    assert not (tmp_path / "student" / "teacher").exists()
    assert (run("student", *ONE, *distill(tiny_run), resume=True) / "scores.json").exists()


# --- refusals ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("good", "fine", r"'mood' has labels \['bad'"),
        ("5.0", "6.0", r"'near' has range \[0\.0, 6\.0\] in .*teacher, but"),
        ("tasks.mood", "tasks.feeling", "has no task 'mood' to teach"),
    ],
)
def test_a_task_that_means_something_else(run, teacher, tmp_path, old, new, words):
    path = teacher / "recipe.toml"
    path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")
    with pytest.raises(RecipeError, match=words):
        run("student", *distill(teacher))
    assert not (tmp_path / "student").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"teacher": "nowhere"}, r"kind\.teacher: there is no run at nowhere"),
        ({"teacher": ""}, "teacher must name the folder"),
        ({"teacher": "x", "temperature": 0.0}, r"temperature must be above 0, not 0\.0"),
        ({"teacher": "x", "weight": 1.5}, r"weight must be from 0 to 1, not 1\.5"),
    ],
)
def test_settings_that_cannot_be(run, settings, words, tmp_path):
    with pytest.raises(RecipeError, match=words):
        run("student", *distill(**settings))
    assert not (tmp_path / "student").exists()


def test_the_teacher_must_be_named(run):
    with pytest.raises(RecipeError, match=r"kind\.teacher must be set for stage-kind 'distill'"):
        run("student", "stages=['distill']", "stage.distill.kind='distill'")


def test_training_alone_says_where_teachers_are(recipe, tiny_run, tmp_path):
    config = read_recipe(recipe, distill(tiny_run))
    with pytest.raises(RecipeError, match=r"call plait\.train"):
        run_module.train(config, tmp_path / "student")
