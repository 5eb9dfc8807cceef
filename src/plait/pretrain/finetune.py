"""Fine-tuning: the tasks as they are."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from plait.pretrain.base import STAGE_KINDS, Material, Objective, StageKind

if TYPE_CHECKING:
    from torch import Tensor

    from plait.types import Batch


@STAGE_KINDS.register("finetune")
class Finetune(StageKind):
    """Train the tasks on their labelled rows, each with its own head and loss."""

    pretrains = False

    def objectives(self, material: Material) -> dict[str, Objective]:
        """Return one per task."""
        return {
            name: Objective(len(material.train[name]), partial(_make, material, name), task.loss)
            for name, task in material.tasks.items()
        }


def _make(material: Material, name: str, rows: Tensor) -> Batch:
    return material.collator(material.train[name], rows, material.tasks[name].spec)
