"""Pairs that follow from other pairs: what is the same as the same is the same.

Transitive closure of a relation of sameness, as of Quora's duplicates (Iyer et al. 2017: the
release itself has such chains). What follows from training pairs may stand in a dev or test file,
where it would be trained on: those pairs are left out, always.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plait.data.augmentations import AUGMENTATIONS, Made, SetAugmentation
from plait.data.fingerprints import join_keys, text_keys
from plait.data.groups import group_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from plait.data.fingerprints import Hashes
    from plait.data.heldout import HeldOut
    from plait.data.rows import Rows
    from plait.tasks import TaskSpec

    Places = npt.NDArray[np.int64]


@AUGMENTATIONS.register("closure")
@dataclass(kw_only=True)
class Closure(SetAugmentation):
    """The pairs that follow from a yes-or-no task's own: if a is b and b is c, then a is c.

    Texts linked by pairs labelled 1, over any number of steps, are a group, and every pair inside
    a group is added with label 1. With `negatives`, a pair labelled 0 between two groups adds
    every pair between them with label 0. Left out are pairs that training has already, in either
    order; pairs of any dev or test file of the recipe; and pairs that training labels otherwise.
    At most `per_group` pairs come of one group (or of two with a negative between them), and at
    most `most` of each label in all, drawn from the run's seed. A group of more than `largest`
    texts is left as it is: a chain that long is a mistake rather than one meaning.
    """

    per_group: int = 50
    most: int | None = None
    negatives: bool = False
    largest: int = 200

    def __post_init__(self) -> None:
        """Check the settings."""
        for name in ("per_group", "most"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, not {value}")
        if self.largest < 3:
            raise ValueError(f"largest must be 3 or more, not {self.largest}")

    def check(self, task: TaskSpec) -> None:
        """Refuse what is not pairs labelled yes or no."""
        if not (task.kind.is_yes_no and task.is_pair):
            raise ValueError("it needs a task of kind 'binary' with two text columns")

    def __call__(self, training: Rows, held_out: HeldOut, generator: np.random.Generator) -> Made:
        """Return the pairs that follow."""
        assert training.labels is not None
        graph = _Graph([text_keys(column) for column in training.texts], training.labels)
        counts: Counter[str] = Counter()
        counts["groups"] = int((graph.sizes > 1).sum())
        counts[f"of them of more than {self.largest} texts"] = int(
            (graph.sizes > self.largest).sum()
        )
        found = [
            self._draw(graph, 1.0, graph.pairs_inside(self.largest), held_out, generator, counts)
        ]
        if self.negatives:
            between = graph.pairs_between(self.largest)
            found.append(self._draw(graph, 0.0, between, held_out, generator, counts))
        pairs = np.concatenate(found)
        labels = np.repeat([1.0, 0.0][: len(found)], [len(some) for some in found])
        texts, sources = _write(training, graph, pairs)
        return Made(texts, labels, sources, dict(counts))

    def _draw(
        self,
        graph: _Graph,
        label: float,
        candidates: Iterator[Places],
        held_out: HeldOut,
        generator: np.random.Generator,
        counts: Counter[str],
    ) -> Places:
        """Leave out what must not be added, and draw as many as are wanted: [pairs, 2] of nodes."""
        each = [np.empty((0, 2), np.int64), *candidates]
        pairs, origins = np.concatenate(each), np.repeat(np.arange(len(each)), [*map(len, each)])
        prints = join_keys(graph.keys[pairs[:, 0]], graph.keys[pairs[:, 1]])
        known = np.isin(prints, graph.known(label))
        otherwise = np.isin(prints, graph.known(1 - label)) & ~known
        held = np.isin(prints, held_out.pairs) & ~known & ~otherwise
        counts["left out, which dev or test has"] += int(held.sum())
        counts["left out, which training labels otherwise"] += int(otherwise.sum())
        free = ~(known | otherwise | held)
        pairs, origins = pairs[free], origins[free]
        pairs = pairs[_draw_each(origins, self.per_group, generator)]
        if self.most is not None and len(pairs) > self.most:
            some = generator.choice(len(pairs), self.most, replace=False, shuffle=False)
            pairs = pairs[np.sort(some)]
        counts[f"labelled {label:g}"] = len(pairs)
        return pairs


class _Graph:
    """Training pairs as nodes (texts), groups of them, and what is known between them."""

    def __init__(self, columns: list[Hashes], labels: npt.NDArray[np.float64]):
        self.columns = columns
        first, second = columns
        # Every text is a node: one without a positive pair is a group by itself.
        same = np.where(labels == 1, second, first)
        keys, self.numbers = group_keys(
            np.concatenate([first, second]), np.concatenate([same, second])
        )
        self.keys = keys
        self.sizes = np.bincount(self.numbers)
        """Texts of each group."""
        self._members = np.argsort(self.numbers, kind="stable")
        self._ends = np.cumsum(self.sizes)
        prints = join_keys(first, second)
        self._known = {label: np.unique(prints[labels == label]) for label in (0.0, 1.0)}
        apart = np.flatnonzero(labels == 0)
        self._negatives = np.stack([self.nodes(column[apart]) for column in columns], axis=1)

    def nodes(self, keys: Hashes) -> Places:
        """Return the places of keys."""
        return np.searchsorted(self.keys, keys)

    def group(self, number: int) -> Places:
        """Return the nodes of a group."""
        end = self._ends[number]
        return self._members[end - self.sizes[number] : end]

    def known(self, label: float) -> Hashes:
        """Return the pairs that training labels so."""
        return self._known[label]

    def pairs_inside(self, largest: int) -> Iterator[Places]:
        """Give all pairs of each group."""
        for number in np.flatnonzero((self.sizes >= 3) & (self.sizes <= largest)).tolist():
            group = self.group(number)
            a, b = np.triu_indices(len(group), 1)
            yield np.stack([group[a], group[b]], axis=1)

    def pairs_between(self, largest: int) -> Iterator[Places]:
        """Give all pairs between each two groups that have a negative pair between them."""
        sides = np.sort(self.numbers[self._negatives], axis=1)
        sides = np.unique(sides[sides[:, 0] != sides[:, 1]], axis=0)
        sizes = self.sizes[sides]
        fit = (sizes.prod(axis=1) > 1) & (sizes.max(axis=1) <= largest)
        for one, other in sides[fit].tolist():
            a, b = self.group(one), self.group(other)
            yield np.stack([np.repeat(a, len(b)), np.tile(b, len(a))], axis=1)


def _draw_each(origins: Places, count: int, generator: np.random.Generator) -> Places:
    """Return the places of at most `count` of each origin; origins are rising."""
    order = np.lexsort((generator.random(len(origins)), origins))
    starts = np.searchsorted(origins, origins)  # of the stretch that a place lies in
    rank = np.arange(len(origins)) - starts
    return np.sort(order[rank < count])


def _write(
    training: Rows, graph: _Graph, pairs: Places
) -> tuple[tuple[list[str], list[str]], Places]:
    """Give nodes their texts back, each in the first of its spellings by the alphabet.

    The first in the file would hang on the order of its rows. A pair's source is the first row
    that has its first text.
    """
    wanted = np.unique(pairs)
    spelled: dict[int, str] = {}
    source: dict[int, int] = {}
    for keys, column in zip(graph.columns, training.texts, strict=True):
        nodes = graph.nodes(keys)
        rows = np.flatnonzero(np.isin(nodes, wanted))
        texts = column.take(rows).to_pylist()
        for node, row, text in zip(nodes[rows].tolist(), rows.tolist(), texts, strict=True):
            spelled[node] = min(text, spelled.get(node, text))
            source[node] = min(row, source.get(node, row))
    columns = pairs.T.tolist()
    first, second = ([spelled[node] for node in column] for column in columns)
    return (first, second), np.array([source[node] for node in columns[0]], np.int64)
