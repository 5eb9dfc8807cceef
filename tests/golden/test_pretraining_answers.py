"""Pre-training against worked values, other libraries' formulas and transformers' own head."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from plait.model.encoder import build_encoder
from plait.tasks import TaskSpec
from plait.training.stages.contrast import ContrastiveLoss
from plait.training.stages.mlm import IGNORED, MaskedWords, WordHead, mask_words
from plait.training.stages.simcse import InfoNCE
from plait.types import Tokens

# --- SimCSE ------------------------------------------------------------------------------


def ranking_loss(anchors, *others, scale=20.0):
    """MultipleNegativesRankingLoss as its documentation writes it, example by example."""
    candidates = torch.cat(others)
    total = 0.0
    for i, anchor in enumerate(anchors):
        scores = [scale * F.cosine_similarity(anchor, other, dim=0) for other in candidates]
        total += torch.logsumexp(torch.stack(scores), 0) - scores[i]
    return total / len(anchors)


@pytest.mark.parametrize("columns", [2, 3])
def test_info_nce_is_the_ranking_loss_at_a_scale_of_1_over_temperature(columns):
    generator = torch.Generator().manual_seed(1)
    parts = [torch.randn(5, 7, generator=generator, dtype=torch.float64) for _ in range(columns)]
    ours = InfoNCE(0.05)(torch.cat(parts), torch.arange(5))
    torch.testing.assert_close(ours, ranking_loss(*parts))


class FixedVectors(torch.nn.Module):
    """A stand-in for a SentenceTransformer: what it is fed are the vectors already."""

    def forward(self, features):
        return features


@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("temperature", [0.05, 0.2])
def test_info_nce_is_that_of_sentence_transformers(columns, temperature):
    """For pairs and triplets, the loss and its gradient on every vector."""
    losses = pytest.importorskip("sentence_transformers.losses")
    theirs = losses.MultipleNegativesRankingLoss(FixedVectors(), scale=1 / temperature)
    generator = torch.Generator().manual_seed(columns)
    parts = [torch.randn(6, 9, generator=generator, dtype=torch.float64) for _ in range(columns)]
    ours, others = ([part.clone().requires_grad_() for part in parts] for _ in range(2))
    expected = theirs([{"sentence_embedding": part} for part in others], None)
    loss = InfoNCE(temperature)(torch.cat(ours), torch.arange(6))
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-6)
    loss.backward()
    expected.backward()
    for own, other in zip(ours, others, strict=True):
        assert own.grad.abs().max() > 1e-3
        torch.testing.assert_close(own.grad, other.grad, rtol=0, atol=1e-6)


def test_info_nce_by_hand():
    # Cosines: anchor 0 has 1 and 0, anchor 1 has 0 and 1; at temperature 1 -log(e / (e + 1)).
    vectors = torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 0.0], [0.0, 5.0]])
    loss = InfoNCE(1.0)(vectors, torch.arange(2))
    assert float(loss) == pytest.approx(math.log(1 + math.exp(-1)))
    # hard negatives opposite to their anchors: cosines -1 and 0 join the sum
    more = torch.cat([vectors, torch.tensor([[-1.0, 0.0], [0.0, -4.0]])])
    loss = InfoNCE(1.0)(more, torch.arange(2))
    assert float(loss) == pytest.approx(math.log(1 + 2 * math.exp(-1) + math.exp(-2)))


# --- masked words ------------------------------------------------------------------------

SPECIAL = (0, 1, 2, 3)  # padding, [CLS], [SEP], [MASK]


def many_tokens(rows=400, length=52):
    ids = np.random.default_rng(3).integers(10, 1000, (rows, length))
    lengths = np.random.default_rng(4).integers(3, length + 1, rows)
    mask = np.arange(length) < lengths[:, None]
    ids[:, 0] = 1
    ids[np.arange(rows), lengths - 1] = 2
    ids = np.where(mask, ids, 0)
    return Tokens(*map(torch.from_numpy, (ids, np.zeros_like(ids), mask)))


def hide(tokens, seed=0, rate=0.15):
    return mask_words(
        tokens,
        np.random.default_rng(seed),
        rate=rate,
        mask_id=3,
        num_words=1000,
        special=SPECIAL,
    )


def test_the_shares_of_masked_words():
    tokens = many_tokens()
    batch = hide(tokens)
    places, words = batch.labels.unbind(1)
    real = words != IGNORED
    assert torch.equal(tokens.ids.gather(1, places)[real], words[real])
    chosen = torch.zeros_like(tokens.mask).scatter_(1, places, real)
    is_open = tokens.mask & (tokens.ids > 3)
    assert not (chosen & ~is_open).any()
    num_open, num = int(is_open.sum()), int(chosen.sum())
    # within four deviations of a binomial
    assert abs(num / num_open - 0.15) < 4 * math.sqrt(0.15 * 0.85 / num_open)
    seen, was = batch.tokens.ids[chosen], tokens.ids[chosen]
    for share, expected in (
        ((seen == 3).float().mean(), 0.8),
        ((seen == was).float().mean(), 0.1 + 0.1 / 1000),
        (((seen != 3) & (seen != was)).float().mean(), 0.1),
    ):
        assert abs(float(share) - expected) < 4 * math.sqrt(expected * (1 - expected) / num)
    assert torch.equal(batch.tokens.ids[~chosen], tokens.ids[~chosen])
    assert torch.equal(batch.tokens.mask, tokens.mask)


def make_pair(hidden_act="gelu"):
    """A tiny BertForMaskedLM of transformers', and our encoder and head with its weights."""
    transformers = pytest.importorskip("transformers")
    config = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "vocab_size": 1000,
        "max_position_embeddings": 64,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.2,
        "hidden_act": hidden_act,
    }
    torch.manual_seed(0)
    theirs = transformers.BertForMaskedLM(transformers.BertConfig(**config)).eval()
    encoder = build_encoder({"model_type": "bert", **config})
    head = WordHead(encoder)
    with torch.no_grad():
        encoder.embeddings.word.weight.copy_(theirs.get_input_embeddings().weight)
        predictions = theirs.cls.predictions
        predictions.bias.normal_()
        head.dense.load_state_dict(predictions.transform.dense.state_dict())
        head.norm.load_state_dict(predictions.transform.LayerNorm.state_dict())
        head.bias.copy_(predictions.bias)
    return theirs, encoder, head


def test_the_head_is_that_of_transformers():
    theirs, _, head = make_pair()
    hidden = torch.randn(3, 5, 16)
    torch.testing.assert_close(head.decode(head(hidden)), theirs.cls(hidden), rtol=1e-5, atol=1e-5)


def test_the_head_of_an_encoder_whose_words_are_narrower_than_its_layers():
    transformers = pytest.importorskip("transformers")
    config = {"hidden_size": 16, "embedding_size": 6, "num_attention_heads": 2, "vocab_size": 50}
    config |= {"intermediate_size": 24, "num_hidden_layers": 1, "hidden_act": "gelu"}
    torch.manual_seed(0)
    theirs = transformers.AlbertForMaskedLM(transformers.AlbertConfig(**config)).eval()
    encoder = build_encoder({"model_type": "albert", **config}, "auto")
    head = WordHead(encoder)
    with torch.no_grad():
        encoder.word_table().copy_(theirs.get_input_embeddings().weight)
        head.dense.load_state_dict(theirs.predictions.dense.state_dict())
        head.norm.load_state_dict(theirs.predictions.LayerNorm.state_dict())
    hidden = torch.randn(3, 5, 16)
    torch.testing.assert_close(head.decode(head(hidden)), theirs.predictions(hidden))


def test_the_loss_is_over_the_chosen_places_alone():
    theirs, _, head = make_pair()
    tokens = many_tokens(6, 20)
    batch = hide(tokens, rate=0.4)
    places, words = batch.labels.unbind(1)
    flat = torch.full_like(tokens.ids, IGNORED)
    for row in range(6):
        for place, word in zip(places[row].tolist(), words[row].tolist(), strict=True):
            if word != IGNORED:
                flat[row, place] = word
    hidden = torch.randn(6, 20, 16, requires_grad=True)
    expected = F.cross_entropy(theirs.cls(hidden).flatten(0, 1), flat.flatten())
    loss = MaskedWords(head)(head(hidden), batch.labels)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    touched = hidden.grad.abs().sum(-1) > 0
    assert torch.equal(touched, flat != IGNORED)


def test_the_word_table_learns_through_the_head_and_is_not_the_heads():
    _, encoder, head = make_pair()
    assert {name for name, _ in head.named_parameters()} == {
        "bias",
        "dense.weight",
        "dense.bias",
        "norm.weight",
        "norm.bias",
    }
    labels = torch.tensor([[[1, 2], [7, IGNORED]]])
    MaskedWords(head)(head(torch.randn(1, 4, 16)), labels).backward()
    gradient = encoder.word_table().grad
    assert encoder.word_table() is encoder.embeddings.word.weight
    assert (gradient.abs().sum(1) > 0).all()  # every word is in the softmax


# --- contrast on labelled rows -----------------------------------------------------------


def test_supcon_by_hand():
    """Two rows of one class at a right angle, and one of another class opposite to the first."""
    vectors = torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]])
    spec = TaskSpec(kind="classes", labels=("a", "b"), text="t")
    found = ContrastiveLoss(spec, 0.5)(vectors, torch.tensor([0, 0, 1]))
    # Cosines over .5: row 0 has 0 and -2, row 1 has 0 and 0; row 2 has no positive.
    first, second = math.log(1 + math.exp(-2)), math.log(2)
    assert found.item() == pytest.approx((first + second) / 2)
