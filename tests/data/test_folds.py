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


# --- dev_fraction ------------------------------------------------------------------------

SHARE = ("tasks.mood.dev=[]", "tasks.mood.dev_fraction=0.3")


def test_a_share_of_the_training_rows_is_dev(tiny_recipe):
    recipe = tiny_recipe()
    every = ids(load(recipe, "train"))
    dev, train = (ids(load(recipe, split, *SHARE)) for split in ("dev", "train"))
    assert sorted(dev + train) == sorted(every)
    assert 0.1 * len(every) < len(dev) < 0.5 * len(every)
    assert dev == ids(load(recipe, "dev", *SHARE, "seed=2"))  # runs of several seeds share dev
    larger = ids(load(recipe, "dev", SHARE[0], "tasks.mood.dev_fraction=0.6"))
    assert set(dev) < set(larger)


def test_dev_files_come_before_a_share(tiny_recipe):
    recipe = tiny_recipe()
    for split in ("dev", "train"):
        assert ids(load(recipe, split, SHARE[1])) == ids(load(recipe, split))


def test_folds_are_dealt_from_the_rows_that_a_share_leaves(tiny_recipe):
    recipe = tiny_recipe()
    share = set(ids(load(recipe, "dev", *SHARE)))
    folds = (*SHARE, "data.folds=2")
    dev, train = (set(ids(load(recipe, split, *folds))) for split in ("dev", "train"))
    assert not share & (dev | train)
    left = (*folds, "data.leave_out=true")
    assert set(ids(load(recipe, "dev", *left))) == share
    assert set(ids(load(recipe, "train", *left))) == train


def test_rows_of_a_group_are_held_out_together(grouped):
    recipe, authors = grouped
    dev, train = (ids(load(recipe, split, *SHARE, GROUP)) for split in ("dev", "train"))
    assert sorted(dev + train) == sorted(authors)
    assert not ({authors[i] for i in dev} & {authors[i] for i in train}) - {""}


def test_a_share_is_held_out_of_other_tasks(tiny_recipe):
    recipe = tiny_recipe()
    path = recipe.parent / "mood-train.csv"
    options = (*SHARE, "data.drop_overlap=true")
    dev = set(load(recipe, "dev", *SHARE)["mood"].texts())
    (recipe.parent / "more.csv").write_bytes(path.read_bytes())
    more = "tasks.more={kind='classes',labels=['bad','good'],text='text',label='label',"
    more += "id='id',bad_rows='skip',train='more.csv'}"
    found = set(load(recipe, "train", *options, more)["more"].texts())
    assert found
    assert not found & dev
