"""Scores by a team: each worker answers its share of the rows, and all answers are scored once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from plait.inference.scoring import score_answers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.data import Dataset
    from plait.inference.scoring import Scorer, Scores
    from plait.tasks.kind import Floats
    from plait.training.team import Team


@dataclass(frozen=True, slots=True)
class TeamScorer:
    """A scorer whose rows are shared out; every row is answered by one worker."""

    scorer: Scorer
    team: Team

    def score(
        self, datasets: Mapping[str, Dataset], rows: Mapping[str, torch.Tensor] | None = None
    ) -> Scores:
        """Score every task's data set, or some of its rows; every worker gets the scores."""
        if self.team.size == 1:
            return self.scorer.score(datasets, rows)
        some = rows or {}
        answers = {
            name: self._answer(name, data, some.get(name)) for name, data in datasets.items()
        }
        return self.team.lead(
            lambda: score_answers(self.scorer.tasks, datasets, lambda name, *_: answers[name], rows)
        )

    def _answer(self, task: str, dataset: Dataset, rows: torch.Tensor | None) -> Floats:
        """Return the predictions of all workers, in the order of the rows."""
        wanted = torch.arange(len(dataset)) if rows is None else rows
        rank, size = self.team.rank, self.team.size
        # Every size-th row, so that sorted rows give every worker texts of all lengths.
        parts = self.team.each(self.scorer.answer(task, dataset, wanted[rank::size]))
        whole = np.empty((len(wanted), *parts[0].shape[1:]))
        for other, part in enumerate(parts):
            whole[other::size] = part
        return whole
