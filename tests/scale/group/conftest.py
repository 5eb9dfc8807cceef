"""Processes that train together, started as a user would start them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from launching import TIMEOUT, environment, torchrun

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def launch(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Factory: run `plait` under torchrun with so many workers."""

    def run(num_workers: int, *words: str | Path) -> subprocess.CompletedProcess[str]:
        command = torchrun(num_workers, "-m", "plait", *words)
        env = environment(tmp_path / "cache")
        return subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )

    return run
