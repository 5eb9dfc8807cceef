"""Pairs that mean the same become groups of texts: whatever is linked, over any number of steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plait.data.fingerprints import read_keys

if TYPE_CHECKING:
    import numpy.typing as npt

    from plait.data.fingerprints import Hashes
    from plait.data.store import Dataset

    Nodes = npt.NDArray[np.int64]


def group_keys(first: Hashes, second: Hashes) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """Return every key, rising, and the number of its group; pair i links first[i] and second[i].

    Groups are numbered by their least key, so that the order of the pairs does not matter.
    """
    keys, places = np.unique(np.concatenate([first, second]), return_inverse=True)
    a, b = np.split(places.reshape(-1), 2)
    _, numbers = np.unique(_find_roots(a, b, len(keys)), return_inverse=True)
    return keys, numbers.reshape(-1)


def _find_roots(a: Nodes, b: Nodes, count: int) -> Nodes:
    """Return the least node of each node's group, where a[i] and b[i] are in one.

    Hooking and jumping (Shiloach & Vishkin 1982): the larger of two roots with a link between
    them comes under the smaller, then every node under its root's root, until no link has two.
    """
    roots = np.arange(count)
    while True:
        low, high = np.minimum(roots[a], roots[b]), np.maximum(roots[a], roots[b])
        apart = low != high
        if not apart.any():
            return roots
        np.minimum.at(roots, high[apart], low[apart])
        while not np.array_equal(further := roots[roots], roots):
            roots = further


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
    columns = zip(*read_keys(dataset), strict=True)
    first, second = (np.concatenate(keys) for keys in columns)
    return first, second
