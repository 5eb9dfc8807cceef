"""Training rows dealt into parts: each is dev once, and none is on both sides."""

from __future__ import annotations

import pytest

from plait.config import read_recipe
from plait.data import Tokenizer
from plait.errors import RecipeError
from plait.model.sources import find_encoder
from plait.training.build import load_data


def load(recipe, split, *overrides):
    config = read_recipe(recipe, overrides)
    tokenizer = Tokenizer.from_file(find_encoder(config.encoder.source).tokenizer)
    return load_data(config, tokenizer, split)


def ids(datasets, task="mood"):
    return list(datasets[task].ids)


def test_every_row_is_held_out_once(tiny_recipe):
    recipe = tiny_recipe()
    every = ids(load(recipe, "train"))
    held = []
    for fold in (1, 2, 3):
        options = ("data.folds=3", f"data.fold={fold}")
        dev, train = (ids(load(recipe, split, *options)) for split in ("dev", "train"))
        assert [row for row in every if row in set(dev)] == dev  # in the order of the file
        assert sorted(dev + train) == sorted(every)
        held += dev
    assert sorted(held) == sorted(every)


def test_a_row_that_stands_there_twice_is_on_one_side(tiny_recipe):
    recipe = tiny_recipe()
    path = recipe.parent / "mood-train.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    doubles = [f"d{line.upper().replace('ID,TEXT,LABEL', '')}" for line in lines[1:]]
    doubles = [d.rsplit(",", 1)[0] + "," + d.rsplit(",", 1)[1].lower() for d in doubles]
    path.write_text("\n".join([*lines, *doubles]) + "\n", encoding="utf-8")
    dev, train = (load(recipe, split, "data.folds=2")["mood"] for split in ("dev", "train"))
    assert len(dev) + len(train) == 90
    assert not set(dev.fingerprints.tolist()) & set(train.fingerprints.tolist())


def test_the_parts_follow_from_the_seed(tiny_recipe):
    recipe = tiny_recipe()
    first, again, other = (
        ids(load(recipe, "dev", "data.folds=3", f"seed={seed}")) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_drawn_rows_are_dealt_and_dev_files_are_not_read(tiny_recipe):
    recipe = tiny_recipe()
    for path in recipe.parent.glob("*-dev.csv"):
        path.unlink()
    options = ("data.folds=2", "tasks.mood.count=20")
    dev, train = (ids(load(recipe, split, *options)) for split in ("dev", "train"))
    assert sorted(dev + train) == sorted(ids(load(recipe, "train", "tasks.mood.count=20")))


@pytest.mark.parametrize("split", ["test", "unlabelled"])
def test_other_splits_are_read_whole(tiny_recipe, split):
    recipe = tiny_recipe()
    rows = "".join(f"{i},a {i} of its own,bad\n" for i in range(6))
    (recipe.parent / "more.csv").write_text(f"id,text,label\n{rows}", encoding="utf-8")
    found = load(recipe, split, f"tasks.mood.{split}='more.csv'", "data.folds=2")["mood"]
    assert found.texts() == [(f"a {i} of its own",) for i in range(6)]


def test_changed_copies_are_for_training_alone(tiny_recipe):
    recipe = tiny_recipe()
    path = recipe.parent / "mood-train.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("the film", "he"), encoding="utf-8")
    options = ("data.folds=2", "tasks.mood.augment=['gender-swap']")
    plain = [len(load(recipe, split, "data.folds=2")["mood"]) for split in ("dev", "train")]
    more = [len(load(recipe, split, *options)["mood"]) for split in ("dev", "train")]
    assert more[0] == plain[0]
    assert more[1] > plain[1]


def test_a_fold_that_is_not_there(tiny_recipe):
    for options in (["data.folds=3", "data.fold=4"], ["data.fold=2"]):
        with pytest.raises(RecipeError, match="fold = "):
            read_recipe(tiny_recipe(), options)


def test_a_part_is_left_out_and_dev_is_dev(tiny_recipe):
    recipe = tiny_recipe()
    every, dev = (ids(load(recipe, split)) for split in ("train", "dev"))
    for fold in (1, 2):
        dealt = ("data.folds=2", f"data.fold={fold}")
        left_out = (*dealt, "data.leave_out=true")
        assert ids(load(recipe, "train", *left_out)) == ids(load(recipe, "train", *dealt))
        assert ids(load(recipe, "train", *left_out)) != every
        assert ids(load(recipe, "dev", *left_out)) == dev


def test_leaving_out_needs_folds(tiny_recipe):
    with pytest.raises(RecipeError, match="leave_out leaves one of the folds out; set folds"):
        read_recipe(tiny_recipe(), ["data.leave_out=true"])
