"""Merge tables: a recipe over the recipe it extends, overrides over both."""

from __future__ import annotations

import tomllib
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from plait.errors import RecipeError

if TYPE_CHECKING:
    from collections.abc import Mapping


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge one table into another: tables are merged, other values are replaced.

    A part that names itself anew starts from its own defaults, not from the settings
    of the part it replaces.
    """
    merged = deepcopy(dict(base))
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(value, dict) and isinstance(old, str):
            old = _make_room(key, old)
        if isinstance(value, dict) and isinstance(old, dict):
            # A task or a label may be called "name"; only a string names a part.
            renamed = isinstance(value.get("name"), str) and value["name"] != old.get("name")
            merged[key] = deepcopy(value) if renamed else merge(old, value)
        else:
            merged[key] = deepcopy(value)
    return merged


def _make_room(key: str, word: str) -> dict[str, Any]:
    """Return a part, data file or run that is a string as a table, so that keys can be added."""
    files = ("train", "dev", "test", "unlabelled", "files")
    return {"path" if key in files else {"start": "run"}.get(key, "name"): word}


def override(table: dict[str, Any], setting: str) -> None:
    """Apply one `dotted.key=value`; the value is TOML, or a plain word."""
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise RecipeError(f"override {setting!r} is not key=value, nor a .toml file")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    *parents, last = [k.strip() for k in key.split(".")]
    for parent in parents:
        below = table.setdefault(parent, {})
        if isinstance(below, str):
            below = table[parent] = _make_room(parent, below)
        if not isinstance(below, dict):
            raise RecipeError(f"override {setting!r}: {parent} is not a table")
        table = below
    table[last] = value
