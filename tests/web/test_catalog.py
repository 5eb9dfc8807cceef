"""Names of runs, and nothing but those."""

from __future__ import annotations

import pytest

from plait.errors import PlaitError, RunError
from plait.web.catalog import list_runs, name_runs
from plait.web.limits import Limits
from plait.web.models import Models
from plait.web.parcels import RunsToLoad


def test_runs_below_a_folder_without_links_and_files(tmp_path):
    for name in ("a", "b", ".hidden"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "runs" / "file").write_text("")
    assert list(list_runs(tmp_path / "runs")) == ["a", "b"]
    with pytest.raises(PlaitError, match="no folder"):
        list_runs(tmp_path / "nowhere")


def test_two_runs_of_one_name(tmp_path):
    for name in ("x/run", "y/run"):
        (tmp_path / name).mkdir(parents=True)
    folder = tmp_path / "x" / "run"
    assert name_runs([folder, tmp_path / "x" / ".." / "x" / "run"]) == {"run": folder.resolve()}
    with pytest.raises(RunError, match="both called 'run'"):
        name_runs([folder, tmp_path / "y" / "run"])
    with pytest.raises(RunError, match="no run at"):
        name_runs([tmp_path / "z"])


def test_folders_that_are_no_runs_are_left_out(tiny_run, tmp_path):
    (tmp_path / "empty").mkdir()
    folders = {"empty": tmp_path / "empty", "tiny": tiny_run}
    loaded = Models.load(RunsToLoad(folders, skip_bad=True, device="cpu", precision="fp32"))
    assert list(loaded.catalog.runs) == ["tiny"]
    assert "recipe.toml" in loaded.catalog.left_out["empty"]
    with pytest.raises(RunError, match=r"recipe\.toml"):
        Models.load(RunsToLoad(folders))


def test_limits_that_cannot_be():
    with pytest.raises(PlaitError, match="batch_size"):
        Limits(batch_size=0)
    with pytest.raises(PlaitError, match="queue of 8"):
        Limits(queue=8, inputs=9)
    Limits(wait_ms=0)
