"""Training rows with other words in them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from torch.nn import functional as F

from csv_rows import read_rows, write_rows
from plait.config import read_recipe
from plait.inference.frozen import Embedder
from plait.inference.unlabelled import vary_rows
from plait.inference.unlabelled.variations import find_words, vary

NO_DEV = [f"tasks.{task}.dev=[]" for task in ("mood", "same", "near")]
LIKES = {"good": ["fine"], "film": ["movie"], "bad": ["poor"]}


@pytest.fixture
def recipe(tiny_recipe):
    return tiny_recipe()


def words_of(text):
    return re.findall(r"\w+", text.lower())


def draw(row, share, likes=LIKES, seed=0):
    return vary(row, likes, share, np.random.default_rng(seed))


# --- a row -------------------------------------------------------------------------------


def test_words_give_way_in_their_case_and_the_rest_stays():
    assert draw((" A GOOD, good Film-maker's\tfilm: goodness!",), 1.0) == (
        " A FINE, fine Movie-maker's\tmovie: goodness!",
    )


# --- a task ------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["mood", "same"])
def test_every_changed_word_is_near_the_one_it_stands_for(recipe, task):
    """Against every similarity there is, one by one."""
    config = read_recipe(recipe, NO_DEV)
    made = vary_rows(config, task, neighbours=3)
    columns = config.tasks[task].text
    train = [
        tuple(row[c] for c in columns) for row in read_rows(recipe.parent / f"{task}-train.csv")
    ]
    texts = [text for row in train for text in row]
    words = find_words(texts)
    vectors = F.normalize(Embedder(config, fast=True)(words, "", None), dim=1)
    cosines = (vectors @ vectors.T).fill_diagonal_(-2)
    near = {
        w: {words[i] for i in row.topk(3).indices} for w, row in zip(words, cosines, strict=True)
    }
    lengths = {tuple(len(words_of(text)) for text in row) for row in train}
    assert made.rows
    for row in made.rows:
        assert tuple(len(words_of(text)) for text in row) in lengths
        assert any(could_be(row, source, near) for source in train), row


def could_be(row, source, near):
    changed = 0
    for text, old in zip(row, source, strict=True):
        pairs = list(zip(words_of(text), words_of(old), strict=False))
        if len(words_of(text)) != len(words_of(old)):
            return False
        if any(new != was and new not in near.get(was, ()) for new, was in pairs):
            return False
        changed += text != old
    return changed == 1


def test_nothing_is_made_of_what_dev_or_test_has_nor_is_that_made(recipe):
    dev = read_rows(recipe.parent / "mood-dev.csv")
    train = read_rows(recipe.parent / "mood-train.csv")
    secret = "zebra quagga okapi"
    write_rows(recipe.parent / "mood-dev.csv", [*dev, {**dev[0], "id": "z", "text": secret}])
    spoilt = {**train[0], "id": "s", "text": "Zebra, quagga OKAPI"}
    write_rows(recipe.parent / "mood-train.csv", [*train, spoilt])
    made = vary_rows(read_recipe(recipe), "mood", count=500)
    assert made.held_out >= 1
    assert not any({"zebra", "quagga", "okapi"} & set(words_of(text)) for (text,) in made.rows)


def test_a_text_of_dev_is_never_made(recipe):
    """'left' and 'right' are all that can change, so that 'turn right' comes out of 'turn left'."""
    train = read_rows(recipe.parent / "mood-train.csv")
    texts = ["turn left", "right turn"]
    dev = read_rows(recipe.parent / "mood-dev.csv")
    write_rows(
        recipe.parent / "mood-train.csv",
        [{**train[0], "id": str(i), "text": text} for i, text in enumerate(texts)],
    )
    every = {text for (text,) in vary_rows(read_recipe(recipe), "mood", count=50).rows}
    assert every == {"turn right", "left turn"}
    write_rows(recipe.parent / "mood-dev.csv", [*dev, {**dev[0], "id": "z", "text": "Turn right!"}])
    kept = {text for (text,) in vary_rows(read_recipe(recipe), "mood", count=50).rows}
    assert kept == {"left turn"}
