"""Started by torchrun: trains several runs one after the other, as one team."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from launching import Norms

from plait.config import read_recipe
from plait.scale.launch import find_launch, joined
from plait.training.runs import train

if __name__ == "__main__":
    launch = find_launch()
    assert launch is not None
    wanted = json.loads(Path(sys.argv[1]).read_text())
    with joined(launch) as team:
        for run in wanted:
            train(
                read_recipe(run["recipe"], run["overrides"]),
                run["out"],
                resume=run.get("resume", False),
                listeners=[Norms(run["out"])],
                team=team,
            )
    # A thread of Gloo's that outlives Python aborts the process, once in a while.
    names = [name.read_text() for name in Path("/proc/self/task").glob("*/comm")]
    assert not [name for name in names if "gloo" in name], names
