"""A recipe that lists members becomes the members' own recipes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from plait.config.checking import validate
from plait.config.reading import read_chain, resolve
from plait.config.sections import RecipeName, RunConfig, Section
from plait.config.tables import merge, override
from plait.errors import RecipeError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class MembersConfig(Section):
    """The members of an ensemble. What the recipe sets besides is laid over each of them."""

    members: tuple[str, ...] = Field(min_length=1)
    """Recipes: packaged ones, or files beside this one."""
    how: Literal["mode", "mean"] = "mode"
    """How their answers become one: by vote and median, or by mean."""
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Train every member once under each of these; once, under its own, unless set."""
    folds: int | None = Field(default=None, ge=2)
    """Train every member once without each of so many parts of the training rows: an ensemble that
    can teach rows which some of it have not seen."""
    calibrate: Literal["temperatures", "offsets"] | None = None
    """Calibrate each member, once trained, on the rows that it left out, as `plait calibrate
    --left-out` does: with a temperature per task, or with an offset for each class as well. Takes
    `folds`."""

    @model_validator(mode="after")
    def _has_rows_left_out(self) -> Self:
        if self.calibrate and not self.folds:
            raise ValueError(
                "calibrate needs members that leave rows out: set folds, or calibrate on dev after "
                "training (plait calibrate)"
            )
        return self


class EnsembleSections(Section):
    """What a recipe that lists members has for itself."""

    name: RecipeName
    """What the ensemble is called."""
    about: str = ""
    """A sentence for `plait list recipes`."""
    ensemble: MembersConfig
    """Who its members are."""


@dataclass(frozen=True, slots=True)
class EnsembleConfig:
    """Several runs that answer as one."""

    name: str
    about: str
    members: dict[str, RunConfig]
    """By the names of their folders."""
    how: Literal["mode", "mean"]
    calibrate: Literal["temperatures", "offsets"] | None = None


def lists_members(recipe: str | Path) -> bool:
    """Say whether a recipe is an ensemble's."""
    return "ensemble" in read_chain(str(recipe))


def read_ensemble(recipe: str | Path, overrides: Iterable[str] = ()) -> EnsembleConfig:
    """Read a recipe that lists members, and the members.

    All other settings of the recipe are merged into every member. So are the overrides, except
    those of the ensemble's keys (`ensemble.how=mean`).
    """
    table = read_chain(str(recipe))
    if "ensemble" not in table:
        raise RecipeError(f"{recipe} lists no members: it has no [ensemble]")
    own = {key: table.pop(key) for key in EnsembleSections.model_fields if key in table}
    for_members = []
    for setting in overrides:
        if setting.partition("=")[0].split(".")[0].strip() in EnsembleSections.model_fields:
            override(own, setting)
        else:
            for_members.append(setting)
    checked = validate(EnsembleSections, own, str(recipe))
    settings = checked.ensemble
    if settings.seeds and any(s.partition("=")[0].strip() == "seed" for s in for_members):
        raise RecipeError(
            f"{recipe} trains its members under seeds = {list(settings.seeds)}; change them with "
            "-o 'ensemble.seeds=[...]' instead of a seed"
        )
    members: dict[str, RunConfig] = {}
    for member in settings.members:
        chain = read_chain(member)
        if "ensemble" in chain:
            raise RecipeError(f"{recipe}: {member} is an ensemble itself; list its members instead")
        for seed, fold in product(settings.seeds or (None,), range(settings.folds or 1)):
            own_settings, suffix = [], ""
            if seed is not None:
                own_settings.append(f"seed={seed}")
                suffix += f"-seed-{seed}"
            if settings.folds:
                own_settings.append(f"data.folds={settings.folds}")
                own_settings += [f"data.fold={fold + 1}", "data.leave_out=true"]
                suffix += f"-fold-{fold + 1}"
            origin = f"{recipe}: {member}"
            changed = [*for_members, *own_settings]
            config = resolve(merge(chain, table), changed, origin)
            key = config.name.replace("/", "-") + suffix
            if key in members:
                raise RecipeError(
                    f"{recipe}: two members are called {key!r}; list a recipe once, and give "
                    "ensemble.seeds to train it more often"
                )
            members[key] = config
    about = (checked.name, checked.about)
    return EnsembleConfig(*about, members, settings.how, settings.calibrate)
