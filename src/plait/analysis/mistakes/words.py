"""A text becomes its words, in small letters, for whatever looks at which they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
"""Letters and digits, with apostrophes between them."""


def split_words(text: str) -> list[str]:
    """Return a text's words, in order and in small letters."""
    return [word.casefold().replace("\u2019", "'") for word in WORD.findall(text)]


def share_words(texts: Iterable[str]) -> frozenset[str]:
    """Return the words that all of some texts have."""
    return frozenset.intersection(*(frozenset(split_words(text)) for text in texts))
