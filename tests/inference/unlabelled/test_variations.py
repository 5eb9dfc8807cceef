"""Training rows with other words in them."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from csv_rows import read_rows, write_rows
from plait.config import read_recipe
from plait.errors import DataError
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


def test_at_least_one_word_gives_way():
    for seed in range(20):
        (varied,) = draw(("a good bad film",), 0.0, seed=seed)
        changed = [
            new
            for old, new in zip(["a", "good", "bad", "film"], varied.split(), strict=True)
            if new != old
        ]
        assert changed in (["fine"], ["poor"], ["movie"])


def test_as_many_words_give_way_as_asked_for():
    text = " ".join(["good"] * 4000)
    (varied,) = draw((text,), 0.3)
    assert varied.count("fine") == pytest.approx(1200, rel=0.1)


def test_each_of_the_nearest_is_drawn_alike():
    (varied,) = draw((" ".join(["good"] * 3000),), 1.0, {"good": ["a", "b", "c"]})
    for word in "abc":
        assert varied.split().count(word) == pytest.approx(1000, rel=0.15)


def test_of_a_pair_one_text_changes():
    seen = set()
    for seed in range(20):
        one, other = draw(("a good film", "one bad film"), 1.0, seed=seed)
        assert (one == "a good film") != (other == "one bad film")
        seen.add(one == "a good film")
    assert seen == {True, False}
    assert draw(("nothing here", "one bad film"), 1.0) == ("nothing here", "one poor movie")


def test_a_row_without_such_a_word_makes_none():
    assert draw(("nothing of the kind",), 1.0) is None


# --- words -------------------------------------------------------------------------------


def test_the_most_frequent_words_stay():
    """Those that make up half of the running words, and no more than half."""
    texts = ["the the the the of of", "film good", "The bad plot"]
    assert find_words(texts) == ["of", "film", "good", "bad", "plot"]
    assert find_words(["all alike here"]) == ["all", "alike", "here"]
    assert find_words(["a a a b"]) == ["a", "b"]


def test_a_word_is_letters_and_apostrophes_between_them():
    assert find_words(["l'été 3d don't 'tis snake_case 42"]) == [
        "l'été",
        "d",
        "don't",
        "tis",
        "snake",
        "case",
    ]


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


def test_they_are_new_and_each_is_made_once(recipe):
    made = vary_rows(read_recipe(recipe), "mood", count=300)
    train = {row["text"].lower() for row in read_rows(recipe.parent / "mood-train.csv")}
    texts = [text.lower() for (text,) in made.rows]
    assert len(texts) == len(set(texts)) == 300
    assert not train & set(texts)
    assert made.num_rows <= len(train)


def test_where_there_is_no_more_to_be_made_it_ends(recipe):
    row = read_rows(recipe.parent / "mood-train.csv")[0]
    rows = [{**row, "id": str(i), "text": text} for i, text in enumerate(("xa", "xb", "xc"))]
    write_rows(recipe.parent / "mood-train.csv", rows)
    with pytest.raises(DataError, match="no new row could be made"):
        vary_rows(read_recipe(recipe, NO_DEV), "mood", count=500)
    rows.append({**row, "id": "3", "text": "xa xb"})
    write_rows(recipe.parent / "mood-train.csv", rows)
    found = {text for (text,) in vary_rows(read_recipe(recipe, NO_DEV), "mood", count=500).rows}
    assert found
    assert all(len(text.split()) == 2 for text in found)  # the single words are all there
    assert len(found) <= 8


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


def test_the_seed_says_which(recipe):
    one, same, other = (
        vary_rows(read_recipe(recipe, [f"seed={seed}"]), "same", count=20).rows
        for seed in (1, 1, 2)
    )
    assert one == same != other


def test_every_row_has_its_turn_before_one_has_another(recipe):
    rows = read_rows(recipe.parent / "mood-train.csv")
    named = [{**row, "text": f"{row['text']} 10{i}"} for i, row in enumerate(rows)]
    write_rows(recipe.parent / "mood-train.csv", named)
    made = vary_rows(read_recipe(recipe), "mood", share=1.0, count=len(rows))
    found = {text.split()[-1] for (text,) in made.rows}
    assert len(found) >= 0.9 * len(rows)


def test_too_few_words_are_told(recipe):
    rows = read_rows(recipe.parent / "mood-train.csv")
    write_rows(recipe.parent / "mood-train.csv", [{**row, "text": "4 + 4"} for row in rows])
    with pytest.raises(DataError, match="with 0 words that could give way"):
        vary_rows(read_recipe(recipe), "mood")


def test_nearest_of_few(recipe):
    from plait.inference.frozen import nearest_rows

    vectors = F.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), dim=1)
    places, products = nearest_rows(vectors, 5, torch.device("cpu"), "things", None)
    assert places.tolist() == [[1, 2], [0, 2], [1, 0]]
    assert (products[:, 0] >= products[:, 1]).all()
