"""Subjects of a report made by hand, without a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plait.analysis.report.history import History
from plait.analysis.report.plots import Easel
from plait.analysis.report.sections.material import Material
from plait.analysis.report.subjects import Subject
from plait.config import RunConfig
from plait.data import Dataset, Tokenizer
from plait.inference.fitting.answers import TaskAnswers

FILES = {"train": "train.csv", "dev": "dev.csv", "label": "label", "text": "text"}

MakeAnswers = Callable[..., TaskAnswers]
MakeSubject = Callable[..., Subject]


@pytest.fixture
def task_answers(tiny_encoder: Path) -> MakeAnswers:
    """Factory: answers to rows of a task, given as a recipe's table, labels and answers."""
    tokenizer = Tokenizer.from_file(tiny_encoder / "tokenizer.json")

    def make(
        table: dict[str, Any],
        labels: Any,
        answers: Any,
        *,
        texts: list[str] | None = None,
        temperature: float | None = None,
    ) -> TaskAnswers:
        config = RunConfig.model_validate({"name": "x", "tasks": {"t": {**FILES, **table}}})
        spec = config.tasks["t"]
        rows = [(text,) for text in texts or [f"row {i}" for i in range(len(labels))]]
        dataset = Dataset.from_texts(rows, tokenizer, 32)
        metric = "pearson" if spec.kind.name == "score" else "accuracy"
        true, given = np.asarray(labels, dtype=np.float64), np.asarray(answers, dtype=np.float64)
        return TaskAnswers(spec, metric, dataset, true, given, temperature)

    return make


@pytest.fixture
def make_subject(task_answers: MakeAnswers) -> MakeSubject:
    """Factory: a subject of tasks, each a tuple of what `task_answers` takes."""

    def make(name: str, tasks: dict[str, tuple[Any, ...]], **more: Any) -> Subject:
        tables = {task: {**FILES, **given[0]} for task, given in tasks.items()}
        config = RunConfig.model_validate({"name": "made", "tasks": tables})
        answers = {task: task_answers(*given) for task, given in tasks.items() if len(given) > 1}
        scores = {task: found.score() for task, found in answers.items()}
        values: dict[str, Any] = {
            "members": (),
            "info": {},
            "result": {},
            "history": History(),
            **more,
        }
        return Subject(name, Path(name), config, answers=answers, scores=scores, **values)

    return make


@pytest.fixture
def material() -> Callable[..., Material]:
    """Factory: what a page is written from, out of subjects."""

    def make(*subjects: Subject, **more: Any) -> Material:
        return Material(list(subjects), Easel(), **more)

    return make
