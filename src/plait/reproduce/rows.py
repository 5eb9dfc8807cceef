"""Words such as `a/2` become the published rows they mean, and recipes rows of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.config import list_recipes, lists_members, read_ensemble, read_recipe
from plait.errors import UsageError, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Row:
    """One run that stands in a report, or beside others."""

    recipe: str
    aliases: tuple[str, ...] = ()
    """Rows that the report prints again; they need no run of their own."""
    file: str | None = None
    """Where it is read from; a packaged recipe is read by its name."""

    @property
    def source(self) -> str:
        """What reads it."""
        return self.file or self.recipe


def find_rows(words: Iterable[str] = ()) -> list[Row]:
    """Return the rows that words name, word by word; all of them without a word.

    A word is a system (`a`, or `minbert` for what all four have), a table of one (`a/2`), or a
    row: its recipe's name (`a/annealed`), with the table between if one likes (`a/2/annealed`).
    An alias means the run that it repeats. What one word names is in the report's order.
    """
    known = _published()
    rows = {
        name: Row(name, tuple(n for n, p in known.items() if p.get("alias") == name))
        for name, published in known.items()
        if not published.get("alias")
    }
    wanted: dict[str, Row] = {}
    for word in words:
        found = [name for name, published in known.items() if _means(word, name, published)]
        if not found:
            names = {_folder(name) for name in known} | known.keys()
            raise UsageError(
                f"no published row is called {word!r}{suggest(word.lower(), names)} (a system such "
                "as a, a table such as a/2, or a recipe: see `plait list recipes`)"
            )
        runs = (known[name].get("alias") or name for name in found)
        wanted |= {name: rows[name] for name in runs if name not in wanted}
    return list((wanted or rows).values())


def name_rows(
    recipes: Sequence[str], overrides: Sequence[str] = (), profile: str | None = None
) -> list[Row]:
    """Read recipes, packaged ones or files, as rows by their names; refuse two of one name."""
    rows: dict[str, Row] = {}
    for source in recipes:
        read = read_ensemble if lists_members(source) else read_recipe
        name = read(source, overrides, profile=profile).name
        if name in rows:
            raise UsageError(
                f"{source} is called {name!r}, as {rows[name].source} is; give it a name of its own"
            )
        rows[name] = Row(name, file=source)
    return list(rows.values())


def _published() -> dict[str, dict[str, Any]]:
    """Return what the packaged recipes say of the rows that they rebuild, table by table."""
    tables = {name: t["published"] for name, t in list_recipes().items() if "published" in t}

    def place(item: tuple[str, dict[str, Any]]) -> tuple[str, str]:
        return item[1]["system"], item[1].get("table", "")

    return dict(sorted(tables.items(), key=place))


def _means(word: str, name: str, published: dict[str, Any]) -> bool:
    system, table = published["system"].lower(), published.get("table", "")
    stem = name.removeprefix(f"{system}/")
    return word.strip("/").lower() in (
        system,
        _folder(name),
        f"{system}/{table}" if table else system,
        name,
        f"{system}/{table}/{stem}",
    )


def _folder(recipe: str) -> str:
    return recipe.partition("/")[0]
