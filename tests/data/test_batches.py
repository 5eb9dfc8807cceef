"""Batches equal what the tokenizers library makes of the same texts."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import tokenizers
import torch
from torch import Tensor

from plait.data import Collator, Dataset, Rows, Tokenizer, collate, text_lengths
from plait.tasks import TaskSpec

SINGLE = TaskSpec(kind="binary", text="a")
JOINED = TaskSpec(kind="binary", text=("a", "b"))
APART = TaskSpec(kind="binary", text=("a", "b"), inputs="apart")


def words(generator: random.Random, longest: int) -> str:
    return " ".join(generator.choices("abc", k=generator.randint(1, longest)))


def random_pairs(longest: int, count: int = 300) -> list[tuple[str, ...]]:
    generator = random.Random(longest)
    return [(words(generator, longest), words(generator, longest)) for _ in range(count)]


def expected(
    tokenizer: Tokenizer, texts: list[tuple[str, ...]], max_length: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Let the library truncate (longest first) and pad."""
    inner = type(tokenizer._inner).from_str(tokenizer._inner.to_str())
    inner.enable_truncation(max_length, strategy="longest_first")
    inner.enable_padding(pad_id=tokenizer.pad_id)
    found = inner.encode_batch([t if len(t) == 2 else t[0] for t in texts])
    return (
        torch.tensor([e.ids for e in found]),
        torch.tensor([e.type_ids for e in found]),
        torch.tensor([e.attention_mask for e in found]).bool(),
    )


@pytest.fixture(params=["bert", "roberta"])
def any_tokenizer(
    request: pytest.FixtureRequest, tokenizer: Tokenizer, roberta: tokenizers.Tokenizer
) -> Tokenizer:
    return tokenizer if request.param == "bert" else Tokenizer(roberta)


def odd_one_out(dataset: Dataset, room: int) -> Tensor:
    """Mark pairs that share an odd room half and half.

    Which text gets the odd token, the library has decided differently in different releases.
    """
    shorter = torch.minimum(*(t.lengths for t in dataset.tokens))
    return (2 * shorter > room) & torch.tensor(room % 2 == 1)


@pytest.mark.parametrize("max_length", [8, 15, 16, 33])
@pytest.mark.parametrize("longest", [3, 14, 60])
def test_joined_pairs(any_tokenizer: Tokenizer, max_length: int, longest: int) -> None:
    pairs = random_pairs(longest)
    dataset = Dataset.from_texts(pairs, any_tokenizer, max_length)
    everything = torch.arange(len(pairs))
    layout = any_tokenizer.layout
    tokens = collate(dataset, everything, JOINED, layout, max_length=max_length).tokens
    ids, types, mask = expected(any_tokenizer, pairs, max_length)
    sure = ~odd_one_out(dataset, max_length - layout.num_pair)
    assert torch.equal(tokens.ids[sure], ids[sure])
    assert torch.equal(tokens.types[sure], types[sure])
    assert torch.equal(tokens.mask, mask)
    lengths = text_lengths(dataset, JOINED, layout, max_length)
    assert torch.equal(lengths, mask.sum(1))


@pytest.mark.parametrize("max_length", [8, 33])
def test_single_texts(any_tokenizer: Tokenizer, max_length: int) -> None:
    texts = [(first,) for first, _ in random_pairs(20)]
    dataset = Dataset.from_texts(texts, any_tokenizer, max_length)
    layout = any_tokenizer.layout
    rows = torch.tensor([5, 3, 200, 3])
    tokens = collate(dataset, rows, SINGLE, layout, max_length=max_length).tokens
    ids, types, mask = expected(any_tokenizer, [texts[i] for i in rows.tolist()], max_length)
    assert torch.equal(tokens.ids, ids)
    assert torch.equal(tokens.types, types)
    assert torch.equal(tokens.mask, mask)


def test_apart(tokenizer: Tokenizer) -> None:
    pairs = random_pairs(20, 50)
    dataset = Dataset.from_texts(pairs, tokenizer, 12)
    rows = torch.tensor([7, 0, 9])
    tokens = collate(dataset, rows, APART, tokenizer.layout, max_length=12).tokens
    apart = [(pairs[i][side],) for side in (0, 1) for i in rows.tolist()]
    ids, types, mask = expected(tokenizer, apart, 12)
    assert torch.equal(tokens.ids, ids)
    assert torch.equal(tokens.types, types)
    assert torch.equal(tokens.mask, mask)
    lengths = text_lengths(dataset, APART, tokenizer.layout, 12)[rows]
    assert torch.equal(lengths, mask.sum(1).view(2, 3).amax(0))


@pytest.mark.parametrize("spec", [JOINED, APART])
def test_iterate(tokenizer: Tokenizer, spec: TaskSpec) -> None:
    pairs = random_pairs(30, 100)
    dataset = Dataset.from_texts(pairs, tokenizer, 24)
    layout = tokenizer.layout
    lengths = text_lengths(dataset, spec, layout, 24)
    seen = []
    widths = []
    collator = Collator(layout, 24)
    for rows, batch in collator.iterate(dataset, spec, 16):
        again = collate(dataset, rows, spec, layout, max_length=24)
        assert torch.equal(batch.tokens.ids, again.tokens.ids)
        assert batch.tokens.ids.shape[1] == lengths[rows].max()
        seen += rows.tolist()
        widths.append(batch.tokens.ids.shape[1])
    assert sorted(seen) == list(range(100))
    assert widths == sorted(widths, reverse=True)
    some = torch.tensor([4, 90, 17])
    assert sorted(
        int(i) for rows, _ in collator.iterate(dataset, spec, 2, rows=some) for i in rows
    ) == [4, 17, 90]


@pytest.mark.parametrize("spec", [JOINED, APART])
@pytest.mark.parametrize("length", [20, 40])
def test_rows_laid_out_give_the_same_batches(
    tokenizer: Tokenizer, spec: TaskSpec, length: int
) -> None:
    dataset = replace(
        Dataset.from_texts(random_pairs(30, 100), tokenizer, 24), labels=torch.arange(100.0)
    )
    rows = Rows(dataset, spec, Collator(tokenizer.layout, 24))
    some = (rows.lengths().amax(0) <= length).nonzero().flatten()[:7]
    assert len(some) > 3
    one = rows(some, length=length, total=99)
    other = rows.lay_out(torch.device("cpu"))(some, length=length, total=99)
    assert torch.equal(one.tokens.mask, other.tokens.mask)
    assert torch.equal(one.tokens.ids * one.tokens.mask, other.tokens.ids * one.tokens.mask)
    assert torch.equal(one.tokens.types, other.tokens.types)
    assert one.tokens.total == other.tokens.total == 99
    assert torch.equal(one.labels, other.labels)
    laid_out = rows.lay_out(torch.device("cpu"))
    parts = (laid_out.ids, laid_out.types, laid_out.mask)
    assert rows.num_bytes == sum(part.nbytes for part in parts)


# --- beginning and end -------------------------------------------------------------------


def both_ends(tokens: list[int], room: int) -> list[int]:
    """Half of the room each for the beginning and the end, the odd token for the beginning."""
    tail = room // 2
    return tokens if len(tokens) <= room else tokens[: room - tail] + tokens[len(tokens) - tail :]


@pytest.mark.parametrize("max_length", [8, 15, 16, 33])
@pytest.mark.parametrize("spec", [SINGLE, JOINED, APART], ids=["single", "joined", "apart"])
def test_beginning_and_end(tokenizer: Tokenizer, spec: TaskSpec, max_length: int) -> None:
    pairs = [pair[: len(spec.text)] for pair in random_pairs(60, 60)]
    dataset = Dataset.from_texts(pairs, tokenizer, max_length, truncate="head-tail")
    layout, everything = tokenizer.layout, torch.arange(len(pairs))
    found = Collator(layout, max_length, truncate="head-tail")(dataset, everything, spec).tokens
    plain = Dataset.from_texts(pairs, tokenizer, max_length)
    cut = collate(plain, everything, spec, layout, max_length=max_length).tokens
    assert torch.equal(found.mask, cut.mask)  # as many tokens of each text as without
    assert torch.equal(found.types, cut.types)
    if spec is JOINED:
        kept = [
            (int((~t.bool()[m]).sum()) - 2, int(t.sum()) - 1)
            for t, m in zip(cut.types, cut.mask, strict=True)
        ]
    else:
        kept = [(int(m.sum()) - 2,) for m in cut.mask]
    rows = [
        pair if spec is JOINED else (pair[i],)
        for i in range(1 if spec is JOINED else len(spec.text))
        for pair in pairs
    ]
    for texts, counts, ids, mask in zip(rows, kept, found.ids, found.mask, strict=True):
        wanted = [layout.single[0][0]]
        for text, count in zip(texts, counts, strict=True):
            whole = tokenizer.encode([text])[0].tolist()
            wanted += [*both_ends(whole, count), layout.single[1][0]]
        assert ids[mask].tolist() == wanted
