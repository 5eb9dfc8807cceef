"""Which folder is searched, and what is said when a file is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.config import DataConfig
from plait.data import cache_root, find_file, find_root, sample_root
from plait.errors import DataError


def test_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / name for name in ("given", "environment", "recipe")]
    for folder in folders:
        folder.mkdir()
    monkeypatch.delenv("PLAIT_DATA", raising=False)
    config = DataConfig(root=str(folders[2]))
    assert find_root(DataConfig(), None) is None
    assert find_root(config, None) == folders[2]
    monkeypatch.setenv("PLAIT_DATA", str(folders[1]))
    assert find_root(config, None) == folders[1]
    assert find_root(config, str(folders[0])) == folders[0]


def test_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLAIT_DATA", raising=False)
    root = find_root(DataConfig(root="@sample"), None)
    assert root == sample_root()
    assert root.is_dir()


@pytest.mark.parametrize("origin", ["--data", "PLAIT_DATA", "data.root"])
def test_missing_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str) -> None:
    missing = str(tmp_path / "nowhere")
    monkeypatch.delenv("PLAIT_DATA", raising=False)
    if origin == "PLAIT_DATA":
        monkeypatch.setenv("PLAIT_DATA", missing)
    config = DataConfig(root=missing if origin == "data.root" else None, hint="ask the teacher")
    with pytest.raises(DataError) as error:
        find_root(config, missing if origin == "--data" else None)
    assert str(error.value) == (
        f"there is no data folder {missing} (set by {origin}); "
        "give another with --data DIR or PLAIT_DATA; ask the teacher"
    )


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        find_file("x/train.csv", tmp_path, "download it")
    assert str(error.value) == (
        f"data file x/train.csv is not there (looked in {tmp_path.resolve()}); "
        "name the folder that holds it with --data DIR or PLAIT_DATA; download it"
    )
    with pytest.raises(DataError, match="is a folder, not a file"):
        find_file(".", tmp_path)


def test_files_are_relative_to_the_root_or_absolute(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.touch()
    assert find_file("a.csv", tmp_path) == path
    assert find_file(str(path), tmp_path / "elsewhere") == path


def test_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    monkeypatch.delenv("PLAIT_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "plait"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == Path.home() / ".cache" / "plait"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache_root() == tmp_path / "local" / "plait"
