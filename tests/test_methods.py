"""Runs of several seeds become methods, held against one of them."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, stdev

import pytest

from plait.config import read_recipe, to_toml
from plait.errors import RunError, UsageError
from plait.methods import compare_methods, find_runs
from plait.results.significance import compare_paired

ROWS = 500


def write_run(
    folder: Path, value: float, *overrides: str, seed: int = 1, num_examples: int = ROWS
) -> Path:
    """Write what a finished run leaves, with one figure for every task."""
    config = read_recipe("demo", [f"seed={seed}", *overrides])
    kinds = {name: task.kind for name, task in config.tasks.items()}
    metrics = {name: "pearson" if kind == "score" else "accuracy" for name, kind in kinds.items()}
    tasks = {
        name: {"kind": kinds[name], "num_examples": num_examples, "metrics": {metric: value}}
        for name, metric in metrics.items()
    }
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


def write_runs(folder: Path, name: str, values: list[float], *overrides: str) -> list[Path]:
    named = [f"name={name}", *overrides]
    return [
        write_run(folder / f"{name}-{seed}", value, *named, seed=seed)
        for seed, value in enumerate(values, 1)
    ]


def test_a_method_is_tested_seed_by_seed_against_the_first(tmp_path):
    plain, other = [0.60, 0.62, 0.61], [0.64, 0.65, 0.66]
    write_runs(tmp_path, "plain", plain)
    write_runs(tmp_path, "other", other, "train.aggregator=pcgrad", "train.accumulate=2")
    found = compare_methods(find_runs([tmp_path]), ["overall", "sentiment"], "plain")
    assert found.methods == ("plain", "other")
    assert found.tasks == ["sentiment", "paraphrase", "similarity"]
    expected = compare_paired([b - a for a, b in zip(plain, other, strict=True)])
    assert [(t.method, t.figure) for t in found.tests] == [
        ("other", "overall"),
        ("other", "sentiment"),
    ]
    for test in found.tests:
        assert test.difference == expected
        assert test.corrected == pytest.approx(2 * expected.p_value())
    told = found.to_json()
    assert told["against"] == "plain"
    shown = told["methods"]["other"]["sentiment"]
    assert shown["mean"] == fmean(other)
    assert shown["deviation"] == stdev(other)
    assert shown["by_seed"] == {"1": 0.64, "2": 0.65, "3": 0.66}
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_the_first_run_named_says_who_is_held_against_whatever_its_seed(tmp_path):
    late = write_run(tmp_path / "b", 0.6, "name=late", seed=9)
    early = write_run(tmp_path / "a", 0.6, "name=early", seed=1)
    assert compare_methods([late, early]).methods == ("late", "early")
    assert compare_methods(find_runs([tmp_path])).methods == ("early", "late")


def test_fewer_seeds_are_tested_by_the_spread_of_all_and_devs_own_error(tmp_path):
    for name, values in {"a": [0.60, 0.62], "b": [0.61, 0.63]}.items():
        write_runs(tmp_path, name, values, f"train.lr=1e-{ord(name) % 7 + 2}")
    (test,) = compare_methods(find_runs([tmp_path])).tests
    assert test.difference is not None
    assert not test.difference.is_paired
    assert test.difference.error > 0.01


@pytest.mark.parametrize("gain", [0.0, 0.02])
def test_equal_differences_of_few_rows_are_not_certain(tmp_path, gain):
    """Shares of 100 rows come in hundredths: that three are alike is no proof that all are."""
    for name, more in {"plain": 0.0, "other": gain}.items():
        for seed, value in enumerate([0.60, 0.61, 0.64], 1):
            own = [f"name={name}", f"train.lr=1e-{len(name)}"]
            folder = tmp_path / f"{name}-{seed}"
            write_run(folder, value + more, *own, seed=seed, num_examples=100)
    found = compare_methods(find_runs([tmp_path]), ["sentiment", "overall"], "plain")
    for test, steps in zip(found.tests, (2, 2 * 2 / 9), strict=True):  # a score has no steps
        assert test.difference is not None
        assert test.difference.error == pytest.approx((steps * 0.01**2 / 12 / 3) ** 0.5)
        assert test.difference.p_value() > 0.002


def test_one_seed_each_is_not_tested(tmp_path):
    write_run(tmp_path / "a", 0.6, "name=a")
    write_run(tmp_path / "b", 0.7, "name=b")
    (test,) = compare_methods(find_runs([tmp_path])).tests
    assert test.difference is None
    assert "one seed" in test.reason
    assert test.to_json() == {"method": "b", "figure": "overall", "reason": test.reason}


def test_methods_of_one_name_are_told_apart_by_their_settings(tmp_path):
    write_run(tmp_path / "a", 0.6)
    write_run(tmp_path / "b", 0.7, "train.lr=3e-4")
    write_run(tmp_path / "c", 0.7, "train.lr=3e-4", seed=2)
    write_run(tmp_path / "d", 0.7, "name=other", "train.lr=3e-4")
    lr = read_recipe("demo").train.lr
    found = compare_methods(find_runs([tmp_path]))
    assert found.methods == (f"demo (train.lr={lr})", "demo (train.lr=0.0003)", "other")
    assert found.figures("demo (train.lr=0.0003)", "overall") == {1: 0.7, 2: 0.7}


def test_runs_of_two_versions_of_a_plugin_are_two_methods(tmp_path):
    for seed, version in ((1, "a" * 64), (2, "a" * 64), (3, "b" * 64)):
        run = write_run(tmp_path / str(seed), 0.6, 'plugins=["mine.py"]', seed=seed)
        info = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps(info | {"plugins": {"mine.py": version}}))
    found = compare_methods(find_runs([tmp_path]))
    assert found.methods == ("demo (mine.py=aaaaaaaa)", "demo (mine.py=bbbbbbbb)")
    assert list(found.figures("demo (mine.py=aaaaaaaa)", "mean")) == [1, 2]


def test_where_a_run_lies_and_what_it_tells_make_no_method(tmp_path):
    write_run(tmp_path / "a", 0.6, "device=cpu", "log_every=5", seed=1)
    write_run(tmp_path / "b", 0.7, "listeners=[]", "data.root=elsewhere", seed=2)
    assert compare_methods(find_runs([tmp_path])).methods == ("demo",)


def test_what_cannot_be_compared_is_refused(tmp_path):
    runs = write_runs(tmp_path, "a", [0.6, 0.7])
    with pytest.raises(UsageError, match="there is no folder"):
        find_runs([tmp_path / "nowhere"])
    with pytest.raises(UsageError, match="no run to compare"):
        compare_methods([])
    with pytest.raises(UsageError, match="no run has a figure 'sentimnt'; did you mean 'sentime"):
        compare_methods(runs, ["sentimnt"])
    with pytest.raises(UsageError, match="no run is of a method 'b'"):
        compare_methods(runs, against="b")
    with pytest.raises(UsageError, match=r"a-1 and .*copy are both seed 1 of a: name one of them"):
        compare_methods([*runs, write_run(tmp_path / "copy", 0.6, "name=a")])
    short = write_run(tmp_path / "short", 0.6, "name=short", num_examples=100)
    with pytest.raises(UsageError, match=r"other dev rows of sentiment \(500 and 100\)"):
        compare_methods([*runs, short])
    (runs[1] / "scores.json").write_text("{}")
    with pytest.raises(RunError, match="has no dev scores"):
        compare_methods(runs)
    (runs[1] / "scores.json").unlink()
    with pytest.raises(RunError, match="the run is not finished"):
        compare_methods(runs)
