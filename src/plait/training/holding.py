"""What a recipe holds out for dev and test becomes counts: texts passed over, files not there.

The rest is not done here: rows are left out where files are read (plait.data.split), texts where
a stage takes them (plait.training.stages.corpus).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.data import AUGMENTATIONS, SetAugmentation, find_held_out, find_root

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.data import Dataset
    from plait.training.plan import Plan


def find_missing(plan: Plan, data: str | None) -> tuple[str, ...]:
    """Return dev and test files that are not there, where something should be kept out for them."""
    root = find_root(plan.recipe.data, data)
    return find_held_out(plan.recipe, root).missing if holds_out(plan) else ()


def find_idle(plan: Plan) -> tuple[str, ...]:
    """Return the tables of [held_out], where nothing is kept out for them."""
    return () if holds_out(plan) else tuple(plan.recipe.held_out)


def holds_out(plan: Plan) -> bool:
    """Say whether what dev and test have is kept out of some training."""
    config = plan.recipe
    tasks = config.tasks.values()
    drops = config.data.drop_overlap or any(task.drop_overlap or task.unlabelled for task in tasks)
    drops = drops or any(file.drop_overlap for task in tasks for file in task.train)
    parts = (AUGMENTATIONS[table["name"]] for task in tasks for table in task.augment)
    extends = any(issubclass(part, SetAugmentation) for part in parts)
    pretrains = any(stage.kind.pretrains and not stage.kind.on_labels for stage in plan.stages)
    return bool(drops or extends or pretrains)


def count_held_out(
    plan: Plan, data: Mapping[str, Mapping[str, Dataset]]
) -> dict[str, dict[str, int]]:
    """Count the texts that stages that pre-train pass over, by split (train, texts) and name."""
    used: dict[str, dict[str, Dataset]] = {"train": {}, "texts": {}}
    for stage in plan.stages:
        kind = stage.kind
        if not kind.pretrains or kind.on_labels:
            continue
        if getattr(kind, "from_tasks", True):
            train = data["train"]
            used["train"] |= {task: train[task] for task in stage.tasks if task in train}
        used["texts"] |= {texts: data["texts"][texts] for texts in kind.texts}
    counts = {
        split: {name: int(dataset.held_out().sum()) for name, dataset in datasets.items()}
        for split, datasets in used.items()
    }
    return {split: {n: c for n, c in found.items() if c} for split, found in counts.items()}
