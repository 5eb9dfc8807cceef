"""Initialize heads with linear models that are fitted on the untrained encoder's embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from plait.inference.scoring import choose_room
from plait.model.encoder import pool
from plait.training.loop import task_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch import Tensor

    from plait.data import Dataset
    from plait.model.heads import Head
    from plait.training.build import Parts

MOST_ROWS = 20_000
"""Maximum training rows for fitting a head; of larger tasks a sample is used."""
BATCH = 64


def find_beginning(parts: Parts) -> list[str]:
    """Return the tasks whose heads are fitted before training, not taken from another run."""
    known = parts.start.taken_over(parts.config) if parts.start else ()
    heads = {name: parts.model.heads[f"task-{name}"] for name in parts.config.trained_tasks}
    return [name for name, head in heads.items() if head.begins and name not in known]


def begin_heads(
    parts: Parts,
    tasks: Iterable[str],
    train: Mapping[str, Dataset],
    progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Fit the heads of tasks on the encoder's embeddings of their training rows.

    The leader of a team fits them for all workers. Only the sample of large tasks is random.
    """
    names = list(tasks)
    heads = {name: parts.model.heads[f"task-{name}"] for name in names}

    def fit() -> dict[str, Tensor]:
        for name, head in heads.items():
            labels = train[name].labels
            assert labels is not None
            rows = _draw(parts.config.seed, name, len(labels))
            vectors = embed_rows(parts, name, train[name], rows, progress)
            cast("Head", head).begin(vectors, labels[rows], parts.tasks[name].loss)
        return {
            f"{name}/{key}": value
            for name, head in heads.items()
            for key, value in head.state_dict().items()
        }

    found = parts.team.spread(fit)
    for name, head in heads.items():
        start = f"{name}/"
        own = {key.removeprefix(start): v for key, v in found.items() if key.startswith(start)}
        head.load_state_dict(own)


def embed_rows(
    parts: Parts,
    task: str,
    dataset: Dataset,
    rows: Tensor,
    progress: Callable[[str, int, int], None] | None = None,
) -> Tensor:
    """Return the inputs of a task's head, fp32 on the CPU, in the order of `rows`.

    If the texts of a pair are encoded separately, all first texts precede all second texts.
    """
    model, spec = parts.model, parts.tasks[task].spec
    was_training, device = model.training, parts.device
    model.eval()
    found = torch.empty(0)
    place = torch.empty(len(dataset), dtype=torch.int64)
    place[rows] = torch.arange(len(rows))
    done = 0
    with (
        torch.no_grad(),
        torch.autocast(device.type, parts.autocast, enabled=parts.autocast is not None),
    ):
        batches = parts.collator.iterate(dataset, spec, BATCH, rows, choose_room(device))
        for some, batch in batches:
            tokens = batch.to(device).tokens
            encoded = model.encode(task, tokens)
            vectors = pool(encoded, tokens.mask, model.pooling).float().cpu()
            vectors = vectors.view(-1, len(some), vectors.shape[-1])
            if not len(found):
                found = torch.empty(len(vectors), len(rows), vectors.shape[-1])
            found[:, place[some]] = vectors
            done += len(some)
            if progress is not None:
                progress(task, done, len(rows))
    model.train(was_training)
    return found.flatten(0, 1)


def _draw(seed: int, task: str, count: int) -> Tensor:
    """Return the rows for fitting a head, in ascending order."""
    if count <= MOST_ROWS:
        return torch.arange(count)
    generator = np.random.default_rng([seed, task_seed(task)])
    return torch.from_numpy(np.sort(generator.choice(count, MOST_ROWS, replace=False)))
