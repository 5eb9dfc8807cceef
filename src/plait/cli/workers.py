"""Processes that train one run together: torchrun's, or the workers of a Ray cluster."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plait.scale import Jobs
    from plait.training.team import Team

PATIENCE_S = 30.0
"""Seconds in which torchrun's first process prints what is wrong."""


@contextmanager
def find_team() -> Iterator[Team | None]:
    """Join the processes that torchrun started with this one; None if this process is alone.

    An error is printed by one of the processes; the others end with its exit code.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield None
        return
    from plait.errors import ToldElsewhereError
    from plait.scale.launch import find_launch, joined

    launch = find_launch()
    if launch is None:
        yield None
        return
    try:
        with joined(launch) as team:
            yield team
    except ToldElsewhereError as error:
        sys.exit(error.exit_code)  # silent; typer.Exit would print a message after Ctrl-C


def leave_to_first() -> None:
    """Let only torchrun's first process print a usage error that all processes found.

    torchrun ends the other processes when the first one has ended. If another one ended earlier,
    torchrun would end the first one before it can print.
    """
    if os.environ.get("RANK", "0") != "0" and "TORCHELASTIC_RUN_ID" in os.environ:
        time.sleep(PATIENCE_S)
        sys.exit(2)


def refuse_torchrun(command: str) -> None:
    """Refuse a command other than `train` that was started with torchrun."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size == "1" or "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    from plait.errors import UsageError

    leave_to_first()
    raise UsageError(
        f"torchrun started {size} processes of `plait {command}`, and each would do the whole "
        f"work; only `plait train` shares its work. Start `plait {command}` without torchrun"
    )


def launch_command() -> list[str]:
    """Return the words that started plait: its name, or those of torchrun."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return ["plait"]
    from plait.scale.launch import find_launch

    launch = find_launch()
    return ["plait"] if launch is None else launch.words


def check_jobs(jobs: Jobs, team: Team | None, *, several: bool) -> None:
    """Refuse --jobs that does not fit; `several` says that several runs are trained."""
    from plait.errors import UsageError

    if jobs.engine.is_ray and team is not None:
        raise UsageError("torchrun has already started the workers: leave out --jobs ray")
    if (jobs.at_once or 1) > 1 and not several:
        raise UsageError(
            "--jobs N is for several runs: several recipes, --each-alone or an ensemble recipe"
        )
    if several and team is not None:
        raise UsageError(
            "torchrun's workers train one run, and this command trains several: start it without "
            "torchrun"
        )
