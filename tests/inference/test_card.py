"""Cards: made of a folder's files, with what each of them adds, and nothing that is not there."""

from __future__ import annotations

import json
import shutil

import pytest
import tomli_w

from plait.analysis.audit import audit
from plait.config import read_recipe
from plait.errors import RunError
from plait.inference.card import make_card
from plait.inference.ensemble import load, make_ensemble
from plait.inference.fitting.calibrate import calibrate
from plait.training.average import average_runs
from plait.training.run import train


@pytest.fixture
def run(tiny_run, tmp_path):
    """A run that may be changed."""
    shutil.copytree(tiny_run, tmp_path / "run")
    return tmp_path / "run"


def section(card, title):
    """Return one section of a card."""
    return card.split(f"\n## {title}\n")[1].split("\n## ")[0].strip()


def table(text):
    """Return the cells of the first table."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_training_leaves_a_card(tiny_run):
    assert (tiny_run / "card.md").read_text(encoding="utf-8") == make_card(tiny_run)


def test_a_run_that_is_not_finished_says_so(run):
    (run / "scores.json").unlink()
    assert section(make_card(run), "Scores").startswith("There are none yet: its training is not")


def test_what_stands_in_it(run):
    card = make_card(run)
    assert card.startswith("# tiny\n\nOne text encoder with 3 tasks, trained together by plait ")
    assert table(section(card, "Tasks"))[2:] == [
        ["mood", "classes", "`text`", "bad, so-so, good"],
        ["same", "binary", "`a` and `b`", "no, yes"],
        ["near", "score", "`a` and `b`, encoded apart", "a score from 0 to 5"],
    ]
    result = json.loads((run / "scores.json").read_text())
    rows = {row[0]: row[1:] for row in table(section(card, "Scores"))[2:]}
    for name, value in result["dev"]["primary"].items():
        assert rows[name][3] == f"{value:.3f}"
    assert (rows["mood"][0], rows["near"][0]) == ("accuracy", "pearson")
    assert float(rows["mood"][4]) < float(rows["mood"][3])
    counts = [row[3] for row in table(section(card, "Data"))[2:]]
    assert counts == ["45", "18", "32", "16", "24", "12"]
    assert "Nothing is known here of the texts it was trained on" in section(card, "Encoder")
    assert "reads 32 tokens" in section(card, "Encoder")
    assert table(section(card, "Training"))[2][:6] == [
        "finetune",
        "finetune",
        "mood, same, near",
        "2",
        "12",
        "0.003",
    ]
    assert "weakest on" in section(card, "Limits")
    assert 'model.predict("mood", ["One text."])' in section(card, "Use it")
    assert str(run.parent) not in card  # nothing of the machine it was made on


def test_the_best_baseline_stands_beside_the_figure(run):
    """Of runs of earlier versions it is the majority class, or nothing for a score."""
    result = json.loads((run / "scores.json").read_text())
    result.pop("baselines", None)
    (run / "scores.json").write_text(json.dumps(result))
    found = section(make_card(run), "Scores")
    rows = {row[0]: row[2:4] for row in table(found)[2:]}
    majority = result["baseline"]["primary"]["mood"]
    assert rows["mood"] == ["majority class", f"{majority:.3f}"]
    assert rows["near"] == ["none", "none"]
    figures = {"majority class": majority, "a regression": 0.999, "another": None}
    result["baselines"] = {"mood": figures, "near": {"mean score": None, "untrained cosine": -1}}
    (run / "scores.json").write_text(json.dumps(result))
    found = section(make_card(run), "Scores")
    rows = {row[0]: row[2:4] for row in table(found)[2:]}
    assert rows["mood"] == ["a regression", "0.999"]
    assert rows["near"] == ["untrained cosine", "-1.000"]
    assert "- mood: the model (" in found
    assert "- near: " not in found


def test_limits_say_what_is_true(run):
    """No class is weak where all rows are found, and both ends are read where they are kept."""
    scores = json.loads((run / "scores.json").read_text())
    for entry in scores["dev"]["tasks"]["mood"]["per_class"]:
        entry["recall"] = 1.0
    (run / "scores.json").write_text(json.dumps(scores))
    recipe = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(recipe.replace('truncate = "head"', 'truncate = "head-tail"'))
    limits = section(make_card(run), "Limits")
    assert "mood: weakest" not in limits
    assert "Inputs are cut to 32 tokens; the middle is not read." in limits


def test_licences_notes_and_a_sentence(tmp_path, tiny_recipe):
    changes = ["tasks.mood.licence=CC0-1.0", "tasks.mood.about=How | it feels.", "about=Small."]
    run = train(read_recipe(tiny_recipe(), changes), tmp_path / "run").folder
    info = json.loads((run / "run.json").read_text())
    info["encoder"]["notes"] = "It has read everything."
    (run / "run.json").write_text(json.dumps(info))
    card = make_card(run)
    assert "\nSmall.\n" in card
    assert "- mood: How | it feels." in card
    licences = [row[-1] for row in table(section(card, "Data"))[2:]]
    assert licences == ["CC0-1.0", "CC0-1.0", *["not told"] * 4]
    assert section(card, "Encoder").endswith("What it has seen: It has read everything.")


FIGURES = ("accuracy", "ece", "log loss")


def test_sections_of_other_commands(run):
    plain = make_card(run)
    assert "## Audit" not in plain
    assert "## Calibration" not in plain
    assert "Nobody has checked that it matches" in plain
    assert "was not looked at" in plain
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


def test_what_was_found_of_another_model_is_left_out(run):
    probes = audit(load(run), {}, tasks=["mood"]).to_json()
    (run / "audit.json").write_text(json.dumps({"model": load(run).identify(), **probes}))
    assert "## Audit" in make_card(run)
    (run / "audit.json").write_text(json.dumps({"model": "another", **probes}))
    assert "## Audit" not in make_card(run)
    assert "was not looked at" in make_card(run)


@pytest.mark.parametrize("summary", [None, 3, [], [1, 2], "words", {}])
def test_an_audit_of_another_shape_is_left_out(run, summary):
    (run / "audit.json").write_text(json.dumps({"summary": summary}))
    assert "## Audit" not in make_card(run)


def test_an_older_run_says_what_it_can(run):
    for name in ("run.json", "scores.json", "card.md"):
        (run / name).unlink()
    card = make_card(run)
    assert "There are none: no dev set was scored" in section(card, "Scores")
    assert table(section(card, "Data"))[2][3] == "not told"


def test_a_damaged_file_is_named(run):
    (run / "audit.json").write_text("{")
    with pytest.raises(RunError, match=r"audit\.json is damaged"):
        make_card(run)


def test_ensembles_and_averages(run, tiny_run, tmp_path):
    folder = make_ensemble([run, tiny_run], tmp_path / "both", "mean")
    card = (folder / "card.md").read_text(encoding="utf-8")
    assert card == make_card(folder)
    assert card.startswith("# both\n\nAn ensemble of 2 runs that answer as one, by the mean of")
    assert table(section(card, "Members"))[2][0] == "[run](../run/card.md)"
    assert "model.embed" not in card
    soup = average_runs([run, tiny_run], tmp_path / "soup")
    assert "made by averaging the weights of runs" in soup.card.read_text(encoding="utf-8")
    (run / "recipe.toml").unlink()
    with pytest.raises(RunError, match=r"names a member .*, which is no run"):
        make_card(folder)


def test_many_labels_are_not_all_named(run):
    config = read_recipe(run / "recipe.toml").model_dump(mode="json", exclude_none=True)
    config["tasks"]["mood"]["labels"] = [f"l{i}" for i in range(20)]
    (run / "recipe.toml").write_text(tomli_w.dumps(config))
    assert "l6, l7 and 12 more" in make_card(run)


def test_words_of_the_data_are_no_markup(run):
    config = read_recipe(run / "recipe.toml").model_dump(mode="json", exclude_none=True)
    config["tasks"]["mood"]["labels"][0] = "<script>x</script> \x1b]0;t\n# [y](z)"
    (run / "recipe.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
    row = section(make_card(run), "Tasks").splitlines()[2]
    assert row.endswith(r"| \<script>x\</script> ␛]0;t # \[y](z), so-so, good |")
