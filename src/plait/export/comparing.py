"""Compare an exported model with its run on dev rows."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.data import Dataset
    from plait.inference.predictor import Answerer, Progress

MOST_ROWS = 2000
"""Maximum number of dev rows per task; of more rows, every n-th is taken."""

NEAR = 0.01
"""Two scores are equal if they differ by less than this share of the range."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results of one task before and after the export."""

    metric: str
    rows: int
    before: float | None
    """The run's score, computed in fp32; None if undefined."""
    after: float | None
    equal: float
    """Share of rows with the same class or labels, or a score less than 1% of its range away."""
    largest: float
    """Largest difference of a probability, or of a score in its own units."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def compare(
    run: Answerer, exported: Answerer, datasets: Mapping[str, Dataset], progress: Progress | None
) -> dict[str, Comparison]:
    """Compare the predictions of both models for the same rows."""
    found = {}
    for name, dataset in datasets.items():
        task, count = run.tasks[name], min(len(dataset), MOST_ROWS)
        if not count:
            continue
        rows = torch.linspace(0, len(dataset) - 1, count).long().unique()
        both = []
        for model in (run, exported):
            watched = model if progress is None else model.watched(progress)
            both.append(watched.answer(name, dataset, rows))
        assert dataset.labels is not None
        labels = dataset.labels[rows].numpy()
        figures = [task.spec.kind.score(labels, answers).metrics[task.metric] for answers in both]
        before, after = (value if math.isfinite(value) else None for value in figures)
        largest = float(np.abs(both[0] - both[1]).max())
        equal = float(1 - task.spec.kind.differs(both[0], both[1], NEAR).mean())
        found[name] = Comparison(task.metric, len(rows), before, after, equal, largest)
    return found
