"""The demo as a new user runs it: a fresh folder, the packaged encoder, one command."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import time

import pytest

from plait.model.sources import PACKAGE

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        importlib.util.find_spec(PACKAGE) is None, reason="the packaged encoder is not installed"
    ),
]


def demo(folder):
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "plait", "demo"],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr, time.monotonic() - began


def test_the_demo_learns_all_three_tasks(tmp_path):
    first, told, _ = demo(tmp_path)
    rows = re.findall(r"^(\w+) +(?:accuracy|pearson) +(\S+) +(\S+)$", first, re.MULTILINE)
    figures = {name: (baseline, float(trained)) for name, baseline, trained in rows}
    assert set(figures) == {"sentiment", "paraphrase", "similarity"}
    assert figures["sentiment"][1] > 0.6
    assert figures["paraphrase"][1] > 0.55
    assert figures["similarity"][1] > 0.5
    assert "-> negative (" in first
    assert "Trained one encoder on three tasks, in runs/demo" in first
    assert " left" in told  # it takes long enough for a line with the time left

    second, told, seconds = demo(tmp_path)
    assert second == first
    assert "already trained" in told
    assert seconds < 30
