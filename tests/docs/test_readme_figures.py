"""What README compares is what the records say."""

from __future__ import annotations

import json
import re

from doc_blocks import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def read(*parts):
    return json.loads((ROOT / "results").joinpath(*parts).read_text(encoding="utf-8"))


def row(beginning):
    """Return a row's two sides."""
    line = next(line for line in README.splitlines() if line.startswith(f"| {beginning}"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_the_best_models():
    figures = [
        f"{read('best', f'{name}.json')['dev']['summary']['overall']:.3f}".removeprefix("0")
        for name in ("single", "five", "ten", "distilled")
    ]
    ours, theirs = row("SST, Quora and STS together")
    assert re.findall(r"\.\d{3}", ours) == figures
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    published = re.search(r"^\| `overall` \|.* \| (\.\d+) \|$", page, flags=re.M)
    assert published is not None
    assert theirs.startswith(published[1])


def test_a_named_seed_is_no_mean():
    means = []
    for name in ("single", "distilled"):
        found = re.search(r"mean (\.\d{3})", read("best", f"{name}.json")["about"])
        assert found is not None
        means.append(found[1])
    single, distilled = means
    told = f"they come to {single}, and distilled to {distilled}, in the mean."
    assert told in " ".join(README.split())


def test_steps_on_a_gpu():
    for beginning, name in (
        ("a training step, BERT-base, batches of 8,", "train-8"),
        ("the same, batches of 256", "train-256"),
        ("three tasks in turn", "tasks"),
    ):
        record = read("bench", "gpu", f"{name}.json")
        peer = record["peer"] if "peer" in record else next(iter(record["peers"].values()))
        ours, theirs = row(beginning)
        assert ours.startswith(f"{record['plait']['step_ms']:.1f} ms")
        assert theirs.startswith(f"{peer['step_ms']:.1f} ms")


def test_pairs_on_a_cpu():
    for beginning, name, side in (
        ("training, two CPU cores", "cpu_train", "plait fp32"),
        ("answering, two CPU cores", "cpu_predict", "plait auto"),
    ):
        record = read("bench", f"{name}.json")
        ours, theirs = row(beginning)
        assert ours == f"{record['plait'][side]['median']:.0f} pairs a second"
        assert theirs.startswith(f"{record['peers'][record['best_peer']]['median']:.0f}, ")


def test_serving():
    record = read("bench", "serve.json")
    ours, theirs = row("serving 64 clients")
    side, peer = record["plait"]["plait serve, 2 workers"], record["peers"][record["best_peer"]]
    assert ours.startswith(f"{side['median']:.0f} requests a second, {side['p99_ms']:.0f} ms")
    assert theirs.startswith(f"{peer['median']:.0f} and {peer['p99_ms']:,.0f} ms")


def test_how_much_is_rerun():
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    found = re.search(r"(\d+) distinct runs of (\d+)", " ".join(page.split()))
    assert found is not None
    assert found[1] == found[2]
    assert f"all {found[2]} of the reports' rows" in " ".join(README.split())
