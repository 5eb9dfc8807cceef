"""Data that was read becomes numbers: rows of tasks, and examples of stages that pre-train."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plait.errors import RecipeError
from plait.training.stages.base import Sources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.data import Dataset
    from plait.inference.scoring import Task
    from plait.training.plan import StagePlan


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much there is to train on."""

    given: Mapping[str, int] = field(default_factory=dict)
    """Training rows of tasks whose files are not read."""
    train: Mapping[str, Dataset] = field(default_factory=dict)
    texts: Mapping[str, Dataset] = field(default_factory=dict)
    """The [texts.NAME] that were read."""
    unlabelled: Mapping[str, Dataset] = field(default_factory=dict)
    """Rows without labels, of tasks that have a teacher."""

    @property
    def rows(self) -> dict[str, int]:
        """Training rows by task."""
        return dict(self.given) | {task: len(dataset) for task, dataset in self.train.items()}

    def stage_rows(self, stage: StagePlan) -> dict[str, int]:
        """Training rows by task that a stage learns from; a teacher makes those of more."""
        more = self.answered_rows(stage)
        return {task: count + more.get(task, 0) for task, count in self.rows.items()}

    def answered_rows(self, stage: StagePlan) -> dict[str, int]:
        """Rows without labels by task that a stage's teacher answers."""
        return {
            task: len(self.unlabelled[task]) for task in stage.taught if task in self.unlabelled
        }

    def examples(
        self, stage: StagePlan, tasks: Mapping[str, Task]
    ) -> tuple[dict[str, int], bool] | None:
        """Count a pre-training stage's examples of a pass by stream, and say whether it is exact.

        It is where all its texts were read. None where the kind, or unread files, do not say.
        """
        kind, stream, chosen = stage.kind, stage.kind_name, stage.learned
        if kind.on_labels:
            counts = {
                f"{stream}-{task}": kind.count(Sources({task: tasks[task]}, self.train, {})) or 0
                if task in self.train
                else kind.estimate(tasks[task], self.given[task])
                for task in chosen
                if task in self.rows
            }
            return {one: count for one, count in counts.items() if count}, True
        if any(texts not in self.texts for texts in kind.texts):
            return None
        texts = {texts: self.texts[texts] for texts in kind.texts}
        read = {task: tasks[task] for task in chosen if task in self.train}
        unread = [task for task in chosen if task in self.given and task not in self.train]
        more = sum(kind.estimate(tasks[task], self.given[task]) for task in unread)
        if more and not read and not texts:
            return {stream: more}, False
        try:
            known = kind.count(Sources(read, self.train, texts))
        except ValueError as error:
            raise RecipeError(f"{stage.where}.kind: {error}") from error
        return None if known is None else ({stream: known + more}, not more)
