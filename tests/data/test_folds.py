"""Training rows dealt into parts: each is dev once, and none is on both sides."""

from __future__ import annotations

import pytest

from plait.config import read_recipe
from plait.data import Tokenizer
from plait.data.loading import load_data
from plait.errors import DataError, RecipeError
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


def test_a_dealt_row_knows_its_group(grouped):
    recipe, authors = grouped
    train = load(recipe, "train", "data.folds=2", GROUP)["mood"]
    dev = load(recipe, "dev", "data.folds=2", GROUP)["mood"]
    for dataset in (train, dev, train.join(dev), dev.select([4, 0, 3])):
        known = list(zip(dataset.ids, dataset.find_groups(), strict=True))
        for row, key in known:
            same = {other for other, theirs in known if theirs == key}
            assert same == {i for i in dataset.ids if i == row or authors[i] == authors[row] != ""}


def test_rows_that_are_not_dealt_know_no_groups(grouped):
    recipe, _ = grouped
    assert load(recipe, "train", GROUP)["mood"].find_groups is None
    assert load(recipe, "dev", GROUP)["mood"].find_groups is None
    dealt = load(recipe, "dev", "data.folds=2")["mood"]
    assert dealt.find_groups is None
    assert dealt.join(load(recipe, "train", "data.folds=2")["mood"]).find_groups is None
    assert dealt.select([1]).find_groups is None


def test_a_row_without_a_group_goes_by_its_own_text(grouped):
    recipe, authors = grouped
    unnamed = {row for row, author in authors.items() if not author}
    dev, plain = (ids(load(recipe, "dev", "data.folds=2", *more)) for more in ((GROUP,), ()))
    assert set(dev) & unnamed == set(plain) & unnamed


def test_a_group_may_be_called_by_the_text_of_a_row(tiny_recipe):
    recipe = tiny_recipe()
    whole = load(recipe, "train")["mood"]
    parts = [
        f"p{i},a part of it {i},good,  {text.upper()} " for i, (text,) in enumerate(whole.texts())
    ]
    (recipe.parent / "parts.csv").write_text(
        "\n".join(["id,text,label,whole", *parts]) + "\n", encoding="utf-8"
    )
    files = "tasks.mood.train=['mood-train.csv', {path='parts.csv', group='whole'}]"
    dev, train = (ids(load(recipe, split, files, "data.folds=3")) for split in ("dev", "train"))
    numbers = {row: f"p{i}" for i, row in enumerate(whole.ids)}
    assert dev
    assert train
    for rows in (dev, train):
        assert {numbers[i] for i in rows if not i.startswith("p")} == {
            i for i in rows if i.startswith("p")
        }


def test_groups_are_read_for_folds_alone(grouped):
    recipe, _ = grouped
    missing = "tasks.mood.group='auther'"
    assert len(ids(load(recipe, "train", missing))) == 30
    with pytest.raises(DataError, match=r"mood-train\.csv.*'auther'.*author"):
        load(recipe, "train", missing, "data.folds=2")
    own = "tasks.mood.train=[{path='mood-train.csv', group=''}]"  # this file has none
    assert len(ids(load(recipe, "train", missing, own, "data.folds=2"))) < 30
