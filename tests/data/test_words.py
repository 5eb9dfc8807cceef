"""Tokens put together from words are those that the tokenizer gives to whole texts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import tokenizers
from hypothesis import given, settings
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


@settings(max_examples=300)
@given(several=st.lists(texts_of, max_size=3))
def test_any_text(inner: tokenizers.Tokenizer, several: list[list[str]]) -> None:
    assert Words.suit(inner)
    words = Words(inner)
    for texts in several:  # words of the first are known to the next
        assert by_words(words, texts) == whole(inner, texts)
        assert parted(*encode(inner, texts)) == whole(inner, texts)


def test_a_slice(inner: tokenizers.Tokenizer) -> None:
    texts = ["good film", "bad  film", "", "a b", "film"]
    some = pa.array(texts, pa.string()).slice(1, 3)
    assert parted(*Words(inner).encode(some)) == whole(inner, texts[1:4])


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


def test_only_so_many_words_are_kept(
    inner: tokenizers.Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.data.words.ENOUGH", 20)
    counting = Counting(inner)
    words = Words(counting)
    for turn in range(30):
        texts = [f"good film {turn}", f"bad {turn} {turn + 1}"]
        assert by_words(words, texts) == whole(inner, texts)
        assert len(words._places) <= 15
        assert len(words._tokens) <= 30
    assert counting.asked.count("good") == 1  # the first are those that stay
    assert counting.asked.count("29") == 2


def test_threads_share_words(inner: tokenizers.Tokenizer) -> None:
    texts = [[f"w{i % 7}{j} film {i * j}" for j in range(200)] for i in range(24)]
    words = Words(inner)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda some: by_words(words, some), texts))
    assert found == [whole(inner, some) for some in texts]


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


def test_many_texts_of_a_tokenizer_that_looks_further(roberta: tokenizers.Tokenizer) -> None:
    texts = ["a b c", "c  c", "a"] * 50
    flat, lengths = Tokenizer(roberta).encode(texts)
    assert parted(flat, lengths) == whole(roberta, texts)
