"""`plait list`: packaged recipes, and the parts that recipes name."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


FOLDERS = {
    **{name: f"system {name.upper()} (a published report)" for name in "abcd"},
    "best": "best models on the course's three tasks",
    "minbert": "minBERT on a single task",
}
"""Headings of the recipes' folders."""


def list_parts(
    family: Annotated[
        str | None,
        typer.Argument(
            metavar="FAMILY",
            help="recipes, or a family of parts such as heads or losses. Default: all.",
        ),
    ] = None,
    plugin: Annotated[
        list[Path] | None,
        typer.Option(
            "--plugin", metavar="FILE", help="Also list the parts that this file registers."
        ),
    ] = None,
) -> None:
    """List packaged recipes, and parts with their settings."""
    from plait.cli.display import make_console
    from plait.config import list_recipes
    from plait.errors import UsageError, suggest
    from plait.registry import FAMILIES, load_plugin

    console = make_console()
    if plugin and family != "recipes":  # an error in one is reported before the list
        load_families()
        for path in plugin:
            load_plugin(path)
    if family in (None, "recipes"):
        console.print("recipes (whole runs, for `plait train`)", style="bold")
        for line, style in _describe_recipes(list_recipes()):
            console.print(line, style=style)
    if family == "recipes":  # recipes are listed without torch
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
    """Yield lines and their styles: recipes without a folder first, then folder by folder."""
    complete = {name: table for name, table in tables.items() if table.get("about")}

    def folder(name: str) -> str:
        return name.rpartition("/")[0]

    for place, names in groupby(sorted(complete, key=folder), key=folder):
        if place:
            yield "", ""
            yield f"  {FOLDERS.get(place, place)}", "bold"
        for name in names:
            yield f"  {name}: {complete[name]['about']}", ""


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
