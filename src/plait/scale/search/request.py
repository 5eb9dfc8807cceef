"""The options of a search, and the recipes of its runs."""

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
    """The options of a search."""

    recipe: str
    out: Path
    overrides: tuple[str, ...] = ()
    data: str | None = None
    folds: int | None = None
    """Number of folds of the training rows; None scores on dev."""
    num_runs: int = 1
    """Number of folds that are used as dev set in turn."""
    num_trials: int = 20
    """Total number of trials, including those of earlier starts."""
    num_jobs: int | None = None
    """Trials at once; if None, one on this machine, and as many as fit on a Ray cluster."""
    engine: Engine = field(default_factory=Engine)
    """Where the trials run."""
    prune: bool = True
    """Whether to stop trials below the median early."""

    def read_config(self) -> RunConfig:
        """Read the recipe with its space; raise an error if no trial can be made of them."""
        config = read_recipe(self.recipe, self.overrides)
        config = config.model_copy(update={"search": spell_teachers(config.search)})
        check_space(config, self.recipe, self.overrides)
        if self.folds is None and not any(task.dev_files for task in config.tasks.values()):
            raise RecipeError(
                f"{self.recipe} has no dev files to score trials on; hold out training rows with "
                "--holdout 0.1"
            )
        return self._fold(config, 1)

    def trial_config(self, settings: dict[str, Any], fold: int = 1) -> RunConfig:
        """Return the recipe of a run with these settings."""
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
    """Return the number of folds and the runs per trial that --folds or --holdout ask for.

    A holdout share is rounded to the nearest 1/N.
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
