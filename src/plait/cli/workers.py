"""What the command line knows of processes that train one run together."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plait.distributed import Team


@contextmanager
def find_team() -> Iterator[Team | None]:
    """Join the processes that torchrun started with this one; None where it is alone.

    What goes wrong is said by one of them, and the others end with its exit code.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield None
        return
    from plait.distributed import find_launch, joined
    from plait.errors import ToldElsewhereError

    launch = find_launch()
    if launch is None:
        yield None
        return
    try:
        with joined(launch) as team:
            yield team
    except ToldElsewhereError as error:
        sys.exit(error.exit_code)  # without a word, which typer.Exit would add to an interruption


def launch_command() -> list[str]:
    """Return the words that started plait: its name, after torchrun's where that did."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return ["plait"]
    from plait.distributed import find_launch

    launch = find_launch()
    return ["plait"] if launch is None else launch.words
