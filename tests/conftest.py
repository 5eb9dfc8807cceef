"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with the real data and encoders (PLAIT_SHARED, or `shared` beside the checkout)."""
    folder = Path(os.environ.get("PLAIT_SHARED", Path(__file__).parents[2] / "shared"))
    if not (folder / "data" / "course").is_dir():
        pytest.skip("the real data is not at hand (set PLAIT_SHARED to its folder)")
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tests' token cache out of the user's."""
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "cache"))
