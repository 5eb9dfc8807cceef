"""Names of runs, and nothing but those."""

from __future__ import annotations

import shutil

import pytest

from plait.errors import PlaitError, RunError
from plait.serve.catalog import list_runs, name_runs
from plait.serve.limits import Limits
from plait.serve.models import Models
from plait.serve.parcels import RunsToLoad


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


def test_plugins_of_runs_below_a_folder_are_not_run_unless_let_in(tiny_run, tmp_path):
    run = tmp_path / "theirs"
    shutil.copytree(tiny_run, run)
    plugin, recipe = run / "parts.py", run / "recipe.toml"
    plugin.write_text(f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n")
    text = recipe.read_text()
    assert text.count("plugins = []") == 1
    recipe.write_text(text.replace("plugins = []", f"plugins = [{str(plugin)!r}]"))
    folders = {"theirs": run, "tiny": tiny_run}
    wanted = RunsToLoad(folders, skip_bad=True, plugins=False, device="cpu", precision="fp32")
    loaded = Models.load(wanted)
    assert list(loaded.catalog.runs) == ["tiny"]
    assert "which is code; --plugins lets" in loaded.catalog.left_out["theirs"]
    assert not (tmp_path / "ran").exists()
    loaded = Models.load(wanted._replace(plugins=True))
    assert list(loaded.catalog.runs) == ["theirs", "tiny"]
    assert (tmp_path / "ran").exists()


def test_limits_that_cannot_be():
    with pytest.raises(PlaitError, match="batch_size"):
        Limits(batch_size=0)
    with pytest.raises(PlaitError, match="queue of 8"):
        Limits(queue=8, inputs=9)
    Limits(wait_ms=0)
