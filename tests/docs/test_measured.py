"""The page of measured figures says what the files of results say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from doc_blocks import ROOT

PAGE = (ROOT / "docs" / "measured.md").read_text(encoding="utf-8")
COURSE = sorted((ROOT / "results" / "course").glob("*.json"))
FEW_SHOT = sorted((ROOT / "results" / "few-shot").glob("*.json"))


def short(figure: float) -> str:
    return f"{figure:.3f}".removeprefix("0")


def test_there_are_results():
    assert COURSE
    assert FEW_SHOT


@pytest.mark.parametrize("path", COURSE, ids=lambda path: path.stem)
def test_a_run_on_the_course_data(path: Path):
    run = json.loads(path.read_text(encoding="utf-8"))
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| `{path.stem}` |"))
    figures = [*run["dev"]["primary"].values()]
    figures += [run["dev"]["summary"][name] for name in ("overall", "mean")]
    shown = [cell.strip() for cell in line.strip("|").split("|")][2:]
    assert shown == [f"{run['steps']:,}", f"{run['seconds']:.0f}", *map(short, figures)]
    assert f"seed {run['seed']}" in PAGE
    assert run["hardware"] in PAGE


@pytest.mark.parametrize("path", FEW_SHOT, ids=lambda path: path.stem)
def test_few_shot(path: Path):
    found = json.loads(path.read_text(encoding="utf-8"))
    assert f"seed {found['seed']}" in PAGE.lower()
    for encoder, figures in found["encoders"].items():
        cells = [f"{short(f['mean'])} ± {short(f['spread'])}" for f in figures]
        assert f"| {path.stem} | {encoder} | {' | '.join(cells)} |" in PAGE


def test_tokenising():
    numbers = json.loads((ROOT / "results" / "tokenise.json").read_text(encoding="utf-8"))
    first, second = numbers["first_peak_mib"], numbers["second_peak_mib"]
    assert f"| seconds | {numbers['first_start_s']:.0f} | {numbers['second_start_s']:.2f} |" in PAGE
    assert f"| peak memory, MiB | {first} | {second} |" in PAGE
    assert f"{numbers['imports_mib']} MiB are there once the imports are done" in PAGE
    quora = json.loads((ROOT / "results" / "tokenise-quora.json").read_text(encoding="utf-8"))
    rows, unit = quora["settings"]["rows"], quora["plait"]["plait"]["median"]
    assert f"{rows:,} pairs of the course's" in PAGE
    assert f"take {rows / unit:.1f}\nseconds, {round(unit, -2):,.0f} rows a second" in PAGE
    peer = quora["peers"]["datasets.map"]["median"]
    assert f"`datasets.map` has {round(peer, -2):,.0f}" in PAGE
    assert f"{quora['ratios']['plait']:.1f} times as fast here" in PAGE
    benchmark = json.loads(
        (ROOT / "results" / "bench" / "tokenise.json").read_text(encoding="utf-8")
    )
    assert f"[benchmark](speed.md#tokenising) has {benchmark['ratios']['plait']:.1f}" in PAGE


def test_large_data():
    record = json.loads(
        (ROOT / "results" / "bench" / "memory" / "big_data.json").read_text(encoding="utf-8")
    )
    for case, sides in record["plait"].items():
        before = record["before"]["plait"][case]
        for turn in ("first", "second"):
            own, old = sides[turn], before[turn]
            memory = f"{old['own_peak_mib']:,} | {own['own_peak_mib']:,}"
            assert f"| {case} | {turn} | {memory} | {own['cpu_seconds']:.0f} |" in PAGE
        assert f"{own['imports_mib']} MiB are there once the imports are done" in PAGE


def test_explanations():
    record = json.loads((ROOT / "results" / "explain.json").read_text(encoding="utf-8"))
    for name, side in record["sides"].items():
        pairs = zip(side["lost"], side["error"], strict=True)
        cells = (f"{lost:.3f} ± {error:.3f}".replace("0.", ".") for lost, error in pairs)
        assert f"| {name} | {' | '.join(cells)} |" in PAGE
    how = (ROOT / "docs" / "how-to" / "explain.md").read_text(encoding="utf-8")
    for side in record["sides"].values():
        assert f"{side['lost'][2]:.2f}" in how
