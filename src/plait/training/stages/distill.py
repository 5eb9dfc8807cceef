"""Distillation: the tasks, learnt from a teacher's answers beside the labels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import torch

from plait.data import Rows
from plait.methods.losses import Loss
from plait.training.stages.base import STAGE_KINDS, Material, Objective, StageKind

if TYPE_CHECKING:
    from torch import Tensor

    from plait.data import Dataset
    from plait.tasks import TaskSpec

FLOOR = torch.finfo(torch.float32).eps
"""A teacher's probability below this counts as this: its logarithm stays finite, and a yes that
fp32 rounds to 1 leaves a no of 0 that was none."""


@STAGE_KINDS.register("distill")
class Distill(StageKind):
    """Train the tasks on a teacher's answers beside their labels (Hinton et al. 2015).

    `teacher` is the folder of a run or of an ensemble that has the stage's tasks, with the same
    kinds, labels and ranges; all else may differ. It answers the stage's training rows once,
    before the first update. The loss of classes and of yes or no is (1 - `weight`) times the
    task's own, plus `weight` * T^2 * KL(teacher_T || student_T), both distributions softened by
    T = `temperature`; T^2 keeps the gradient's size whatever T is
    (https://arxiv.org/abs/1503.02531, section 2). What is softened are the teacher's
    probabilities, which for one run is the same as its logits; an ensemble's are those it
    returns. For label sets the term is the mean over the labels, each a yes or no. For scores the
    temperature has no effect: the term is `weight` times the task's loss with the teacher's score
    as the label.

    With `unseen`, only members of an ensemble that were not trained on a row predict it, or all
    members if every member was: a model is overconfident on its training rows (cross-fitting,
    Dao et al. 2021, https://arxiv.org/abs/2104.09732). The members must be trained on different
    rows, as with `ensemble.folds`.

    With `calibrated`, the teacher predicts with its calibration, as it does everywhere else,
    so the student learns class offsets too; without `calibrated`, it predicts without
    calibration. With `unseen` too, the calibrations of the members are used, not the ensemble's.

    `tasks` are the tasks of the stage that learn from the teacher, all unless set; the other tasks
    learn only from their labels.

    A task's `unlabelled` rows follow its training rows; the teacher's prediction is also their
    label (augmented data in Thakur et al. 2021, https://arxiv.org/abs/2010.08240).
    """

    pretrains = False
    unused: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        *,
        teacher: str,
        temperature: float = 2.0,
        weight: float = 0.5,
        tasks: tuple[str, ...] = (),
        unseen: bool = False,
        calibrated: bool = False,
    ):
        if not teacher:
            raise ValueError("teacher must name the folder of a run or of an ensemble")
        if temperature <= 0:
            raise ValueError(f"temperature must be above 0, not {temperature}")
        if not 0 <= weight <= 1:
            raise ValueError(f"weight must be from 0 to 1, not {weight}")
        self.teacher, self.taught = teacher, tasks
        self.unseen, self.calibrated = unseen, calibrated
        self.temperature, self.weight = temperature, weight

    def objectives(self, material: Material) -> dict[str, Objective]:
        """Return one per task."""
        made = {}
        for name, task in material.tasks.items():
            data, loss = material.train[name], task.loss
            if name in (self.taught or material.tasks):
                data = _add_answers(
                    data, material.unlabelled.get(name), material.answers.get(name), task.spec
                )
                loss = Distilled(loss, self.temperature, self.weight)
            rows = Rows(data, task.spec, material.collator)
            made[name] = Objective(len(rows), rows, loss, rows=rows)
        return made


def _add_answers(
    data: Dataset, unlabelled: Dataset | None, answers: Tensor | None, spec: TaskSpec
) -> Dataset:
    """Return the data with the teacher's predictions as columns next to the labels.

    When a recipe is only checked, there are no predictions yet: the labels are returned without
    them, and rows without labels get zeros.
    """
    assert data.labels is not None
    if unlabelled is not None:
        shape = (len(unlabelled), *data.labels.shape[1:])
        own = torch.zeros(shape, dtype=data.labels.dtype)
        if answers is not None:
            own = torch.from_numpy(spec.kind.decide(answers[len(data) :].numpy())).to(own)
        data = data.join(replace(unlabelled, labels=own))
    if answers is None:
        return data
    assert data.labels is not None
    beside = answers.reshape(len(data), -1)
    known = data.labels.reshape(len(data), -1)
    return replace(data, labels=torch.cat([known.to(beside), beside], dim=1))


class Distilled(Loss):
    """A task's loss and the distance to its teacher.

    Labels are [examples, 1 + answers]: the label, then the teacher's probabilities or score; or
    [examples, 2 labels]: 0 or 1 for each, then the teacher's probabilities.
    What outputs mean is as under the task's own loss.
    """

    forms = ("distribution", "independent", "number")

    def __init__(self, own: Loss, temperature: float, weight: float):
        super().__init__(own.spec)
        self.own, self.temperature, self.weight = own, temperature, weight

    @property
    def num_outputs(self) -> int:
        """As many as under the task's own loss."""
        return self.own.num_outputs

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the two, weighted."""
        width = self.spec.kind.width
        known = labels[:, 0] if width is None else labels[:, :width]
        answers = labels[:, width or 1 :]
        hard, soft = self.own(outputs, known), self._distance(outputs, answers)
        return (1 - self.weight) * hard + self.weight * soft

    def _distance(self, outputs: Tensor, answers: Tensor) -> Tensor:
        """Return the loss of a number, else T^2 KL(teacher_T || student_T), the batch's mean."""
        if self.spec.kind.form == "number":
            return self.own(outputs, answers[:, 0])
        if self.spec.kind.form == "independent":  # a no and a yes each
            answers = torch.stack([1 - answers, answers], dim=-1)
        # Logits and the logarithms of their softmax differ by a constant, which the next
        # softmax takes out again.
        student = (self.own.log_probabilities(outputs) / self.temperature).log_softmax(dim=-1)
        teacher = (answers.clamp(min=FLOOR).log() / self.temperature).log_softmax(dim=-1)
        divergence = (teacher.exp() * (teacher - student)).sum(dim=-1).mean()
        return self.temperature**2 * divergence

    def decode(self, outputs: Tensor) -> Tensor:
        """Read the outputs as the task's own loss does."""
        return self.own.decode(outputs)

    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """Read the outputs as the task's own loss does."""
        return self.own.log_probabilities(outputs)

    def value(self, outputs: Tensor) -> Tensor:
        """Read the outputs as the task's own loss does."""
        return self.own.value(outputs)
