"""Teachers whose members answer the rows that they were not trained on."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.torch import load_file

import plait
from csv_rows import read_rows, write_rows
from plait.config import read_ensemble, read_recipe
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
def folds(recipe, tmp_path):
    """An ensemble of three, each trained without a third of the rows."""
    path = recipe.with_name("folds.toml")
    path.write_text(
        "name = 'folds'\n[ensemble]\nmembers = ['recipe.toml']\nhow = 'mean'\nfolds = 3\n"
        "[train]\nepochs = 1\n"
    )
    plait.train(read_ensemble(path), tmp_path / "folds")
    return tmp_path / "folds"


@pytest.fixture
def student(recipe, tmp_path):
    def train(teacher, *more, out="student", unseen="true", **options):
        kind = f"{{name='distill', teacher='{teacher}', unseen={unseen}}}"
        settings = ["stages=['distill']", "train.epochs=1", f"stage.distill.kind={kind}", *more]
        return plait.train(read_recipe(recipe, settings), tmp_path / out, **options).folder

    return train


class Heard(Listener):
    """Remembers how far the teacher was said to be."""

    def __init__(self):
        self.told = {}

    def asking(self, task, done, total):
        self.told.setdefault(task, []).append((done, total))


def answers_of(folder):
    return {name: kept.numpy() for name, kept in load_file(folder).items()}


def test_each_row_is_answered_by_who_left_it_out(folds, student):
    kept = answers_of(student(folds) / "teacher" / "distill.safetensors")
    members = plait.load(folds, precision="auto").members
    for task, found in kept.items():
        every = members[0].read(read_recipe(folds.parent / "tiny" / "recipe.toml"), "train")[task]
        left_out = np.zeros(len(every), int)
        for member in members:
            own = set(member.load_split("train")[task].ids)
            rows = [i for i, name in enumerate(every.ids) if name not in own]
            left_out[rows] += 1
            expected = member.answer(task, every)[rows].astype(np.float32)
            np.testing.assert_array_equal(found[rows], expected)
        assert set(left_out.tolist()) == {1}


def test_rows_without_labels_are_new_to_all(folds, student, recipe, tiny_recipe):
    other = tiny_recipe("other", seed="more")
    for task, columns in TEXTS.items():
        rows = read_rows(other.parent / f"{task}-train.csv")
        path = recipe.parent / f"{task}-more.csv"
        write_rows(path, [{c: row[c] for c in columns} for row in rows])
    more = [f"tasks.{task}.unlabelled='{task}-more.csv'" for task in TEXTS]
    heard = Heard()
    trained = student(folds, *more, listeners=[heard])
    kept = answers_of(trained / "teacher" / "distill.safetensors")
    model = plait.load(folds, precision="auto")
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


def test_all_answer_what_is_new_to_none(folds, student, recipe, tmp_path):
    part = folds / "members" / "tiny-fold-1"
    wholes = [
        plait.train(read_recipe(recipe, ["train.epochs=1", f"seed={seed}"]), tmp_path / seed).folder
        for seed in ("3", "4")  # which have the same rows as each other
    ]
    every = make_ensemble([*wholes, part], tmp_path / "every", "mean")
    kept = answers_of(student(every) / "teacher" / "distill.safetensors")
    model = plait.load(every, precision="auto")
    for task, found in kept.items():
        rows = model.read(read_recipe(recipe), "train", tasks=[task])[task]
        own = set(model.members[2].load_split("train")[task].ids)
        is_new = np.array([name not in own for name in rows.ids])
        assert 0 < is_new.sum() < len(rows)
        alone = model.members[2].answer(task, rows.views[2])
        np.testing.assert_allclose(found[is_new], alone[is_new], atol=1e-6)
        np.testing.assert_allclose(found[~is_new], model.answer(task, rows)[~is_new], atol=1e-6)


def test_answers_that_all_have_seen_are_another_matter(folds, student):
    """The same rows under the same teacher, asked the one way and the other."""
    unseen = answers_of(student(folds) / "teacher" / "distill.safetensors")
    plain = student(folds, out="plain", unseen="false")
    seen = answers_of(plain / "teacher" / "distill.safetensors")
    for task in TEXTS:
        assert unseen[task].shape == seen[task].shape
        assert not np.allclose(unseen[task], seen[task])


def test_the_rows_may_have_moved(folds, student, recipe, tmp_path):
    here = answers_of(student(folds) / "teacher" / "distill.safetensors")
    (tmp_path / "moved").mkdir()
    for path in recipe.parent.glob("*.csv"):
        path.rename(tmp_path / "moved" / path.name)
    there = student(folds, out="there", data=str(tmp_path / "moved"))
    for task, found in answers_of(there / "teacher" / "distill.safetensors").items():
        np.testing.assert_array_equal(found, here[task])


def test_the_ensemble_is_scored_on_dev(folds, recipe):
    scores = plait.load(folds).load_split("dev")
    assert len(scores["mood"]) == len(read_rows(recipe.parent / "mood-dev.csv"))


def test_who_cannot_answer_so(folds, student, recipe, tmp_path):
    one = folds / "members" / "tiny-fold-1"
    with pytest.raises(
        RecipeError, match=r"stage\.distill\.kind\.unseen is for an ensemble by the"
    ):
        student(one)
    by_vote = make_ensemble([one, folds / "members" / "tiny-fold-2"], tmp_path / "mode", "mode")
    with pytest.raises(RecipeError, match="unseen is for an ensemble by the mean"):
        student(by_vote)
    plain = plait.train(read_recipe(recipe, ["train.epochs=1"]), tmp_path / "a").folder
    other = plait.train(read_recipe(recipe, ["train.epochs=1", "seed=3"]), tmp_path / "b").folder
    same = make_ensemble([plain, other], tmp_path / "same", "mean")
    with pytest.raises(RecipeError, match="were trained on the same rows of 'mood'"):
        student(same)


def test_the_card_says_what_was_left_out(folds):
    card = (folds / "members" / "tiny-fold-2" / "card.md").read_text(encoding="utf-8")
    assert "Part 2 of 3 of the training rows was left out of training." in card
