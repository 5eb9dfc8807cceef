"""The figures in README and in the documentation are those of the records."""

from __future__ import annotations

import json
import re
from statistics import fmean

import pytest

from reproduction.formatting import number
from reproduction.page import HERE
from reproduction.published import read_rows
from reproduction.records import RECORDS, read_records

ROOT = HERE.parent
BENCH = ROOT / "benchmarks" / "records"
README, CHOOSE, MEASURED, RESULTS = (
    (ROOT / name).read_text(encoding="utf-8")
    for name in (
        "README.md",
        "docs/how-to/choose.md",
        "docs/measured.md",
        "reproduction/results.md",
    )
)


def best(name):
    return json.loads((RECORDS / "best" / f"{name}.json").read_text(encoding="utf-8"))


def bench(*parts):
    return json.loads(BENCH.joinpath(*parts).read_text(encoding="utf-8"))


def overall(name):
    return best(name)["dev"]["summary"]["overall"]


# --- README ------------------------------------------------------------------------------


def row(begin):
    """Return the two cells of a row of README's table."""
    line = next(line for line in README.splitlines() if line.startswith(f"| {begin}"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_the_scores_in_the_readme():
    """Five models beside five, the mean over seeds beside a single run."""
    published = read_rows()
    ours, theirs = row("SST, Quora and STS, five models")
    assert ours == number(overall("five"))
    assert theirs.startswith(number(published["d/ensemble"].scores["overall"]))
    ours, theirs = row("the same, one model")
    seeds = best("single")["seeds"].values()
    assert ours == f"{number(fmean(run['overall'] for run in seeds))}, mean of {len(seeds)} seeds"
    single = [
        printed.scores["overall"]
        for name, printed in published.items()
        if printed.system == "D" and name != "d/ensemble" and "overall" in printed.scores
    ]
    assert theirs.startswith(number(max(single)))


def test_the_speeds_in_the_readme():
    for begin, name in (("pairs predicted", "predict"), ("texts", "embed"), ("pairs tr", "train")):
        record = bench(f"cpu_{name}.json")
        ours, theirs = row(begin)
        assert ours == f"{record['plait']['plait fp32']['median']:.0f} a second"
        assert theirs.startswith(f"{record['peers'][record['best_peer']]['median']:.0f}, ")
    record = bench("gpu", "train-256.json")
    peer = record["peer"] if "peer" in record else next(iter(record["peers"].values()))
    ours, theirs = row("training step")
    assert ours == f"{record['plait']['step_ms']:.1f} ms"
    assert theirs.startswith(f"{peer['step_ms']:.1f} ms")


def test_the_few_shot_scores_in_the_readme():
    page = (ROOT / "docs" / "defaults.md").read_text(encoding="utf-8")
    ours, theirs = row("8 labelled texts")
    found = re.search(r"^\| 8c \| setfit r20 \| .* \| (\.\d+), (\.\d+) \(6\) \|", page, flags=re.M)
    assert found
    assert (ours, theirs[:4]) == found.groups()


# --- docs/how-to/choose.md ---------------------------------------------------------------

STEPS = re.findall(r"^\| .* \| (.+) \| (`\w+`) \| ([+-]\.\d{3}) \|$", CHOOSE, flags=re.M)


def test_each_step_is_a_claim_that_holds():
    assert len(STEPS) == 5
    for says, score, gain in STEPS:
        (line,) = (line for line in RESULTS.splitlines() if line.startswith(f"| {says}"))
        assert "| **holds** |" in line
        assert f"| {score} |" in line
        assert line.split(" | ")[4] == gain


def test_smart_on_sentiment():
    line = next(line for line in RESULTS.splitlines() if "helps sentiment (rows 2, 3)" in line)
    assert line.split(" | ")[4:8:3] == ["+.057", ".026"]
    assert "(three seeds, p = .026)" in CHOOSE
    line = next(line for line in RESULTS.splitlines() if "SMART on top of surgery" in line)
    assert line.split(" | ")[4:8:3] == ["+.014", ".039"]
    assert "all tasks .014 better on top of surgery (p = .039)" in CHOOSE


def test_the_best_models():
    folds, ten, one, single = map(best, ("folds", "ten", "distilled", "single"))
    five, bare = overall("folds"), folds["without_offsets"]["overall"]
    assert f"{number(five)} where the same five have {number(bare)} without" in CHOOSE
    members, seeds = (
        fmean(run["overall"] for run in runs.values()) for runs in (ten["members"], one["seeds"])
    )
    taught, student, together = map(overall, ("ten", "distilled", "students"))
    assert f"{number(taught)} where they have {number(members)}" in CHOOSE
    assert f"{number(student)} where the ten have {number(taught)}, in one pass" in CHOOSE
    assert f"(five seeds: {number(seeds)} in the mean, and {number(together)} together)" in CHOOSE
    with_it, without = (
        fmean(run["sts"] for run in single[key].values())
        for key in ("seeds", "seeds_without_smart")
    )
    assert f"similarity {number(with_it - without)} better: {number(with_it)}" in CHOOSE
    mean = number(fmean(run["overall"] for run in single["seeds"].values()))
    assert f"members have {mean} in the mean" in CHOOSE


def test_costs():
    smart = bench("gpu", "smart-8.json")["rows"][0]["cost"]
    surgery = bench("gpu", "surgery.json")["rows"][0]["over_plain"]
    assert f"{smart:.1f} plain ones" in CHOOSE
    assert f"| {surgery:.1f} |" in CHOOSE


def test_joint_training_and_runs_without_success():
    text = " ".join(RESULTS.split())
    found = re.search(r"of 12 tasks .* improved 0 and made 2 \(.* -(\.\d+), .* -(\.\d+)\)", text)
    assert found
    assert "made two worse, by {} and {}".format(*found.groups()) in " ".join(CHOOSE.split())
    records = read_records()
    joint = [record for record in records if record.alone is None]
    bad = [record for record in joint if record.is_chance or record.drop]
    assert (len(bad), len(joint)) == (9, 186)
    assert "nine of 186" in CHOOSE


# --- docs/measured.md --------------------------------------------------------------------

COURSE = sorted((RECORDS / "course").glob("*.json"))
FEW_SHOT = sorted((RECORDS / "few-shot").glob("*.json"))


@pytest.mark.parametrize("path", COURSE, ids=lambda path: path.stem)
def test_a_run_on_the_course_data(path):
    run = json.loads(path.read_text(encoding="utf-8"))
    line = next(line for line in MEASURED.splitlines() if line.startswith(f"| `{path.stem}` |"))
    scores = [*run["dev"]["primary"].values()]
    scores += [run["dev"]["summary"][name] for name in ("overall", "mean")]
    shown = [cell.strip() for cell in line.strip("|").split("|")][2:]
    assert shown == [f"{run['steps']:,}", f"{run['seconds']:.0f}", *map(number, scores)]
    assert f"seed {run['seed']}" in MEASURED
    assert run["hardware"] in MEASURED


@pytest.mark.parametrize("path", FEW_SHOT, ids=lambda path: path.stem)
def test_few_shot(path):
    found = json.loads(path.read_text(encoding="utf-8"))
    for encoder, shots in found["encoders"].items():
        cells = [f"{number(f['mean'])} ± {number(f['spread'])}" for f in shots]
        assert f"| {path.stem} | {encoder} | {' | '.join(cells)} |" in MEASURED
