"""A written space becomes Optuna's distributions, and what is drawn from them overrides."""

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
    "name": "it says nothing of how a run trains",
    "search": "it says nothing of how a run trains",
    "seed": "a trial that wins by its seed wins by luck",
    "select": "trials with different figures cannot be compared",
    "data.folds": "trials scored on different rows cannot be compared",
    "data.fold": "trials scored on different rows cannot be compared",
}
"""What a search may not set, and why."""


def spell_teachers(search: SearchConfig) -> SearchConfig:
    """Spell every teacher among a space's values one way, so that one folder is one value."""
    space = {}
    for key, choices in search.space.items():
        values = [_spell(key.rpartition(".")[2], value) for value in choices.values or ()]
        once = {json.dumps(value): value for value in values}
        update = {"values": tuple(once.values())} if values else {}
        space[key] = choices.model_copy(update=update)
    return search.model_copy(update={"space": space})


def _spell(key: str, value: Any) -> Any:
    """Spell a teacher from here where it lies below, else whole; look into tables."""
    if isinstance(value, dict):
        return {inner: _spell(inner, below) for inner, below in value.items()}
    if key != "teacher" or not isinstance(value, str) or not value:
        return value
    path, here = Path(value).resolve(), Path.cwd().resolve()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else str(path)


def check_space(config: RunConfig, recipe: str, overrides: Sequence[str]) -> None:
    """Refuse a space with a key or a value that no run could have, before any trial.

    Each end of a range and each value is tried by itself; what goes wrong only together with
    another is found by the trial that has both.
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
                raise UsageError(f"{setting!r} sets what the space searches ({key}); leave one out")
    Plan.build(config)  # what is wrong without the space is not its fault
    for key, choices in space.items():
        for value in choices.values or (choices.low, choices.high):
            try:
                Plan.build(read_recipe(recipe, [*overrides, write_override(key, value)]))
            except RecipeError as error:
                raise RecipeError(f'search.space, "{key}" = {show(value)}: {error}') from error


def find_distributions(space: Mapping[str, RangeConfig]) -> dict[str, Any]:
    """Turn ranges into Optuna's distributions."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    found: dict[str, Any] = {}
    for key, choices in space.items():
        if choices.values is not None:
            # As JSON: a study keeps nothing but words and numbers, and a part may be a table.
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
    """Turn what Optuna drew into the keys' values, in the order of the space."""
    return {
        key: json.loads(drawn[key]) if choices.values is not None else drawn[key]
        for key, choices in space.items()
    }


def write_override(key: str, value: Any) -> str:
    """Write a setting as `-o` takes it."""
    return f"{key}={show(value)}"


def show(value: Any) -> str:
    """Write a value as TOML, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {show(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(show, value)) + "]"
    # JSON's words, numbers and booleans are TOML's.
    return json.dumps(value, ensure_ascii=False)
