"""Contrastive fine-tuning on labelled rows: texts of one class together, others apart."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F

from plait.data import Dataset, Rows
from plait.model.heads import Head
from plait.training.stages.base import STAGE_KINDS, Material, Objective, Sources, StageKind
from plait.types import Batch, Tokens

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from plait.inference.scoring import Task
    from plait.tasks import TaskSpec


class VectorHead(Head):
    """The pooled vector as it is."""

    def forward(self, vectors: Tensor) -> Tensor:
        """Return what is given."""
        return vectors


class ContrastiveLoss:
    """SupCon (Khosla et al. 2020, arXiv 2004.11362, the sum outside the logarithm).

    For each row of a batch, the cross entropy between the softmax of its cosines with all other
    rows, divided by the temperature, and a target that is proportional to how alike their labels
    are: 1 for the same class and 0 for another; the shared part of all their labels (Jaccard);
    1 minus the distance of two scores, each a part of the range, to the power of 8. Rows that
    are like no other row do not count.
    """

    def __init__(self, spec: TaskSpec, temperature: float):
        self.spec, self.temperature = spec, temperature

    def __call__(self, vectors: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over the rows of a batch, `vectors` [rows, width].

        `labels` are of the first rows; as many behind them have the same ones, in that order.
        """
        labels = torch.cat([labels] * (len(vectors) // len(labels)))
        with torch.autocast(vectors.device.type, enabled=False):
            unit = F.normalize(vectors.float(), dim=1)
            own = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
            logits = (unit @ unit.T / self.temperature).masked_fill(own, -1e9)
            alike = self._compare(labels).masked_fill(own, 0.0)
            sums = alike.sum(1)
            losses = -(alike * logits.log_softmax(1)).sum(1) / sums.clamp(min=1e-6)
            counts = (sums > 0).float()
            return (losses * counts).sum() / counts.sum().clamp(min=1.0)

    def _compare(self, labels: Tensor) -> Tensor:
        """Return how alike the labels of each two rows are, [rows, rows] from 0 to 1."""
        if self.spec.kind.form == "independent":
            labels = labels.float()
            shared = labels @ labels.T
            counts = labels.sum(1)
            whole = counts[:, None] + counts[None, :] - shared
            return torch.where(whole > 0, shared / whole.clamp(min=1.0), 1.0)
        if self.spec.kind.form == "number":
            low, high = self.spec.range
            unit = (labels.float() - low) / (high - low)
            return (1 - (unit[:, None] - unit[None, :]).abs()).clamp(min=0.0) ** 8
        return (labels[:, None] == labels[None, :]).float()


@STAGE_KINDS.register("contrast")
class Contrast(StageKind):
    """Contrastive fine-tuning of the encoder on the tasks' labelled rows, as SetFit does.

    Each batch holds rows and, for each of them, another row of the same class (of a like set of
    labels, of a near score). The loss is SupCon over the whole batch in place of SetFit's pairs
    (Tunstall et al. 2022, arXiv 2209.11055), so that a batch of 2n texts has 4n^2 comparisons.
    Tasks whose texts are encoded apart take no part. `temperature` divides the cosines. With
    `names`, the name of a class is one more text of it, where a task reads single texts and all
    its names are words.
    """

    on_labels = True

    def __init__(self, *, temperature: float = 0.1, names: bool = True):
        if temperature <= 0:
            raise ValueError(f"temperature must be above 0, not {temperature}")
        self.temperature, self.names = temperature, names

    def objectives(self, material: Material) -> dict[str, Objective]:
        """Return one for each task with one input a row and two different labels or more."""
        made = {
            f"contrast-{name}": self._objective(name, task, material)
            for name, task in material.tasks.items()
            if _takes_part(task.spec, material.train[name].labels)
        }
        if not made:
            raise ValueError(
                "no task has rows to compare: it needs one input per row and two different labels"
            )
        return made

    def count(self, sources: Sources) -> int:
        """Count the rows and names of the tasks that take part."""
        return sum(
            self.estimate(task, len(sources.train[name]))
            for name, task in sources.tasks.items()
            if _takes_part(task.spec, sources.train[name].labels)
        )

    def estimate(self, task: Task, rows: int) -> int:
        """Count the rows and the names."""
        names = _names_of(task.spec) if self.names else None
        return rows + len(names or ()) if task.spec.inputs == "joined" else 0

    def _objective(self, name: str, task: Task, material: Material) -> Objective:
        own = Rows(material.train[name], task.spec, material.collator)
        rows: Rows | WithNames = own
        labels = own.dataset.labels
        assert labels is not None
        if self.names and (named := _names_of(task.spec)):
            labels = torch.cat([labels, _labels_of_names(task.spec, labels)])
            rows = WithNames(own, named, material)
        partners = Partners(task.spec, labels.numpy())

        def make(chosen: Tensor, generator: np.random.Generator) -> Batch:
            others = torch.from_numpy(partners.draw(chosen.numpy(), generator))
            return Batch(rows(torch.cat([chosen, others])).tokens, labels[chosen])

        loss = ContrastiveLoss(task.spec, self.temperature)
        return Objective(len(labels), make, loss, VectorHead(), draws=True)


class WithNames:
    """Rows of a task, and behind them the names of its classes."""

    def __init__(self, rows: Rows, names: list[str], material: Material):
        self.rows = rows
        limit = rows.collator.max_length
        texts = [(name,) for name in names]
        self.names = Rows(
            Dataset.from_texts(texts, material.tokenizer, limit), rows.spec, rows.collator
        )

    def __call__(self, chosen: Tensor) -> Batch:
        """Return some rows and names as one batch, without labels."""
        is_name = chosen >= len(self.rows)
        parts = [
            (torch.nonzero(~is_name).squeeze(1), self.rows, 0),
            (torch.nonzero(is_name).squeeze(1), self.names, len(self.rows)),
        ]
        used = [(place, rows, chosen[place] - less) for place, rows, less in parts if len(place)]
        length = max(int(rows.lengths()[:, some].max()) for _, rows, some in used)
        made = [rows(some, length=length).tokens for _, rows, some in used]
        order = torch.cat([place for place, _, _ in used]).argsort()
        ids, types, mask = (
            torch.cat([getattr(tokens, part) for tokens in made])[order]
            for part in ("ids", "types", "mask")
        )
        return Batch(Tokens(ids, types, mask), None)


def _names_of(spec: TaskSpec) -> list[str] | None:
    """Return the classes' names as texts; None for pairs and scores, and where one is no word."""
    names = [re.sub(r"[\W_]+", " ", label).strip() for label in spec.labels]
    are_words = all(
        re.search(r"[^\W\d_]{3}", name) and not re.search(r"\d", name) for name in names
    )
    return names if names and are_words and not spec.is_pair else None


def _labels_of_names(spec: TaskSpec, labels: Tensor) -> Tensor:
    """Return the labels of the names as rows, in the form of the task's other labels."""
    count = len(spec.labels)
    own = torch.arange(count) if spec.kind.width is None else torch.eye(count)
    return own.to(labels.dtype)


class Partners:
    """Draws for each row another row with a similar label, or the same row if no other exists."""

    def __init__(self, spec: TaskSpec, labels: npt.NDArray[np.generic]):
        groups = spec.kind.groups(labels)
        self.order = np.argsort(groups, kind="stable")
        """Rows by group."""
        self.places = np.empty(len(groups), np.int64)
        self.places[self.order] = np.arange(len(groups))
        ends = np.cumsum(np.bincount(groups))
        self.ends = ends[groups]
        self.sizes = np.bincount(groups)[groups]

    def draw(
        self, rows: npt.NDArray[np.int64], generator: np.random.Generator
    ) -> npt.NDArray[np.int64]:
        """Return another row of each row's group."""
        sizes = self.sizes[rows]
        starts = self.ends[rows] - sizes
        steps = 1 + (generator.random(len(rows)) * (sizes - 1)).astype(np.int64)
        drawn: npt.NDArray[np.int64] = self.order[
            starts + (self.places[rows] - starts + steps * (sizes > 1)) % sizes
        ]
        return drawn


def _takes_part(spec: TaskSpec, labels: Tensor | None) -> bool:
    """Say whether rows have one input, and two different labels or more."""
    if spec.inputs != "joined" or labels is None or len(labels) < 2:
        return False
    return len(torch.unique(labels, dim=0)) > 1
