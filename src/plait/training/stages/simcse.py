"""SimCSE (Gao et al. 2021): a sentence's vector is drawn to its like and away from all others.

Rows of a batch: n anchors, then their n positives, then, if there are any, n hard negatives.
One pass encodes them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plait.model.heads import Head
from plait.training.stages.base import STAGE_KINDS, Material, Objective
from plait.training.stages.corpus import (
    Corpus,
    OnTexts,
    Texts,
    every_text,
    find_filled,
    make_corpus,
)
from plait.types import Batch

if TYPE_CHECKING:
    import numpy.typing as npt

    from plait.data import Dataset
    from plait.inference.scoring import Task
    from plait.training.stages.base import Sources


class ProjectionHead(Head):
    """Linear and tanh on the pooled vector, as in the paper; for training alone."""

    def __init__(self, width: int, deviation: float):
        super().__init__()
        self.dense = nn.Linear(width, width)
        nn.init.normal_(self.dense.weight, std=deviation)
        nn.init.zeros_(self.dense.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """Turn [rows, width] into the same shape."""
        return torch.tanh(self.dense(vectors))


class InfoNCE:
    """Cross entropy of cosine / temperature: whose positive is it, among all of the batch?"""

    def __init__(self, temperature: float):
        self.temperature = temperature

    def __call__(self, vectors: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over the anchors.

        `vectors` [2n or 3n, width]; `labels` [n] say which of the rows after the anchors is
        each anchor's own.
        """
        with torch.autocast(vectors.device.type, enabled=False):  # bf16 is too coarse for 1/20
            unit = F.normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)))
            anchors, others = unit[: len(labels)], unit[len(labels) :]
            return F.cross_entropy(anchors @ others.T / self.temperature, labels)


class _SimCSE(OnTexts):
    """What both kinds have in common."""

    def __init__(
        self, temperature: float, max_length: int, texts: tuple[str, ...], from_tasks: bool
    ):
        if temperature <= 0:
            raise ValueError(f"temperature must be above 0, not {temperature}")
        super().__init__(max_length, texts, from_tasks)
        self.temperature, self.max_length = temperature, max_length

    def _objective(
        self, corpus: Corpus, starts: tuple[int, ...], count: int, material: Material
    ) -> Objective:
        """Make the objective of `count` examples: number i has a text at each start plus i."""
        if count < 2:
            raise ValueError(f"it needs 2 examples or more, and has {count}")

        def make(rows: Tensor) -> Batch:
            several = torch.cat([rows + start for start in starts])
            return Batch(corpus.tokens(several), torch.arange(len(rows)))

        deviation = material.encoder.config.get("initializer_range", 0.02)
        head = ProjectionHead(material.encoder.width, deviation)
        return Objective(count, make, InfoNCE(self.temperature), head)


@STAGE_KINDS.register("simcse")
class SimCSE(_SimCSE):
    """Unsupervised SimCSE (Gao et al. 2021): each text is its own positive, by dropout alone.

    Every text of a batch is encoded twice, under two dropout masks; the loss is the cross
    entropy of cosine / `temperature` over the batch. The texts are all text columns of the
    stage's tasks' training rows, and of the [texts.NAME] that `texts` names, each text once.
    The paper's settings: one epoch, batch 64, lr 3e-5 for BERT-base, and [CLS] as the pooling;
    here it is the run's `encoder.pooling`. The projection (linear, tanh) is dropped afterwards.
    `from_tasks = false` leaves out the tasks' texts.
    """

    def __init__(
        self,
        *,
        temperature: float = 0.05,
        max_length: int = 32,
        texts: tuple[str, ...] = (),
        from_tasks: bool = True,
    ):
        super().__init__(temperature, max_length, texts, from_tasks)

    def objectives(self, material: Material) -> dict[str, Objective]:
        """Return one, of every text once."""
        if not material.encoder.drops_out():
            raise ValueError(
                "it needs dropout in the encoder, so that the two embeddings of a text "
                "differ; set encoder.dropout, for example to 0.1"
            )
        every = every_text(material, self.from_tasks)
        corpus = make_corpus(every, material, self.max_length)
        return {"simcse": self._objective(corpus, (0, 0), len(every), material)}


@STAGE_KINDS.register("simcse-pairs")
class SimCSEPairs(_SimCSE):
    """Supervised SimCSE (Gao et al. 2021): the two texts of a pair are one another's positives.

    Pairs are the stage's binary pair tasks' training rows with label 1 and, where `threshold` is
    set, score pairs at or above that share of their range (0.8: 4 of 0-5); and the rows of the
    [texts.NAME] that `texts` names: pairs, or triplets of anchor, positive and hard negative.
    An anchor is set against all positives and all hard negatives of the batch. The paper's
    settings: natural-language-inference triplets, three epochs, batch 512, lr 5e-5, and [CLS] as
    the pooling; here it is the run's `encoder.pooling`. The projection is dropped afterwards.
    `from_tasks = false` leaves out the tasks' pairs.
    """

    def __init__(
        self,
        *,
        temperature: float = 0.05,
        max_length: int = 32,
        texts: tuple[str, ...] = (),
        from_tasks: bool = True,
        threshold: float | None = None,
    ):
        super().__init__(temperature, max_length, texts, from_tasks)
        if threshold is not None and not 0 <= threshold <= 1:
            raise ValueError(f"threshold is a share of the range from 0 to 1, not {threshold}")
        self.threshold = threshold

    def objectives(self, material: Material) -> dict[str, Objective]:
        """Return one, of every pair or triplet."""
        found = self._find_rows(material)
        count = sum(len(rows) for _, rows in found)
        width = len(found[0][0].tokens)
        columns = [(data.tokens[i], rows) for i in range(width) for data, rows in found]
        corpus = make_corpus(Texts(columns), material, self.max_length)
        starts = tuple(i * count for i in range(width))
        return {"simcse-pairs": self._objective(corpus, starts, count, material)}

    def count(self, sources: Sources) -> int:
        """Count the pairs or triplets."""
        return sum(len(rows) for _, rows in self._find_rows(sources))

    def estimate(self, task: Task, rows: int) -> int:
        """Count every row of a task of pairs, as if all were alike."""
        spec = task.spec
        takes = spec.kind.same_meaning(np.zeros(0), self.threshold) is not None
        return rows if self.from_tasks and spec.is_pair and takes else 0

    def _find_rows(
        self, material: Material | Sources
    ) -> list[tuple[Dataset, npt.NDArray[np.int64]]]:
        """Return the rows that are pairs or triplets, without an empty or held-out text."""
        found = []
        for name, task in material.tasks.items() if self.from_tasks else ():
            if (rows := self._positives(task, material.train[name])) is not None:
                found.append((name, material.train[name], rows))
        for name, data in material.texts.items():
            if len(data.tokens) == 1:
                raise ValueError(f"texts.{name} has one text column; a pair has two")
            found.append((f"texts.{name}", data, np.arange(len(data))))
        if not found:
            raise ValueError(
                "there are no pairs: no binary pair task in the stage, no threshold for its "
                "score tasks, and no texts named"
            )
        if len({len(data.tokens) for _, data, _ in found}) > 1:
            names = ", ".join(name for name, _, _ in found)
            raise ValueError(
                f"{names}: some have pairs and some have triplets; use separate stages"
            )
        return [(data, rows[_usable(data)[rows]]) for _, data, rows in found]

    def _positives(self, task: Task, data: Dataset) -> npt.NDArray[np.int64] | None:
        """Return the rows that are pairs of like meaning; None where a task says nothing of it."""
        spec = task.spec
        if not spec.is_pair or data.labels is None:
            return None
        same = spec.kind.same_meaning(data.labels.numpy(), self.threshold)
        return None if same is None else np.flatnonzero(same)


def _usable(data: Dataset) -> npt.NDArray[np.bool_]:
    """Say which rows have no text that is empty or held out."""
    filled = np.stack([find_filled(column) for column in data.tokens], axis=1)
    usable: npt.NDArray[np.bool_] = np.logical_and.reduce(filled & ~data.held_out(), axis=1)
    return usable
