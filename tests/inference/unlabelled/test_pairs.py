"""New pairs of a task's training texts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from csv_rows import read_rows
from plait.config import read_recipe
from plait.inference.frozen import Embedder
from plait.inference.unlabelled import find_pairs


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
