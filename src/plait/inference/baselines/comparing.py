"""Compare a model's scores with the best simple baseline of each task."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from plait.errors import counted
from plait.inference.baselines.measuring import COSINE, FROZEN, MOST_DEV, TFIDF

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plait.config import TaskConfig
    from plait.tasks import Kind

    Best = tuple[str, float]
    """Name and figure of a task's best baseline."""
    Show = Callable[[float | None], str]
    """Formats a figure."""


def best_of(figures: Mapping[str, float | None]) -> Best | None:
    """Return the name and value of the highest figure; None where there is no figure."""
    known = [(n, v) for n, v in figures.items() if v is not None and not math.isnan(v)]
    return max(known, key=lambda item: item[1], default=None)


def best_in(result: Mapping[str, Any], task: str, kind: Kind) -> Best | None:
    """Return the name and figure of a task's best baseline in scores.json; None if it has none.

    Runs of earlier versions have the majority class (or the mean score) alone.
    """
    majority = result.get("baseline", {}).get("primary", {}).get(task)
    return best_of({kind.baseline_name: majority} | result.get("baselines", {}).get(task, {}))


def explain_shortfall(
    task: str,
    config: TaskConfig,
    value: float | None,
    best: Best | None,
    num_rows: int,
    *,
    joint: bool,
    show: Show,
) -> str | None:
    """Return a sentence that says that the model does not beat the best baseline, and what to try.

    None if the model beats it or is perfect, or if there is no baseline. `value` is the model's
    figure on `num_rows` dev rows; `joint` says whether other tasks are trained with it.
    """
    # Nothing is above 1.
    if best is None or (value is not None and (value > best[1] or value >= 1)):
        return None
    name, least = best
    is_sample = num_rows > MOST_DEV and name != config.kind.baseline_name
    sample = f" on a sample of {MOST_DEV:,}" if is_sample else ""
    return (
        f"{task}: the model ({show(value)}) does not beat {name} ({show(least)}{sample}) on "
        f"{counted(num_rows, 'dev row')}: try {_list_remedies(config, name, joint=joint)}"
    )


def list_shortfalls(
    result: Mapping[str, Any], tasks: Mapping[str, TaskConfig], show: Show
) -> list[str]:
    """Return a sentence for each task of scores.json whose model does not beat its baselines."""
    dev = result.get("dev", {"primary": {}})
    joint = sum(bool(task.train) for task in tasks.values()) > 1
    found = []
    for name, value in dev["primary"].items():
        best, num_rows = best_in(result, name, tasks[name].kind), dev["tasks"][name]["num_examples"]
        found.append(
            explain_shortfall(name, tasks[name], value, best, num_rows, joint=joint, show=show)
        )
    return [sentence for sentence in found if sentence is not None]


def _list_remedies(config: TaskConfig, baseline: str, *, joint: bool) -> str:
    """Return what to try where a model does not beat a baseline."""
    known = {
        FROZEN: ['head = "regression"', "a lower train.lr"],
        COSINE: ['inputs = "apart" with head = "cosine"', "a lower train.lr"],
        TFIDF: ["another train.lr", "another encoder (encoder.source)"],
    }
    remedies = ["more epochs (train.epochs)"]
    remedies += known.get(baseline, ["another train.lr", "plait check, which looks for bad rows"])
    if config.head["name"] == "regression":  # it begins as the regression on frozen vectors
        remedies = [remedy for remedy in remedies if remedy != 'head = "regression"']
    if config.inputs == "apart" and config.head["name"] == "cosine":
        remedies = [remedy for remedy in remedies if not remedy.startswith("inputs")]
    if joint:
        remedies.append("the task alone (--each-alone)")
    return f"{', '.join(remedies[:-1])} or {remedies[-1]}"
