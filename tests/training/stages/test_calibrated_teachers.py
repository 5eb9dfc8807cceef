"""Teachers that answer as `plait calibrate` made them."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file

import plait
from plait.config import read_recipe
from plait.errors import RecipeError, RunError
from plait.inference.fitting.calibrate import calibrate, undo
from plait.training.listeners import Listener
from plait.training.teachers import TeacherAnswers


@pytest.fixture
def recipe(tiny_recipe):
    return tiny_recipe()


@pytest.fixture
def teacher(tiny_run, tmp_path):
    """A copy of the tiny run, to calibrate."""
    return shutil.copytree(tiny_run, tmp_path / "teacher")


@pytest.fixture
def folds(folds_run, tmp_path):
    """A copy of the ensemble of folds, to calibrate."""
    return shutil.copytree(folds_run, tmp_path / "folds")


@pytest.fixture
def student(recipe, tmp_path):
    def train(teacher, *, out="student", calibrated="true", unseen="false", steps=1, **options):
        how = f"calibrated={calibrated}, unseen={unseen}"
        kind = f"{{name='distill', teacher='{teacher}', {how}}}"
        settings = [
            "stages=['distill']",
            f"train.max_steps={steps}",
            "save_every=1",
            f"stage.distill.kind={kind}",
        ]
        return plait.train(read_recipe(recipe, settings), tmp_path / out, **options).folder

    return train


def answers_of(student):
    return {
        task: values.numpy()
        for task, values in load_file(student / "teacher" / "distill.safetensors").items()
    }


def test_its_answers_are_those_that_it_gives_everywhere(teacher, student, recipe):
    with pytest.raises(RecipeError, match=r"but it is not: run `plait calibrate"):
        student(teacher)
    before = answers_of(student(teacher, out="before", calibrated="false"))
    calibrate(teacher, offsets=True)
    found = answers_of(student(teacher))
    model = plait.load(teacher, precision="auto")
    for task, rows in model.read(read_recipe(recipe), "train").items():
        np.testing.assert_allclose(found[task], model.answer(task, rows), atol=1e-6)
        assert np.allclose(found[task], before[task]) == (task not in model.scalings)


def test_members_are_scaled_each_by_its_own(recipe, folds, student, tmp_path):
    calibrate(folds, left_out=True, offsets=True)
    found = answers_of(student(folds))
    model = plait.load(folds, precision="auto")
    rows = model.read(read_recipe(recipe), "train")["mood"]
    parts = [
        member.scalings["mood"](member.answer_uncalibrated("mood", view))
        for member, view in zip(model.members, rows.views, strict=True)
    ]
    np.testing.assert_allclose(found["mood"], np.mean(parts, axis=0), atol=1e-6)
    told = json.loads((tmp_path / "student" / "run.json").read_text())["teachers"]["distill"]
    assert len({member["calibration"] for member in told}) == len(model.members)
    undo(folds / "members" / "tiny-fold-1")
    with pytest.raises(RecipeError, match="but not all of its members are"):
        student(folds, out="other")


class _Stop(Listener):
    def step(self, record):
        if record.step == 3:
            raise KeyboardInterrupt


def test_a_teacher_calibrated_anew_is_another(teacher, student):
    calibrate(teacher)
    with pytest.raises(KeyboardInterrupt):
        student(teacher, steps=4, listeners=[_Stop()])
    calibrate(teacher, offsets=True)
    with pytest.raises(RunError, match=r"the teacher of stage\.distill changed"):
        student(teacher, steps=4, resume=True)


def test_a_calibration_that_does_not_fit_is_refused_before_training(folds, student):
    """Fitted for all together, then the members were."""
    calibrate(folds)
    with pytest.raises(RecipeError, match=r"but it is not: run `plait calibrate .* --left-out`"):
        student(folds, unseen="true")
    calibrate(folds, left_out=True)
    with pytest.raises(RecipeError, match=r"kind\.teacher: .*belongs to another model"):
        student(folds)
    assert not (folds.parent / "student").exists()
    # Members that answer for themselves need their own calibration alone.
    found = answers_of(student(folds, out="apart", unseen="true"))
    plain = answers_of(student(folds, out="plain", unseen="true", calibrated="false"))
    assert not np.allclose(found["mood"], plain["mood"])


def test_a_teacher_calibrated_anew_before_it_is_asked(teacher, student, monkeypatch):
    """Another stage may lie between."""
    calibrate(teacher)
    learn = TeacherAnswers.load_or_ask

    def later(self, *args):
        calibrate(teacher, offsets=True)
        return learn(self, *args)

    monkeypatch.setattr(TeacherAnswers, "load_or_ask", later)
    with pytest.raises(RunError, match="was calibrated again while its student was trained"):
        student(teacher)
