"""Merge a recipe that starts from a run with the recipe of that run."""

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
    """Return a recipe with the encoder, tasks and plugins of the run it starts from.

    A task with a table in the recipe is trained; a task that only the run has is not. The table is
    merged with the run's table of the task, unless it sets `kind`: then it replaces the run's
    table. Files without labels are not taken over, because they need a teacher. `read` reads a
    recipe file.
    """
    start = validate(StartConfig, table["start"], f"{origin}: start")
    path = Path(start.run) / "recipe.toml"
    if not path.is_file():
        # The recipe of a run that was started there is complete.
        if _holds_tables(table) and _is_whole(table):
            return table
        problem = f"is not a run: it has no {path.name}"
        if path.with_name("ensemble.toml").is_file():
            problem = "is an ensemble; name one of its members"
        raise RecipeError(f"{origin}: start names {start.run}, which {problem}")
    known = read(str(path))
    own = table.get("tasks", {})
    if not all(map(_holds_tables, (table, known))):
        return table  # validation reports the error later
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
    """Return a task with the file paths and `bad_rows` of the recipe it comes from."""
    data = recipe.get("data", {})
    placed = {"bad_rows": data.get("bad_rows", "error"), **task}
    placed.pop("unlabelled", None)
    if root := data.get("root"):
        # Absolute, so that the new recipe's root is not added; '@sample' is not a folder.
        root = root if root.startswith("@") else Path(root).expanduser().resolve()
        for split in SPLITS:
            files = task.get(split, [])
            placed[split] = [{**file, "path": str(Path(root) / file["path"])} for file in files]
    return placed
