"""Whole runs that learn from a teacher."""

from __future__ import annotations

import json
import shutil
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
from plait.model.weights import read_metadata
from plait.training import run as run_module
from plait.training.alone import plan_alone
from plait.training.listeners import Listener
from plait.training.stages import STAGE_KINDS
from plait.training.step import Step


@pytest.fixture
def recipe(tiny_recipe):
    return tiny_recipe()


@pytest.fixture
def run(recipe, tmp_path):
    def start(out, *overrides, **options):
        return plait.train(read_recipe(recipe, overrides), tmp_path / out, **options).folder

    return start


@pytest.fixture
def teacher(run):
    return run("teacher", "train.epochs=4")


def distill(teacher, **settings):
    """Overrides of a recipe whose one stage distils."""
    table = {"name": "distill", "teacher": str(teacher), **settings}
    words = ", ".join(f"{key}={json.dumps(value)}" for key, value in table.items())
    return ["stages=['distill']", f"stage.distill.kind={{{words}}}"]


def distance(one, other):
    """How far two models' answers to the dev rows are apart, by task."""
    a, b = (plait.load(folder) for folder in (one, other))
    rows = [model.load_split("dev") for model in (a, b)]
    return {
        task: float(np.abs(a.answer(task, rows[0][task]) - b.answer(task, rows[1][task])).mean())
        for task in a.tasks
    }


# --- what is learnt ----------------------------------------------------------------------


def test_a_student_comes_nearer_to_its_teacher(run, teacher):
    """Than one that has the same labels, rows and updates, and no teacher."""
    settings = ["train.epochs=6", "seed=3"]
    student = run("student", *settings, *distill(teacher, weight=1.0))
    alone = run("alone", *settings)
    near, far = distance(student, teacher), distance(alone, teacher)
    assert near.keys() == {"mood", "same", "near"}
    for task in near:
        assert near[task] < far[task], task


def test_the_answers_are_those_of_the_teacher(run, teacher, tmp_path):
    student = run("student", "train.epochs=1", *distill(teacher))
    kept = load_file(student / "teacher" / "distill.safetensors")
    model = plait.load(teacher, precision="auto")
    rows = model.load_split("train")
    assert kept.keys() == rows.keys()
    for task, answers in kept.items():
        expected = torch.from_numpy(model.answer(task, rows[task])).float()
        assert torch.equal(answers, expected)


class Asked(Listener):
    """Notes which tasks a teacher is asked about."""

    def __init__(self):
        self.tasks = set()

    def asking(self, task, done, total):
        self.tasks.add(task)


def test_a_teacher_answers_the_same_rows_once(run, teacher, tmp_path, monkeypatch):
    """Whatever else of the student is changed; the student is the one it would have been."""
    first, again, fresh = Asked(), Asked(), Asked()
    run("first", *distill(teacher), listeners=[first])
    changed = ["seed=3", "train.lr=1e-3", *distill(teacher, weight=0.4)]
    student = run("again", *changed, listeners=[again])
    assert first.tasks == {"mood", "same", "near"}
    assert not again.tasks
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "another"))
    other = run("fresh", *changed, listeners=[fresh])
    assert fresh.tasks == first.tasks
    name = "model.safetensors"
    assert (student / name).read_bytes() == (other / name).read_bytes()


def test_other_rows_are_asked_about(run, teacher):
    run("first", *distill(teacher))
    asked = Asked()
    run("fewer", *distill(teacher), "tasks.mood.train.count=7", listeners=[asked])
    assert asked.tasks == {"mood"}


def test_another_teacher_is_asked(run, teacher, tmp_path):
    """Other weights, or the same models combined otherwise."""
    other = run("other", "seed=3")
    for how in ("mean", "mode"):
        asked = Asked()
        both = make_ensemble([teacher, other], tmp_path / how, how)
        run(f"of-{how}", *distill(both), listeners=[asked])
        assert asked.tasks == {"mood", "same", "near"}, how
    asked = Asked()
    run("of-one", *distill(other), listeners=[asked])
    assert asked.tasks == {"mood", "same", "near"}


def test_a_calibrated_teacher_answers_as_before(run, teacher):
    student = run("first", *distill(teacher))
    model = plait.load(teacher)
    fits = {"mood": Fit(Scaling(3.0), 18, {}, {})}
    (teacher / "calibration.json").write_text(dump_calibration(model.identify(), fits, "dev"))
    assert plait.load(teacher).scalings == {"mood": Scaling(3.0)}
    asked = Asked()
    again = run("again", *distill(teacher), listeners=[asked])
    assert not asked.tasks
    kept, anew = (load_file(at / "teacher" / "distill.safetensors") for at in (student, again))
    assert kept.keys() == anew.keys()
    assert all((kept[task] == anew[task]).all() for task in kept)


def test_tasks_on_the_same_texts_are_asked_about_apart(run):
    table = "{kind='classes', labels=['bad', 'so-so', 'good'], text='text', label='label'"
    more = f"tasks.again={table}, train='mood-train.csv', dev='mood-dev.csv'}}"
    teacher = run("teacher", more)
    student = run("student", more, *distill(teacher))
    kept = load_file(student / "teacher" / "distill.safetensors")
    asked = plait.load(teacher, precision="auto")
    rows = asked.load_split("train")
    for task in ("mood", "again"):
        np.testing.assert_array_equal(kept[task].numpy(), asked.answer(task, rows[task]))
    assert not torch.equal(kept["mood"], kept["again"])


def test_run_json_names_the_members(run, teacher, tmp_path):
    from hashlib import sha256

    other = run("other", "seed=3")
    both = make_ensemble([teacher, other], tmp_path / "both", "mean")
    student = run("student", "train.epochs=1", *distill(both))
    info = json.loads((student / "run.json").read_text())
    assert info["teachers"]["distill"] == [
        {
            "run": str(folder.resolve()),
            "sha256": sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
            "how": "mean",
        }
        for folder in (teacher, other)
    ]


def test_weight_0_is_fine_tuning(run, teacher):
    plain = run("plain", "stages=['distill']")
    student = run("student", *distill(teacher, weight=0.0))
    name = "model.safetensors"
    assert (plain / name).read_bytes() == (student / name).read_bytes()


def test_only_the_tasks_of_the_stage_are_asked(run, teacher):
    student = run(
        "student",
        "stages=['finetune', 'distill']",
        "train.epochs=1",
        distill(teacher)[1],
        "stage.distill.tasks=['mood', 'near']",
    )
    assert load_file(student / "teacher" / "distill.safetensors").keys() == {"mood", "near"}


ROWS = ["tasks.mood.augment='gender-swap'", "tasks.same.count=20", "tasks.near.fraction=0.5"]


def test_the_rows_are_the_students_own(run, recipe, teacher):
    """Drawn and augmented by its recipe and seed, whatever the teacher was trained on."""
    path = recipe.parent / "mood-train.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines, "m90,he was a fine king .,good"]) + "\n", "utf-8")
    student = run("student", "train.epochs=1", "seed=5", *ROWS, *distill(teacher))
    kept = load_file(student / "teacher" / "distill.safetensors")
    assert {task: len(answers) for task, answers in kept.items()} == {
        "mood": len(lines) - 1 + 1 + 1,
        "same": 20,
        "near": 12,
    }
    model, own = plait.load(teacher), plait.load(student)
    texts = own.load_split("train")["same"].texts()
    expected = [prediction.probabilities for prediction in model.predict("same", texts)]
    np.testing.assert_allclose(kept["same"].numpy(), expected, atol=2e-3)


def test_a_teacher_with_another_tokenizer(run, recipe, tiny_encoder, tmp_path):
    """Its words have other numbers and it cuts texts elsewhere; the rows are the same."""
    folder = tmp_path / "other-encoder"
    shutil.copytree(tiny_encoder, folder)
    words = json.loads((folder / "tokenizer.json").read_text())
    vocab = words["model"]["vocab"]
    swapped = {"film": "book", "book": "film", "fine": "sad", "sad": "fine"}
    words["model"]["vocab"] = {word: vocab[swapped.get(word, word)] for word in vocab}
    (folder / "tokenizer.json").write_text(json.dumps(words))
    odd = run("odd", f"encoder.source='{folder}'", "encoder.max_length=24")
    student = run("student", "train.epochs=1", *distill(odd))
    kept = load_file(student / "teacher" / "distill.safetensors")
    model = plait.load(odd, precision="auto")
    rows = model.load_split("train")
    for task, answers in kept.items():
        expected = torch.from_numpy(model.answer(task, rows[task])).float()
        assert torch.equal(answers, expected)


def test_dev_is_never_asked_about(run, teacher, recipe):
    heard = []

    class Ear(Listener):
        def asking(self, task, done, total):
            heard.append((task, done, total))

    run("student", "train.epochs=1", *distill(teacher), listeners=[Ear()])
    last = {task: (done, total) for task, done, total in heard}
    assert last == {"mood": (45, 45), "same": (32, 32), "near": (24, 24)}
    done = [done for task, done, _ in heard if task == "mood"]
    assert all(a < b for a, b in pairwise(done))


# --- together with everything else -------------------------------------------------------

TOGETHER = {
    "smart": ["train.regularizers=['smart', 'bregman']"],
    "smart-unit by task": ["train.regularizers=[{name='smart-unit', weight={mood=2.0}}]"],
    "pcgrad": [
        "train.aggregator='pcgrad'",
        "train.schedule={name='round-robin', together=true}",
    ],
    "uncertainty": ["train.weighting='uncertainty'"],
    "famo": ["train.weighting='famo'", "train.schedule={name='round-robin', together=true}"],
    "drawn, accumulated": ["train.schedule='fixed'", "train.accumulate=2"],
    "heads alone": ["train.mode='last-layer'", "train.tasks=['mood', 'same']"],
    "smoothed": ["tasks.mood.loss={name='cross-entropy', smoothing=0.1}"],
}


@pytest.mark.parametrize("name", TOGETHER)
def test_it_goes_with_every_other_part(run, teacher, name):
    student = run("student", "train.epochs=1", *TOGETHER[name], *distill(teacher))
    assert json.loads((student / "scores.json").read_text())["steps"] > 0


def test_a_task_alone_keeps_its_teacher(recipe, teacher, tmp_path):
    config = read_recipe(recipe, ["train.epochs=1", *distill(teacher)])
    alone = plan_alone(config, {"mood": 45, "same": 32, "near": 24})["same"].config
    student = plait.train(alone, tmp_path / "student").folder
    assert load_file(student / "teacher" / "distill.safetensors").keys() == {"same"}


# --- breaking off ------------------------------------------------------------------------


class Crash(BaseException):
    """What no code of plait's catches, like a kill."""


class StopAtThree(Listener):
    """Crashes after the third update."""

    def step(self, record):
        if record.total_steps == 3:
            raise Crash


def test_a_resumed_run_does_not_ask_again(run, teacher, monkeypatch):
    settings = ["save_every=1", *distill(teacher)]
    whole = run("whole", *settings)
    step, calls = Step.__call__, []

    def crash(self, turns):
        calls.append(1)
        if len(calls) == 5:
            raise Crash
        return step(self, turns)

    monkeypatch.setattr(Step, "__call__", crash)
    with pytest.raises(Crash):
        run("broken", *settings)
    shutil.rmtree(teacher)  # all that is wanted of it is kept
    broken = run("broken", *settings, resume=True)
    for name in ("model.safetensors", "metrics.jsonl"):
        assert (whole / name).read_bytes() == (broken / name).read_bytes()


def test_a_teacher_that_changed_meanwhile(run, teacher, monkeypatch):
    settings = ["save_every=1", *distill(teacher)]
    with pytest.raises(Crash):
        run("student", *settings, listeners=[StopAtThree()])
    shutil.rmtree(teacher)
    run("teacher", "seed=99")
    with pytest.raises(RunError, match=r"the teacher of stage\.distill changed since"):
        run("student", *settings, resume=True)


SPELLINGS = {"slash": "teacher/", "dots": "other/../teacher", "link": "link"}


@pytest.mark.parametrize("spelling", [*SPELLINGS, "absolute", "elsewhere"])
def test_the_teacher_may_be_spelled_otherwise(run, teacher, tmp_path, monkeypatch, spelling):
    """A resumed run compares which folder taught it, not how that was written."""
    (tmp_path / "link").symlink_to(teacher)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    go_on = stopped(run, "teacher", "train" if spelling == "slash" else "stage.distill")
    if spelling == "elsewhere":
        monkeypatch.chdir(tmp_path / "other")
    spelled = {**SPELLINGS, "absolute": teacher, "elsewhere": "../teacher"}[spelling]
    out = go_on(spelled)
    assert (out / "scores.json").is_file()
    assert 'teacher = "teacher"' in (out / "recipe.toml").read_text()


@pytest.mark.parametrize("spelling", ["absolute", "elsewhere"])
def test_an_ensemble_may_be_spelled_otherwise(run, teacher, tmp_path, monkeypatch, spelling):
    make_ensemble([teacher, run("more", "seed=3")], tmp_path / "both", "mean")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    go_on = stopped(run, "both")
    if spelling == "elsewhere":
        monkeypatch.chdir(tmp_path / "other")
    out = go_on({"absolute": tmp_path / "both", "elsewhere": "../both"}[spelling])
    assert (out / "scores.json").is_file()


def test_the_folder_of_a_teacher_who_is_gone_stays_known(run, teacher, tmp_path, monkeypatch):
    """Resumed before its first checkpoint, the run says anew what it is made of."""
    both = make_ensemble([teacher, run("more", "seed=3")], tmp_path / "both", "mean")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    go_on = stopped(run, "both")
    info = tmp_path / "student" / "run.json"
    before = json.loads(info.read_text())
    assert before["teacher_folders"] == {"distill": str(both)}
    assert not (tmp_path / "student" / "checkpoint.safetensors").exists()
    shutil.rmtree(both)
    monkeypatch.chdir(tmp_path / "other")
    go_on("../both")
    after = json.loads(info.read_text())
    for key in ("teachers", "teacher_folders"):
        assert after[key] == before[key]


def test_another_ensemble_of_the_same_members_is_another_setting(run, teacher, tmp_path):
    runs = [teacher, run("more", "seed=3")]
    one, other = (make_ensemble(runs, tmp_path / how, how) for how in ("mean", "mode"))
    with pytest.raises(RunError, match=r"another recipe \(stage\.distill\.kind\.teacher: "):
        stopped(run, one)(other)


def test_an_ensemble_made_anew_meanwhile(run, teacher, tmp_path):
    both, runs = tmp_path / "both", [teacher, run("more", "seed=3")]
    make_ensemble(runs, both, "mean")
    settings = ["save_every=1", *distill(both)]
    with pytest.raises(Crash):
        run("student", *settings, listeners=[StopAtThree()])
    shutil.rmtree(both)
    make_ensemble(runs, both, "mode")
    with pytest.raises(RunError, match=r"the teacher of stage\.distill changed since"):
        run("student", *settings, resume=True)
    shutil.rmtree(both)
    make_ensemble(runs, both, "mean")
    assert (run("student", *settings, resume=True) / "scores.json").is_file()


@pytest.mark.parametrize("other", ["more", 3])
def test_another_teacher_is_another_setting(run, teacher, other):
    run("more", "seed=3")
    with pytest.raises(RunError, match=r"another recipe \(stage\.distill\.kind\.teacher: "):
        stopped(run, teacher)(other)


def stopped(run, teacher, where="stage.distill"):
    """Stop a student, and return what goes on with it: a call with a teacher's folder."""

    class Stop(Listener):
        def step(self, record):
            raise Crash

    def start(folder, **options):
        folder = folder if isinstance(folder, int) else str(folder)
        kind = f"{where}.kind={{name='distill', teacher={json.dumps(folder)}}}"
        settings = ["stages=['distill']", "train.max_steps=2", "save_every=1", kind]
        return run("student", *settings, **options)

    with pytest.raises(Crash):
        start(teacher, listeners=[Stop()])
    return lambda folder: start(folder, resume=True)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda notes: notes | {"data": {}}, "holds answers to other rows, and the teacher of"),
        (lambda notes: notes | {"unseen": True}, "holds answers to other rows, and the teacher"),
        (lambda _: None, "does not say whose answers it holds; delete it"),
    ],
)
def test_kept_answers_of_another_do_not_stand_in_for_a_teacher_who_is_gone(
    run, teacher, tmp_path, change, told
):
    go_on = stopped(run, teacher)
    shutil.rmtree(teacher)
    path = tmp_path / "student" / "teacher" / "distill.safetensors"
    notes = change(json.loads(read_metadata(path)["notes"]))
    save_file(load_file(path), path, {} if notes is None else {"notes": json.dumps(notes)})
    with pytest.raises(RunError, match=told):
        go_on(teacher)


def test_a_crash_while_the_teacher_answers(run, teacher, tmp_path, monkeypatch):
    class Stop(Listener):
        left = 1

        def asking(self, task, done, total):
            if task == "same" and self.left:
                self.left = 0
                raise Crash

    whole, stop = run("whole", *distill(teacher)), Stop()
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "another"))  # which knows no answers
    with pytest.raises(Crash):
        run("broken", *distill(teacher), listeners=[stop])
    assert not (whole.parent / "broken" / "teacher").exists()
    broken = run("broken", *distill(teacher), resume=True, listeners=[stop])
    name = "model.safetensors"
    assert (whole / name).read_bytes() == (broken / name).read_bytes()


def test_ctrl_c_while_the_teacher_answers(run, teacher):
    import signal

    class Stop(Listener):
        def asking(self, task, done, total):
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted, match="stopped while the teacher was answering"):
        run("student", *distill(teacher), listeners=[Stop()])
    run("student", *distill(teacher), resume=True)


# --- refusals ----------------------------------------------------------------------------

CHANGED = {
    "labels": (["tasks.mood.labels=['bad', 'so-so', 'fine']"], r"'mood' has labels \['bad'"),
    "range": (["tasks.near.range=[0, 6]"], r"'near' has range \[0\.0, 5\.0\] in .*teacher, but"),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_task_that_means_something_else(run, teacher, what, recipe, tmp_path):
    overrides, words = CHANGED[what]
    if what == "labels":
        for path in recipe.parent.glob("mood-*.csv"):
            path.write_text(path.read_text("utf-8").replace(",good", ",fine"), "utf-8")
    with pytest.raises(RecipeError, match=rf"stage\.distill\.kind\.teacher: task {words}"):
        run("student", *overrides, *distill(teacher))
    assert not (tmp_path / "student").exists()


def test_a_task_that_the_teacher_does_not_have(run, recipe, tmp_path):
    text = recipe.read_text("utf-8").replace("tasks.mood]", "tasks.feeling]")
    other = recipe.with_name("other.toml")
    other.write_text(text, "utf-8")
    teacher = plait.train(read_recipe(other), tmp_path / "teacher").folder
    with pytest.raises(RecipeError, match="teacher has no task 'mood' to teach"):
        run("student", *distill(teacher))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"teacher": "nowhere"}, r"kind\.teacher: there is no run at nowhere"),
        ({"teacher": ""}, "teacher must name the folder"),
        ({"teacher": "x", "temperature": 0.0}, r"temperature must be above 0, not 0\.0"),
        ({"teacher": "x", "weight": 1.5}, r"weight is a share from 0 to 1, not 1\.5"),
    ],
)
def test_settings_that_cannot_be(run, settings, words, tmp_path):
    with pytest.raises(RecipeError, match=words):
        run("student", *distill(**settings))
    assert not (tmp_path / "student").exists()


def test_the_teacher_must_be_named(run):
    with pytest.raises(RecipeError, match=r"kind\.teacher must be set for stage-kind 'distill'"):
        run("student", "stages=['distill']", "stage.distill.kind='distill'")


def test_training_alone_says_where_teachers_are(recipe, teacher, tmp_path):
    config = read_recipe(recipe, distill(teacher))
    with pytest.raises(RecipeError, match=r"call plait\.train"):
        run_module.train(config, tmp_path / "student")


def test_it_trains_the_tasks():
    assert not STAGE_KINDS["distill"].pretrains
