"""`plait list`: what there is to build a recipe from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


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
    load_families()
    for path in plugin or ():
        load_plugin(path)
    plurals = {_plural(name): name for name in FAMILIES}
    known = ["recipes", *plurals]
    if family is not None and family not in known:
        raise UsageError(f"there is no list of {family!r}{suggest(family, known)}")
    if family in (None, "recipes"):
        console.print("recipes (whole runs, for `plait train`)", style="bold")
        for name, table in list_recipes().items():
            if table.get("about"):
                console.print(f"  {name}: {table['about']}")
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


def load_families() -> None:
    """Import the rooms whose parts register themselves."""
    import plait.aggregators
    import plait.data.augmentations
    import plait.losses
    import plait.model.adapters
    import plait.model.heads
    import plait.regularizers
    import plait.schedules
    import plait.training.listeners
    import plait.weighting  # noqa: F401


def _plural(family: str) -> str:
    return f"{family}es" if family.endswith("s") else f"{family}s"
