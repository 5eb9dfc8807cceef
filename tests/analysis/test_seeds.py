"""Comparison of recipes over seeds."""

from __future__ import annotations

import json

import pytest
import tomli_w
from scipy import stats

from plait.analysis.seeds import compare_runs, find_runs, holm, paired_t_test
from plait.config import read_recipe, to_toml
from plait.errors import RunError, UsageError


@pytest.fixture
def finished(tmp_path, tiny_recipe):
    """Write what a finished run leaves: its recipe and its scores."""
    source = tiny_recipe()

    def write(name, seed, mood, same=0.8, rows=18, **settings):
        overrides = [f"name={name}", f"seed={seed}"]
        overrides += [f"{key.replace('__', '.')}={value}" for key, value in settings.items()]
        folder = tmp_path / "runs" / f"{name}-{seed}-{len(settings)}"
        folder.mkdir(parents=True)
        (folder / "recipe.toml").write_text(to_toml(read_recipe(source, overrides)))
        primary = {"mood": mood, "same": same}
        dev = {
            "primary": primary,
            "summary": {"overall": (mood + same) / 2},
            "tasks": {task: {"num_examples": rows} for task in primary},
        }
        (folder / "scores.json").write_text(json.dumps({"dev": dev}))
        return folder

    return write


def test_each_score_is_tested_seed_by_seed(finished):
    plain, other = [0.70, 0.72, 0.69, 0.71], [0.76, 0.77, 0.76, 0.76]
    runs = [finished("plain", seed, mood) for seed, mood in enumerate(plain)]
    runs += [finished("other", seed, mood, same=0.9) for seed, mood in enumerate(other)]
    found = compare_runs(runs)
    tests = {test.score: test for test in found.differences}
    assert tests.keys() == {"mood", "same", "overall"}
    expected = stats.ttest_rel(other, plain)
    mood = tests["mood"]
    assert mood.value == pytest.approx(0.0575)
    assert mood.p == pytest.approx(expected.pvalue)
    assert mood.interval == pytest.approx(tuple(expected.confidence_interval()))
    assert mood.corrected == max(mood.p, 2 * tests["overall"].p)
    assert (mood.result, mood.num_seeds) == ("better", 4)
    assert tests["same"].result == "no test: equal for all seeds"
    assert compare_runs(runs, against="other").differences[0].result == "worse"


def test_the_table_and_the_files(finished):
    runs = [finished(name, seed, 0.5 + seed / 10) for name in ("a", "b") for seed in (1, 2)]
    found = compare_runs(runs)
    header, first, second, *_ = found.table()
    assert len(header) == len(first)
    assert first == ["a", "mood", "", "0.650", "0.071", "2", "", "", "", ""]
    assert second[:7] == [*("b", "mood", "no test: equal for all seeds", "0.650"),
                          *("0.071", "2", "+0.000")]  # fmt: skip
    assert "| `b` | mood |" in found.to_markdown()
    values = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert values["scores"]["a"]["mood"] == {"1": 0.6, "2": 0.7}
    assert values["against"] == "a"


def test_one_seed_is_not_tested(finished):
    found = compare_runs([finished("a", 1, 0.5), finished("b", 1, 0.6), finished("c", 2, 0.6)])
    results = {test.recipe: test.result for test in found.differences}
    assert results == dict.fromkeys("bc", "no test: fewer than 2 shared seeds")


def test_a_difference_may_lose_its_significance_to_holm():
    test = paired_t_test("b", "mood", [0.01, 0.02, 0.03, 0.01])
    assert test.p is not None
    assert test.p < 0.05
    from dataclasses import replace

    assert replace(test, corrected=0.2).result == "not significant after Holm correction"
    assert replace(test, corrected=0.01).result == "better"


def test_holm():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


def test_runs_of_one_name_with_other_settings_are_other_recipes(finished):
    runs = [finished("a", 1, 0.5), finished("a", 1, 0.6, train__lr="1e-3", device="cpu")]
    assert list(compare_runs(runs).runs) == ["a (train.lr=0.003)", "a (train.lr=0.001)"]


def test_what_is_refused(finished, tmp_path):
    first = finished("a", 1, 0.5)
    with pytest.raises(UsageError, match="are both seed 1 of a"):
        compare_runs([first, first])
    with pytest.raises(UsageError, match="no compared recipe is called 'b'"):
        compare_runs([first], against="b")
    with pytest.raises(UsageError, match="scored on 18 dev rows of mood and b on 9"):
        compare_runs([first, finished("b", 1, 0.5, rows=9)])
    (first / "scores.json").write_text("{}")
    with pytest.raises(RunError, match="has no dev scores"):
        compare_runs([first])
    with pytest.raises(UsageError, match="is not a finished run"):
        find_runs(tmp_path)


def test_an_ensemble_takes_part(finished):
    member = finished("a", 3, 0.5)
    folder = member.parent / "both"
    (folder / "members").mkdir(parents=True)
    scores = json.loads((member / "scores.json").read_text())
    member.rename(folder / "members" / "a")
    (folder / "ensemble.toml").write_text(tomli_w.dumps({}))
    told = scores | {"recipe": "both", "members": {"a": {}}}
    (folder / "scores.json").write_text(json.dumps(told))
    assert find_runs(folder.parent) == [folder]
    assert [run.seed for run in compare_runs([folder]).runs["both"]] == [3]
