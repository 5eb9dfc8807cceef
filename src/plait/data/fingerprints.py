"""Texts become 64-bit fingerprints, by which the examples two datasets share are found.

Two texts that differ in case, punctuation or spacing alone have the same fingerprint, and so
have two pairs that differ in the order of their texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.data.source import pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from plait.data.store import Dataset

    Hashes = npt.NDArray[np.uint64]

_BASE = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_SHIFT = np.uint64(33)
_BYTES = np.random.default_rng(0).integers(1, 2**64, 256, np.uint64)
"""A random number for every byte. Changing it changes every fingerprint: see cache.FORMAT."""


CHUNK = 1 << 14
"""Rows that are looked at together."""

PIECE = 1 << 18
"""Bytes of text that are hashed together: what is computed on the way takes fifty times as many."""


@dataclass(frozen=True, slots=True)
class Shared:
    """Examples of one dataset that another has too."""

    count: int
    """How many, each counted once however often it stands there."""
    ids: tuple[str, ...]
    """Row ids of the first few."""


def fingerprint(texts: Sequence[Any]) -> Hashes:
    """Return one fingerprint per row of one or two pyarrow string arrays."""
    return join_keys(*map(text_keys, texts))


def text_keys(text: Any) -> Hashes:
    """Return one key per string of a pyarrow array: equal for texts that count as the same."""
    keys = [_mix(_hash_strings(_normalise(some))) for some in pieces(text, PIECE)]
    return np.concatenate([np.empty(0, np.uint64), *keys])


def token_keys(tokens: npt.NDArray[np.int32], lengths: npt.NDArray[np.int64]) -> Hashes:
    """Return one key per text, given its tokens end to end: equal for the same tokens."""
    return _mix(_hash(_mix(tokens.astype(np.uint64) + _BASE), lengths))


def join_keys(*keys: Hashes) -> Hashes:
    """Return the fingerprints of rows whose texts have these keys, column by column."""
    total = np.zeros(len(keys[0]), np.uint64)
    for column in keys:
        total += column  # a sum does not mind the order of a pair
    return _mix(total)


def is_among(keys: Hashes, known: Hashes) -> npt.NDArray[np.bool_]:
    """Say which keys are among known ones, which are rising."""
    if not len(known):
        return np.zeros(len(keys), bool)
    found: npt.NDArray[np.bool_] = known[_nearest(keys, known)] == keys
    return found


def read_keys(dataset: Dataset) -> Iterator[tuple[Hashes, ...]]:
    """Read a data set's texts again; yield the keys of each column, a chunk of rows at a time."""
    texts = iter(dataset.read_texts())
    while some := list(islice(texts, CHUNK)):
        columns = zip(*some, strict=True)
        yield tuple(text_keys(pa.array(column, pa.string())) for column in columns)


def shared_examples(first: Dataset, second: Dataset, num_ids: int = 5) -> Shared:
    """Return which examples of `second` are in `first`, too."""
    found, rows = np.unique(second.fingerprints, return_index=True)
    shared = np.zeros(len(found), bool)
    for start in range(0, len(first.fingerprints) if len(found) else 0, CHUNK):
        some = first.fingerprints[start : start + CHUNK]
        places = _nearest(some, found)
        shared[places[found[places] == some]] = True
    rows = np.sort(rows[shared])
    return Shared(len(rows), tuple(second.ids[int(row)] for row in rows[:num_ids]))


def _nearest(keys: Hashes, known: Hashes) -> npt.NDArray[np.int64]:
    """Return where keys are among known ones, or would be."""
    return np.minimum(np.searchsorted(known, keys), len(known) - 1)


def _normalise(text: Any) -> Any:
    lower = pc.utf8_lower(text)
    bare = pc.replace_substring_regex(lower, r"[^\p{L}\p{M}\p{N}\s\p{Z}]+", "")
    bare = pc.utf8_trim_whitespace(pc.replace_substring_regex(bare, r"[\s\p{Z}]+", " "))
    # '?!' and '...' would all be one empty text
    return pc.if_else(pc.equal(bare, ""), lower, bare)


def _hash_strings(text: Any) -> Hashes:
    """Hash every string of an array, byte by byte."""
    if len(text) == 0:
        return np.empty(0, np.uint64)
    bounds: npt.NDArray[np.int32]
    bounds = np.frombuffer(text.buffers()[1], np.int32)[text.offset :][: len(text) + 1]
    data = np.frombuffer(text.buffers()[2], np.uint8)[bounds[0] : bounds[-1]]
    return _hash(_BYTES[data], np.diff(bounds).astype(np.int64))


def _hash(numbers: Hashes, lengths: npt.NDArray[np.int64]) -> Hashes:
    """Hash rows end to end: the sum of their numbers, each times a power for its place."""
    ends = np.cumsum(lengths)
    powers = np.full(int(lengths.max(initial=0)), _BASE)
    np.multiply.accumulate(powers, out=powers)
    places = np.arange(len(numbers)) - np.repeat(ends - lengths, lengths)
    sums = np.zeros(len(numbers) + 1, np.uint64)
    np.cumsum(numbers * powers[places], out=sums[1:])  # wraps, so differences are exact
    hashes: Hashes = sums[ends] - sums[ends - lengths] + lengths.astype(np.uint64)
    return hashes


def _mix(values: Hashes) -> Hashes:
    """Spread every bit over all others (the finaliser of MurmurHash3)."""
    for factor in _MIX:
        values = (values ^ (values >> _SHIFT)) * factor
    return values ^ (values >> _SHIFT)
