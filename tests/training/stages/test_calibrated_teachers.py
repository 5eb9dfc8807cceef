"""Teachers that answer as `plait calibrate` made them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.torch import load_file

import plait
from plait.config import read_ensemble, read_recipe
from plait.errors import RecipeError, RunError
from plait.inference.fitting.calibrate import calibrate, undo
from plait.training.listeners import Listener
from plait.training.teachers import Lessons


@pytest.fixture
def recipe(tiny_recipe):
    return tiny_recipe()


@pytest.fixture
def teacher(recipe, tmp_path):
    return plait.train(read_recipe(recipe), tmp_path / "teacher").folder


@pytest.fixture
def folds(recipe, tmp_path):
    """An ensemble of two that each leave half of the rows out."""
    path = recipe.with_name("folds.toml")
    path.write_text(
        "name = 'folds'\n[ensemble]\nmembers = ['recipe.toml']\nhow = 'mean'\nfolds = 2\n"
    )
    return plait.train(read_ensemble(path), tmp_path / "folds").folder


@pytest.fixture
def student(recipe, tmp_path):
    def train(teacher, *, out="student", calibrated="true", unseen="false", **options):
        how = f"calibrated={calibrated}, unseen={unseen}"
        kind = f"{{name='distill', teacher='{teacher}', {how}}}"
        settings = [
            "stages=['distill']",
            "train.epochs=1",
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
    plain = answers_of(student(teacher, out="plain", calibrated="false"))
    calibrate(teacher, offsets=True)
    found = answers_of(student(teacher))
    model = plait.load(teacher, precision="auto")
    for task, rows in model.read(read_recipe(recipe), "train").items():
        np.testing.assert_allclose(found[task], model.answer(task, rows), atol=1e-6)
        assert np.allclose(found[task], plain[task]) == (task not in model.scalings)


def test_without_the_word_a_calibration_changes_nothing(teacher, student):
    before = answers_of(student(teacher, out="before", calibrated="false"))
    calibrate(teacher, offsets=True)
    after = answers_of(student(teacher, out="after", calibrated="false"))
    for task, values in before.items():
        np.testing.assert_array_equal(after[task], values)


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
    assert len({member["calibration"] for member in told}) == 2


def test_one_that_is_not_is_refused(teacher, student):
    with pytest.raises(RecipeError, match=r"since it is not; `plait calibrate"):
        student(teacher)


class _Stop(Listener):
    def step(self, record):
        if record.step == 3:
            raise KeyboardInterrupt


def test_a_teacher_calibrated_anew_is_another(teacher, student):
    calibrate(teacher)
    with pytest.raises(KeyboardInterrupt):
        student(teacher, listeners=[_Stop()])
    calibrate(teacher, offsets=True)
    with pytest.raises(RunError, match=r"the teacher of stage\.distill changed"):
        student(teacher, resume=True)


def test_a_calibration_that_does_not_fit_is_told_before_anything_is_trained(folds, student):
    """Fitted for all together, then the members were."""
    calibrate(folds)
    calibrate(folds, left_out=True)
    with pytest.raises(RecipeError, match=r"kind\.teacher: .*belongs to another model"):
        student(folds)
    assert not (folds.parent / "student").exists()


def test_members_that_answer_for_themselves_must_be_calibrated_themselves(folds, student):
    calibrate(folds)
    student(folds, out="together")
    with pytest.raises(RecipeError, match=r"since it is not; `plait calibrate .* --left-out`"):
        student(folds, unseen="true")
    calibrate(folds, left_out=True)  # what all together had does not fit any more, and is not asked
    found = answers_of(student(folds, out="apart", unseen="true"))
    plain = answers_of(student(folds, out="plain", unseen="true", calibrated="false"))
    assert not np.allclose(found["mood"], plain["mood"])


def test_all_members_or_none(folds, student):
    calibrate(folds, left_out=True)
    undo(folds / "members" / "tiny-fold-1")
    with pytest.raises(RecipeError, match="since not all members of it are"):
        student(folds)


def test_a_teacher_calibrated_anew_before_it_is_asked(teacher, student, monkeypatch):
    """Another stage may lie between."""
    calibrate(teacher)
    learn = Lessons.learn

    def later(self, *args):
        calibrate(teacher, offsets=True)
        return learn(self, *args)

    monkeypatch.setattr(Lessons, "learn", later)
    with pytest.raises(RunError, match="was calibrated anew while its student was trained"):
        student(teacher)
