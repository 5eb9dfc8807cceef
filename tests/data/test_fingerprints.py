"""Fingerprints are blind to what does not matter, and to nothing else."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.data import Dataset, Tokenizer, shared_examples
from plait.data.fingerprints import fingerprint


def prints(*columns: list[str]) -> list[int]:
    return fingerprint([pa.array(column, pa.string()) for column in columns]).tolist()


def test_blind_to_case_punctuation_and_space() -> None:
    found = prints(["It's GOOD, really!", "its  good\treally", "  its good really ?"])
    assert len(set(found)) == 1


def test_pairs_in_either_order() -> None:
    first, second, other = prints(["a", "b", "a"], ["b", "a", "a"])
    assert first == second != other
    assert len(set(prints(["a", "c"], ["a", "c"]))) == 2  # equal texts do not cancel out


@given(st.lists(st.text("ab ", max_size=6), min_size=1))
def test_equal_exactly_where_texts_are(texts: list[str]) -> None:
    plain = [" ".join(text.split()) or text for text in texts]
    assert len(set(prints(texts))) == len(set(plain))


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_shared_examples(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr("plait.data.fingerprints.CHUNK", chunk)
    train = Dataset.from_texts([("a", "b"), ("c", "d"), ("e", "f")], tokenizer, 16)
    dev = Dataset.from_texts([("x", "y"), ("B.", "A"), ("b", "a"), ("c", "D!")], tokenizer, 16)
    found = shared_examples(train, dev)
    assert (found.count, found.ids) == (2, ("1", "3"))
    assert shared_examples(train, dev, num_ids=1).ids == ("1",)
