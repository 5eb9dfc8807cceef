"""Teachers that answer as `plait calibrate` made them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.torch import load_file

import plait
from plait.config import read_ensemble, read_recipe
from plait.errors import RecipeError, RunError
from plait.fitting.calibrate import calibrate
from plait.training.listeners import Listener


@pytest.fixture
def recipe(tiny_recipe):
    return tiny_recipe()


@pytest.fixture
def teacher(recipe, tmp_path):
    return plait.train(read_recipe(recipe), tmp_path / "teacher").folder


@pytest.fixture
def student(recipe, tmp_path):
    def train(teacher, *, out="student", calibrated="true", **options):
        kind = f"{{name='distill', teacher='{teacher}', calibrated={calibrated}}}"
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


def test_members_are_scaled_each_by_its_own(recipe, student, tmp_path):
    path = recipe.with_name("folds.toml")
    path.write_text(
        "name = 'folds'\n[ensemble]\nmembers = ['recipe.toml']\nhow = 'mean'\nfolds = 2\n"
    )
    folds = plait.train(read_ensemble(path), tmp_path / "folds").folder
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
    with pytest.raises(RecipeError, match=r"kind\.teacher: .* is not calibrated; `plait calibrate"):
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
