"""Loaded runs answer parcels of rows, in plain values."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.errors import PlaitError, RunError
from plait.inference.ensemble import load
from plait.registry import plugins_refused
from plait.serve.catalog import Catalog, RunFacts
from plait.serve.parcels import VECTOR, Ask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.inference.predictor import Answerer
    from plait.serve.parcels import Answer, RunsToLoad
    from plait.types import Prediction


REMEDY = "--plugins lets runs below a folder bring theirs"


@dataclass(frozen=True, slots=True)
class Models:
    """Runs in memory."""

    runs: Mapping[str, Answerer]
    catalog: Catalog

    @classmethod
    def load(cls, wanted: RunsToLoad) -> Models:
        """Read every run."""
        if wanted.threads is not None:
            import torch

            torch.set_num_threads(wanted.threads)
        runs: dict[str, Answerer] = {}
        left_out: dict[str, str] = {}
        for name, folder in wanted.folders.items():
            try:
                with nullcontext() if wanted.plugins else plugins_refused(REMEDY):
                    runs[name] = load(folder, device=wanted.device, precision=wanted.precision)
            except PlaitError as error:
                if not wanted.skip_bad:
                    raise
                left_out[name] = str(error)
        if not runs:
            told = "; ".join(left_out.values()) or "it is empty"
            raise RunError(f"there is no run to serve: {told}")
        facts = {name: RunFacts.of(name, model) for name, model in runs.items()}
        models = cls(runs, Catalog(facts, left_out))
        for run in facts.values():
            for group in run.passes:  # the first batch of a model takes a hundred times as long
                texts = ("warm",) * run.tasks[group[0]].num_texts
                models.answer(Ask(run.name, group, [texts]))
        return models

    def answer(self, ask: Ask) -> list[Answer]:
        """Answer each row."""
        model = self.runs[ask.run]
        if not ask.tasks:
            vectors = model.embed([text for (text,) in ask.rows])  # type: ignore[attr-defined]
            return [{VECTOR: vector} for vector in vectors.tolist()]
        found = model.answer_together(ask.tasks, model.tokenise(ask.rows, blank=True))
        return [
            {task: _tell(model, model.describe(task, found[task][i])) for task in ask.tasks}
            for i in range(len(ask.rows))
        ]

    def is_alive(self) -> bool:
        """Say yes: what is in this process lives as long as it does."""
        return True

    def restart(self) -> tuple[str, ...]:
        """Do nothing: it is never dead."""
        return ()

    def close(self) -> None:
        """Do nothing: the process's end is its end."""


def _tell(model: Answerer, answer: Prediction) -> dict[str, Any]:
    """Put an answer into plain values; a number that is none becomes null."""
    labels = model.tasks[answer.task].spec.labels
    probabilities = dict(zip(labels, map(_finite, answer.probabilities), strict=False))
    value = list(answer.value) if isinstance(answer.value, tuple) else _finite(answer.value)
    told: dict[str, Any] = {"value": value, "label": answer.label}
    if answer.probabilities:
        told |= {"confidence": _finite(answer.confidence), "probabilities": probabilities}
    if isinstance(answer.value, tuple):
        told["labels"] = list(answer.words)
        told["label_probabilities"] = [_finite(p) for p in answer.word_probabilities]
    return told


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
