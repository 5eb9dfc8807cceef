"""The audit's words and sentences, read from words.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class Lists:
    """What words.toml holds; a sentence has one text, or two for a pair."""

    days: list[str]
    roles: list[str]
    nationalities: list[str]
    religions: list[str]
    festivals: list[str]
    persons: list[str]
    names: dict[str, dict[str, list[str]]]
    """By gender, then by where they are common."""
    one_text: dict[str, list[str]]
    """Sentences with the slot they are listed under, and a {day}."""
    pair: dict[str, list[list[str]]]
    negation: dict[str, list[str]]
    word_order: dict[str, list[list[str]]]

    def sentences(self, slot: str, *, is_pair: bool) -> list[tuple[str, ...]]:
        """Return the sentences, or pairs of them, that have a slot."""
        if is_pair:
            return [tuple(pair) for pair in self.pair[slot]]
        return [(sentence,) for sentence in self.one_text[slot]]


@cache
def read_lists() -> Lists:
    """Read the file inside the package."""
    text = files("plait.analysis.audit").joinpath("words.toml").read_text(encoding="utf-8")
    values: dict[str, Any] = tomllib.loads(text)
    return Lists(**values)
