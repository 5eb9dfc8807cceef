"""Model cards: what they say, and that text outside the markers is kept."""

from __future__ import annotations

import json
import shutil

import pytest
import tomli_w

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


def change(run, name, **values):
    """Change keys of a JSON file of a run."""
    path = run / name
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


# --- the text ----------------------------------------------------------------------------


def test_a_run(run):
    config = read_recipe(run / "recipe.toml").model_dump(mode="json", exclude_none=True)
    config |= {"about": "Small."}
    config["tasks"]["mood"] |= {"licence": "CC0-1.0", "about": "How | it feels."}
    (run / "recipe.toml").write_text(tomli_w.dumps(config))
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


def test_a_run_without_scores(run):
    (run / "scores.json").unlink()
    assert section(make_card(run), "Scores").startswith("None yet: the training is not finished")
    (run / "run.json").unlink()
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
    (run / "audit.json").write_text(json.dumps({"model": load(run).identify(), **probes}))
    card = make_card(run)
    assert "is not calibrated" not in card
    assert "No bias audit" not in card
    head, _, first, _ = table(section(card, "Calibration"))
    metrics = ("accuracy", "ece", "log loss")
    columns = [f"{when} {what}" for when in ("before", "after") for what in metrics]
    assert head == ["task", "temperature", "rows", *columns]
    assert first[:3] == ["mood", f"{fits['mood'].scaling.temperature:.3f}", "18"]
    head, _, *rows = table(section(card, "Audit"))
    assert head == ["probe", "task", "texts", "changed", "moved", "result"]
    assert len(rows) == len(probes["summary"])
    change(run, "audit.json", model="another")  # an audit of other weights
    assert "## Audit" not in make_card(run)
    (run / "audit.json").write_text(json.dumps({"summary": [1, 2]}))
    assert "## Audit" not in make_card(run)
    (run / "audit.json").write_text("{")
    with pytest.raises(RunError, match=r"audit\.json is damaged"):
        make_card(run)


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


def test_labels_are_shortened_and_escaped(run):
    config = read_recipe(run / "recipe.toml").model_dump(mode="json", exclude_none=True)
    labels = ["<script>x</script> \x1b]0;t\n# [y](z)", *(f"l{i}" for i in range(1, 20))]
    config["tasks"]["mood"]["labels"] = labels
    (run / "recipe.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
    row = section(make_card(run), "Tasks").splitlines()[2]
    assert r"| \<script>x\</script> ␛]0;t # \[y](z), l1," in row
    assert "l6, l7 and 12 more |" in row


# --- the file ----------------------------------------------------------------------------


def test_training_writes_it(tiny_run):
    assert read(tiny_run) == f"{BEGIN}\n\n{make_card(tiny_run)}\n{END}\n"


def test_text_outside_the_markers_is_kept(run):
    plain = read(run)
    (run / "card.md").write_bytes(f"Ours\r\n{plain}\nAsk Ruth.\x85".encode())
    calibrate(run, device="cpu")
    text = (run / "card.md").read_bytes().decode()
    assert text == f"Ours\r\n{BEGIN}\n\n{make_card(run)}\n{END}\n\nAsk Ruth.\x85"
    assert "## Calibration" in text
    undo(run)
    assert (run / "card.md").read_bytes().decode() == f"Ours\r\n{plain}\nAsk Ruth.\x85"
    assert list(run.glob("card-*.md")) == []


@pytest.mark.parametrize("old", [b"# Ours\n", "# Übung\n".encode("cp1252")])
def test_a_card_without_markers_is_set_aside_once(run, old):
    (run / "card.md").write_bytes(old)
    aside = write_card(run)
    assert aside.read_bytes() == old
    assert read(run) == f"{BEGIN}\n\n{make_card(run)}\n{END}\n"
    assert write_card(run) is None


def test_when_it_is_updated(run):
    (run / "card.md").unlink()
    update_card(run)
    assert "## Tasks" in read(run)
    before = read(run)
    (run / "scores.json").write_text("{")
    update_card(run)  # a damaged file leaves the card as it is
    assert read(run) == before
    for name in ("card.md", "scores.json"):
        (run / name).unlink()
    update_card(run)  # an unfinished run gets no card
    assert not (run / "card.md").exists()
