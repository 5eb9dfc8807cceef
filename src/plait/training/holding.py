"""Report what a recipe keeps out of training because of dev and test: counts and missing files.

Rows are removed when files are read (plait.data.split), texts when a stage selects them
(plait.training.stages.corpus).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.data import AUGMENTATIONS, SetAugmentation, find_held_out, find_root

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.data import Dataset
    from plait.training.plan import Plan


def find_missing(plan: Plan, data: str | None) -> tuple[str, ...]:
    """Return missing dev and test files whose rows should be kept out of training."""
    root = find_root(plan.recipe.data, data)
    return find_held_out(plan.recipe, root).missing if holds_out(plan) else ()


def find_idle(plan: Plan) -> tuple[str, ...]:
    """Return the tables of [held_out] that have no effect."""
    return () if holds_out(plan) else tuple(plan.recipe.held_out)


def holds_out(plan: Plan) -> bool:
    """Return whether rows or texts of dev and test are kept out of training."""
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
    """Count the texts that pre-training stages skip, by split (train, texts) and name."""
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
