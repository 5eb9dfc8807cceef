"""Fine-tuning: the tasks as they are."""

from __future__ import annotations

from typing import ClassVar

from plait.data import Rows
from plait.training.stages.base import STAGE_KINDS, Material, Objective, StageKind


@STAGE_KINDS.register("finetune")
class Finetune(StageKind):
    """Train the tasks on their labelled rows, each with its own head and loss."""

    pretrains = False
    unused: ClassVar[tuple[str, ...]] = ()

    def objectives(self, material: Material) -> dict[str, Objective]:
        """Return one per task."""
        made = {}
        for name, task in material.tasks.items():
            rows = Rows(material.train[name], task.spec, material.collator)
            made[name] = Objective(len(rows), rows, task.loss, rows=rows)
        return made
