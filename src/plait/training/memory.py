"""Errors for a device that is out of memory, with advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.errors import DeviceMemoryError

if TYPE_CHECKING:
    from plait.config import RunConfig
    from plait.training.loop import Stage


def explain_scoring(command: str) -> DeviceMemoryError:
    """Return the error for scoring; `command` resumes the run."""
    return DeviceMemoryError(
        "out of memory while scoring: free memory on the device and resume from the last "
        f"checkpoint ({command}), or set a smaller encoder.max_length and a new --out"
    )


def explain_training(config: RunConfig, stage: Stage, command: str) -> DeviceMemoryError:
    """Return the error for an update of a stage; `command` resumes the run."""
    task, stream = max(stage.streams.items(), key=lambda item: item[1].batch_size)
    size = stream.batch_size
    if size == 1:
        hint = f"try -o encoder.max_length={max(8, config.encoder.max_length // 2)}"
    elif task in config.tasks and config.tasks[task].batch_size is not None:
        hint = f"try -o tasks.{task}.batch_size={size // 2}"
    else:
        table = f"stage.{stage.name}" if stage.name in config.stage else "train"
        more = stage.config.accumulate * 2
        hint = f"try -o {table}.batch_size={size // 2} -o {table}.accumulate={more}"
    if getattr(stage.step.runner, "num_captures", 0):
        hint += ", or -o graphs=false, which needs less memory"
    return DeviceMemoryError(
        f"out of memory at batch size {size}: {hint} (with a new --out; the last checkpoint "
        f"of this run is kept: {command})"
    )
