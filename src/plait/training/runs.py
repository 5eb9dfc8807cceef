"""Train a recipe into a run or an ensemble of runs.

The folder of an ensemble has:

members/                one run folder per member
ensemble.toml           the members and how their predictions are combined
scores.json             dev scores of the combined predictions
card.md                 the model card
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.config import EnsembleConfig, lists_members, read_ensemble, read_recipe
from plait.data.storage import write_text
from plait.errors import RecipeError, RunError, UsageError
from plait.inference.card import update_card
from plait.inference.ensemble import (
    compare_tasks,
    load,
    outline,
    read_calibrations,
    write_ensemble,
)
from plait.inference.fitting.calibrate import calibrate, undo
from plait.inference.folders import is_taken
from plait.inference.teacher import open_teacher
from plait.training import run
from plait.training.plan import Plan
from plait.training.run import Outcome
from plait.training.team import ALONE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plait.config import RunConfig
    from plait.inference.calibration import Scaling
    from plait.training.listeners import Listener
    from plait.training.teachers import Progress
    from plait.training.team import Team

MEMBERS = "members"


def train(
    recipe: RunConfig | EnsembleConfig | Path | str,
    out: Path | str,
    *,
    data: str | None = None,
    resume: bool = False,
    command: str = "plait train RECIPE --out RUN --resume",
    listeners: Sequence[Listener] = (),
    team: Team = ALONE,
) -> Outcome:
    """Train a recipe into a folder, or resume the run in it.

    `recipe` is a name, a path or a recipe that was read. `data` replaces the recipe's data root;
    `command` is the command that resumes the run, for messages. A recipe that lists members trains
    an ensemble. Every process of a `team` makes the same call.
    """
    if isinstance(recipe, str | Path):
        recipe = read_ensemble(recipe) if lists_members(recipe) else read_recipe(recipe)
    if isinstance(recipe, EnsembleConfig):
        if team.size > 1:
            raise UsageError(
                f"{recipe.name} is an ensemble: several workers can train only one of its members"
            )

        def note(text: str) -> None:
            for listener in listeners:
                listener.note(text)

        return train_ensemble(
            recipe,
            out,
            data=data,
            resume=resume,
            command=command,
            listen=lambda _: listeners,
            note=note,
        )
    return run.train(
        recipe,
        out,
        data=data,
        resume=resume,
        command=command,
        listeners=listeners,
        open_teacher=open_teacher,
        team=team,
    )


# --- ensembles ---------------------------------------------------------------------------


def train_ensemble(
    config: EnsembleConfig,
    out: Path | str,
    *,
    data: str | None = None,
    resume: bool = False,
    command: str = "plait train RECIPE --out RUN --resume",
    listen: Callable[[str], Sequence[Listener]] = lambda _: (),
    progress: Progress | None = None,
    note: Callable[[str], None] = lambda _: None,
    train_all: Callable[[Mapping[str, Path]], None] | None = None,
) -> Outcome:
    """Train every member into OUT/members, make OUT their ensemble and score it on dev.

    A resumed ensemble skips finished members. `listen` is called with a member's name before it is
    trained and returns its listeners; `progress` receives the progress of predictions, `note`
    messages on tasks that could not be calibrated. `train_all` may train the members into their
    folders beforehand, in parallel.
    """
    folder = Path(out)
    _check_members(config)
    _check_place(folder, resume=resume, command=command)
    places = {name: folder / MEMBERS / name for name in config.members}
    if train_all is not None:
        train_all(places)
    results = {
        name: train(
            config.members[name],
            place,
            data=data,
            resume=(resume or train_all is not None) and place.exists(),
            command=command,
            listeners=listen(name),
        ).result
        for name, place in places.items()
    }
    write_ensemble(list(places.values()), folder, config.how)
    result: dict[str, Any] = {
        "recipe": config.name,
        "how": config.how,
        "members": {name: _brief(values) for name, values in results.items()},
        "seconds": round(sum(values["seconds"] for values in results.values()), 1),
    }
    first = next(iter(config.members.values()))
    if config.calibrate:
        calibrate(
            folder,
            data=data,
            device=first.device,
            left_out=True,
            offsets=config.calibrate == "offsets",
            lenient=True,  # the ensemble is usable without calibration
            answering=progress,
            note=note,
        )
        scaled = _read_members_scalings(folder, note)
        result["calibrated"] = {name: sorted(s) for name, s in zip(places, scaled, strict=True)}
    if any(task.dev_files for task in first.tasks.values()):
        model = load(folder, device=first.device)
        watched = model if progress is None else model.watched(progress)
        result["dev"] = watched.evaluate("dev", data=data).to_json()
        one = next(iter(results.values()))
        result |= {key: one[key] for key in ("baseline", "baselines") if key in one}
    write_text(folder / "scores.json", json.dumps(result, indent=1))
    update_card(folder)
    return Outcome(folder, result)


def _read_members_scalings(folder: Path, note: Callable[[str], None]) -> list[dict[str, Scaling]]:
    """Return the calibrations of the members; remove an outdated calibration of the ensemble."""
    try:
        return read_calibrations(folder)[0]
    except RunError:
        if not undo(folder):
            raise
    note(f"removed the calibration of {folder}, because its members changed")
    return read_calibrations(folder)[0]


def _brief(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a member's scores that the summary table shows."""
    dev = result.get("dev", {})
    return {key: dev[key] for key in ("primary", "summary") if key in dev}


def _check_members(config: EnsembleConfig) -> None:
    """Raise RecipeError if predictions of the members cannot be combined."""
    shared: dict[str, Any] = {}
    for name, member in config.members.items():
        Plan.build(member)
        tasks = {task: outline(spec) for task, spec in member.tasks.items()}
        shared = shared or tasks
        try:
            compare_tasks(name, tasks, next(iter(config.members)), shared)
        except RunError as error:
            raise RecipeError(f"{config.name}: {error}") from error


def _check_place(folder: Path, *, resume: bool, command: str) -> None:
    begun = (folder / MEMBERS).is_dir()
    if not resume and is_taken(folder):
        go_on = f"go on there with `{command}`, or " if begun else ""
        raise RunError(
            f"{folder} exists already and is not overwritten; {go_on}choose another --out"
        )
    if resume and not begun:
        raise RunError(
            f"{folder} has no {MEMBERS}/ to resume; leave out --resume and choose a new --out"
        )
