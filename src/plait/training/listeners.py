"""Listeners: callbacks that receive the events of a run, one method per event.

plait's log and TensorBoard use the same interface as your listeners: register a class in a file,
add the file to `plugins` and the class to `listeners`.
"""

from __future__ import annotations

import json
import math
import os
from itertools import islice
from typing import TYPE_CHECKING, Any

from plait.registry import Registry

if TYPE_CHECKING:
    from pathlib import Path

    from plait.inference.scoring import Scores
    from plait.training.loop import StepRecord

    Conflicts = dict[str, dict[str, float]]


class Listener:
    """Base class of listeners. Override the methods you need; the others do nothing."""

    def start(self, folder: Path, config: dict[str, Any], step: int) -> None:
        """Training starts, or resumes after `step` updates, in a run folder."""

    def note(self, text: str) -> None:
        """A message for the user."""

    def reading(self, what: str, done: int, total: int) -> None:
        """Files are read and tokenised; `done` of `total` bytes so far."""

    def scoring(self, task: str, done: int, total: int) -> None:
        """A task is being scored; `done` of `total` rows so far."""

    def asking(self, task: str, done: int, total: int) -> None:
        """A teacher predicts a task's training rows; `done` of `total` so far."""

    def step(self, record: StepRecord) -> None:
        """One update finished. Reading its tensors may wait for the device."""

    def losses(self, record: StepRecord, losses: dict[str, float]) -> None:
        """Mean loss of each task since the last call."""

    def conflicts(self, record: StepRecord, conflicts: Conflicts) -> None:
        """Conflicts between the gradients of tasks; called before `losses`.

        For every two tasks, as "one,other": the mean `cosine` of their gradients on the encoder
        since the last call, and the `share` of updates in which it was below 0.
        """

    def best(self, step: int) -> None:
        """The model after `step` updates is the best so far; `scores` is called next."""

    def scores(self, step: int, split: str, scores: Scores) -> None:
        """A split was scored after `step` updates."""

    def end(self, result: dict[str, Any]) -> None:
        """The run finished; `result` is the content of scores.json. Not called on interruption."""

    def close(self) -> None:
        """The last event, also after an error."""


LISTENERS: Registry[Listener] = Registry("listener", "receives losses and scores during training")


class MetricsLog(Listener):
    """Writes metrics.jsonl in the run folder: one JSON object per line for losses and scores."""

    def __init__(self) -> None:
        self.lines = 0
        """Number of lines up to the last checkpoint; later lines of a killed run are removed."""
        self._conflicts: Conflicts = {}

    def start(self, folder: Path, config: dict[str, Any], step: int) -> None:  # noqa: ARG002
        """Open the log and remove lines after the last checkpoint."""
        self._file = (folder / "metrics.jsonl").open("ab+")
        self._file.seek(0)
        self.lines = sum(1 for _ in islice(iter(self._file.readline, b""), self.lines))
        self._file.truncate(self._file.tell())

    def conflicts(self, record: StepRecord, conflicts: Conflicts) -> None:  # noqa: ARG002
        """Keep the conflicts for the next line of losses."""
        self._conflicts = conflicts

    def losses(self, record: StepRecord, losses: dict[str, float]) -> None:
        """Write one line, with the conflicts of the tasks' gradients if there are any."""
        line = {
            "event": "losses",
            "step": record.total_steps,
            "stage": record.stage,
            "epoch": record.epoch,
            "rate": record.rate,
            "losses": {k: v if math.isfinite(v) else None for k, v in losses.items()},
        }
        if self._conflicts:
            line["conflicts"] = {
                pair: {name: v if math.isfinite(v) else None for name, v in figures.items()}
                for pair, figures in self._conflicts.items()
            }
            self._conflicts = {}
        self._write(line)

    def scores(self, step: int, split: str, scores: Scores) -> None:
        """Write one line."""
        metrics = {name: task.to_json()["metrics"] for name, task in scores.tasks.items()}
        line = {"event": "scores", "step": step, "split": split, "metrics": metrics}
        self._write(line | {"summary": scores.summary})

    def close(self) -> None:
        """Close the file."""
        if hasattr(self, "_file"):
            self._file.close()

    def flush(self) -> None:
        """Flush the log to disk before a checkpoint refers to it."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        self.lines += 1


@LISTENERS.register("tensorboard")
class TensorBoard(Listener):
    """Writes TensorBoard events to the run folder; does nothing without the package."""

    _writer: Any = None

    def start(self, folder: Path, config: dict[str, Any], step: int) -> None:  # noqa: ARG002
        """Open an event file; events after `step` of an interrupted run are hidden."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        # Step 0 is scored again if nothing was saved yet.
        hidden = step + 1 if step else 0
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=hidden)

    def conflicts(self, record: StepRecord, conflicts: Conflicts) -> None:
        """Add both figures of every pair."""
        if self._writer is not None:
            for pair, figures in conflicts.items():
                for name, value in figures.items():
                    self._writer.add_scalar(f"conflict/{pair}/{name}", value, record.total_steps)

    def losses(self, record: StepRecord, losses: dict[str, float]) -> None:
        """Add the losses and the rate."""
        if self._writer is not None:
            for task, loss in losses.items():
                self._writer.add_scalar(f"loss/{task}", loss, record.total_steps)
            self._writer.add_scalar("rate", record.rate, record.total_steps)
            self._writer.flush()  # so that a kill does not lose events before the checkpoint

    def scores(self, step: int, split: str, scores: Scores) -> None:
        """Add every figure."""
        if self._writer is not None:
            for name, task in scores.tasks.items():
                for metric, value in task.metrics.items():
                    if math.isfinite(value):
                        self._writer.add_scalar(f"{split}/{name}/{metric}", value, step)
            for key, value in scores.summary.items():
                self._writer.add_scalar(f"{split}/{key}", value, step)
            self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
