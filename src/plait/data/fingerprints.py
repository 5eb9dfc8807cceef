"""Texts become 64-bit fingerprints, by which the examples two datasets share are found.

Two texts that differ in case, punctuation or spacing alone have the same fingerprint, and so
have two pairs that differ in the order of their texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from plait.data.store import Dataset

    Hashes = npt.NDArray[np.uint64]

_BASE = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_SHIFT = np.uint64(33)
_BYTES = np.random.default_rng(0).integers(1, 2**64, 256, np.uint64)
"""A random number for every byte. Changing it changes every fingerprint: see cache.FORMAT."""


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
    return _mix(_hash(_normalise(text)))


def join_keys(*keys: Hashes) -> Hashes:
    """Return the fingerprints of rows whose texts have these keys, column by column."""
    total = np.zeros(len(keys[0]), np.uint64)
    for column in keys:
        total += column  # a sum does not mind the order of a pair
    return _mix(total)


def shared_examples(first: Dataset, second: Dataset, num_ids: int = 5) -> Shared:
    """Return which examples of `second` are in `first`, too."""
    found, rows = np.unique(second.fingerprints, return_index=True)
    rows = np.sort(rows[np.isin(found, first.fingerprints)])
    return Shared(len(rows), tuple(second.ids[int(row)] for row in rows[:num_ids]))


def _normalise(text: Any) -> Any:
    lower = pc.utf8_lower(text)
    bare = pc.replace_substring_regex(lower, r"[^\p{L}\p{M}\p{N}\s\p{Z}]+", "")
    bare = pc.utf8_trim_whitespace(pc.replace_substring_regex(bare, r"[\s\p{Z}]+", " "))
    # '?!' and '...' would all be one empty text
    return pc.if_else(pc.equal(bare, ""), lower, bare)


def _hash(text: Any) -> Hashes:
    """Hash every string of an array: the sum of a number per byte times a power per place."""
    if len(text) == 0:
        return np.empty(0, np.uint64)
    bounds: npt.NDArray[np.int32]
    bounds = np.frombuffer(text.buffers()[1], np.int32)[text.offset :][: len(text) + 1]
    data = np.frombuffer(text.buffers()[2], np.uint8)[bounds[0] : bounds[-1]]
    ends = (bounds[1:] - bounds[0]).astype(np.int64)
    lengths = np.diff(bounds).astype(np.int64)
    powers = np.full(int(lengths.max()), _BASE)
    np.multiply.accumulate(powers, out=powers)
    places = np.arange(len(data)) - np.repeat(ends - lengths, lengths)
    sums = np.zeros(len(data) + 1, np.uint64)
    np.cumsum(_BYTES[data] * powers[places], out=sums[1:])  # wraps, so differences are exact
    hashes: Hashes = sums[ends] - sums[ends - lengths] + lengths.astype(np.uint64)
    return hashes


def _mix(values: Hashes) -> Hashes:
    """Spread every bit over all others (the finaliser of MurmurHash3)."""
    for factor in _MIX:
        values = (values ^ (values >> _SHIFT)) * factor
    return values ^ (values >> _SHIFT)
