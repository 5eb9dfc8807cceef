"""`plait compare`: recipes and seeds in; records and a page out."""

from __future__ import annotations

import json
from functools import partial

import pytest

PLAIN = """
extends = "course"
name = "plain"
seed = 5

[train]
max_steps = 2
batch_size = 4
schedule = {{ name = "round-robin", together = true }}

[encoder]
source = "{encoder}"
max_length = 32
"""
SURGERY = """
extends = "plain.toml"
name = "surgery"
seed = 99

[train]
aggregator = "pcgrad"
"""


@pytest.fixture
def compare(plait, course, tiny_encoder, tmp_path, monkeypatch):
    """Compare two recipes on small files, with records in `compared`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.toml").write_text(PLAIN.format(encoder=tiny_encoder))
    (tmp_path / "surgery.toml").write_text(SURGERY)
    place = ["--data", course, "--out", "compared", "-o", "device=cpu"]
    return partial(plait, "compare", "plain.toml", "surgery.toml", *place)


def stamps(tmp_path):
    found = (tmp_path / "compared").rglob("*.json")
    return {str(p.relative_to(tmp_path / "compared")): p.stat().st_mtime_ns for p in found}


def test_recipes_are_run_under_the_same_seeds_once(compare, plait, tmp_path):
    done = compare("--seeds", "2")
    assert done.code == 0, done.err
    names = {f"own/{name}/seed-{seed}.json" for name in ("plain", "surgery") for seed in (5, 6)}
    before = stamps(tmp_path)
    assert before.keys() == names
    assert "Against plain:" in done.out
    assert not (tmp_path / "compared/runs").exists()
    page = (tmp_path / "compared/comparison.md").read_text(encoding="utf-8")
    assert "## Against `plain`" in page
    assert '| `train.aggregator.name` | "sum" | "pcgrad" |' in page

    more = compare("--seeds", "3", "--jobs", "2", "--keep")
    assert more.code == 0, more.err
    after = stamps(tmp_path)
    assert all(after[name] == stamp for name, stamp in before.items())
    new = {f"own/{name}/seed-7.json" for name in ("plain", "surgery")}
    assert new <= after.keys()
    assert (tmp_path / "compared/runs/own/plain/seed-7/model.safetensors").is_file()
    told = plait("compare", tmp_path / "compared/runs/own/plain", "--json")
    assert list(json.loads(told.out)["recipes"]["plain"]["overall"]) == ["7"]
    cells = next(line for line in more.out.splitlines() if line.startswith("surgery  ")).split()
    assert cells[-3:-1] == ["3", "2"]  # seeds, updates, minutes


def test_one_that_fails_does_not_end_the_others(compare, tmp_path):
    (tmp_path / "surgery.toml").write_text(SURGERY + '[tasks.sst]\ntrain = "nowhere.csv"\n')
    done = compare("--seeds", "1")
    assert done.code == 2
    assert "1 could not be run: surgery, seed 5" in done.err
    assert "nowhere.csv" in done.err
    assert "plain" in (tmp_path / "compared/comparison.md").read_text(encoding="utf-8")


def test_two_of_one_name_are_refused(compare, plait):
    done = plait("compare", "plain.toml", "plain.toml", "--out", "compared")
    assert "plain.toml is called 'plain', as plain.toml is" in done.complaint()


def test_changed_settings_are_told(compare):
    assert compare("--seeds", "1").code == 0
    done = compare("--seeds", "1", "-o", "train.lr=1e-3")
    assert "was made under other settings (train.lr)" in done.complaint()


def test_a_missing_recipe(compare, plait):
    done = plait("compare", "plain.toml", "gone.toml", "--out", "compared")
    assert "gone.toml" in done.complaint()


def test_recipes_without_dev_files_are_refused_before_training(compare, tmp_path):
    tasks = "".join(f"[tasks.{name}]\ndev = []\n" for name in ("sst", "quora", "sts"))
    (tmp_path / "surgery.toml").write_text(SURGERY + tasks)
    assert "surgery names no dev files" in compare().complaint()
    assert not (tmp_path / "compared").exists()


def test_recipes_and_runs_are_not_mixed(compare, plait, tmp_path):
    done = plait("compare", "plain.toml", tmp_path)
    assert "recipes to run, or folders of finished runs, not both" in done.complaint()
    assert "with --out" in plait("compare", "plain.toml").complaint()
