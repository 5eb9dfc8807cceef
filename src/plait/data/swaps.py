"""A text becomes the same text with its words swapped by pairs: he for she, and she for he.

The built-in pairs are gendered words of English. A word counts where it stands by itself,
whatever its case, and the word put in its place is written in the same case.

Two words have no single counterpart. 'her' is 'his' before a noun and 'him' elsewhere, 'his' is
'her' before a noun and 'hers' elsewhere. A simple rule detects a noun: a
word follows, with nothing but space or an opening quote between, and it is not one of those
that seldom begin what someone has (the, a, and, to, in, was, ...: `NO_NOUN`). So 'her book' and
'his book' are one another's, 'saw her.' becomes 'saw him.'; 'made her cry' becomes 'made his cry',
which is wrong. Names, and words that mean more than a gender (miss, host, master), are left alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_GENDERED = """
    he she, himself herself, man woman, men women, boy girl, boys girls, male female, males females,
    gentleman lady, gentlemen ladies, guy gal, lad lass, lads lasses, sir madam, mr mrs,
    father mother, fathers mothers, dad mom, dads moms, daddy mommy, papa mama, son daughter,
    sons daughters, brother sister, brothers sisters, husband wife, husbands wives, groom bride,
    grooms brides, widower widow, widowers widows, boyfriend girlfriend, boyfriends girlfriends,
    fiancé fiancée, uncle aunt, uncles aunts, nephew niece, nephews nieces,
    grandfather grandmother, grandfathers grandmothers, grandpa grandma, grandson granddaughter,
    grandsons granddaughters, stepfather stepmother, stepson stepdaughter,
    stepbrother stepsister, king queen, kings queens, prince princess, princes princesses,
    duke duchess, emperor empress, heir heiress, actor actress, actors actresses,
    waiter waitress, waiters waitresses, steward stewardess, hero heroine, heroes heroines,
    monk nun, monks nuns, wizard witch, wizards witches, priest priestess, landlord landlady,
    businessman businesswoman, businessmen businesswomen, policeman policewoman,
    policemen policewomen, salesman saleswoman, spokesman spokeswoman, chairman chairwoman,
    congressman congresswoman, sportsman sportswoman, schoolboy schoolgirl, cowboy cowgirl,
    fatherhood motherhood, manhood womanhood, boyhood girlhood, brotherhood sisterhood,
    fatherly motherly, masculine feminine, masculinity femininity, paternal maternal
"""

GENDERED: tuple[tuple[str, str], ...] = tuple(
    (pair.split()[0], pair.split()[1]) for pair in _GENDERED.split(",")
)
"""Pairs of gendered words that are one another's counterparts wherever they stand."""

_PRONOUNS = {"him": ("her", "her"), "her": ("his", "him"), "his": ("her", "hers")}
"""Word -> what it becomes before a noun, and elsewhere."""

_NO_NOUN = """
    a an the this that these those and or but nor so yet because since while when where who whom
    which what why how if though although as than then to of in on at by for from with without
    into onto upon about after before over under through during between against around up down
    out off away again too also either now here there today tonight tomorrow yesterday is are
    was were be been being has have had do does did will would can could may might must should
    not i you he she it we they me him us them my your his its our their
"""
NO_NOUN = frozenset(_NO_NOUN.split())
"""Words that seldom begin what someone has: before them 'her' is taken for 'him'."""

_NEXT = re.compile(r"\s+[\"'(\u201c\u2018]*([^\W_]+)")


class Swapper:
    """Swap the words of pairs: the built-in gendered ones, pronouns included, unless given."""

    def __init__(self, pairs: Sequence[Sequence[str]] | None = None):
        self.words = {"hers": "his", **{word: to for word, (to, _) in _PRONOUNS.items()}}
        """Every word in small letters, with what takes its place."""
        self.spelled: dict[str, str] = {}
        """The same words as the pairs spell them."""
        self.pronouns = _PRONOUNS
        if pairs is not None:
            self.words, self.pronouns = {}, {}
        for pair in GENDERED if pairs is None else pairs:
            self._learn(pair)
        if not self.words:
            raise ValueError("pairs is empty")
        # The longest first, so that of 'New York' and 'New' the whole is found.
        found = sorted(self.words, key=len, reverse=True)
        either = "|".join(re.escape(word).replace(r"\ ", r"\s+") for word in found)
        self._pattern = re.compile(rf"(?<!\w)(?:{either})(?!\w)")

    def _learn(self, pair: Sequence[str]) -> None:
        words = [" ".join(word.split()) for word in pair]
        if len(words) != 2 or not all(words):
            raise ValueError(f"pairs holds {list(pair)}, which must be two words")
        for word, other in (words, words[::-1]):
            key = _lower(word)
            if key in self.words:
                raise ValueError(f"pairs has {word!r} twice; a word has one counterpart")
            self.words[key], self.spelled[key] = other, word

    def __call__(self, text: str) -> str:
        """Return a text with every word it has of the pairs swapped."""
        # Lowered once: a pattern blind to case is seven times slower.
        lowered, done, pieces = _lower(text), 0, []
        for match in self._pattern.finditer(lowered):
            start, end = match.span()
            pieces += [text[done:start], self._swap(text[start:end], lowered, end)]
            done = end
        return "".join([*pieces, text[done:]])

    def _swap(self, found: str, lowered: str, end: int) -> str:
        key = " ".join(_lower(found).split())
        to = self.words[key]
        if key in self.pronouns:
            follower = _NEXT.match(lowered, end)
            before_noun = follower is not None and follower[1] not in NO_NOUN
            to = self.pronouns[key][0 if before_noun else 1]
        return to if found == self.spelled.get(key) else dress(to, found)


def dress(word: str, like: str) -> str:
    """Write a word in the case of another."""
    if like.isupper() and len(like) > 1:
        return word.upper()
    return word[0].upper() + word[1:] if like[0].isupper() else word.lower()


def _lower(text: str) -> str:
    """Return a text in small letters, character for character."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(low if len(low := c.lower()) == 1 else c for c in text)
