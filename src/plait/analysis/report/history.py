"""A run's log becomes curves: losses, scores and conflicts over the updates."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plait.errors import RunError

if TYPE_CHECKING:
    from pathlib import Path

Points = list[tuple[int, float]]
"""The number of updates and a figure; nan where it does not exist."""


@dataclass(frozen=True, slots=True)
class History:
    """Everything that was logged, in order."""

    losses: dict[str, Points] = field(default_factory=dict)
    """By what was trained: a task, or a stage's own objective."""
    scores: dict[str, dict[str, dict[str, Points]]] = field(default_factory=dict)
    """By split, task and figure."""
    conflicts: dict[tuple[str, str], dict[str, Points]] = field(default_factory=dict)
    """By two tasks; `cosine` and `share`."""

    def score(self, split: str, task: str, metric: str) -> Points:
        """Return one curve; empty where there is none."""
        return self.scores.get(split, {}).get(task, {}).get(metric, [])


def read_history(path: Path) -> History:
    """Read metrics.jsonl; a folder without one has an empty history.

    A last line that a killed process left half written is passed over.
    """
    history = History()
    lines = path.read_bytes().splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        try:
            event = json.loads(line)
            _add(history, event)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if number == len(lines):
                break
            raise RunError(f"{path}, line {number}, is not one that plait wrote") from error
    return history


def _add(history: History, event: dict[str, Any]) -> None:
    step = int(event["step"])
    if event["event"] == "losses":
        for name, value in event["losses"].items():
            history.losses.setdefault(name, []).append((step, _number(value)))
        for pair, figures in event.get("conflicts", {}).items():
            one, other = pair.split(",")
            curves = history.conflicts.setdefault((one, other), {"cosine": [], "share": []})
            for name, points in curves.items():
                points.append((step, _number(figures[name])))
    elif event["event"] == "scores":
        split = history.scores.setdefault(event["split"], {})
        for task, metrics in event["metrics"].items():
            for metric, value in metrics.items():
                curve = split.setdefault(task, {}).setdefault(metric, [])
                curve.append((step, _number(value)))


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
