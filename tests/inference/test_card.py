"""Model cards: what they say, and that text outside the markers is kept."""

from __future__ import annotations

import json
import shutil

import pytest

from plait.analysis.audit import audit
from plait.config import read_recipe
from plait.errors import RunError
from plait.inference.card import BEGIN, END, make_card, update_card, write_card
from plait.inference.ensemble import load, make_ensemble
from plait.inference.fitting.calibrate import calibrate, undo
from plait.training.average import average_runs


@pytest.fixture
def run(tiny_run, tmp_path):
    """A run that may be changed."""
    return shutil.copytree(tiny_run, tmp_path / "run")


def read(run):
    return (run / "card.md").read_text(encoding="utf-8")


def section(card, title):
    """Return one section of a card."""
    return card.split(f"\n## {title}\n")[1].split("\n## ")[0].strip()


def table(text):
    """Return the cells of the first table."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_what_stands_in_it(run):
    card = make_card(run)
    assert card.startswith("# tiny\n\nSmall.\n\nOne text encoder with 3 tasks, trained together")
    assert table(section(card, "Tasks"))[2:] == [
        ["mood", "classes", "`text`", "bad, so-so, good"],
        ["same", "binary", "`a` and `b`", "no, yes"],
        ["near", "score", "`a` and `b`, encoded apart", "a number from 0 to 5"],
    ]
    assert "- mood: How | it feels." in card
    result = json.loads((run / "scores.json").read_text())
    rows = {row[0]: row[1:] for row in table(section(card, "Scores"))[2:]}
    for name, value in result["dev"]["primary"].items():
        assert rows[name][3] == f"{value:.3f}"
    assert (rows["mood"][0], rows["near"][0]) == ("accuracy", "pearson")
    assert float(rows["mood"][4]) < float(rows["mood"][3])
    data = table(section(card, "Data"))[2:]
    assert [row[3] for row in data] == ["45", "18", "32", "16", "24", "12"]
    assert [row[4] for row in data] == ["CC0-1.0", "CC0-1.0", *["unknown"] * 4]
    assert "pre-training data is unknown" in section(card, "Encoder")
    stage = ["finetune", "finetune", "mood, same, near", "2", "12", "0.003"]
    assert table(section(card, "Training"))[2][:6] == stage
    limits = section(card, "Limits")
    assert "- Inputs are truncated at 32 tokens: the end is not read." in limits
    assert "- mood: lowest recall on" in limits
    assert "- The confidence of mood, same is not calibrated" in limits
    assert 'model.predict("mood", ["One text."])' in section(card, "Use it")
    assert str(run.parent) not in card


def test_the_best_baseline(run):
    """Runs of earlier versions have the majority class, or nothing for a number."""
    result = json.loads((run / "scores.json").read_text())
    majority = result["baseline"]["primary"]["mood"]
    change(run, "scores.json", baselines={})
    rows = {row[0]: row[2:4] for row in table(section(make_card(run), "Scores"))[2:]}
    assert rows["mood"] == ["majority class", f"{majority:.3f}"]
    assert rows["near"] == ["none", "none"]
    change(run, "scores.json", baselines={"mood": {"a regression": 0.999, "another": None}})
    found = section(make_card(run), "Scores")
    assert {row[0]: row[2:4] for row in table(found)[2:]}["mood"] == ["a regression", "0.999"]
    assert "- mood: the model (" in found
    assert "- near: " not in found


def test_licences_notes_and_a_sentence(tmp_path, tiny_recipe):
    changes = ["tasks.mood.licence=CC0-1.0", "tasks.mood.about=How | it feels.", "about=Small."]
    changes += ["train.max_steps=1"]
    run = train(read_recipe(tiny_recipe(), changes), tmp_path / "run").folder
    info = json.loads((run / "run.json").read_text())
    info["encoder"]["notes"] = "It has read everything."
    (run / "run.json").write_text(json.dumps(info))
    card = make_card(run)
    assert section(card, "Scores").startswith("None: no dev set was scored.")
    assert table(section(card, "Data"))[2][3] == "unknown"


def test_calibration_and_audit(run):
    plain = make_card(run)
    assert "## Audit" not in plain
    assert "## Calibration" not in plain
    assert "- No bias audit was run" in plain
    fits = calibrate(run)
    probes = audit(load(run), {}, tasks=["mood"]).to_json()
    (run / "audit.json").write_text(json.dumps(probes))
    card = make_card(run)
    assert "Nobody has checked that it matches" not in card
    assert "was not looked at" not in card
    head, _, first, _ = table(section(card, "Calibration"))
    figures = [f"{when} {what}" for when in ("before", "after") for what in FIGURES]
    assert head == ["task", "temperature", "rows", *figures]
    assert first[:3] == ["mood", f"{fits['mood'].scaling.temperature:.3f}", "18"]
    assert first[4] == f"{fits['mood'].before['ece']:.3f}"
    head, _, *rows = table(section(card, "Audit"))
    assert head == ["probe", "task", "texts", "changed", "moved", "measured"]
    assert len(rows) == len(probes["summary"])
    assert [row[0] for row in rows] == [probe["probe"] for probe in probes["probes"]]


def test_ensembles_and_averages(run, tiny_run, tmp_path):
    folder = make_ensemble([run, tiny_run], tmp_path / "both", "mean")
    card = read(folder)
    assert card == f"{BEGIN}\n\n{make_card(folder)}\n{END}\n"
    assert "# both\n\nAn ensemble of 2 runs that combines their answers by their mean." in card
    assert table(section(card, "Members"))[2][0] == "[run](../run/card.md)"
    assert "model.embed" not in card
    soup = average_runs([run, tiny_run], tmp_path / "soup")
    assert "made by averaging the weights of runs" in soup.card.read_text(encoding="utf-8")
    (run / "recipe.toml").unlink()
    with pytest.raises(RunError, match=r"names a member .*, which is not a run"):
        make_card(folder)
