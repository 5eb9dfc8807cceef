"""A recipe's files become the training rows that new ones are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plait.data.fingerprints import fingerprint
from plait.data.heldout import read_bare
from plait.data.loading import load_data
from plait.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from plait.analysis.check.rows import Progress
    from plait.config import RunConfig
    from plait.data import Tokenizer
    from plait.data.fingerprints import Hashes


def read_training(
    config: RunConfig, task: str, tokenizer: Tokenizer, data: str | None, reading: Progress | None
) -> list[tuple[str, ...]]:
    """Return the texts of a task's training rows as its files have them."""
    spec = config.tasks[task]
    if not spec.train:
        raise UsageError(f"tasks.{task}.train names no files, and new texts are made of theirs")
    # What would be added to the files' rows is made of their texts.
    bare = config.model_copy(
        update={"tasks": config.tasks | {task: spec.model_copy(update={"augment": ()})}}
    )
    rows = load_data(bare, tokenizer, "train", data=data, tasks=[task], progress=reading)
    return list(rows[task].read_texts())


def find_known(config: RunConfig, task: str, root: Path | None) -> Hashes:
    """Return the fingerprints of all rows of the training files, drawn or not, rising."""
    spec = config.tasks[task]
    readings = (read_bare(task, spec, "train", file, root, config.seed) for file in spec.train)
    found = [fingerprint(rows.texts) for reading in readings for rows in reading.rows()]
    return np.unique(np.concatenate(found))
