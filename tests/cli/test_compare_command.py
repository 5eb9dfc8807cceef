"""`plait compare`: recipes and seeds in; runs, a table and two files out."""

from __future__ import annotations

import json
from functools import partial

import pytest

FASTER = """
extends = "{plain}"
name = "faster"
seed = 99

[train]
lr = 1e-2
"""


@pytest.fixture
def compare(plait, tiny_recipe, tmp_path, monkeypatch):
    """Compare two small recipes in the current folder."""
    monkeypatch.chdir(tmp_path)
    plain = tiny_recipe(tmp_path / "data")
    (tmp_path / "faster.toml").write_text(FASTER.format(plain=plain.as_posix()))
    settings = ["-o", "device=cpu", "-o", "train.max_steps=2"]
    return partial(plait, "compare", plain, "faster.toml", "--out", "compared", *settings)


def test_recipes_are_trained_with_the_same_seeds_once(compare, plait, tmp_path):
    done = compare("--seeds", "2")
    assert done.code == 0, done.err
    runs = sorted((tmp_path / "compared").glob("*/*/scores.json"))
    assert [path.parent.name for path in runs] == [*("seed-7", "seed-8") * 2][:4]
    assert done.out.startswith("recipe ")
    values = json.loads((tmp_path / "compared/compare.json").read_text())
    assert values["scores"]["faster"]["mood"].keys() == {"7", "8"}
    assert "| `faster` | overall |" in (tmp_path / "compared/compare.md").read_text()

    stamps = [path.stat().st_mtime_ns for path in runs]
    folders = [tmp_path / "compared" / name for name in ("tiny", "faster")]
    again = plait("compare", *folders, "--json")
    assert json.loads(again.out)["differences"][0]["seeds"] == 2
    changed = compare("--seeds", "2", "-o", "train.lr=1e-3")
    assert "was trained with other settings (train.lr" in changed.complaint()
    assert [path.stat().st_mtime_ns for path in runs] == stamps


def test_a_run_that_fails_does_not_stop_the_others(compare, tmp_path):
    text = (tmp_path / "faster.toml").read_text()
    (tmp_path / "faster.toml").write_text(text + '[tasks.mood]\ntrain = "nowhere.csv"\n')
    done = compare("--seeds", "1")
    assert done.code == 2
    assert "1 run failed: faster, seed" in done.err
    assert "nowhere.csv" in done.err
    assert "tiny" in (tmp_path / "compared/compare.md").read_text()


def test_what_is_refused_before_training(compare, plait, tmp_path):
    def refusal(*words):
        return plait("compare", *words, "--out", "compared").complaint()

    assert "is called 'faster', as another recipe" in refusal("faster.toml", "faster.toml")
    assert "gone.toml" in refusal("faster.toml", "gone.toml")
    assert "d/ensemble lists members" in refusal("d/ensemble")
    assert "with --out" in plait("compare", "faster.toml").complaint()
    assert "is not a finished run" in refusal(tmp_path / "data")
    bare = "".join(f"[tasks.{name}]\ndev = []\n" for name in ("mood", "same", "near"))
    (tmp_path / "faster.toml").write_text((tmp_path / "faster.toml").read_text() + bare)
    assert "has no dev files" in refusal("faster.toml")
    assert not (tmp_path / "compared").exists()
