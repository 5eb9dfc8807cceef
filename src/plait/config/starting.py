"""A recipe that starts from a run is laid over the recipe of that run."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.config.checking import validate
from plait.config.sections import StartConfig
from plait.config.tables import merge
from plait.errors import RecipeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SPLITS = ("train", "dev", "test")


def lay_over_run(
    table: dict[str, Any], read: Callable[[str], dict[str, Any]], origin: str
) -> dict[str, Any]:
    """Add to a recipe what it takes from the run it starts from: encoder, tasks, plugins.

    A task that the recipe has a table for takes part in training, one that the run alone has does
    not. The table is laid over the run's, unless it says what kind of task it is: then it
    stands by itself. Files without labels stay behind: the run's stages had a teacher for them,
    and those of the recipe may have none. `read` reads a recipe file.
    """
    start = validate(StartConfig, table["start"], f"{origin}: start")
    path = Path(start.run) / "recipe.toml"
    if not path.is_file():
        # The recipe of a run that started there has all it takes.
        if _holds_tables(table) and _is_whole(table):
            return table
        told = f"is no run: it has no {path.name}"
        if path.with_name("ensemble.toml").is_file():
            told = "is an ensemble; name one of its members"
        raise RecipeError(f"{origin}: start names {start.run}, which {told}")
    known = read(str(path))
    own = table.get("tasks", {})
    if not all(map(_holds_tables, (table, known))):
        return table  # what is wrong with it is said when it is checked
    tasks = {name: _with_root(task, known) for name, task in known.get("tasks", {}).items()}
    wanted = {n: task for n, task in tasks.items() if start.keep or n in own or not own}
    laid = {
        **table,
        "score_first": table.get("score_first", True),
        "plugins": list(dict.fromkeys([*known.get("plugins", ()), *table.get("plugins", ())])),
        "encoder": merge(known.get("encoder", {}), table.get("encoder", {})),
        "tasks": {n: _over(task, own.get(n, {})) for n, task in wanted.items()}
        | {n: task for n, task in own.items() if n not in tasks},
    }
    if own and laid["tasks"].keys() != own.keys():
        laid["train"] = {"tasks": list(own), **table.get("train", {})}
    return laid


def _holds_tables(table: Mapping[str, Any]) -> bool:
    parts = [table.get(key, {}) for key in ("tasks", "encoder", "train")]
    tasks = parts[0].values() if isinstance(parts[0], dict) else ()
    return all(isinstance(part, dict) for part in (*parts, *tasks))


def _is_whole(table: Mapping[str, Any]) -> bool:
    tasks = table.get("tasks", {})
    return "source" in table.get("encoder", {}) and all("kind" in task for task in tasks.values())


def _over(task: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    return deepcopy(dict(own)) if "kind" in own else merge(task, own)


def _with_root(task: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Name a task's files and treat its bad rows as under the data root of its own recipe."""
    data = recipe.get("data", {})
    placed = {"bad_rows": data.get("bad_rows", "error"), **task}
    placed.pop("unlabelled", None)
    if root := data.get("root"):
        # Absolute, or the new recipe's root would come before it; '@sample' is no folder.
        root = root if root.startswith("@") else Path(root).expanduser().resolve()
        for split in SPLITS:
            files = task.get(split, [])
            placed[split] = [{**file, "path": str(Path(root) / file["path"])} for file in files]
    return placed
