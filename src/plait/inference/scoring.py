"""Score a model on labelled data: one pass over each task, and a summary over tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from plait.tasks import TaskScores
from plait.tasks.kind import Floats
from plait.tasks.metrics import summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plait.data import Collator, Dataset
    from plait.methods.losses import Loss
    from plait.model.multitask import MultitaskModel
    from plait.tasks import TaskSpec
    from plait.types import Tokens


@dataclass(frozen=True, slots=True)
class Task:
    """A task with its loss and metric."""

    spec: TaskSpec
    loss: Loss
    metric: str


@dataclass(frozen=True, slots=True)
class Scores:
    """Every task's scores on one split, and their summary."""

    tasks: dict[str, TaskScores]
    primary: dict[str, float]
    """The metric of each task."""
    summary: dict[str, float]
    """sum, mean and overall."""

    @classmethod
    def of(cls, tasks: Mapping[str, Task], scores: dict[str, TaskScores]) -> Scores:
        """Collect the tasks' scores and compute their summary."""
        primary = {name: s.metrics[tasks[name].metric] for name, s in scores.items()}
        return cls(
            scores, primary, summarise(primary, {name: tasks[name].spec.kind for name in scores})
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        tasks = {name: scores.to_json() for name, scores in self.tasks.items()}
        primary = {name: v if math.isfinite(v) else None for name, v in self.primary.items()}
        return {"tasks": tasks, "primary": primary, "summary": self.summary}


def choose_room(device: torch.device) -> int:
    """Return the minimum tokens per batch: many on a GPU, no minimum on a CPU.

    A GPU computes a few hundred short rows faster than Python launches the layers.
    """
    return 2**16 if device.type == "cuda" else 0


@dataclass(frozen=True, slots=True)
class Scorer:
    """Runs a model on datasets, without dropout, in batches of similar length."""

    model: MultitaskModel
    tasks: Mapping[str, Task]
    collator: Collator
    batch_size: int = 64
    room: int = 0
    """Tokens that a batch holds even if its rows are more than `batch_size`."""
    autocast: torch.dtype | None = None
    progress: Callable[[str, int, int], None] | None = None
    """Called with the task, the rows done and the total."""

    def answer(self, task: str, dataset: Dataset, rows: torch.Tensor | None = None) -> Floats:
        """Return probabilities [examples, classes] or scores [examples], in order.

        `rows` are the row numbers to predict, in increasing order; all by default.
        """
        return self.answer_together((task,), dataset, rows)[task]

    def answer_together(
        self, tasks: Sequence[str], dataset: Dataset, rows: torch.Tensor | None = None
    ) -> dict[str, Floats]:
        """Return the outputs of several tasks with the same inputs, in one pass."""
        spec = self.tasks[tasks[0]].spec
        if not spec.both_orders:
            return self._answer(tasks, dataset, rows)
        first = self._answer(tasks, dataset, rows, part=(0, 2))
        second = self._answer(tasks, dataset.turned(), rows, part=(1, 2))
        return {task: (first[task] + second[task]) / 2 for task in tasks}

    def _answer(
        self,
        tasks: Sequence[str],
        dataset: Dataset,
        rows: torch.Tensor | None,
        part: tuple[int, int] = (0, 1),
    ) -> dict[str, Floats]:
        """Predict pairs in the given order of their texts; `part` is (pass, number of passes)."""
        device = next(self.model.parameters()).device
        was_training = self.model.training
        self.model.eval()
        parts: dict[str, list[torch.Tensor]] = {task: [] for task in tasks}
        places: list[torch.Tensor] = []
        spec = self.tasks[tasks[0]].spec
        done = 0
        try:
            with (
                torch.inference_mode(),
                torch.autocast(device.type, self.autocast, enabled=self.autocast is not None),
            ):
                batches = self.collator.iterate(dataset, spec, self.batch_size, rows, self.room)
                for place, batch in batches:
                    found = self._ask(tasks, batch.to(device).tokens)
                    for task, outputs in zip(tasks, found, strict=True):
                        parts[task].append(self.tasks[task].loss.decode(outputs))
                    places.append(place)
                    if self.progress is not None:
                        done += len(place)
                        total = len(dataset) if rows is None else len(rows)
                        overall = (part[0] * total + done) // part[1]
                        self.progress(", ".join(tasks), overall, total)
        finally:
            self.model.train(was_training)
        if not places:
            return {task: self.tasks[task].spec.kind.empty() for task in tasks}
        order = torch.cat(places).argsort().numpy()
        # Wait for the device once at the end, not in every batch.
        return {task: torch.cat(some).double().cpu().numpy()[order] for task, some in parts.items()}

    def _ask(self, tasks: Sequence[str], tokens: Tokens) -> list[torch.Tensor]:
        if len(tasks) == 1:
            return [self.model(tasks[0], tokens)]
        return self.model.answer_together(tasks, tokens)

    def score(
        self, datasets: Mapping[str, Dataset], rows: Mapping[str, torch.Tensor] | None = None
    ) -> Scores:
        """Score every task's data set, or only some rows of it."""
        return score_answers(self.tasks, datasets, self.answer, rows)


def score_answers(
    tasks: Mapping[str, Task],
    datasets: Mapping[str, Dataset],
    answer: Callable[[str, Dataset, torch.Tensor | None], Floats],
    rows: Mapping[str, torch.Tensor] | None = None,
) -> Scores:
    """Score the outputs of `answer` for every task's dataset, or only some of its rows."""
    scores = {}
    for name, dataset in datasets.items():
        some = (rows or {}).get(name)
        labels = dataset.labels
        assert labels is not None, f"{name} is unlabelled"
        labels = labels if some is None else labels[some]
        scores[name] = tasks[name].spec.kind.score(labels.numpy(), answer(name, dataset, some))
    return Scores.of(tasks, scores)


def score_baseline(
    tasks: Mapping[str, Task], train: Mapping[str, Dataset], dev: Mapping[str, Dataset]
) -> Scores:
    """Score the majority class, or the mean score, of the training labels.

    A task without training rows has no baseline.
    """
    scores = {}
    for name, dataset in dev.items():
        if name not in train:
            continue
        labels, known = dataset.labels, train[name].labels
        assert labels is not None
        assert known is not None
        kind = tasks[name].spec.kind
        scores[name] = kind.score(labels.numpy(), kind.baseline(known.numpy(), len(dataset)))
    return Scores.of(tasks, scores)
