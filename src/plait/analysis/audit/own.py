"""A file of a user's own words and sentences, in any language, becomes probes.

english = false                                     # leave out the built-in English texts
neutral = ["Montag", "Dienstag"]                    # swaps that should matter to no task

[probes.names]                                      # as many as wanted
words = [["Heike", "Katrin"], ["Fatma", "Zeynep"]]  # by group, swapped from one to another
sentences = ["{word} kam am {neutral} zu spät."]    # for tasks on one text
pairs = [["{word} kocht.", "Heute kocht {word}."]]  # for tasks on pairs
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from plait.analysis.audit.people import FILLINGS, draw_two, exchange, head
from plait.analysis.audit.trials import Probe, Texts, Trial, change_rows
from plait.config.checking import validate
from plait.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Self

    import numpy as np

    from plait.analysis.audit.trials import Generators

Group = tuple[str, ...]

_SLOT = re.compile(r"{(word|neutral)}")


class OwnProbe(BaseModel):
    """Words by group, and sentences to put them into."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    words: tuple[Group, ...]
    """A word is swapped for one of another group."""
    sentences: tuple[str, ...] = ()
    """With {word} and, if wanted, {neutral}; for tasks on one text."""
    pairs: tuple[tuple[str, str], ...] = ()
    """The same for tasks on pairs; {word} stands in one or both."""

    @field_validator("words", mode="before")
    @classmethod
    def _one_by_one(cls, value: object) -> object:
        """Let a plain list be groups of one word each."""
        if not isinstance(value, tuple):
            return value
        return tuple((word,) if isinstance(word, str) else word for word in value)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.words) < 2 or not all(self.words):
            raise ValueError("words should be two groups or more, none of them empty")
        every = [word for group in self.words for word in group]
        if not all(word.strip() for word in every) or len(set(every)) < len(every):
            raise ValueError("no word should be empty, or stand there twice")
        for texts in (*((sentence,) for sentence in self.sentences), *self.pairs):
            if not any("{word}" in text for text in texts):
                raise ValueError(f"there is no {{word}} in {' | '.join(texts)!r}")
        return self


class OwnProbes(BaseModel):
    """What a file of own probes holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    probes: dict[str, OwnProbe]
    english: bool = True
    """Whether the built-in English sentences and words are used as well."""
    neutral: Group = ()
    """Words whose swap should matter to no task, such as weekdays."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.probes:
            raise ValueError("there is no [probes.NAME] in it")
        different = {word for word in self.neutral if word.strip()}
        if len(different) < len(self.neutral) or len(different) == 1:
            raise ValueError("neutral should be two different words or more")
        for name, probe in self.probes.items():
            texts = (*probe.sentences, *(text for pair in probe.pairs for text in pair))
            if not self.neutral and any("{neutral}" in text for text in texts):
                raise ValueError(f"probes.{name} has {{neutral}}, for which there are no words")
        return self


def read_own(path: Path) -> OwnProbes:
    """Read a file of own probes."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path} of words") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    return validate(OwnProbes, table, str(path))


def probe_own(
    own: OwnProbes, rows: Sequence[Texts], generators: Generators, most: int, *, is_pair: bool
) -> Iterator[Probe]:
    """Yield the probes of a file: in its sentences, and in rows that have its words."""
    for name, probe in own.probes.items():
        title = f"{name}, your sentences"
        generator = generators(title)
        texts = probe.pairs if is_pair else [(sentence,) for sentence in probe.sentences]
        trials = [
            _make_trial(sentence, source, probe.words, own.neutral, generator)
            for source, sentence in enumerate(texts)
            for _ in range(FILLINGS)
        ]
        yield Probe(title, "stay", tuple(trials))
        title = f"{name}, your words in rows"
        yield _probe_rows(title, probe.words, own.neutral, rows, generators(title), most)


def _make_trial(
    sentence: Texts,
    source: int,
    groups: Sequence[Group],
    neutral: Group,
    generator: np.random.Generator,
) -> Trial:
    """Fill a sentence with words of two groups; the neutral swap stays in the first of them."""
    first, second = draw_two(groups, generator)
    one, other = str(generator.choice(first)), str(generator.choice(second))
    days = draw_two(neutral, generator) if neutral else ("", "")
    before, after = _fill(sentence, one, days[0]), _fill(sentence, other, days[0])
    if len(first) > 1:
        alike = str(generator.choice([word for word in first if word != one]))
        return Trial(before, after, source, (before, _fill(sentence, alike, days[0])))
    plain = _fill(sentence, one, days[1])
    return Trial(before, after, source, (before, plain) if plain != before else None)


def _fill(sentence: Texts, word: str, neutral: str) -> Texts:
    words = {"word": word, "neutral": neutral}
    filled = (_SLOT.sub(lambda match: words[match[1]], text) for text in sentence)
    return tuple(text[:1].upper() + text[1:] for text in filled)


def _probe_rows(
    title: str,
    groups: Sequence[Group],
    neutral: Group,
    rows: Sequence[Texts],
    generator: np.random.Generator,
    most: int,
) -> Probe:
    change, alike = (exchange(groups, articles=False, within=within) for within in (False, True))
    trials = []
    for row, before, after in change_rows(rows, change, generator, most):
        plain = alike(before, generator)
        beside = None if plain is None else (before, plain)
        if beside is None and neutral:  # rows seldom have such a word: they are headed by one
            one, other = draw_two(neutral, generator)
            beside = head(before, one), head(before, other)
        trials.append(Trial(before, after, row, beside))
    return Probe(title, "stay", tuple(trials))
