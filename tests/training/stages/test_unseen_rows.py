"""Teachers whose members answer the rows that they were not trained on."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.torch import load_file

import plait
from csv_rows import read_rows, write_rows
from plait.config import read_recipe
from plait.errors import RecipeError
from plait.inference.ensemble import make_ensemble
from plait.training.listeners import Listener

TEXTS = {
    "mood": ("text",),
    "same": ("a", "b"),
    "near": ("a", "b"),
}


@pytest.fixture
def recipe(tiny_recipe):
    return tiny_recipe()


@pytest.fixture
def student(recipe, tmp_path):
    def train(teacher, *more, out="student", **options):
        kind = f"{{name='distill', teacher='{teacher}', unseen=true}}"
        settings = ["stages=['distill']", "train.max_steps=1", f"stage.distill.kind={kind}", *more]
        return plait.train(read_recipe(recipe, settings), tmp_path / out, **options).folder

    return train


class Heard(Listener):
    """Remembers how far the teacher was said to be."""

    def __init__(self):
        self.told = {}

    def asking(self, task, done, total):
        self.told.setdefault(task, []).append((done, total))


def answers_of(student):
    kept = load_file(student / "teacher" / "distill.safetensors")
    return {name: answers.numpy() for name, answers in kept.items()}


def test_each_row_is_answered_by_the_member_that_left_it_out(folds_run, student, recipe, tmp_path):
    """Also where the rows have moved; no task has one answer from a member that saw the row."""
    (tmp_path / "moved").mkdir()
    for path in recipe.parent.glob("*.csv"):
        path.rename(tmp_path / "moved" / path.name)
    kept = answers_of(student(folds_run, data=str(tmp_path / "moved")))
    model = plait.load(folds_run, precision="auto")
    for task, found in kept.items():
        every = model.members[0].read(model.members[0].config, "train")[task]
        config = read_recipe(recipe)
        every = model.members[0].read(config, "train", data=str(tmp_path / "moved"))[task]
        left_out = np.zeros(len(every), int)
        for member in model.members:
            own = set(member.load_split("train")[task].ids)
            rows = [i for i, name in enumerate(every.ids) if name not in own]
            left_out[rows] += 1
            expected = member.answer(task, every)[rows].astype(np.float32)
            np.testing.assert_array_equal(found[rows], expected)
        assert set(left_out.tolist()) == {1}


def test_rows_without_labels_are_new_to_all(folds_run, student, recipe, tiny_recipe):
    other = tiny_recipe("other", seed="more")
    for task, columns in TEXTS.items():
        rows = read_rows(other.parent / f"{task}-train.csv")
        path = recipe.parent / f"{task}-more.csv"
        write_rows(path, [{c: row[c] for c in columns} for row in rows])
    more = [f"tasks.{task}.unlabelled='{task}-more.csv'" for task in TEXTS]
    heard = Heard()
    trained = student(folds_run, *more, listeners=[heard])
    kept = answers_of(trained)
    model = plait.load(folds_run, precision="auto")
    for task, found in kept.items():
        config = plait.load(trained).config
        known, rows = (model.read(config, split)[task] for split in ("train", "unlabelled"))
        is_new = ~np.isin(rows.fingerprints, known.fingerprints)
        assert is_new.any()
        expected = model.answer(task, rows)
        np.testing.assert_allclose(found[-len(rows) :][is_new], expected[is_new], atol=1e-6)
        done = [now for now, _ in heard.told[task]]
        assert {total for _, total in heard.told[task]} == {len(found)}
        assert done == sorted(done)
        assert done.index(len(found)) == len(done) - 1  # not before the last member has answered


def test_all_answer_what_is_new_to_none(folds_run, student, recipe, tiny_run, train_once, tmp_path):
    part = folds_run / "members" / "tiny-fold-1"
    wholes = [tiny_run, train_once("seed=3", "train.epochs=1")]  # which have the same rows
    every = make_ensemble([*wholes, part], tmp_path / "every", "mean")
    kept = answers_of(student(every))
    model = plait.load(every, precision="auto")
    for task, found in kept.items():
        rows = model.read(read_recipe(recipe), "train", tasks=[task])[task]
        own = set(model.members[2].load_split("train")[task].ids)
        is_new = np.array([name not in own for name in rows.ids])
        assert 0 < is_new.sum() < len(rows)
        alone = model.members[2].answer(task, rows.views[2])
        np.testing.assert_allclose(found[is_new], alone[is_new], atol=1e-6)
        np.testing.assert_allclose(found[~is_new], model.answer(task, rows)[~is_new], atol=1e-6)


def test_what_cannot_answer_so(folds_run, student, tiny_run, train_once, tmp_path):
    one = folds_run / "members" / "tiny-fold-1"
    with pytest.raises(RecipeError, match=r"stage\.distill\.kind\.unseen needs an ensemble"):
        student(one)
    by_vote = make_ensemble([one, folds_run / "members" / "tiny-fold-2"], tmp_path / "mode", "mode")
    with pytest.raises(RecipeError, match="unseen needs an ensemble that averages"):
        student(by_vote)
    others = [tiny_run, train_once("seed=3", "train.epochs=1")]
    same = make_ensemble(others, tmp_path / "same", "mean")
    with pytest.raises(RecipeError, match="were trained on the same rows of 'mood'"):
        student(same)
