"""Convert a recipe's search space to Optuna's distributions, and drawn values to overrides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.config import RunConfig, SearchConfig, read_recipe
from plait.errors import RecipeError, UsageError
from plait.training.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.config import RangeConfig

FIXED = {
    "name": "it does not change the training",
    "search": "it does not change the training",
    "seed": "the best seed is the best by chance",
    "select": "different scores cannot be compared",
    "data.folds": "scores on different rows cannot be compared",
    "data.fold": "scores on different rows cannot be compared",
}
"""Settings that cannot be searched, and why."""


def spell_teachers(search: SearchConfig) -> SearchConfig:
    """Normalise the paths of teachers in a space, so that each folder is one value."""
    space = {}
    for key, choices in search.space.items():
        values = [_spell(key.rpartition(".")[2], value) for value in choices.values or ()]
        once = {json.dumps(value): value for value in values}
        update = {"values": tuple(once.values())} if values else {}
        space[key] = choices.model_copy(update=update)
    return search.model_copy(update={"space": space})


def _spell(key: str, value: Any) -> Any:
    """Write a teacher's path relative to the current folder if below it, else absolute."""
    if isinstance(value, dict):
        return {inner: _spell(inner, below) for inner, below in value.items()}
    if key != "teacher" or not isinstance(value, str) or not value:
        return value
    path, here = Path(value).resolve(), Path.cwd().resolve()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else str(path)


def check_space(config: RunConfig, recipe: str, overrides: Sequence[str]) -> None:
    """Raise an error for a space with an invalid key or value, before any trial.

    Each value and both ends of each range are tested separately; an invalid combination of values
    makes a trial fail.
    """
    space = config.search.space
    if not space:
        raise RecipeError(
            f"{recipe} has no [search.space]; write one, or add a file with -o FILE.toml"
        )
    for key in space:
        for fixed, why in FIXED.items():
            if key == fixed or (fixed == "search" and key.startswith("search.")):
                raise RecipeError(f"search.space: {key} cannot be searched: {why}")
        for other in space:
            if other.startswith(f"{key}."):
                raise RecipeError(
                    f"search.space: {other} is inside {key}; put it into the values of {key}"
                )
        for setting in overrides:
            given = setting.partition("=")[0].strip()
            if given == key or given.startswith(f"{key}.") or key.startswith(f"{given}."):
                raise UsageError(f"{setting!r} sets {key}, which the space searches; remove one")
    Plan.build(config)  # report errors of the recipe itself first
    for key, choices in space.items():
        for value in choices.values or (choices.low, choices.high):
            try:
                Plan.build(read_recipe(recipe, [*overrides, write_override(key, value)]))
            except RecipeError as error:
                raise RecipeError(f'search.space, "{key}" = {show(value)}: {error}') from error


def find_distributions(space: Mapping[str, RangeConfig]) -> dict[str, Any]:
    """Return Optuna's distributions of some ranges."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    found: dict[str, Any] = {}
    for key, choices in space.items():
        if choices.values is not None:
            # As JSON: a study stores only strings and numbers, and a part may be a table.
            found[key] = CategoricalDistribution([json.dumps(value) for value in choices.values])
            continue
        low, high = choices.low, choices.high
        assert low is not None
        assert high is not None
        if choices.is_whole:
            found[key] = IntDistribution(
                int(low), int(high), log=choices.log, step=int(choices.step or 1)
            )
        else:
            found[key] = FloatDistribution(
                float(low), float(high), log=choices.log, step=choices.step
            )
    return found


def read_settings(space: Mapping[str, RangeConfig], drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that Optuna drew, in the order of the space."""
    return {
        key: json.loads(drawn[key]) if choices.values is not None else drawn[key]
        for key, choices in space.items()
    }


def write_override(key: str, value: Any) -> str:
    """Write a setting in the syntax of `-o`."""
    return f"{key}={show(value)}"


def show(value: Any) -> str:
    """Write a value as TOML, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {show(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(show, value)) + "]"
    # Strings, numbers and booleans are written equally in JSON and TOML.
    return json.dumps(value, ensure_ascii=False)
