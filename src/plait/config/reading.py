"""A recipe file becomes a RunConfig: found, extended, overridden, checked."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from plait.config.checking import validate
from plait.config.sections import RunConfig
from plait.config.starting import lay_over_run
from plait.config.tables import merge, override
from plait.errors import RecipeError, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from importlib.resources.abc import Traversable


def read_recipe(
    recipe: str | Path,
    overrides: Iterable[str] = (),
    extra: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Read a recipe by packaged name or path, with everything it extends.

    An override is `key=value` or a .toml file. The files are laid over the recipe first, then
    `extra`, then the single settings. A recipe that starts from a run is laid over that run's
    recipe.
    """
    table = read_chain(str(recipe))
    if "ensemble" in table:
        raise RecipeError(
            f"{recipe} lists the members of an ensemble, which `plait train` and `plait plan` "
            "take; name one of its members here"
        )
    return resolve(table, overrides, str(recipe), extra=extra)


def resolve(
    table: dict[str, Any],
    overrides: Iterable[str],
    origin: str,
    *,
    extra: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Lay .toml files, a table and single settings over a recipe, and check the result."""
    files, settings = split_overrides(overrides)
    for file in files:
        table = merge(table, read_chain(file))
    table = merge(table, extra or {})
    for setting in settings:
        if setting.partition("=")[0].split(".")[0].strip() == "start":
            override(table, setting)
    if "start" in table:  # first, so that overrides can name the tasks of the run
        table = lay_over_run(table, read_chain, origin)
    for setting in settings:
        override(table, setting)
    return validate(RunConfig, table, origin)


def split_overrides(overrides: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split overrides into .toml files and `key=value` settings, each in the order given."""
    files: list[str] = []
    settings: list[str] = []
    for text in overrides:
        is_file = "=" not in text and text.endswith(".toml")
        (files if is_file else settings).append(text)
    return files, settings


def read_resolved(path: Path) -> RunConfig:
    """Read the recipe in a run's folder, which has everything already."""
    return validate(RunConfig, read_chain(str(path)), str(path))


def list_recipes() -> dict[str, dict[str, Any]]:
    """Return every packaged recipe's table by its name, as written (not extended).

    Those without `about` are there to be extended by others.
    """
    found: dict[str, dict[str, Any]] = {}

    def walk(folder: Traversable, prefix: str) -> None:
        for item in sorted(folder.iterdir(), key=lambda i: i.name):
            if item.is_dir():
                walk(item, f"{prefix}{item.name}/")
            elif item.name.endswith(".toml"):
                name = prefix + item.name.removesuffix(".toml")
                found[name] = tomllib.loads(item.read_text(encoding="utf-8"))

    walk(resources.files("plait") / "recipes", "")
    return found


def read_chain(
    recipe: str, beside: Path | None = None, seen: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Read one recipe file and merge it over what it extends."""
    text, origin, folder = _find(recipe, beside)
    # A file has many spellings (a/../b.toml), so cycles are detected by the resolved path.
    this = origin if folder is None else str(Path(origin).resolve())
    if this in seen:
        raise RecipeError(f"recipes extend each other in a cycle: {' -> '.join([*seen, this])}")
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{origin} is not valid TOML: {error}") from error
    if folder is not None and "plugins" in table:  # named beside the recipe that asks for them
        table["plugins"] = [str((folder / p).resolve()) for p in _words(table, "plugins", origin)]
    listed = table.get("ensemble")
    if folder is not None and isinstance(listed, dict) and "members" in listed:
        listed["members"] = [
            str((folder / member).resolve()) if member.endswith(".toml") else member
            for member in _words(listed, "members", origin)
        ]
    merged: dict[str, Any] = {}
    for parent in _words(table, "extends", origin):
        merged = merge(merged, read_chain(parent, folder, (*seen, this)))
    table.pop("extends", None)
    table.pop("published", None)  # recipes of plait 0.1 have this table; it never set anything
    return merge(merged, table)


def _words(table: Mapping[str, Any], key: str, origin: str) -> list[str]:
    """Return a key that holds a word or a list of words, as a list."""
    value = table.get(key, [])
    words = [value] if isinstance(value, str) else value
    if not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
        raise RecipeError(f"{origin}: {key} = {value!r} should be a word or a list of words")
    return words


def _find(recipe: str, beside: Path | None) -> tuple[str, str, Path | None]:
    """Return a recipe's text, where it came from, and its folder if it is a file."""
    if recipe.endswith(".toml"):
        path = Path(recipe) if beside is None else beside / recipe
        try:
            # -sig: some editors begin a file with a byte order mark, which TOML does not know.
            return path.read_text(encoding="utf-8-sig"), str(path), path.parent
        except FileNotFoundError as error:
            raise RecipeError(f"there is no recipe file {path}") from error
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise RecipeError(
                f"cannot read {path}: line {line} is not UTF-8; save the file as UTF-8"
            ) from error
        except OSError as error:
            raise RecipeError(f"cannot read {path}: {error.strerror or error}") from error
    packaged = resources.files("plait") / "recipes" / f"{recipe}.toml"
    if not packaged.is_file():
        if Path(recipe).is_file():
            raise RecipeError(
                f"{recipe} is not a recipe (.toml); if it is a data file, "
                f"`plait new DIR {quote(recipe)}` drafts one"
            )
        if (drafted := Path(recipe) / "recipe.toml").is_file():
            raise RecipeError(f"{recipe} is a folder; use its recipe: {drafted}")
        raise RecipeError(
            f"there is no recipe {recipe!r}{suggest(recipe, list_recipes())} "
            "(see `plait list recipes`; one of your own is named by its path, ending in .toml)"
        )
    return packaged.read_text(encoding="utf-8"), recipe, None
