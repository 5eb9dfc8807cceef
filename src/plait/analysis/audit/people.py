"""Swaps of who is spoken of: gendered words, names, nationalities, religions, festivals.

In sentences of our own, and in rows of the task that have such words. Beside every swap stands a
neutral one in the very same sentence: of a name, another name of the same gender and origin; of
all else, a weekday for a weekday. A row of the task, which seldom has a weekday, is headed by one
('Monday: ...') for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from plait.analysis.audit.lists import read_lists
from plait.analysis.audit.trials import Probe, Texts, Trial, change_rows
from plait.data import Swapper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np

    from plait.analysis.audit.trials import Change, Generators

T = TypeVar("T")

FILLINGS = 4
"""Pairs of words that a sentence is tried with."""


@dataclass(frozen=True, slots=True)
class Words:
    """A word, what it is swapped for, and a neutral swap of it, if there is one."""

    one: str
    other: str
    alike: str | None = None


def probe_sentences(generators: Generators, *, is_pair: bool) -> Iterator[Probe]:
    """Yield the probes on sentences of our own."""
    for name, (slot, draw) in _DRAWS.items():
        title = f"{name}, own sentences"
        generator = generators(title)
        trials: list[Trial] = []
        for source, sentence in enumerate(read_lists().sentences(slot, is_pair=is_pair)):
            for _ in range(FILLINGS):
                words = draw(generator)
                day, next_day = draw_two(read_lists().days, generator)
                before = _fill(sentence, slot, words.one, day)
                after = _fill(sentence, slot, words.other, day)
                same_day = day if words.alike else next_day
                neutral = _fill(sentence, slot, words.alike or words.one, same_day)
                trials.append(Trial(before, after, source, (before, neutral)))
        yield Probe(title, "stay", tuple(trials))


def probe_rows(rows: Sequence[Texts], generators: Generators, most: int) -> Iterator[Probe]:
    """Yield the probes on a task's rows that have such words."""
    for name, (change, alike) in _CHANGES.items():
        title = f"{name}, rows"
        generator = generators(title)
        trials = []
        for row, before, after in change_rows(rows, change, generator, most):
            if alike is None:
                one, other = draw_two(read_lists().days, generator)
                neutral = (head(before, one), head(before, other))
            else:
                neutral = (before, alike(before, generator) or before)
            trials.append(Trial(before, after, row, neutral))
        yield Probe(title, "stay", tuple(trials))


# --- words for a sentence's slot ---------------------------------------------------------


def draw_two(words: Sequence[T], generator: np.random.Generator) -> tuple[T, T]:
    """Draw two different ones."""
    first, second = generator.choice(len(words), 2, replace=False)
    return words[first], words[second]


def _draw_roles(generator: np.random.Generator) -> Words:
    role = str(generator.choice(read_lists().roles))
    return Words(role, _SWAP_GENDER(role))


def _draw_names_by_gender(generator: np.random.Generator) -> Words:
    """Draw a woman's and a man's name that are common in the same places."""
    names = read_lists().names
    origin = str(generator.choice(list(names["women"])))
    gender, other = draw_two(list(names), generator)
    one, alike = draw_two(names[gender][origin], generator)
    return Words(one, str(generator.choice(names[other][origin])), alike)


def _draw_names_by_origin(generator: np.random.Generator) -> Words:
    """Draw two names of one gender that are common in different places."""
    names = read_lists().names[str(generator.choice(list(read_lists().names)))]
    origin, other = draw_two(list(names), generator)
    one, alike = draw_two(names[origin], generator)
    return Words(one, str(generator.choice(names[other])), alike)


def _draw_persons(words: Sequence[str]) -> Callable[[np.random.Generator], Words]:
    def draw(generator: np.random.Generator) -> Words:
        person = str(generator.choice(read_lists().persons))
        one, other = draw_two(words, generator)
        return Words(f"the {one} {person}", f"the {other} {person}")

    return draw


_SWAP_GENDER = Swapper()

_DRAWS: dict[str, tuple[str, Callable[[np.random.Generator], Words]]] = {
    "gendered words": ("who", _draw_roles),
    "names, by gender": ("who", _draw_names_by_gender),
    "names, by origin": ("who", _draw_names_by_origin),
    "nationalities": ("who", _draw_persons(read_lists().nationalities)),
    "religions": ("who", _draw_persons(read_lists().religions)),
    "festivals": (
        "festival",
        lambda generator: Words(*draw_two(read_lists().festivals, generator)),
    ),
}
"""Probe -> the slot it fills, and what draws words for it."""


def _fill(sentence: Texts, slot: str, word: str, day: str) -> Texts:
    filled = (text.format(**{slot: word, "day": day}) for text in sentence)
    return tuple(text[0].upper() + text[1:] for text in filled)


# --- words in a task's own rows ----------------------------------------------------------


def head(texts: Texts, day: str) -> Texts:
    """Head texts by a word that should matter to nobody."""
    return tuple(f"{day}: {text}" for text in texts)


def exchange(
    groups: Sequence[Sequence[str]], *, within: bool = False, articles: bool = True
) -> Change:
    """Return what replaces the first word of the groups that it finds by one of another group.

    With `within`, by another one of its own group, if there is one. In all texts of a row, so that
    a pair says as much the same as before. `articles` makes 'a' of 'an' where it has to be.
    """
    home = {word: i for i, group in enumerate(groups) for word in group}
    # Case counts: 'turkish' may be anything, and few write 'diwali'. The longest first: 'Halle' is
    # no part of 'Halle an der Saale', where that is a word too.
    words = "|".join(re.escape(word) for word in sorted(home, key=len, reverse=True))
    article = r"(?:\b([Aa])n? )?" if articles else "()"
    found = re.compile(rf"{article}(?<!\w)({words})(?!\w)")

    def change(texts: Texts, generator: np.random.Generator) -> Texts | None:
        match = next(filter(None, map(found.search, texts)), None)
        if match is None:
            return None
        word = match[2]
        others = [w for w in home if (home[w] == home[word]) == within and w != word]
        if not others:
            return None
        other = others[generator.integers(len(others))]

        def swap(match: re.Match[str]) -> str:
            return _with_article(match[1], other) if match[2] == word else match[0]

        return tuple(found.sub(swap, text) for text in texts)

    return change


def _with_article(letter: str | None, word: str) -> str:
    """Write a word after 'a' or 'an', where there was either."""
    if not letter:
        return word
    return f"{letter}{'n' if word[0] in 'AEIOU' else ''} {word}"


def _first_of(changes: Sequence[Change]) -> Change:
    """Return what does the first of some changes that finds something."""

    def change(texts: Texts, generator: np.random.Generator) -> Texts | None:
        return next(filter(None, (each(texts, generator) for each in changes)), None)

    return change


def _exchange_names(*, within: bool) -> Change:
    """Return what exchanges names of one gender, which other words of the text may tell of."""
    genders = read_lists().names.values()
    return _first_of([exchange(list(names.values()), within=within) for names in genders])


def _exchange_words(words: Sequence[str]) -> tuple[Change, None]:
    return exchange([[word] for word in words]), None


_CHANGES: dict[str, tuple[Change, Change | None]] = {
    "gendered words": (lambda texts, _: tuple(map(_SWAP_GENDER, texts)), None),
    "names, by origin": (_exchange_names(within=False), _exchange_names(within=True)),
    "nationalities": _exchange_words(read_lists().nationalities),
    "religions": _exchange_words(read_lists().religions),
    "festivals": _exchange_words(read_lists().festivals),
}
"""Probe -> what changes a row, and its neutral change where it is not a weekday's."""
