"""The figures in README and in the documentation are those of the records."""

from __future__ import annotations

import json
import re
from statistics import fmean

import pytest

from reproduction.formatting import number
from reproduction.page import HERE
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


def test_the_scores_in_the_readme():
    for name in ("single", "five", "ten", "distilled"):
        assert number(overall(name)) in README
    published = re.search(r"^\| `overall` \|.* \| (\.\d+) \|$", RESULTS, flags=re.M)
    assert published
    assert published[1] in README


def test_the_speeds_in_the_readme():
    for name in ("train-8", "train-256", "tasks"):
        record = bench("gpu", f"{name}.json")
        peer = record["peer"] if "peer" in record else next(iter(record["peers"].values()))
        for side in (record["plait"], peer):
            assert f"{side['step_ms']:.1f} ms" in README
    for name, side in (("cpu_train", "plait fp32"), ("cpu_predict", "plait auto")):
        record = bench(f"{name}.json")
        for found in (record["plait"][side], record["peers"][record["best_peer"]]):
            assert f" {found['median']:.0f}" in README
    served = bench("serve.json")["plait"]["plait serve, 2 workers"]
    assert f"{served['median']:.0f} requests a second, {served['p99_ms']:.0f} ms" in README


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
