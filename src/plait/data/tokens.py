"""Texts become token ids, and a tokenizer file tells how special tokens surround them."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from plait.data.source import pieces
from plait.data.words import Words, encode
from plait.errors import EncoderError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from plait.types import Truncate

    Ints = npt.NDArray[np.int32]

PIECE = 1 << 20
"""Bytes of text that are tokenised together."""

MANY = 64
"""Texts of which some words are likely to be the same: fewer are tokenised as they are."""

_PAD_NAMES = ("[PAD]", "<pad>")
_MASK_NAMES = ("[MASK]", "<mask>")
_UNKNOWN_NAMES = ("[UNK]", "<unk>")


@dataclass(frozen=True, slots=True)
class Layout:
    """Which special tokens stand before, between and after texts (ids), and what fills up."""

    single: tuple[tuple[int, ...], tuple[int, ...]]
    """Before and after one text. BERT: [CLS], [SEP]."""
    pair: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    """Before, between and after two. BERT: [CLS], [SEP], [SEP]."""
    second_type: int
    """Segment id of the second text and of what follows it. BERT: 1; RoBERTa: 0."""
    pad_id: int

    @property
    def num_single(self) -> int:
        """How many special tokens go with one text."""
        return sum(map(len, self.single))

    @property
    def num_pair(self) -> int:
        """How many special tokens go with a pair."""
        return sum(map(len, self.pair))


class Tokenizer:
    """A tokenizer of the Hub's making, used for its token ids alone."""

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        *,
        pad: str | None = None,
        mask: str | None = None,
        unknown: str | None = None,
    ):
        padding = inner.padding
        inner.no_truncation()
        inner.no_padding()
        self._inner = inner
        pad_id = self._find(pad, _PAD_NAMES)
        if pad_id is None:
            pad_id = padding["pad_id"] if padding else 0
        self.pad_id: int = pad_id
        self.mask_id: int | None = self._find(mask, _MASK_NAMES)
        self.unknown_id: int | None = self._find(unknown, _UNKNOWN_NAMES)
        _settle_parallelism()

    @classmethod
    def from_file(cls, path: Path | str) -> Tokenizer:
        """Read a tokenizer.json, or a BERT vocab.txt."""
        path = Path(path)
        if not path.is_file():
            raise EncoderError(f"there is no tokenizer file {path}")
        settings = _read_settings(path.parent)
        if path.suffix == ".txt":
            inner = _from_vocabulary(path, lower=settings.get("do_lower_case", True) is not False)
        else:
            try:
                inner = tokenizers.Tokenizer.from_file(str(path))
            except Exception as error:  # the library raises plain Exception
                raise EncoderError(f"{path} is not a tokenizer file: {error}") from error
        names = {key: settings.get(f"{key}_token") for key in ("pad", "mask")}
        return cls(inner, **names, unknown=settings.get("unk_token"))

    def save(self, path: Path | str) -> None:
        """Write a tokenizer.json."""
        Path(path).write_text(self._inner.to_str(pretty=True), encoding="utf-8")

    def __len__(self) -> int:
        """Size of the vocabulary, added tokens included."""
        return int(self._inner.get_vocab_size(with_added_tokens=True))

    @cached_property
    def _words(self) -> Words | None:
        return Words(self._inner) if Words.suit(self._inner) else None

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that decides how a text is cut into tokens."""
        return hashlib.blake2b(self._inner.to_str().encode("utf-8"), digest_size=16).hexdigest()

    @cached_property
    def layout(self) -> Layout:
        """How the tokenizer surrounds texts, found by letting it encode some."""
        one, two = self._inner.encode("a"), self._inner.encode("a", "b")
        before, after = _specials(one, 1)
        first, between, last = _specials(two, 2)
        second_type = two.type_ids[-len(last) - 1]
        return Layout((before, after), (first, between, last), second_type, self.pad_id)

    def encode(
        self, texts: Sequence[str] | Any, limit: int | None = None, truncate: Truncate = "head"
    ) -> tuple[Ints, Ints]:
        """Return the texts' tokens end to end, each cut to `limit`, and their uncut lengths.

        No special tokens. The texts may be a pyarrow array of strings.
        """
        strings = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
        words = self._words if len(strings) >= MANY else None
        parts = [(np.empty(0, np.int32), np.empty(0, np.int32))]
        for some in pieces(strings, PIECE):
            flat, lengths = words.encode(some) if words else encode(self._inner, some.to_pylist())
            parts.append((_cut(flat, lengths, limit, truncate), lengths))
        every_flat, every_length = map(np.concatenate, zip(*parts, strict=True))
        return every_flat, every_length

    def _find(self, name: str | None, usual: tuple[str, ...]) -> int | None:
        for candidate in (name, *usual):
            if candidate is not None:
                found = self._inner.token_to_id(candidate)
                if found is not None:
                    return int(found)
        return None


def _cut(flat: Ints, lengths: Ints, limit: int | None, truncate: Truncate) -> Ints:
    """Leave `limit` tokens of every text, given all texts' end to end."""
    if limit is None or lengths.max(initial=0) <= limit:
        return flat
    tail = limit // 2 if truncate == "head-tail" else 0
    ends = np.cumsum(lengths, dtype=np.int64)
    from_start = np.arange(len(flat)) - np.repeat(ends - lengths, lengths)
    to_end = np.repeat(ends, lengths) - np.arange(len(flat))
    is_short = np.repeat(lengths <= limit, lengths)
    cut: Ints = flat[is_short | (from_start < limit - tail) | (to_end <= tail)]
    return cut


def _specials(encoding: Any, num_texts: int) -> tuple[tuple[int, ...], ...]:
    """Return the runs of special ids around and between an encoding's texts."""
    runs: list[tuple[int, ...]] = [()]
    marked = zip(encoding.special_tokens_mask, encoding.sequence_ids, encoding.ids, strict=True)
    for (special, _), group in groupby(marked, key=lambda token: token[:2]):
        if special:
            runs[-1] = tuple(token[2] for token in group)
        else:
            runs.append(())
    if len(runs) != num_texts + 1:
        raise EncoderError("the tokenizer's handling of special tokens is not supported")
    return tuple(runs)


def _read_settings(folder: Path) -> dict[str, Any]:
    """Read what stands beside a tokenizer: casing and the names of special tokens."""
    settings: dict[str, Any] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        path = folder / name
        if path.is_file():
            try:
                found = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise EncoderError(f"{path} cannot be read: {error}") from error
            settings |= found if isinstance(found, dict) else {}
    # a special token is its text, or a table with its text as content
    return {k: v.get("content") if isinstance(v, dict) else v for k, v in settings.items()}


def _from_vocabulary(path: Path, *, lower: bool) -> tokenizers.Tokenizer:
    try:
        words = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise EncoderError(f"{path} cannot be read: {error}") from error
    vocabulary = {word.strip(): i for i, word in enumerate(words)}
    special = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
    for token in special[:4]:
        if token not in vocabulary:
            raise EncoderError(f"{path} is not a BERT vocabulary: it has no {token}")
    inner = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=lower)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    inner.decoder = decoders.WordPiece()
    inner.add_special_tokens([token for token in special if token in vocabulary])
    return inner


def _settle_parallelism() -> None:
    """Encode on all cores here, and on one in forked children, where threads do not survive.

    Left unset, the library warns at every fork.
    """
    if "TOKENIZERS_PARALLELISM" in os.environ:
        return
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            after_in_child=lambda: os.environ.update(TOKENIZERS_PARALLELISM="false")
        )
