"""Changes that a reader hardly notices: slips of the keyboard, case, punctuation, spaces."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from plait.analysis.audit.trials import Probe, Texts, Trial, change_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np

    from plait.analysis.audit.trials import Change, Generators

_LONG_WORD = re.compile(r"[^\W\d_]{4,}")
_MARKS = re.compile(r"(?<!\w)'|'(?!\w)|[.,;:!?\"()\[\]\u2026\u201c\u201d]")
"""Punctuation, but not the apostrophe or hyphen inside a word."""

ONE_IN = 8
"""Words of four letters or more among which one gets a slip; at least one has one."""


def probe_noise(rows: Sequence[Texts], generators: Generators, most: int) -> Iterator[Probe]:
    """Yield a probe for each kind of noise; of a pair, both texts have it."""
    for name, change in _NOISES.items():
        found = change_rows(rows, change, generators(name), most)
        trials = tuple(Trial(before, after, row) for row, before, after in found)
        yield Probe(name, "stay", trials)


def slip(text: str, generator: np.random.Generator) -> str:
    """Return a text with slips: letters turned round, left out or doubled inside some words."""
    words = list(_LONG_WORD.finditer(text))
    if not words:
        return text
    chosen = generator.choice(len(words), -(-len(words) // ONE_IN), replace=False)
    for number in sorted(chosen.tolist(), reverse=True):  # from the end, so that places stay
        start, end = words[number].span()
        at = int(generator.integers(start + 1, end - 1))
        one, two = text[at], text[at + 1]
        kind = int(generator.integers(3))
        text = text[:at] + (two + one, two, one + one + two)[kind] + text[at + 2 :]
    return text


def _slips(texts: Texts, generator: np.random.Generator) -> Texts:
    return tuple(slip(text, generator) for text in texts)


def _each(change: Callable[[str], str]) -> Change:
    return lambda texts, _: tuple(map(change, texts))


_NOISES: dict[str, Change] = {
    "typing slips": _slips,
    "small letters": _each(str.lower),
    "capitals": _each(str.upper),
    "no punctuation": _each(lambda text: _MARKS.sub("", text)),
    "wide spaces": _each(lambda text: re.sub(r"\s+", "   ", text)),
}
