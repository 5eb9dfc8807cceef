"""What the page on choosing says the records say, they say."""

from __future__ import annotations

import json
import re
from statistics import mean

import pytest
from doc_blocks import ROOT

PAGE = (ROOT / "docs" / "how-to" / "choose.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^\| .* \| (.+) \| (`\w+`) \| ([+-]\.\d{3}) \|$", PAGE, flags=re.M)


def test_there_are_steps():
    assert len(STEPS) == 5


@pytest.mark.parametrize(("says", "figure", "gain"), STEPS, ids=[s[0][:30] for s in STEPS])
def test_each_step_is_a_finding_that_holds(says, figure, gain):
    (line,) = (line for line in RESULTS.splitlines() if line.startswith(f"| {says}"))
    assert "**holds\u00a0here**" in line
    assert f"| {figure} |" in line
    ours = line.split(" | ")[4]
    assert ours == gain


def test_smart_on_sentiment():
    line = next(line for line in RESULTS.splitlines() if "helps sentiment (rows 2, 3)" in line)
    assert "| +.057 |" in line
    assert "| .026 |" in line
    assert "(three seeds, p = .026)" in PAGE
    assert "**holds\u00a0here**" in line
    assert "sentiment .057 better" in PAGE
    line = next(line for line in RESULTS.splitlines() if "SMART on top of surgery" in line)
    assert "| +.014 |" in line
    assert "| .039 |" in line
    assert "all tasks .014 better on top of surgery (p = .039)" in PAGE


def test_the_best_models():
    for name in ("five", "ten", "distilled"):
        record = json.loads((ROOT / "results" / "best" / f"{name}.json").read_text())
        assert shown(record["dev"]["summary"]["overall"]) in PAGE


def test_offsets_and_students():
    folds, ten, one, students = (
        json.loads((ROOT / "results" / "best" / f"{name}.json").read_text())
        for name in ("folds", "ten", "distilled", "students")
    )
    five, bare = folds["dev"]["summary"]["overall"], folds["without_offsets"]["overall"]
    assert f"{shown(five)} where the same five have {shown(bare)} without" in PAGE
    taught, student, together = (r["dev"]["summary"]["overall"] for r in (ten, one, students))
    members, seeds = (
        mean(run["overall"] for run in runs.values()) for runs in (ten["members"], one["seeds"])
    )
    assert f"{shown(taught)} where they have {shown(members)}" in PAGE
    assert f"{shown(student)} where the ten have {shown(taught)}, in one pass" in PAGE
    assert f"(five seeds: {shown(seeds)} in the mean, and {shown(together)} together)" in PAGE


def test_smart_for_similarity():
    record = json.loads((ROOT / "results" / "best" / "single.json").read_text())
    with_it, without = (
        mean(run["sts"] for run in record[key].values()) for key in ("seeds", "seeds_without_smart")
    )
    assert f"similarity {shown(with_it - without)} better: {shown(with_it)}" in PAGE
    assert f"where it was {shown(without)}, five seeds each" in PAGE
    members = mean(run["overall"] for run in record["seeds"].values())
    assert f"members have {shown(members)} in the mean" in PAGE


def shown(value):
    return f"{value:.3f}".removeprefix("0")


def test_prices():
    folder = ROOT / "results" / "bench" / "gpu"
    smart = json.loads((folder / "smart-8.json").read_text())["rows"][0]["cost"]
    surgery = json.loads((folder / "surgery.json").read_text())["rows"][0]["over_plain"]
    assert f"{smart:.1f} plain ones" in PAGE
    assert f"| {surgery:.1f} |" in PAGE


def test_what_sharing_gained():
    told = " ".join(RESULTS.split())
    assert "**Sharing**: of 12 tasks trained alone" in told
    assert "none gained by it and 2 (" in told
    lost = re.search(r"and 2 \(.* -(\.\d+), .* -(\.\d+)\) lost", told)
    assert lost
    assert "two were worse, by {} and {}".format(*lost.groups()) in PAGE


def test_runs_that_fell():
    told = re.findall(r"^- \*\*(?:Ended low|Fell apart)\*\*: (\d+) run", RESULTS, flags=re.M)
    runs = list((ROOT / "results" / "reproduce" / "small").glob("*/*/seed-*.json"))
    assert (sum(map(int, told)), len(runs)) == (10, 186)
    assert "ten of 186" in PAGE
    another = json.loads(
        (ROOT / "results/reproduce/small/d/concat-sequential/seed-11713.json").read_text()
    )["dev"]["tasks"]
    assert another["sst"]["metrics"]["macro_recall"] == pytest.approx(0.2)  # one class for all
    assert another["quora"]["metrics"]["accuracy"] < 0.5
