"""Which folder is searched, and what is said when a file is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.config import DataConfig
from plait.data import cache_root, find_files, find_root, sample_root, would_find
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
        find_files("x/train.csv", tmp_path, "download it")
    assert str(error.value) == (
        f"data file x/train.csv is not there (looked in {tmp_path.resolve()}); "
        "name the folder that holds it with --data DIR or PLAIT_DATA; download it"
    )


def test_files_are_relative_to_the_root_or_absolute(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.touch()
    assert find_files("a.csv", tmp_path) == {"a.csv": path}
    assert find_files(str(path), tmp_path / "elsewhere") == {str(path): path}


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


def test_a_file_may_be_called_like_a_pattern(tmp_path: Path) -> None:
    for name in ("[1].csv", "1.csv"):
        (tmp_path / name).touch()
    assert list(find_files("[1].csv", tmp_path)) == ["[1].csv"]


def test_the_sample_has_folders_too() -> None:
    found = find_files("@sample/*-dev.csv", Path("/elsewhere"))
    assert len(found) == 3
    assert all(name.startswith("@sample/") and path.is_file() for name, path in found.items())
    assert find_files(next(iter(found)), None) == dict([next(iter(found.items()))])


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


@pytest.mark.parametrize(
    "path",
    [
        "rows",
        "rows/**",
        "rows/*",
        "rows/*.csv",
        "rows/*/*.csv",
        "rows/**/*.csv",
        "**/b*.csv",
        "*/**/deep/*",
        "rows/_old/*.csv",
        "rows/[ab].csv",
        "rows/?ut/*",
        "link/*.csv",
        "rows/../rows/*.csv",
    ],
)
def test_what_would_be_found_is_what_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    names = ["a.csv", "b.csv", "out/b.csv", "out/deep/c.csv", "_old/d.csv", "out/_e.csv", ".f.csv"]
    places = [tmp_path / "rows" / name for name in names] + [tmp_path / "b.csv"]
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("x\n")
    (tmp_path / "link").symlink_to(tmp_path / "rows")
    monkeypatch.chdir(tmp_path)
    found = {place.resolve() for place in find_files(path, None).values()}
    assert {place for place in places if would_find(path, place)} == found
    assert {place for place in places if would_find(str(tmp_path / path), place)} == found
