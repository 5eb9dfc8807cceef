"""Write the trials as a table, and the best trial as a complete recipe."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from plait.config import (
    RunConfig,
    SearchConfig,
    differences,
    read_recipe,
    split_overrides,
    to_toml,
)
from plait.config.tables import override
from plait.data.storage import write_text
from plait.scale.search.space import show

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Trial:
    """The state of one trial."""

    number: int
    """From 1."""
    state: str
    """running, done, pruned or failed."""
    figure: float | None
    """The score that the recipe's `select` names; the best so far if the trial is unfinished."""
    settings: dict[str, Any]
    folder: Path
    evaluations: int
    seconds: float | None
    note: str = ""
    """Why the trial failed, or which earlier trial has the same settings."""


def rank(trials: Iterable[Trial]) -> list[Trial]:
    """Sort trials: finished ones first, by decreasing score, then by number."""

    def place(trial: Trial) -> tuple[bool, float, int]:
        figure = float("-inf") if trial.figure is None else trial.figure
        return (trial.state != "done", -figure, trial.number)

    return sorted(trials, key=place)


def write_trials(out: Path, trials: Sequence[Trial], keys: Sequence[str]) -> None:
    """Write trials.csv: a row per trial, a column per key of the space."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "state", "figure", *keys, "evaluations", "seconds", "folder", "note"])
    for trial in trials:
        values = (trial.settings[key] for key in keys)
        writer.writerow(
            [
                trial.number,
                trial.state,
                "" if trial.figure is None else trial.figure,
                *(value if isinstance(value, str) else show(value) for value in values),
                trial.evaluations,
                "" if trial.seconds is None else round(trial.seconds, 1),
                trial.folder.relative_to(out).as_posix(),
                trial.note,
            ]
        )
    write_text(out / "trials.csv", text.getvalue())


def write_best(
    out: Path,
    config: RunConfig,
    recipe: str,
    overrides: Sequence[str],
    data: str | None,
) -> None:
    """Write best.toml: `config` as an extension of the searched recipe."""
    path = out / "best.toml"
    wanted = {"name": f"{config.name}-best", "search": SearchConfig()}
    if data is not None:
        root = str(Path(data).expanduser().resolve()) if Path(data).is_dir() else data
        wanted["data"] = config.data.model_copy(update={"root": root})
        overrides = [*overrides, f"data.root={show(root)}"]
    config = config.model_copy(update=wanted)
    table: dict[str, Any] = {}
    files, settings = split_overrides(overrides)
    for setting in settings:
        override(table, setting)
    parents = [_name_from(out, parent) for parent in (recipe, *files)]
    table = {"name": config.name, "extends": parents if files else parents[0]} | {
        key: value for key, value in table.items() if key != "name"
    }
    write_text(path, tomli_w.dumps(table))
    written = read_recipe(path).model_copy(update={"search": SearchConfig()})
    # A table merged over a part of the same name keeps settings that an override would replace.
    if differences(written, config):
        write_text(path, to_toml(config))


def _name_from(out: Path, recipe: str) -> str:
    """Return a recipe's path relative to the folder."""
    if not recipe.endswith(".toml"):
        return recipe
    path = Path(recipe).resolve()
    try:
        return Path(os.path.relpath(path, out.resolve())).as_posix()
    except ValueError:  # another drive
        return str(path)
