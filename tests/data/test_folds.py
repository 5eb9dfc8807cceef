"""Training rows dealt into parts: each is dev once, and none is on both sides."""

from __future__ import annotations

import pytest

from plait.config import read_recipe
from plait.data import Tokenizer
from plait.data.loading import load_data
from plait.model.sources import find_encoder


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


def test_a_part_is_left_out_and_dev_is_dev(tiny_recipe):
    recipe = tiny_recipe()
    every, dev = (ids(load(recipe, split)) for split in ("train", "dev"))
    for fold in (1, 2):
        dealt = ("data.folds=2", f"data.fold={fold}")
        left_out = (*dealt, "data.leave_out=true")
        assert ids(load(recipe, "train", *left_out)) == ids(load(recipe, "train", *dealt))
        assert ids(load(recipe, "train", *left_out)) != every
        assert ids(load(recipe, "dev", *left_out)) == dev


# --- rows that belong together -----------------------------------------------------------


@pytest.fixture
def grouped(tiny_recipe):
    """Thirty rows of the file by ten authors, one of them unnamed in five rows."""
    recipe = tiny_recipe()
    path = recipe.parent / "mood-train.csv"
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    named = [f"{line},{'' if i < 5 else f'author {i % 10}'}" for i, line in enumerate(lines[:30])]
    path.write_text("\n".join([f"{header},author", *named]) + "\n", encoding="utf-8")
    return recipe, {line.split(",")[0]: line.rsplit(",", 1)[1] for line in named}


GROUP = "tasks.mood.group='author'"


def test_rows_of_one_group_are_on_one_side(grouped):
    recipe, authors = grouped
    apart = 0
    for seed in range(4):
        options = ("data.folds=2", f"seed={seed}")
        dev, train = (ids(load(recipe, split, *options, GROUP)) for split in ("dev", "train"))
        assert sorted(dev + train) == sorted(authors)
        assert not ({authors[i] for i in dev} & {authors[i] for i in train}) - {""}
        without = [ids(load(recipe, split, *options)) for split in ("dev", "train")]
        apart += bool(set.intersection(*({authors[i] for i in rows} - {""} for rows in without)))
    assert apart  # else the test says nothing
