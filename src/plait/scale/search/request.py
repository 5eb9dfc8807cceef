"""What is searched, where and how; and the recipes of its runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plait.config import RunConfig, SearchConfig, read_recipe
from plait.errors import RecipeError, UsageError
from plait.scale import Engine
from plait.scale.search.space import check_space, spell_teachers, write_override

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched, where and how."""

    recipe: str
    out: Path
    overrides: tuple[str, ...] = ()
    data: str | None = None
    folds: int | None = None
    """Deal the training rows into so many parts; dev is left alone."""
    num_runs: int = 1
    """Parts that stand for dev in turn."""
    num_trials: int = 20
    """In all, earlier sittings included."""
    num_jobs: int | None = None
    """Trials at a time: one, or as many as a cluster has room for, unless given."""
    engine: Engine = field(default_factory=Engine)
    """Who works on them."""
    prune: bool = True
    """Whether to give up a trial that is behind the median of the others."""

    def read_config(self) -> RunConfig:
        """Read the recipe with its space, and refuse what no trial could be made of."""
        config = read_recipe(self.recipe, self.overrides)
        config = config.model_copy(update={"search": spell_teachers(config.search)})
        check_space(config, self.recipe, self.overrides)
        if self.folds is None and not any(task.dev_files for task in config.tasks.values()):
            raise RecipeError(
                f"{self.recipe} names no dev files to choose by; hold out some of the training "
                "rows with --holdout 0.1"
            )
        return self._fold(config, 1)

    def trial_config(self, settings: dict[str, Any], fold: int = 1) -> RunConfig:
        """Make the recipe of a run with some settings."""
        more = [write_override(key, value) for key, value in settings.items()]
        config = read_recipe(self.recipe, [*self.overrides, *more])
        return self._fold(config.model_copy(update={"search": SearchConfig()}), fold)

    def _fold(self, config: RunConfig, fold: int) -> RunConfig:
        if self.folds is None:
            return config
        data = config.data.model_copy(
            update={"folds": self.folds, "fold": fold, "leave_out": False}
        )
        return config.model_copy(update={"data": data})


def find_runs(folds: int | None, holdout: float | None) -> tuple[int | None, int]:
    """Turn --folds or --holdout into the parts that rows are dealt into, and the runs of a trial.

    A share becomes the nearest one-in-N.
    """
    if folds is not None and holdout is not None:
        raise UsageError("give --folds or --holdout, not both")
    if holdout is not None:
        if not 0 < holdout <= 0.5:
            raise UsageError(f"--holdout {holdout} should be above 0 and 0.5 at most")
        return max(2, round(1 / holdout)), 1
    if folds is not None and folds < 2:
        raise UsageError(f"--folds {folds} should be 2 or more")
    return folds, folds or 1
