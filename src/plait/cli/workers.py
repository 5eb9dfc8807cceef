"""What the command line knows of processes that train one run together."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plait.scale import Engine
    from plait.training.team import Team

PATIENCE_S = 30.0
"""Seconds in which the first process must have said what is wrong."""

WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        help="With --engine ray: processes that train the run together; 1 unless given.",
    ),
]


@contextmanager
def find_team() -> Iterator[Team | None]:
    """Join the processes that torchrun started with this one; None where it is alone.

    What goes wrong is said by one of them, and the others end with its exit code.
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
        sys.exit(error.exit_code)  # without a word, which typer.Exit would add to an interruption


def leave_to_first() -> None:
    """Let torchrun's first process alone say what is wrong with words that all were given.

    torchrun ends the others as soon as it has; one that ended before would have it ended, too.
    """
    if os.environ.get("RANK", "0") != "0" and "TORCHELASTIC_RUN_ID" in os.environ:
        time.sleep(PATIENCE_S)
        sys.exit(2)


def refuse_torchrun(command: str) -> None:
    """Refuse a command of which torchrun would start several that all do the same."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size == "1" or "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    from plait.errors import UsageError

    leave_to_first()
    raise UsageError(
        f"torchrun starts {size} times `plait {command}`, each of which would do the whole work: "
        "only `plait train` shares it; start this by itself"
    )


def launch_command() -> list[str]:
    """Return the words that started plait: its name, after torchrun's where that did."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return ["plait"]
    from plait.scale.launch import find_launch

    launch = find_launch()
    return ["plait"] if launch is None else launch.words


def check_workers(
    engine: Engine, given: int | None, team: Team | None, jobs: int | None, *, several: bool
) -> int:
    """Return how many workers of Ray train a run, after refusing what does not go together.

    `several` says that several runs are asked for.
    """
    from plait.errors import UsageError

    if engine.is_ray and team is not None:
        raise UsageError("torchrun has started the workers already: leave out --engine ray")
    if given is not None and not engine.is_ray:
        raise UsageError("--workers is for Ray: give --engine ray as well, or use torchrun")
    if several and team is not None:
        raise UsageError(
            "--each-alone and recipes that list members train several runs, but torchrun's workers "
            "train one: start plait without it"
        )
    if (given or 1) > 1 and (jobs or 1) > 1:
        raise UsageError(
            f"--workers {given} train one run after the other, and --jobs {jobs} is for runs of "
            "one worker each: leave out one of them"
        )
    return given or 1
