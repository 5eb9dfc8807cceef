"""Pairs that mean the same become groups of texts: whatever is linked, over any number of steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from plait.data.fingerprints import text_keys

if TYPE_CHECKING:
    import numpy.typing as npt

    from plait.data.fingerprints import Hashes
    from plait.data.store import Dataset


def group_keys(first: Hashes, second: Hashes) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """Return every key, rising, and the number of its group; pair i links first[i] and second[i].

    Groups are numbered by their least key, so that the order of the pairs does not matter.
    """
    keys, places = np.unique(np.concatenate([first, second]), return_inverse=True)
    a, b = np.split(places.reshape(-1), 2)
    parents = list(range(len(keys)))

    def root(node: int) -> int:
        while parents[node] != node:
            parents[node] = parents[parents[node]]  # halves the way for whoever comes next
            node = parents[node]
        return node

    for one, other in zip(a.tolist(), b.tolist(), strict=True):
        low, high = sorted((root(one), root(other)))
        parents[high] = low  # the least key of a group is its root
    roots = np.array([root(node) for node in range(len(keys))], np.int64)
    _, numbers = np.unique(roots, return_inverse=True)
    return keys, numbers.reshape(-1)


def find_implied(train: Dataset, dev: Dataset) -> npt.NDArray[np.bool_]:
    """Say which pairs of `dev` follow from the positive pairs of `train`, being in one group.

    Both are pairs labelled 0 and 1; a pair that is in `train` itself follows, too. Texts are
    read out of their files again.
    """
    assert train.labels is not None
    first, second = _pair_keys(train)
    same = train.labels.numpy() == 1
    keys, groups = group_keys(first[same], second[same])
    if not len(keys):
        return np.zeros(len(dev), bool)
    numbers, known = [], []
    for column in _pair_keys(dev):
        places = np.minimum(np.searchsorted(keys, column), len(keys) - 1)
        numbers.append(groups[places])
        known.append(keys[places] == column)
    found: npt.NDArray[np.bool_] = known[0] & known[1] & (numbers[0] == numbers[1])
    return found


def _pair_keys(dataset: Dataset) -> tuple[Hashes, Hashes]:
    first, second = zip(*dataset.read_texts(), strict=True)
    return text_keys(pa.array(first, pa.string())), text_keys(pa.array(second, pa.string()))
