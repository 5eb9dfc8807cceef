"""Changes of meaning that a careless reader overlooks: 'not', and the order of words.

A pair is tried as a text beside itself, and beside itself changed: the answer for two equal texts
should not do for two that say different things. So nobody has to know which label means what.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from plait.analysis.audit.lists import read_lists
from plait.analysis.audit.trials import Probe, Texts, Trial, change_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np

    from plait.analysis.audit.trials import Generators

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
    written = [tuple(pair) for pair in read_lists().word_order["pairs"]]
    own = (Trial((a, a), (a, b), i) for i, (a, b) in enumerate(written))
    yield Probe("words change places, own sentences", "move", tuple(own))
    yield _beside_itself("words change places, rows", rows, change_places, generators, most)


def probe_negation(
    rows: Sequence[Texts], generators: Generators, most: int, *, is_pair: bool
) -> Iterator[Probe]:
    """Yield probes of 'not', put in or taken out."""
    lists = read_lists().negation
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
