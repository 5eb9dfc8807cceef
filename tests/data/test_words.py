"""Tokens put together from words are those that the tokenizer gives to whole texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers

from plait.data import Tokenizer
from plait.data.words import Words, encode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WORDS = ["good", "Bad", "film!", "don't", "[MASK]", "a[SEP]b", "[UNK]", "b" * 120, "", "héllo"]
ODD = ["\t", "\n", "\u00a0", "\u3000", "\u0301", "\u200b", "\ufffd", "中文", "Σς", "İ", "ǅ"]
ODD += ["😀", "\x7f"]
texts_of = st.lists(
    st.one_of(
        st.text(max_size=20),
        st.lists(st.sampled_from([*WORDS, *ODD, " "]), max_size=12).map("".join),
        st.lists(st.sampled_from([*WORDS, *ODD]), max_size=8).map(" ".join),
    ),
    max_size=12,
)


@pytest.fixture(scope="module", params=["uncased", "cased", "not normalised"])
def inner(request: pytest.FixtureRequest, vocabulary: Path) -> tokenizers.Tokenizer:
    found = Tokenizer.from_file(vocabulary)._inner
    if request.param == "cased":
        found.normalizer = normalizers.BertNormalizer(lowercase=False)
    elif request.param == "not normalised":
        found.normalizer = None
    return found


def whole(inner: tokenizers.Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    return [inner.encode(text, add_special_tokens=False).ids for text in texts]


def by_words(words: Words, texts: Sequence[str]) -> list[list[int]]:
    return parted(*words.encode(pa.array(texts, pa.string())))


def parted(flat: Any, lengths: Any) -> list[list[int]]:
    assert flat.dtype == lengths.dtype == np.int32
    assert len(flat) == lengths.sum()
    ends = np.cumsum(lengths)
    return [flat[end - length : end].tolist() for end, length in zip(ends, lengths, strict=True)]


@given(several=st.lists(texts_of, max_size=3))
def test_any_text(inner: tokenizers.Tokenizer, several: list[list[str]]) -> None:
    assert Words.suit(inner)
    words = Words(inner)
    for texts in several:  # words of the first are known to the next
        assert by_words(words, texts) == whole(inner, texts)
        assert parted(*encode(inner, texts)) == whole(inner, texts)


class Counting:
    """Lets a tokenizer work and notes on what."""

    def __init__(self, inner: tokenizers.Tokenizer):
        self.inner, self.asked = inner, []

    def encode_batch_fast(self, texts: list[str], **options: Any) -> Any:
        self.asked += texts
        return self.inner.encode_batch_fast(texts, **options)


def test_a_word_is_tokenised_once(inner: tokenizers.Tokenizer) -> None:
    counting = Counting(inner)
    words = Words(counting)
    words.encode(pa.array(["good film", "film good good"]))
    words.encode(pa.array(["bad film"]))
    assert sorted(counting.asked) == ["bad", "film", "good"]


def test_tokenizers_that_look_further(roberta: tokenizers.Tokenizer, vocabulary: Path) -> None:
    assert not Words.suit(roberta)
    spaced = Tokenizer.from_file(vocabulary)._inner
    assert Words.suit(spaced)
    spaced.add_tokens(["a b"])
    assert not Words.suit(spaced)
    other = Tokenizer.from_file(vocabulary)._inner
    other.pre_tokenizer = pre_tokenizers.Metaspace()
    assert not Words.suit(other)
    squeezed = Tokenizer.from_file(vocabulary)._inner
    squeezed.normalizer = normalizers.Replace(" ", "")
    assert not Words.suit(squeezed)
    plain = tokenizers.Tokenizer(models.WordLevel({"u": 0}, unk_token="u"))
    assert not Words.suit(plain)


@pytest.mark.parametrize("truncate", ["head", "head-tail"])
@pytest.mark.parametrize("limit", [None, 1, 2, 5])
@pytest.mark.parametrize("count", [3, 200])
def test_cut(tokenizer: Tokenizer, truncate: Any, limit: int | None, count: int) -> None:
    texts = [" ".join(["good", "bad", "film", "a", "b", "c", "d"][: i % 8]) for i in range(count)]
    flat, lengths = tokenizer.encode(texts, limit, truncate)
    full = whole(tokenizer._inner, texts)
    assert lengths.tolist() == [len(ids) for ids in full]
    expected = []
    for ids in full:
        if limit is None or len(ids) <= limit:
            expected += ids
        elif truncate == "head":
            expected += ids[:limit]
        else:
            expected += ids[: limit - limit // 2] + ids[len(ids) - limit // 2 :]
    assert flat.tolist() == expected
    again = tokenizer.encode(pa.array(texts), limit, truncate)
    assert all(np.array_equal(a, b) for a, b in zip((flat, lengths), again, strict=True))
