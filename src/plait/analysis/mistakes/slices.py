"""Rows become slices: those with a negation, long ones, pairs of the same words; each scored.

A slice's figure is set against that of all other rows, with an interval of the difference:
Newcombe's of two shares, a bootstrap's of two distances. Of scores the figure is the distance from
the truth, not a correlation: that one falls wherever the true scores of a slice lie close together,
though its answers be no worse.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.analysis.mistakes.words import split_words
from plait.inference.intervals import LEVEL, Interval, draw_means, subtract_shares, take_middle
from plait.tasks.metrics import LESS_IS_BETTER

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from numpy.typing import NDArray

    from plait.tasks import Verdicts
    from plait.tasks.kind import Floats

    Mask = NDArray[np.bool_]

LEAST = 20
"""Rows below which the difference of a slice is not looked at: a few rows can be all right."""

_NEGATIONS = """
    no not never none nobody nothing nowhere neither nor cannot without hardly barely
"""
NEGATIONS = frozenset(_NEGATIONS.split())
_CONTRASTS = "but although though however yet despite nevertheless whereas"
CONTRASTS = frozenset(_CONTRASTS.split())

_SHOUT = re.compile(r"\b[^\W\d_]{2,}\b")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@dataclass(frozen=True, slots=True)
class _Row:
    """A row's texts, and the words of each."""

    texts: tuple[str, ...]
    words: tuple[list[str], ...]


def is_negated(words: Iterable[str]) -> bool:
    """Say whether there is a word of negation."""
    return any(word in NEGATIONS or word.endswith("n't") for word in words)


def shouts(text: str) -> bool:
    """Say whether a text has a word in capitals."""
    return any(word.isupper() for word in _SHOUT.findall(text))


def overlap(first: Iterable[str], second: Iterable[str]) -> float:
    """Return the part of two texts' words that both have (Jaccard); 0 where there are none."""
    one, two = set(first), set(second)
    return len(one & two) / max(len(one | two), 1)


_OF_ANY: dict[str, Callable[[_Row], bool]] = {
    "negation": lambda row: any(map(is_negated, row.words)),
    "contrast (but, although ...)": lambda row: not all(map(CONTRASTS.isdisjoint, row.words)),
    "a number": lambda row: any(map(_NUMBER.search, row.texts)),
    "a question": lambda row: any("?" in text for text in row.texts),
    "an exclamation": lambda row: any("!" in text for text in row.texts),
    "a word in capitals": lambda row: any(map(shouts, row.texts)),
}
_OF_PAIRS: dict[str, Callable[[_Row], bool]] = {
    "negation in one text only": lambda row: is_negated(row.words[0]) != is_negated(row.words[1]),
    "other numbers": lambda row: (
        set(_NUMBER.findall(row.texts[0])) != set(_NUMBER.findall(row.texts[1]))
    ),
    "same words, other order": lambda row: (
        row.words[0] != row.words[1] and sorted(row.words[0]) == sorted(row.words[1])
    ),
}


def cut_slices(
    texts: Sequence[tuple[str, ...]],
    *,
    known: Container[str] | None = None,
    cut: Mask | None = None,
) -> dict[str, Mask]:
    """Return which rows are in which slice, slices of no row or of every row left out.

    `known` are the words of the training rows, `cut` the rows too long for the encoder.
    """
    rows = [_Row(row, tuple(map(split_words, row))) for row in texts]
    is_pair = bool(rows) and len(rows[0].texts) == 2
    tests = {**_OF_ANY, **(_OF_PAIRS if is_pair else {})}
    slices = {name: np.array([bool(test(row)) for row in rows]) for name, test in tests.items()}
    slices |= _thirds(np.array([sum(map(len, row.words)) for row in rows]), "{} words")
    if is_pair:
        shared = np.array([round(100 * overlap(*row.words)) for row in rows])
        slices |= _thirds(shared, "{}% of words shared")
    if known is not None:
        slices["a word not in training"] = np.array(
            [any(word not in known for words in row.words for word in words) for row in rows]
        )
    if cut is not None:
        slices["cut to fit the encoder"] = cut
    return {name: mask for name, mask in slices.items() if mask.any() and not mask.all()}


def _thirds(values: NDArray[np.int64], name: str) -> dict[str, Mask]:
    """Cut rows into three bands of about as many, named by the values they reach from and to."""
    if not len(values):
        return {}
    low, high = np.quantile(values, [1 / 3, 2 / 3], method="lower")
    bands = [values <= low, (values > low) & (values <= high), values > high]
    found = {}
    for band in bands:
        if band.any():
            first, last = values[band].min(), values[band].max()
            found[name.format(first if first == last else f"{first} to {last}")] = band
    return found


@dataclass(frozen=True, slots=True)
class SliceScore:
    """How a slice compares with all other rows."""

    name: str
    count: int
    score: float
    """The mean of its rows' quality: accuracy, or the distance from the truth."""
    difference: float
    """From the mean of all other rows; above 0 is more."""
    interval: Interval | None
    """Of the difference, at 95%; None where the slice or the rest is too small."""
    stands_out: bool
    """Whether the difference is more than chance makes of any of so many slices."""
    is_worse: bool

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        interval = None if self.interval is None else self.interval.to_json()
        return asdict(self) | {"interval": interval}


def score_slices(
    verdicts: Verdicts, slices: dict[str, Mask], generator: np.random.Generator
) -> list[SliceScore]:
    """Set every slice against the rest, those that are worse by most first."""
    is_distance = verdicts.metric in LESS_IS_BETTER
    sign = 1.0 if is_distance else -1.0
    # One in twenty intervals at 95% misses by chance; among many slices, one of them would.
    strict = 1 - (1 - LEVEL) / max(len(slices), 1)
    found = []
    for name, mask in slices.items():
        inside, outside = verdicts.quality[mask], verdicts.quality[~mask]
        difference = float(inside.mean() - outside.mean())
        interval, stands_out = None, False
        if min(len(inside), len(outside)) >= LEAST:
            subtract = _subtract_distances if is_distance else _subtract_shares
            interval, wide = subtract(inside, outside, strict, generator)
            stands_out = wide.excludes(0)
        worse = sign * difference > 0
        score = float(inside.mean())
        found.append(SliceScore(name, len(inside), score, difference, interval, stands_out, worse))
    return sorted(found, key=lambda s: (s.interval is None, -sign * s.difference))


def _subtract_shares(
    inside: Floats, outside: Floats, strict: float, _: np.random.Generator
) -> tuple[Interval, Interval]:
    """Return the difference's intervals at 95% and at the strict level, by Newcombe.

    Draws would call a small slice special as soon as all of its rows are right.
    """
    counts = int(inside.sum()), len(inside), int(outside.sum()), len(outside)
    return subtract_shares(*counts), subtract_shares(*counts, strict)


def _subtract_distances(
    inside: Floats, outside: Floats, strict: float, generator: np.random.Generator
) -> tuple[Interval, Interval]:
    """Return the difference's intervals at 95% and at the strict level, by drawing rows."""
    draws = draw_means(inside, generator) - draw_means(outside, generator)
    return take_middle(draws), take_middle(draws, strict)
