"""Read the datasets that a recipe names."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from plait.data.folders import find_root
from plait.data.heldout import find_held_out
from plait.data.store import load_split

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from plait.config import RunConfig, TaskConfig
    from plait.data.heldout import HeldOut
    from plait.data.split import SplitName
    from plait.data.store import Dataset
    from plait.data.tokens import Tokenizer

    Progress = Callable[[str, int, int], None]
    """Called with what is read, bytes done and bytes in all."""


def load_data(
    config: RunConfig,
    tokenizer: Tokenizer,
    split: SplitName,
    *,
    data: str | None = None,
    tasks: Collection[str] | None = None,
    labelled: bool = True,
    progress: Progress | None = None,
) -> dict[str, Dataset]:
    """Read one split of every task that has files for it, or of those of `tasks`."""
    root = find_root(config.data, data)
    fold = config.data.deal(split)
    held_out = find_held_out(config, root) if split in ("train", "unlabelled") else None
    found = {
        name: load_split(
            name,
            task,
            split,
            root=root,
            hint=config.data.hint,
            tokenizer=tokenizer,
            max_length=config.encoder.max_length,
            truncate=config.encoder.truncate,
            bad_rows=task.bad_rows or config.data.bad_rows,
            seed=config.seed,
            labelled=labelled and split != "unlabelled",
            fold=fold,
            drop_overlap=config.data.drop_overlap,
            held_out=held_out,
            progress=None if progress is None else name_progress(progress, f"{name} {split}"),
        )
        for name, task in config.tasks.items()
        if has_rows(task, split, fold) and (tasks is None or name in tasks)
    }
    return found if held_out is None else hold_out(found, held_out)


def has_rows(task: TaskConfig, split: SplitName, fold: tuple[int, int] | None) -> bool:
    """Return whether a task has files that a split is read from."""
    if split == "dev":
        return bool(task.train if fold else task.dev_files)
    return bool(getattr(task, split))


def hold_out(datasets: Mapping[str, Dataset], held_out: HeldOut) -> dict[str, Dataset]:
    """Let data sets say which of their texts dev or test has, for stages that pre-train."""
    return {
        name: replace(dataset, find_held_out=partial(held_out.has_texts, dataset))
        for name, dataset in datasets.items()
    }


def name_progress(progress: Progress, what: str) -> Callable[[int, int, int], None]:
    """Return a progress callback that reports under the name `what`."""
    return lambda _, done, total: progress(what, done, total)
