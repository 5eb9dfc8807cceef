"""Finished runs become records: those that differ in nothing but the seed under one name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plait.config import read_recipe, to_toml
from plait.errors import RunError, UsageError
from plait.reproduce import find_runs, gather_records


def write_run(folder: Path, value: float, *overrides: str, seed: int = 1) -> Path:
    """Write what a finished run leaves, with one figure for every task."""
    config = read_recipe("demo", [f"seed={seed}", *overrides])
    kinds = {name: task.kind for name, task in config.tasks.items()}
    tasks = {name: {"kind": kind, "num_examples": 5, "metrics": {}} for name, kind in kinds.items()}
    summary = {"sum": 3 * value, "mean": value, "overall": value}
    dev = {"tasks": tasks, "primary": dict.fromkeys(kinds, value), "summary": summary}
    made = {"plait": "0", "python": "3", "torch": "2", "device": "cpu", "precision": "fp32"}
    made |= {"encoder": {}, "data": {}}
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text(to_toml(config))
    (folder / "run.json").write_text(json.dumps(made))
    (folder / "scores.json").write_text(json.dumps({"dev": dev}))
    (folder / "metrics.jsonl").write_text("")
    return folder


def names(*places):
    return [record["recipe"] for record in gather_records(find_runs(places), "own")]


def test_runs_are_found_in_folders_and_kept_in_the_order_named(tmp_path):
    late = write_run(tmp_path / "b", 0.6, "name=late", seed=9)
    early = write_run(tmp_path / "a", 0.6, "name=early")
    assert find_runs([tmp_path]) == [early, late]
    assert find_runs([late, tmp_path]) == [late, early]
    assert names(late, early) == ["late", "early"]


def test_methods_of_one_name_are_told_apart_by_their_settings(tmp_path):
    write_run(tmp_path / "a", 0.6)
    write_run(tmp_path / "b", 0.7, "train.lr=3e-4")
    write_run(tmp_path / "c", 0.7, "train.lr=3e-4", seed=2)
    write_run(tmp_path / "d", 0.7, "name=other", "train.lr=3e-4")
    own = f"demo (train.lr={read_recipe('demo').train.lr})"
    assert names(tmp_path) == [own, *["demo (train.lr=0.0003)"] * 2, "other"]


def test_where_a_run_lies_and_what_it_tells_make_no_method(tmp_path):
    write_run(tmp_path / "a", 0.6, "device=cpu", "log_every=5")
    write_run(tmp_path / "b", 0.7, "listeners=[]", "data.root=elsewhere", seed=2)
    assert names(tmp_path) == ["demo", "demo"]


def test_what_cannot_be_compared_is_refused(tmp_path):
    run = write_run(tmp_path / "a", 0.6)
    with pytest.raises(UsageError, match="there is no folder"):
        find_runs([tmp_path / "nowhere"])
    with pytest.raises(UsageError, match=r"a and .*copy are both seed 1 of demo: name one of them"):
        names(run, write_run(tmp_path / "copy", 0.6))
    (run / "scores.json").write_text("{}")
    with pytest.raises(RunError, match="has no dev scores"):
        names(run)
    (run / "scores.json").unlink()
    with pytest.raises(RunError, match="the run is not finished"):
        names(run)
