"""Make probes: texts before and after a change that should, or should not, change the answer.

Words that are swapped and the sentences around them are in files of one format: the built-in
`probes.toml`, and the user's (`plait audit --words`):

english = false                                     # leave out the built-in English texts
neutral = ["Montag", "Dienstag"]                    # swaps that should matter to no task

[probes.names]                                      # any number of probes
words = [["Heike", "Katrin"], ["Fatma", "Zeynep"]]  # groups; a swap is from one to another
sentences = ["{word} kam am {neutral} zu spät."]    # for tasks on one text
pairs = [["{word} kocht.", "Heute kocht {word}."]]  # for tasks on pairs
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from plait.config.checking import validate
from plait.data import Swapper
from plait.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Self

T = TypeVar("T")
Texts = tuple[str, ...]
Group = tuple[str, ...]
Change = Callable[[Texts, np.random.Generator], Texts | None]
"""Returns changed texts, or None if nothing can be changed."""
Generators = Callable[[str], np.random.Generator]
"""Returns a generator for a probe's name."""
Should = Literal["stay", "move", "agree", "either"]

FILLINGS = 4
"""Swaps that a sentence is tried with."""
ONE_IN = 8
"""Of so many words of four letters or more, one gets a typing slip; at least one has one."""

_SLOT = re.compile(r"{(word|neutral)}")
_SWAP_GENDER = Swapper()


@dataclass(frozen=True, slots=True)
class Trial:
    """One example before and after a change."""

    before: Texts
    after: Texts
    source: int
    """The sentence or row it was made from: trials of one source are not independent."""
    neutral: tuple[Texts, Texts] | None = None
    """The same example before and after a change that should matter to no task."""
    way: int = 0
    """Whether the answer should become more (+1) or less (-1) positive; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Trials of one kind of change."""

    name: str
    should: Should
    """What answers should do: stay, move, all be equal, or either where it depends on the text."""
    trials: tuple[Trial, ...]


class Section(BaseModel):
    """A table of a file of probes: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Sentences(Section):
    """Sentences that several probes share."""

    one: tuple[str, ...]
    pair: tuple[tuple[str, str], ...]


class WordProbe(Section):
    """Words by group, and sentences to put them into."""

    words: tuple[Group, ...] = ()
    """Groups; a word is swapped for one of another group."""
    sets: tuple[tuple[Group, ...], ...] = ()
    """Instead of `words`: several sets of groups; swaps stay in a set."""
    sentences: tuple[str, ...] | str = ()
    """With {word} and, if wanted, {neutral}; or the name of sentences in [sentences]."""
    pairs: tuple[tuple[str, str], ...] = ()
    """The same for tasks on pairs; {word} stands in one or both."""
    phrases: tuple[str, ...] = ("{word}",)
    """What is put into a sentence, around a word; one is drawn."""
    swap: Literal["gender-swap"] | None = None
    """What swaps words, instead of other words of `words`."""
    articles: bool = False
    """Whether 'a' becomes 'an' before a word in a row where English wants it."""
    rows: bool = True
    """Whether dev rows that have one of the words are changed, too."""

    @field_validator("words", mode="before")
    @classmethod
    def _one_by_one(cls, value: object) -> object:
        """Let a plain list be groups of one word each."""
        if not isinstance(value, tuple):
            return value
        return tuple((word,) if isinstance(word, str) else word for word in value)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.words and not self.sets:
            raise ValueError("words must be set")
        for groups in self.all_sets:
            if len(groups) < 2 or not all(groups):
                raise ValueError("words should be two groups or more, none of them empty")
            every = [word for group in groups for word in group]
            if not all(word.strip() for word in every) or len(set(every)) < len(every):
                raise ValueError("no word should be empty or occur twice")
        own = () if isinstance(self.sentences, str) else self.sentences
        for texts in (*((sentence,) for sentence in own), *self.pairs):
            if not any("{word}" in text for text in texts):
                raise ValueError(f"there is no {{word}} in {' | '.join(texts)!r}")
        return self

    @property
    def all_sets(self) -> tuple[tuple[Group, ...], ...]:
        """Sets of groups that words are swapped in."""
        return self.sets or (self.words,)


class ProbeFile(Section):
    """A file of probes."""

    probes: dict[str, WordProbe]
    english: bool = True
    """Whether the built-in English sentences and words are used as well."""
    neutral: Group = ()
    """Words whose swap should matter to no task, such as weekdays."""
    sentences: dict[str, Sentences] = {}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.probes:
            raise ValueError("there is no [probes.NAME] in it")
        different = {word for word in self.neutral if word.strip()}
        if len(different) < len(self.neutral) or len(different) == 1:
            raise ValueError("neutral should be two different words or more")
        for name, probe in self.probes.items():
            if isinstance(probe.sentences, str) and probe.sentences not in self.sentences:
                raise ValueError(f"probes.{name} names no [sentences.{probe.sentences}]")
            texts = (text for is_pair in (False, True) for text in self.texts(probe, is_pair))
            if not self.neutral and any("{neutral}" in text for both in texts for text in both):
                raise ValueError(f"probes.{name} has {{neutral}}, for which there are no words")
        return self

    def texts(self, probe: WordProbe, is_pair: bool) -> list[Texts]:
        """Return a probe's sentences, or its pairs of sentences."""
        if isinstance(probe.sentences, str):
            shared = self.sentences[probe.sentences]
            return [*shared.pair] if is_pair else [(text,) for text in shared.one]
        return [*probe.pairs] if is_pair else [(text,) for text in probe.sentences]


def read_probes(path: Path) -> ProbeFile:
    """Read a user's file of probes."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path} of words") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    return validate(ProbeFile, table, str(path))


@cache
def builtin() -> tuple[ProbeFile, dict[str, Any]]:
    """Return the built-in probes, and the sentences of the probes of meaning."""
    text = files("plait.analysis.audit").joinpath("probes.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    meaning = {key: table.pop(key) for key in ("negation", "word_order")}
    return validate(ProbeFile, table, "probes.toml"), meaning


def make_probes(
    rows: Sequence[Texts],
    generators: Generators,
    most: int,
    *,
    is_pair: bool,
    own: ProbeFile | None = None,
    english: bool = True,
) -> Iterator[Probe]:
    """Yield the probes of a task with one text or two; of its `rows`, at most `most` a probe.

    Without `english`, built-in sentences and changes of English words are left out.
    """
    given = [(own, "your sentences", "your words in rows")] if own is not None else []
    given += [(builtin()[0], "own sentences", "rows")] if english else []
    for file, written, in_rows in given:
        for name, probe in file.probes.items():
            title = f"{name}, {written}"
            yield _probe_sentences(title, file, probe, generators(title), is_pair)
            title = f"{name}, {in_rows}"
            if probe.rows:
                yield _probe_rows(title, file, probe, rows, generators(title), most)
    if is_pair:
        yield from probe_order(rows, generators, most)
    if english and is_pair:
        yield from probe_places(rows, generators, most)
    if english:
        yield from probe_negation(rows, generators, most, is_pair=is_pair)
    yield from probe_noise(rows, generators, most)


def change_rows(
    rows: Sequence[Texts], change: Change, generator: np.random.Generator, most: int
) -> Iterator[tuple[int, Texts, Texts]]:
    """Yield up to `most` (row number, texts, changed texts) of random rows that can be changed."""
    count = 0
    for row in generator.permutation(len(rows)):
        if count == most:
            return
        after = change(rows[row], generator)
        if after is None or after == rows[row] or not all(text.strip() for text in after):
            continue
        count += 1
        yield int(row), rows[row], after


# --- words that are swapped --------------------------------------------------------------


def _draw_two(words: Sequence[T], generator: np.random.Generator) -> tuple[T, T]:
    first, second = generator.choice(len(words), 2, replace=False)
    return words[first], words[second]


def _probe_sentences(
    title: str, file: ProbeFile, probe: WordProbe, generator: np.random.Generator, is_pair: bool
) -> Probe:
    """Fill sentences with words of two groups.

    The neutral swap is another word of the first group or, where it has none, of the neutral words.
    """
    trials = []
    for source, sentence in enumerate(file.texts(probe, is_pair)):
        for _ in range(FILLINGS):
            groups = probe.all_sets[generator.integers(len(probe.all_sets))]
            first, second = _draw_two(groups, generator)
            one = str(generator.choice(first))
            other = _SWAP_GENDER(one) if probe.swap else str(generator.choice(second))
            phrase = str(generator.choice(probe.phrases))
            days = _draw_two(file.neutral, generator) if file.neutral else ("", "")
            before = _fill(sentence, phrase, one, days[0])
            after = _fill(sentence, phrase, other, days[0])
            alike, day = one, days[1]
            if len(first) > 1:
                alike, day = str(generator.choice([w for w in first if w != one])), days[0]
            plain = _fill(sentence, phrase, alike, day)
            neutral = (before, plain) if plain != before else None
            trials.append(Trial(before, after, source, neutral))
    return Probe(title, "stay", tuple(trials))


def _fill(sentence: Texts, phrase: str, word: str, neutral: str) -> Texts:
    words = {"word": phrase.replace("{word}", word), "neutral": neutral}
    filled = (_SLOT.sub(lambda match: words[match[1]], text) for text in sentence)
    return tuple(text[:1].upper() + text[1:] for text in filled)


def _probe_rows(
    title: str,
    file: ProbeFile,
    probe: WordProbe,
    rows: Sequence[Texts],
    generator: np.random.Generator,
    most: int,
) -> Probe:
    """Swap words in rows. Where a group has no other word, neutral words head the rows."""

    def swap_gender(texts: Texts, _: np.random.Generator) -> Texts:
        return tuple(map(_SWAP_GENDER, texts))

    def swap_words(*, within: bool) -> Change:
        sets, articles = probe.all_sets, probe.articles
        return _first_of([exchange(groups, within=within, articles=articles) for groups in sets])

    change, alike = swap_words(within=False), swap_words(within=True)
    trials = []
    for row, before, after in change_rows(
        rows, swap_gender if probe.swap else change, generator, most
    ):
        plain = None if probe.swap else alike(before, generator)
        neutral = None if plain is None else (before, plain)
        if neutral is None and file.neutral:
            one, other = (
                tuple(f"{day}: {text}" for text in before)
                for day in _draw_two(file.neutral, generator)
            )
            neutral = one, other
        trials.append(Trial(before, after, row, neutral))
    return Probe(title, "stay", tuple(trials))


def exchange(groups: Sequence[Group], *, within: bool = False, articles: bool = True) -> Change:
    """Return a change that replaces the first word found of the groups, in all texts of a row.

    The replacement is a word of another group or, if `within`, another word of the same group. With
    `articles`, 'a' and 'an' are adapted.
    """
    home = {word: i for i, group in enumerate(groups) for word in group}
    # Case counts: 'turkish' may be anything. The longest first: 'Halle' is part of another word.
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
        a = "n " if other[0] in "AEIOU" else " "

        def swap(match: re.Match[str]) -> str:
            if match[2] != word:
                return match[0]
            return f"{match[1]}{a}{other}" if match[1] else other

        return tuple(found.sub(swap, text) for text in texts)

    return change


def _first_of(changes: Sequence[Change]) -> Change:
    """Return the first of several changes that finds something."""

    def change(texts: Texts, generator: np.random.Generator) -> Texts | None:
        return next(filter(None, (each(texts, generator) for each in changes)), None)

    return change


# --- meaning: 'not', and the order of words -----------------------------------------------

_VERB = r"is|are|was|were|can|could|will|would|should|must|has|had|do|does|did|may|might"
_NOT = re.compile(rf"\b({_VERB}) not\b|\b({_VERB})n['\u2019]t\b", re.IGNORECASE)
_PLACE = re.compile(rf"\s(?:{_VERB})\b(?:\s(?:i|you|we|they|he|she|it|there)\b)?", re.IGNORECASE)
"""A verb that takes 'not', after the first word, with a pronoun after it as questions have."""
_PRONOUN_LAST = re.compile(r"\s\w+\s\w+$")

_FUNCTION_WORDS = """
    a an the this that these those and or but nor so yet if though although as than then to of in on
    at by for from with without into onto about after before over under through during between
    against around up down out off away again too also is are was were be been being am has have had
    do does did will would can could may might must should not no i you he she it we they me him us
    them my your his her its our their who whom whose which what why how when where there here all
    any some more most very just only
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())


def probe_order(rows: Sequence[Texts], generators: Generators, most: int) -> Iterator[Probe]:
    """Yield probes of pairs that hold in any language: both orders of the texts, equal ones."""
    name = "texts in the other order"
    turned = change_rows(rows, lambda texts, _: texts[::-1], generators(name), most)
    yield Probe(name, "stay", tuple(Trial(a, b, row) for row, a, b in turned))
    name = "a text beside itself"
    found = change_rows(rows, lambda texts, _: (texts[0], texts[0]), generators(name), most)
    yield Probe(name, "agree", tuple(Trial(twice, twice, row) for row, _, twice in found))


def probe_places(rows: Sequence[Texts], generators: Generators, most: int) -> Iterator[Probe]:
    """Yield probes of pairs whose second text has two words in each other's place."""
    written = [tuple(pair) for pair in builtin()[1]["word_order"]["pairs"]]
    own = (Trial((a, a), (a, b), i) for i, (a, b) in enumerate(written))
    yield Probe("words change places, own sentences", "move", tuple(own))
    yield _beside_itself("words change places, rows", rows, change_places, generators, most)


def probe_negation(
    rows: Sequence[Texts], generators: Generators, most: int, *, is_pair: bool
) -> Iterator[Probe]:
    """Yield probes of 'not', put in or taken out."""
    lists = builtin()[1]["negation"]
    own, all_rows = "'not', own sentences", "'not', rows"
    if is_pair:
        texts = lists["statements"]
        trials = [Trial((t, t), (t, negate(t) or t), i) for i, t in enumerate(texts)]
        yield Probe(own, "move", tuple(trials))
        yield _beside_itself(all_rows, rows, lambda text, _: negate(text), generators, most)
        return
    trials = []
    for way, words in ((-1, lists["praise"]), (1, lists["blame"])):
        for source, sentence in enumerate(lists["sentences"]):
            word = words[source % len(words)]
            before, after = sentence.format(word=word), sentence.format(word=f"not {word}")
            trials.append(Trial((before,), (after,), source, way=way))
    yield Probe(own, "move", tuple(trials))
    found = change_rows(rows, lambda texts, _: _remove(texts), generators(all_rows), most)
    yield Probe(all_rows, "either", tuple(Trial(a, b, row) for row, a, b in found))


def _beside_itself(
    name: str,
    rows: Sequence[Texts],
    change: Callable[[str, np.random.Generator], str | None],
    generators: Generators,
    most: int,
) -> Probe:
    """Set the first texts of rows beside themselves, and beside themselves changed."""

    def pair(texts: Texts, generator: np.random.Generator) -> Texts | None:
        changed = change(texts[0], generator)
        return None if changed is None or changed == texts[0] else (texts[0], changed)

    found = change_rows(rows, pair, generators(name), most)
    trials = tuple(Trial((texts[0], texts[0]), after, row) for row, texts, after in found)
    return Probe(name, "move", trials)


def _remove(texts: Texts) -> Texts:
    return tuple(_NOT.sub(lambda m: m[1] or m[2], text) for text in texts)


def negate(text: str) -> str | None:
    """Put 'not' after a text's first verb that takes one, or take it away; None without one.

    Of questions only those of the form 'How do I ...' can be done: elsewhere the place of 'not'
    hangs on where the subject ends.
    """
    if _NOT.search(text):
        return _NOT.sub(lambda m: m[1] or m[2], text, count=1)
    place = _PLACE.search(text)
    if place is None or (text.rstrip().endswith("?") and not _PRONOUN_LAST.search(place[0])):
        return None
    # 'it is not' in a statement, 'do I not' in a question.
    end = place.end() if text.rstrip().endswith("?") else place.start() + _verb_length(place[0])
    return f"{text[:end]} not{text[end:]}"


def _verb_length(found: str) -> int:
    verb = re.match(r"\s\w+", found)
    assert verb is not None
    return verb.end()


def change_places(text: str, generator: np.random.Generator) -> str | None:
    """Exchange two words of a text that carry meaning: names if it has two, else any.

    The first word stays, whose capital says nothing.
    """
    words = re.finditer(r"[^\W_]+(?:['\u2019-][^\W_]+)*", text)
    carrying = [m for m in words if m.start() and len(m[0]) > 2 and m[0] not in FUNCTION_WORDS]
    names = [m for m in carrying if m[0][0].isupper()]
    choice = names if len({m[0] for m in names}) > 1 else carrying
    pairs = [(a, b) for i, a in enumerate(choice) for b in choice[i + 1 :] if a[0] != b[0]]
    if not pairs:
        return None
    one, two = pairs[generator.integers(len(pairs))]
    between = text[one.end() : two.start()]
    return f"{text[: one.start()]}{two[0]}{between}{one[0]}{text[two.end() :]}"


# --- noise -------------------------------------------------------------------------------

_LONG_WORD = re.compile(r"[^\W\d_]{4,}")
_MARKS = re.compile(r"(?<!\w)'|'(?!\w)|[.,;:!?\"()\[\]\u2026\u201c\u201d]")
"""Punctuation, but not the apostrophe or hyphen inside a word."""


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
