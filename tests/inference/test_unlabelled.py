"""New rows without labels: pairs of training texts, and training rows with other words."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from csv_rows import read_rows, write_rows
from plait.config import read_recipe
from plait.inference.frozen import Embedder
from plait.inference.unlabelled import find_pairs, find_words, vary, vary_rows


@pytest.fixture
def recipe(tiny_recipe):
    return tiny_recipe()


def texts_of(rows):
    return {row[column] for row in rows for column in ("a", "b", "text") if column in row}


def normal(pair):
    return frozenset(text.lower() for text in pair)


def test_they_are_the_nearest_that_no_file_has(recipe):
    """Against every similarity there is, one by one."""
    config = read_recipe(recipe)
    train = read_rows(recipe.parent / "same-train.csv")
    dev = [row for path in recipe.parent.glob("*-dev.csv") for row in read_rows(path)]
    known = {normal((row["a"], row["b"])) for row in (*train, *dev) if "a" in row}
    texts = sorted(texts_of(train) - texts_of(dev))
    vectors = F.normalize(Embedder(config, fast=True)(texts, "", None), dim=1)
    cosines = (vectors @ vectors.T).fill_diagonal_(-2)
    wanted = {}
    for i, row in enumerate(cosines):
        for j in row.topk(3).indices.tolist():
            if normal((texts[i], texts[j])) not in known:
                wanted[normal((texts[i], texts[j]))] = float(row[j])
    found = find_pairs(config, "same", neighbours=3)
    assert found.num_texts == len(texts)
    assert found.held_out == len(texts_of(train) & texts_of(dev))
    own = {normal(pair): float(s) for pair, s in zip(found.texts, found.similarity, strict=True)}
    assert len(own) == len(found.texts)
    assert own.keys() == wanted.keys()
    assert own == pytest.approx(wanted, abs=1e-5)
    assert (np.diff(found.similarity) <= 0).all()


def test_a_number_of_them_is_drawn_by_the_seed(recipe):
    every = find_pairs(read_recipe(recipe), "same")
    some = [
        find_pairs(read_recipe(recipe, [f"seed={seed}"]), "same", count=10).texts
        for seed in (1, 1, 2)
    ]
    assert len(some[0]) == 10
    assert set(some[0]) < set(every.texts)
    assert some[0] == some[1] != some[2]


def test_vectors_are_as_the_encoder_makes_them(recipe):
    """Laid out for answering, an encoder answers the same."""
    from plait.model.encoder import load_encoder, pool
    from plait.model.sources import find_encoder
    from plait.types import Tokens

    config = read_recipe(recipe)
    embedder = Embedder(config)
    text = read_rows(recipe.parent / "same-train.csv")[0]["a"]
    ids, _ = embedder.tokenizer.encode([text], 30, "head")
    before, after = embedder.tokenizer.layout.single
    row = torch.tensor([[*before, *ids.tolist(), *after]])
    tokens = Tokens(row, torch.zeros_like(row), torch.ones_like(row, dtype=torch.bool))
    encoder = load_encoder(find_encoder(config.encoder.source)).eval()
    with torch.inference_mode():
        expected = pool(encoder(tokens), tokens.mask, config.encoder.pooling)
    torch.testing.assert_close(embedder([text], "", None), expected, atol=1e-5, rtol=1e-5)


NO_DEV = [f"tasks.{task}.dev=[]" for task in ("mood", "same", "near")]
LIKES = {"good": ["fine"], "film": ["movie"], "bad": ["poor"]}


def words_of(text):
    return re.findall(r"\w+", text.lower())


def draw(row, share, likes=LIKES, seed=0):
    return vary(row, likes, share, np.random.default_rng(seed))


# --- a row -------------------------------------------------------------------------------


def test_words_give_way_in_their_case_and_the_rest_stays():
    assert draw((" A GOOD, good Film-maker's\tfilm: goodness!",), 1.0) == (
        " A FINE, fine Movie-maker's\tmovie: goodness!",
    )


# --- words -------------------------------------------------------------------------------


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
