"""Which folder is searched, and what is said when a file is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.data import cache_root, find_files
from plait.errors import DataError


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """A folder as writers of Parquet leave it, one level of folders inside."""
    names = ["b-2.parquet", "b-10.parquet", "a.parquet", "en/part.parquet"]
    notes = ["_SUCCESS", ".a.parquet.crc", "_temporary/x.parquet", "README.md", "en/old.csv.bak"]
    for name in (*names, *notes):
        path = tmp_path / "parts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


IN_FOLDER = ["a.parquet", "b-10.parquet", "b-2.parquet", "en/part.parquet"]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("parts", IN_FOLDER),
        ("parts/", IN_FOLDER),
        ("parts/*.parquet", IN_FOLDER[:3]),
        ("parts/b-?.parquet", ["b-2.parquet"]),
        ("parts/[ab]*.parquet", IN_FOLDER[:3]),
        ("parts/**/*.parquet", IN_FOLDER),
        ("*/en/*.parquet", IN_FOLDER[3:]),
        ("parts/*", ["README.md", *IN_FOLDER[:3]]),
        ("parts/_*/*.parquet", ["_temporary/x.parquet"]),
    ],
)
def test_folders_and_patterns(parts: Path, path: str, names: list[str]) -> None:
    """In the order of their names, each under the name that a recipe would give it alone."""
    found = find_files(path, parts)
    assert list(found) == [f"parts/{name}" for name in names]
    assert list(found.values()) == [parts / "parts" / name for name in names]
    assert list(find_files(str(parts / path), None).values()) == list(found.values())
    (parts / "root").mkdir()
    assert list(find_files(f"../{path}", parts / "root")) == [f"../parts/{n}" for n in names]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("parts/*.csv", r"^no data file fits parts/\*.csv \(looked in "),
        ("*", r"^no data file fits \* "),  # a folder is no file
        ("parts/_temporary/none", "is not there"),
        ("empty", r"^folder empty holds no data files \(.parquet, "),
        ("mixed", r"^folder mixed holds .csv and .jsonl files; .*: 'mixed/\*.csv'$"),
    ],
)
def test_nothing_fits(parts: Path, path: str, told: str) -> None:
    (parts / "empty").mkdir()
    (parts / "mixed").mkdir()
    for name in ("a.jsonl.gz", "b.csv"):
        (parts / "mixed" / name).touch()
    with pytest.raises(DataError, match=told):
        find_files(path, parts)


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
