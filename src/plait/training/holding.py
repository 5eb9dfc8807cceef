"""What a recipe holds out for dev and test becomes counts: texts passed over, files not there.

The rest is not done here: rows are left out where files are read (plait.data.split), texts where
a stage takes them (plait.training.stages.corpus).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.data import AUGMENTATIONS, SetAugmentation, find_held_out, find_root
from plait.training.build import build_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.config import RunConfig
    from plait.data import Dataset


def find_missing(config: RunConfig, data: str | None) -> tuple[str, ...]:
    """Return dev and test files that are not there, where something should be kept out for them."""
    return find_held_out(config, find_root(config.data, data)).missing if holds_out(config) else ()


def find_idle(config: RunConfig) -> tuple[str, ...]:
    """Return the tables of [held_out], where nothing is kept out for them."""
    return () if holds_out(config) else tuple(config.held_out)


def holds_out(config: RunConfig) -> bool:
    """Say whether what dev and test have is kept out of some training."""
    tasks = config.tasks.values()
    drops = config.data.drop_overlap or any(task.drop_overlap or task.unlabelled for task in tasks)
    drops = drops or any(file.drop_overlap for task in tasks for file in task.train)
    parts = (AUGMENTATIONS[table["name"]] for task in tasks for table in task.augment)
    extends = any(issubclass(part, SetAugmentation) for part in parts)
    kinds = [build_kind(config, name) for name in config.stages]
    pretrains = any(kind.pretrains and not kind.on_labels for kind in kinds)
    return bool(drops or extends or pretrains)


def count_held_out(
    config: RunConfig, data: Mapping[str, Mapping[str, Dataset]]
) -> dict[str, dict[str, int]]:
    """Count the texts that stages that pre-train pass over, by split (train, texts) and name."""
    used: dict[str, dict[str, Dataset]] = {"train": {}, "texts": {}}
    for name in config.stages:
        kind = build_kind(config, name)
        if not kind.pretrains or kind.on_labels:
            continue
        if getattr(kind, "from_tasks", True):
            tasks = config.stage_config(name).tasks or tuple(config.tasks)
            used["train"] |= {task: data["train"][task] for task in tasks if task in data["train"]}
        used["texts"] |= {texts: data["texts"][texts] for texts in kind.texts}
    counts = {
        split: {name: int(dataset.held_out().sum()) for name, dataset in datasets.items()}
        for split, datasets in used.items()
    }
    return {split: {n: c for n, c in found.items() if c} for split, found in counts.items()}
