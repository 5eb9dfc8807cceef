"""Pairs that follow from pairs: golden counts by hand, and what must hold of any of them."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from plait.data.closure import Closure
from plait.data.fingerprints import fingerprint
from plait.data.groups import group_keys
from plait.data.heldout import HeldOut
from plait.data.rows import Rows

Pairs = list[tuple[str, str, int]]


class Forbidden(HeldOut):
    """Holds out pairs given by hand."""

    def __init__(self, *pairs: tuple[str, str]):
        super().__init__(())
        columns = [pa.array(column, pa.string()) for column in zip(*pairs, strict=True)]
        prints = fingerprint(columns) if pairs else np.empty(0, np.uint64)
        self.__dict__["pairs"] = np.unique(prints)


def close(
    pairs: Pairs, *held: tuple[str, str], seed: int = 0, **settings: Any
) -> tuple[set[tuple[frozenset[str], int]], dict[str, int]]:
    """Return what a closure adds, as sets of texts with labels, and its counts."""
    first, second, labels = zip(*pairs, strict=True)
    rows = Rows(
        (pa.array(first), pa.array(second)),
        np.array(labels, np.float64),
        pa.array([str(i) for i in range(len(pairs))]),
        0,
        np.arange(len(pairs)),
    )
    made = Closure(**settings)(rows, Forbidden(*held), np.random.default_rng(seed))
    found = [
        (frozenset(texts), int(label))
        for *texts, label in zip(*made.texts, made.labels, strict=True)
    ]
    assert len(set(found)) == len(found), "a pair is made twice"
    assert all(len(texts) == 2 for texts, _ in found), "a text is paired with itself"
    return set(found), {what: n for what, n in made.counts.items() if n}


def pair(a: str, b: str, label: int = 1) -> tuple[frozenset[str], int]:
    return frozenset((a, b)), label


CHAIN: Pairs = [("a", "b", 1), ("b", "c", 1), ("c", "d", 1), ("e", "f", 1), ("a", "x", 0)]


def test_what_dev_or_test_has_is_left_out_in_either_order():
    found, counts = close(CHAIN, ("d", "A!"), ("e", "x"))
    assert found == {pair("a", "c"), pair("b", "d")}
    assert counts["left out, which dev or test has"] == 1


def test_what_training_labels_otherwise_is_left_out():
    found, counts = close([*CHAIN, ("c", "a", 0)])
    assert found == {pair("a", "d"), pair("b", "d")}
    assert counts["left out, which training labels otherwise"] == 1


def test_caps():
    star: Pairs = [("hub", f"t{i}", 1) for i in range(6)]  # 15 pairs between the tips
    other: Pairs = [("o", f"o{i}", 1) for i in range(3)]  # 3
    assert len(close([*star, *other])[0]) == 18
    assert len(close([*star, *other], per_group=4)[0]) == 4 + 3
    assert len(close([*star, *other], per_group=4, most=5)[0]) == 5
    assert len(close([*star, *other], per_group=1)[0]) == 2
    assert len(close([*star, *other], most=19)[0]) == 18
    found, counts = close([*star, *other], largest=6)
    assert len(found) == 3
    assert counts["of them of more than 6 texts"] == 1
    assert close(star, per_group=4, seed=1) == close(star, per_group=4, seed=1)
    drawn = {frozenset(close(star, per_group=4, seed=seed)[0]) for seed in range(5)}
    assert len(drawn) > 1


def make_pairs(draw: random.Random) -> Pairs:
    texts = [f"text {i}" for i in range(14)]
    pairs = {frozenset(draw.sample(texts, 2)): int(draw.random() < 0.5) for _ in range(16)}
    return [(*sorted(texts), label) for texts, label in pairs.items()]  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(20))
def test_properties(seed):
    draw = random.Random(seed)
    pairs = make_pairs(draw)
    known = {frozenset((a, b)) for a, b, _ in pairs}
    held = [(a, b) for a, b, _ in make_pairs(draw)]
    settings = {"per_group": 3, "negatives": True, "seed": seed}
    found, _ = close(pairs, *held, **settings)
    # never a forbidden pair, nor one that is there
    assert not {texts for texts, _ in found} & ({frozenset(p) for p in held} | known)
    # the order of rows and of their texts does not matter
    mixed = [(b, a, label) if draw.random() < 0.5 else (a, b, label) for a, b, label in pairs]
    draw.shuffle(mixed)
    assert close(mixed, *held, **settings)[0] == found
    # closing what is closed adds nothing
    whole = {"per_group": 10**6}
    once, _ = close(pairs, *held, **whole)
    closed = [*pairs, *((*sorted(texts), label) for texts, label in once)]
    assert close(closed, *held, **whole)[0] == set()


@pytest.mark.parametrize("shape", ["random", "chain", "star", "none"])
def test_groups_are_those_of_a_plain_search(shape):
    draw = random.Random(3)
    nodes = draw.sample(range(60), 60)
    links = {
        "random": [(draw.randrange(60), draw.randrange(60)) for _ in range(45)],
        "chain": [*pairwise(nodes[:40]), *pairwise(nodes[40:])],
        "star": [(59, node) for node in nodes[:50]],
        "none": [(node, node) for node in nodes],
    }[shape]
    keys, groups = group_keys(*(np.array(side, np.uint64) for side in zip(*links, strict=True)))
    near: dict[int, set[int]] = {}
    for a, b in links:
        near.setdefault(a, set()).add(b)
        near.setdefault(b, set()).add(a)
    number = dict(zip(keys.tolist(), groups.tolist(), strict=True))
    for start in near:
        seen, left = set(), [start]
        while left:
            if (node := left.pop()) not in seen:
                seen.add(node)
                left += near[node]
        assert {k for k, n in number.items() if n == number[start]} == seen
    least = [min(k for k, n in number.items() if n == own) for own in sorted(set(number.values()))]
    assert least == sorted(least)  # numbered by their least
