"""Texts are cut at spaces, and a word that was met before is not tokenised again.

A BERT tokenizer sees no more than a word at a time, and few words make up most of any text. So the
tokens of words are kept, and those of texts put together from them: the same tokens, in a fraction
of the time that it takes to look for the pieces of every word anew.
"""

from __future__ import annotations

import json
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import tokenizers

    Ints = npt.NDArray[np.int32]
    Longs = npt.NDArray[np.int64]

BATCH = 8192
"""Texts or words tokenised at once: enough to keep every core busy, 20 MB of encodings at most."""

ENOUGH = 500_000
"""Characters of words that are kept, some 15 MB with their tokens. What comes often comes early; a
word that is new later is tokenised whenever it comes."""


def encode(inner: tokenizers.Tokenizer, texts: Sequence[str]) -> tuple[Ints, Ints]:
    """Return the texts' tokens end to end, and how many each has. All cores take part."""
    flat: list[int] = []
    lengths = []
    for start in range(0, len(texts), BATCH):
        batch = texts[start : start + BATCH]
        for encoding in inner.encode_batch_fast(batch, add_special_tokens=False):
            ids = encoding.ids
            lengths.append(len(ids))
            flat += ids
    return np.array(flat, np.int32), np.array(lengths, np.int32)


class Words:
    """The tokens of words that a tokenizer has met."""

    _places: dict[str, int]
    """Which of the words kept a word is."""
    _tokens: Ints
    """All words' tokens, end to end."""
    _bounds: Longs
    """Where a word's tokens begin among them, and those of the word before end."""

    def __init__(self, inner: tokenizers.Tokenizer):
        self._inner = inner
        self._lock = Lock()
        self._size = 0
        self._places = {}
        self._tokens = np.empty(0, np.int32)
        self._bounds = np.zeros(1, np.int64)

    @staticmethod
    def suit(inner: tokenizers.Tokenizer) -> bool:
        """Say whether a text's tokens are those of its words, one word after the other.

        So they are if nothing that the tokenizer does reaches over a space.
        """
        said = json.loads(inner.to_str())
        kinds = {part: (said[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer")}
        return (
            said["model"].get("type") == "WordPiece"
            and kinds["normalizer"] in {None, "BertNormalizer"}
            and kinds["pre_tokenizer"] == "BertPreTokenizer"
            and not any(" " in token["content"] for token in said["added_tokens"])
        )

    def encode(self, texts: Any) -> tuple[Ints, Ints]:
        """Return the tokens of an array of strings end to end, and how many each string has."""
        cut = pc.split_pattern(texts, " ")
        words = pc.dictionary_encode(cut.flatten())
        with self._lock:
            tokens, starts, ends = self._look_up(words.dictionary.to_pylist())
        word = words.indices.to_numpy()
        lengths = (ends - starts)[word]
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        # what comes n tokens after a word's first here does so among the tokens kept
        flat = tokens[np.arange(bounds[-1]) + np.repeat(starts[word] - bounds[:-1], lengths)]
        texts_end = np.concatenate([[0], np.cumsum(pc.list_value_length(cut).to_numpy())])
        return flat, np.diff(bounds[texts_end]).astype(np.int32)

    def _look_up(self, words: Sequence[str]) -> tuple[Ints, Longs, Longs]:
        """Return tokens, and where those of each of some different words begin and end."""
        known = [self._places.get(word, -1) for word in words]
        new = [word for word, place in zip(words, known, strict=True) if place < 0]
        places = np.array(known, np.int64)
        places[places < 0] = np.arange(len(new)) + len(self._places)
        tokens, lengths = encode(self._inner, new)
        ends = len(self._tokens) + np.cumsum(lengths, dtype=np.int64)
        tokens = np.concatenate([self._tokens, tokens])
        bounds = np.concatenate([self._bounds, ends])
        if self._size < ENOUGH:
            self._size += sum(map(len, new))
            self._places |= {word: i for i, word in enumerate(new, len(self._places))}
            self._tokens, self._bounds = tokens, bounds
        return tokens, bounds[places], bounds[places + 1]
