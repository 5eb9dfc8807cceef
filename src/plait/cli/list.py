"""`plait list`: what there is to build a recipe from."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def list_parts(
    family: Annotated[
        str | None,
        typer.Argument(
            metavar="FAMILY",
            help="recipes, or a family of parts such as heads or losses; all if left out.",
        ),
    ] = None,
    plugin: Annotated[
        list[Path] | None,
        typer.Option("--plugin", metavar="FILE", help="List the parts of this file of yours, too."),
    ] = None,
) -> None:
    """List recipes and parts, with the parts' settings."""
    from plait.cli.display import make_console
    from plait.config import list_recipes
    from plait.errors import UsageError, suggest
    from plait.registry import FAMILIES, load_plugin

    console = make_console()
    if plugin and family != "recipes":  # what is wrong with one is told before the list
        load_families()
        for path in plugin:
            load_plugin(path)
    if family in (None, "recipes"):
        console.print("recipes (whole runs, for `plait train`)", style="bold")
        for line, style in _describe_recipes(list_recipes()):
            console.print(line, style=style)
    if family == "recipes":  # which need no torch to be listed
        return
    load_families()
    plurals = {_plural(name): name for name in FAMILIES}
    if family is not None and family not in plurals:
        known = ["recipes", *plurals]
        raise UsageError(f"there is no list of {family!r}{suggest(family, known)}")
    for plural, name in plurals.items():
        if family not in (None, plural):
            continue
        registry = FAMILIES[name]
        if family is None:
            console.print()
        console.print(f"{plural} ({registry.about})", style="bold")
        for part in registry:
            console.print(f"  {part}: {registry.describe(part)}")
            for setting in registry.settings(part):
                console.print(f"      {setting.show()}", style="dim")


def _describe_recipes(tables: Mapping[str, dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield lines and their styles: recipes of no report first, then report by report."""
    complete = {name: table for name, table in tables.items() if table.get("about")}

    def place(item: tuple[str, dict[str, Any]]) -> tuple[str, str]:
        published = item[1].get("published", {})
        return published.get("system", ""), published.get("table", "")

    # Sorting keeps the order of what is equal: by name within a table.
    for (system, table), group in groupby(sorted(complete.items(), key=place), key=place):
        if system:
            yield "", ""
            yield f"  published in {system}{f', table {table}' if table else ''}", "bold"
        for name, recipe in group:
            yield f"  {name}: {recipe['about']}", ""
            if system:
                yield f"      {_describe_row(recipe['published'])}", "dim"


def _describe_row(published: Mapping[str, Any]) -> str:
    """Write a published row in a line: its words, its figures, what it repeats."""
    # As the reports print them: .5 is .500, and a sum keeps what stands before the point.
    figures = [
        f"{name} {f'{value:.3f}'.replace('0.', '.', 1)}"
        for name, value in published.get("figures", {}).items()
    ]
    alias = published.get("alias")
    return (
        f"{published['row']}: {', '.join(figures) or 'no figures'}"
        f"{f'; the same run as {alias}' if alias else ''}"
    )


def load_families() -> None:
    """Import the modules whose parts register themselves."""
    from importlib import import_module

    for module in (
        "data.augmentations",
        "methods.aggregators",
        "methods.losses",
        "methods.regularizers",
        "methods.schedules",
        "methods.weighting",
        "model.adapters",
        "tasks",
        "model.encoder",
        "model.heads",
        "training.listeners",
        "training.stages",
    ):
        import_module(f"plait.{module}")


def _plural(family: str) -> str:
    return f"{family}es" if family.endswith("s") else f"{family}s"
