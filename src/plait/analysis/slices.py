"""Slices of a data set: rows with a negation, long rows, pairs of the same words; each scored."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.inference.intervals import (
    LEVEL,
    Interval,
    bootstrap_means,
    newcombe,
    percentile_interval,
)
from plait.tasks.metrics import LESS_IS_BETTER

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from plait.tasks import Verdicts
    from plait.tasks.kind import Bools

    Texts = tuple[str, ...]

WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
"""Letters and digits, with apostrophes between them."""


def split_words(text: str) -> list[str]:
    """Return a text's words in order, in lower case."""
    return [word.casefold().replace("\u2019", "'") for word in WORD.findall(text)]


def share_words(texts: Iterable[str]) -> frozenset[str]:
    """Return the words that occur in every text."""
    return frozenset.intersection(*(frozenset(split_words(text)) for text in texts))


MIN_ROWS = 20
"""Rows below which a slice has no interval: a few rows may all be right by chance."""

_NEGATIONS = """
    no not never none nobody nothing nowhere neither nor cannot without hardly barely
"""
NEGATIONS = frozenset(_NEGATIONS.split())
_CONTRASTS = "but although though however yet despite nevertheless whereas"
CONTRASTS = frozenset(_CONTRASTS.split())
_CAPITALS = re.compile(r"\b[^\W\d_]{2,}\b")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def has_negation(words: Iterable[str]) -> bool:
    """Return whether there is a word of negation."""
    return any(word in NEGATIONS or word.endswith("n't") for word in words)


def overlap(first: Iterable[str], second: Iterable[str]) -> float:
    """Return the share of two texts' words that occur in both (Jaccard); 0 without words."""
    one, two = set(first), set(second)
    return len(one & two) / max(len(one | two), 1)


_Words = tuple[list[str], ...]

_OF_TEXT: dict[str, Callable[[str, list[str]], bool]] = {
    "negation": lambda _, words: has_negation(words),
    "contrast (but, although ...)": lambda _, words: not CONTRASTS.isdisjoint(words),
    "a number": lambda text, _: bool(_NUMBER.search(text)),
    "a question": lambda text, _: "?" in text,
    "an exclamation": lambda text, _: "!" in text,
    "a word in capitals": lambda text, _: any(w.isupper() for w in _CAPITALS.findall(text)),
}
_OF_PAIR: dict[str, Callable[[Texts, _Words], bool]] = {
    "negation in one text only": lambda _, words: has_negation(words[0]) != has_negation(words[1]),
    "other numbers": lambda texts, _: (
        set(_NUMBER.findall(texts[0])) != set(_NUMBER.findall(texts[1]))
    ),
    "same words, other order": lambda _, words: (
        words[0] != words[1] and sorted(words[0]) == sorted(words[1])
    ),
}


def cut_slices(
    texts: Sequence[Texts],
    *,
    known: Container[str] | None = None,
    truncated: Bools | None = None,
) -> dict[str, Bools]:
    """Return a mask per slice; slices of no row or of all rows are left out.

    `known` are the words of the training rows, `truncated` the rows too long for the encoder.
    """
    rows = [(row, tuple(map(split_words, row))) for row in texts]
    is_pair = bool(rows) and len(texts[0]) == 2
    slices = {
        name: np.array([any(map(test, *row)) for row in rows]) for name, test in _OF_TEXT.items()
    }
    if is_pair:
        slices |= {name: np.array([test(*row) for row in rows]) for name, test in _OF_PAIR.items()}
    slices |= _thirds([sum(map(len, words)) for _, words in rows], "{} words")
    if is_pair:
        shared = [round(100 * overlap(*words)) for _, words in rows]
        slices |= _thirds(shared, "{}% of words shared")
    if known is not None:
        slices["a word not in training"] = np.array(
            [any(word not in known for text in words for word in text) for _, words in rows]
        )
    if truncated is not None:
        slices["truncated"] = truncated
    return {name: mask for name, mask in slices.items() if mask.any() and not mask.all()}


def _thirds(numbers: Sequence[int], name: str) -> dict[str, Bools]:
    """Cut rows into three slices of about equal size, named by their lowest and highest value."""
    if not numbers:
        return {}
    values = np.array(numbers)
    low, high = np.quantile(values, [1 / 3, 2 / 3], method="lower")
    found = {}
    for band in (values <= low, (values > low) & (values <= high), values > high):
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
    """Mean quality of its rows: accuracy, or the distance from the label."""
    difference: float
    """Its score minus that of all other rows."""
    interval: Interval | None
    """95% interval of the difference; None for fewer than MIN_ROWS rows, inside or outside."""
    stands_out: bool
    """Whether the interval excludes 0 after Bonferroni's correction for the number of slices."""
    is_worse: bool

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        interval = None if self.interval is None else self.interval.to_json()
        return asdict(self) | {"interval": interval}


def score_slices(
    verdicts: Verdicts, slices: dict[str, Bools], generator: np.random.Generator
) -> list[SliceScore]:
    """Compare every slice with all other rows, the worst first.

    The interval of a difference of accuracies is Newcombe's, since bootstrap samples of a small
    slice may all be right. Numbers are compared by their distance from the label, not by a
    correlation: that is low wherever a slice's labels lie close together.
    """
    is_distance = verdicts.metric in LESS_IS_BETTER
    sign = 1.0 if is_distance else -1.0
    adjusted = 1 - (1 - LEVEL) / max(len(slices), 1)
    found = []
    for name, mask in slices.items():
        inside, outside = verdicts.quality[mask], verdicts.quality[~mask]
        difference = float(inside.mean() - outside.mean())
        interval, stands_out = None, False
        if min(len(inside), len(outside)) >= MIN_ROWS:
            if is_distance:
                drawn = bootstrap_means(inside, generator) - bootstrap_means(outside, generator)
                interval, wide = (percentile_interval(drawn, level) for level in (LEVEL, adjusted))
            else:
                counts = int(inside.sum()), len(inside), int(outside.sum()), len(outside)
                interval, wide = (newcombe(*counts, level) for level in (LEVEL, adjusted))
            stands_out = wide.excludes(0)
        worse = sign * difference > 0
        score = float(inside.mean())
        found.append(SliceScore(name, len(inside), score, difference, interval, stands_out, worse))
    return sorted(found, key=lambda s: (s.interval is None, -sign * s.difference))
