"""Texts are taken out of their data sets as they are, each once, in the order they appear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plait.data import ONE_TEXT, Collator, Dataset, Layout, Ragged
from plait.training.stages.base import Sources
from plait.training.stages.corpus import Corpus, Texts, every_text

Rows = Sequence[Sequence[int]]

LAYOUT = Layout(((101,), (102,)), ((101,), (102,), (102,)), 1, 0)


def ragged(rows: Rows) -> Ragged:
    lengths = [len(row) for row in rows]
    flat = np.array([token for row in rows for token in row], np.int32)
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Ragged(*map(torch.from_numpy, (flat, ends, np.array(lengths, np.int32))))


def dataset(*columns: Rows, held: Sequence[Sequence[bool]] | None = None) -> Dataset:
    made = Dataset(
        "t", tuple(map(ragged, columns)), None, (), np.empty(0, np.uint64), 6, lambda: ()
    )
    return made if held is None else replace(made, find_held_out=lambda: np.array(held, bool))


def tokens(texts: Texts, numbers: Sequence[int] | None = None) -> list[tuple[int, ...]]:
    """Return the tokens of some texts, or of all."""
    wanted = range(len(texts)) if numbers is None else numbers
    taken = texts.take(np.array(wanted, np.int64))
    bounds = taken.offsets.tolist()
    found = [tuple(taken.ids[a:b].tolist()) for a, b in pairwise(bounds)]
    assert [len(own) for own in found] == taken.lengths.tolist()
    return found


def every(*data: Dataset) -> Texts:
    return every_text(Sources({}, {}, {str(i): own for i, own in enumerate(data)}), True)


TEXT = st.lists(st.integers(0, 3), max_size=3)
PAIRS = st.lists(st.tuples(TEXT, TEXT, st.booleans(), st.booleans()), max_size=12)


@given(st.lists(PAIRS, min_size=1, max_size=3))
def test_every_text_once(sets: list[list[tuple[list[int], list[int], bool, bool]]]) -> None:
    """As a dict of all tokens, filled column by column, has them."""
    known: dict[tuple[int, ...], None] = {}
    data = []
    for rows in sets:
        for column in (0, 1):
            known |= {tuple(r[column]): None for r in rows if r[column] and not r[column + 2]}
        held = np.array([row[2:] for row in rows], bool).reshape(-1, 2)
        data.append(dataset([r[0] for r in rows], [r[1] for r in rows], held=held))
    assert tokens(every(*data)) == list(known)


def test_texts_in_any_order_and_twice() -> None:
    texts = Texts(
        [
            (ragged([[1, 2], [], [3]]), np.array([2, 0])),
            (ragged([[4]]), np.array([], np.int64)),  # none of it
            (ragged([[5, 6, 7], [8]]), np.array([1, 1, 0])),
        ]
    )
    assert tokens(texts) == [(3,), (1, 2), (8,), (8,), (5, 6, 7)]
    assert tokens(texts, [4, 0, 4, 1]) == [(5, 6, 7), (3,), (5, 6, 7), (1, 2)]
    assert len(every()) == len(every(dataset([[], []]))) == 0


@pytest.mark.parametrize("truncate", ["head", "head-tail"])
def test_batches_are_those_of_a_copy(truncate: str) -> None:
    """A corpus pads and cuts like a data set that holds the texts end to end."""
    rows = [[1, 2, 3, 4, 5, 6], [7], [8, 9], [1, 2, 3, 4, 5, 6], [3, 3, 3, 3]]
    collator = Collator(LAYOUT, 6, truncate=truncate)  # type: ignore[arg-type]
    data = dataset(rows)
    corpus = Corpus(every(data), collator, 6)
    found = corpus.tokens(torch.tensor([3, 0, 2]))
    copied = collator(data, torch.tensor([4, 0, 2]), ONE_TEXT).tokens
    assert torch.equal(found.ids, copied.ids)
    assert torch.equal(found.mask, copied.mask)
    assert found.ids.tolist()[2] == [101, 8, 9, 102, 0, 0]
