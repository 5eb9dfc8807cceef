"""Lengths of a task's rows become a few sizes of batches, chosen to waste the least.

A captured step runs at the sizes it was captured at, and a batch smaller than that is filled
up. Few sizes mean few captures, many mean little filling: so the sizes stand where the data
has its batches.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

GRAIN = 8
"""Sizes are multiples of this: GPUs multiply matrices in tiles."""
SMALL = 1024
"""Tokens up to which a batch takes a GPU as long whatever it holds: filling it up costs nothing."""
NUM_DRAWN = 2000
"""Batches drawn to see how large they are."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Sizes a task's batches are filled up to."""

    lengths: tuple[int, ...]
    """Of the longest input, rising."""
    totals: tuple[int, ...]
    """Of all inputs together, rising."""
    most: int | None = None
    """Longest input the encoder reads, which no size exceeds."""

    @classmethod
    def fit(cls, lengths: Ints, batch_size: int) -> Buckets:
        """Choose sizes for batches of rows whose inputs have these lengths, [inputs, rows].

        The largest sizes hold any possible batch. The random draw has a fixed seed: the same data
        gives the same sizes in every run.
        """
        longest, totals = _draw(lengths, batch_size)
        num_lengths, num_totals = (2, 4) if np.median(totals) <= SMALL else (4, 8)
        return cls(choose_sizes(longest, num_lengths), choose_sizes(totals, num_totals))

    @classmethod
    def fit_together(cls, tasks: Sequence[tuple[Ints, int]]) -> Buckets:
        """Choose sizes for batches of several tasks in one, from each one's lengths and size.

        Few, as a step of several tasks takes long to capture.
        """
        drawn = [_draw(lengths, batch_size) for lengths, batch_size in tasks]
        longest = np.stack([own for own, _ in drawn]).max(axis=0)
        totals = np.stack([own for _, own in drawn]).sum(axis=0)
        return cls(choose_sizes(longest, 2), choose_sizes(totals, 3))

    def room(self, lengths: Ints) -> tuple[int, int]:
        """Return the sizes that a batch of these input lengths is filled up to."""
        longest, total = int(lengths.max()), int(lengths.sum())
        length = _up(self.lengths, longest)
        return length if self.most is None else min(length, self.most), _up(self.totals, total)


def _draw(lengths: Ints, batch_size: int) -> tuple[Ints, Ints]:
    """Return the longest input and the total of drawn batches, the largest there can be last."""
    num_rows = lengths.shape[1]
    batch_size = min(batch_size, num_rows)
    drawn = np.random.default_rng(0).integers(num_rows, size=(NUM_DRAWN, batch_size))
    longest, total = lengths.max(axis=0), lengths.sum(axis=0)
    heaviest = np.sort(total)[-batch_size:].sum()
    maxima = np.append(longest[drawn].max(axis=1), longest.max())
    return maxima, np.append(total[drawn].sum(axis=1), heaviest)


def choose_sizes(seen: Ints, count: int) -> tuple[int, ...]:
    """Return at most `count` sizes such that rounding each number up to one adds least in all.

    Exact, by dynamic programming over the numbers' distinct multiples of GRAIN.
    """
    values, counts = np.unique(-(-seen // GRAIN) * GRAIN, return_counts=True)
    if len(values) > 512:  # a coarser look at widely spread numbers
        step = -(-len(values) // 512)
        groups = np.arange(len(values)) // step
        counts = np.bincount(groups, weights=counts).astype(np.int64)
        values = np.append(values[step - 1 :: step], values[-1:])[: len(counts)]
    last = len(values) - 1
    number = np.cumsum(counts)
    cost = (values * number).astype(float)
    cuts: list[Ints] = []
    for _ in range(min(count, last + 1) - 1):
        # cost[j]: all up to j in so many sizes, the largest being values[j]. One more size always
        # adds less, so that as many as there may be are taken.
        table = cost[:, None] + values[None, :] * (number[None, :] - number[:, None])
        table[np.tril_indices(last + 1)] = np.inf
        cuts.append(table.argmin(axis=0))
        cost = table.min(axis=0)
    sizes, place = [int(values[last])], last
    for cut in reversed(cuts):
        place = int(cut[place])
        sizes.append(int(values[place]))
    return tuple(reversed(sizes))


def round_up(number: int) -> int:
    """Round a size up where the data's own sizes are not known: to an eighth of its magnitude."""
    step = max(GRAIN, 1 << max(0, number.bit_length() - 4))
    return -(-number // step) * step


def _up(sizes: tuple[int, ...], number: int) -> int:
    place = bisect_left(sizes, number)
    return sizes[place] if place < len(sizes) else round_up(number)
