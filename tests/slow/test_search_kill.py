"""A search, really killed and really interrupted: no trial is lost or doubled, none differs."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("optuna")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL here"),
]

SPACE = '[search.space]\n"train.lr" = {low = 1e-4, high = 1e-2, log = true}\n'
SETTINGS = ("train.tasks=['mood']", "train.epochs=60", "train.eval_every=20", "save_every=5")


def start(recipe: Path, out: Path) -> subprocess.Popen[bytes]:
    space = recipe.parent / "space.toml"
    space.write_text(SPACE, encoding="utf-8")
    words = [sys.executable, "-m", "plait", "search", str(recipe), "-o", str(space)]
    words += ["--out", str(out), "--trials", "2", *(["--resume"] if out.exists() else [])]
    for setting in SETTINGS:
        words += ["-o", setting]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(words, env=environment, start_new_session=True, **pipes)


def run_to_end(recipe: Path, out: Path) -> None:
    process = start(recipe, out)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors.decode()


def read_trials(out: Path) -> list[dict[str, str]]:
    with (out / "trials.csv").open(encoding="utf-8", newline="") as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_search_that_ends_in_the_middle_of_a_trial_goes_on(tiny_recipe, tmp_path, number):
    recipe = tiny_recipe()
    run_to_end(recipe, tmp_path / "whole")
    out = tmp_path / "broken"
    process = start(recipe, out)
    checkpoint = out / "trials" / "001" / "checkpoint.safetensors"
    end = time.monotonic() + 120
    while not checkpoint.exists() and time.monotonic() < end and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert checkpoint.exists(), errors.decode()
    if number == signal.SIGINT:
        assert process.returncode == 130, errors.decode()
        assert b"every trial is kept" in errors
    run_to_end(recipe, out)
    assert read_trials(out) == read_trials(tmp_path / "whole")
    one, other = (
        (tmp_path / folder / "trials" / "001" / "model.safetensors").read_bytes()
        for folder in ("whole", "broken")
    )
    assert one == other
