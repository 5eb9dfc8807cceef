"""`plait list`: what there is to build a recipe from."""

from __future__ import annotations

from typing import Annotated

import typer


def list_parts(
    family: Annotated[
        str | None,
        typer.Argument(
            help="recipes, or a family of parts such as heads or losses; all if left out."
        ),
    ] = None,
) -> None:
    """List recipes and parts, with the settings each part takes.

    Parts come from the registry, so those of your own appear once a recipe's plugin names them.
    """
    from rich.console import Console

    from plait.config import list_recipes
    from plait.errors import UsageError, suggest
    from plait.registry import FAMILIES

    console = Console(highlight=False, soft_wrap=True)
    load_families()
    plurals = {_plural(name): name for name in FAMILIES}
    known = ["recipes", *plurals]
    if family is not None and family not in known:
        raise UsageError(f"there is no list of {family!r}{suggest(family, known)}")
    if family in (None, "recipes"):
        console.print("recipes", style="bold")
        for name, table in list_recipes().items():
            if table.get("about"):
                console.print(f"  {name}: {table['about']}", markup=False)
    for plural, name in plurals.items():
        if family not in (None, plural):
            continue
        registry = FAMILIES[name]
        console.print(f"\n{plural} ({registry.about})", style="bold", markup=False)
        for part in registry:
            console.print(f"  {part}: {registry.describe(part)}", markup=False)
            for setting in registry.settings(part):
                console.print(f"      {setting.show()}", style="dim", markup=False)


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
