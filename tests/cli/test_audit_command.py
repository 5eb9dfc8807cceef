"""`plait audit`: a table, a card in the run's folder, kind refusals."""

from __future__ import annotations

import json
import os
import shutil

import pytest


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the run, since the card is written into it."""
    return shutil.copytree(trained, tmp_path / "run")


def test_the_card_is_kept_with_the_run(plait, run):
    done = plait("audit", run, "--rows", 10)
    assert (done.code, done.err) == (0, "")
    assert "mood\nprobe " in done.out
    assert "gendered words, own sentences " in done.out
    assert "texts in the other order " in done.out
    assert "moved farthest (" in done.out
    assert done.out.endswith(f"more examples, is in {run / 'audit.json'}.\n")
    card = json.loads((run / "audit.json").read_text(encoding="utf-8"))
    assert card["run"] == str(run)
    assert card["settings"]["rows_per_probe"] == 10
    assert {"probe", "task", "count", "changed", "mean_change", "verdict"} == set(
        card["summary"][0]
    )
    assert card["summary"][0]["probe"] in done.out


def test_words_of_ones_own_instead_of_english(plait, run, tmp_path):
    words = tmp_path / "words.toml"
    words.write_text("[probes.Orte]\nwords = ['Bonn', 'Halle']\nsentences = ['In {word}.']")
    done = plait("audit", run, "--rows", 10, "--words", words)
    assert "Orte, your sentences " in done.out
    assert "are English: for texts in another language, bring yours with --words" in done.out
    done = plait("audit", run, "--rows", 10, "--words", words, "--no-english")
    assert (done.code, done.err) == (0, "")
    assert "Orte, your sentences " in done.out
    assert "English" not in done.out
    assert "gendered words" not in done.out
    assert "are English." not in (run / "card.md").read_text(encoding="utf-8")


def test_json_is_the_card_and_a_second_audit_takes_its_place(plait, run):
    first = plait("audit", run, "--task", "mood", "--rows", 0, "--json")
    assert json.loads(first.out) == json.loads((run / "audit.json").read_text(encoding="utf-8"))
    second = plait("audit", run, "--task", "mood", "--rows", 0, "--json")
    assert second.out == first.out


def test_the_page_about_the_run_tells_what_was_found(plait, run, tmp_path):
    page = run / "card.md"
    plain = page.read_text(encoding="utf-8")
    assert "No bias audit was run" in plain
    plait("audit", run, "--task", "mood", "--rows", 0, "--out", tmp_path / "elsewhere.json")
    assert page.read_text(encoding="utf-8") == plain
    plait("audit", run, "--task", "mood", "--rows", 0)
    audited = page.read_text(encoding="utf-8")
    assert "No bias audit was run" not in audited
    assert "| gendered words, own sentences | mood |" in audited
    assert "are English." in audited
    plait("audit", run, "--task", "near", "--rows", 0)
    both = page.read_text(encoding="utf-8")
    assert set(audited.splitlines()) < set(both.splitlines())


def test_another_file(plait, run, tmp_path):
    out = tmp_path / "card.json"
    assert plait("audit", run, "--task", "near", "--rows", 0, "--out", out).code == 0
    assert out.is_file()
    assert not (run / "audit.json").exists()
    assert "is not overwritten" in plait("audit", run, "--out", out).complaint()


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--task", "mod"], "has no task 'mod'; did you mean 'mood'?"),
        (["--task", "mod", "--rows", "0"], "has no task 'mod'; did you mean 'mood'?"),
        (["--positive", "nice"], "--positive 'nice' is no label of a task on single texts"),
        (["--data", "nowhere"], "--rows 0 audits on plait's own texts alone"),
        (["--out", "nowhere/x.json"], "there is no folder nowhere for --out nowhere/x.json"),
        (["--rows", "-1"], "--rows"),
        (["--words", "nowhere.toml"], "there is no file nowhere.toml of words"),
        (["--rows", "0", "--no-english"], "there is nothing to try"),
    ],
)
def test_mistakes_are_told_in_one_line(plait, trained, args, told):
    done = plait("audit", trained, *args)
    assert done.code == 2
    assert told in done.complaint()


def test_rows_that_cannot_be_read_are_left_out_as_in_training(plait, trained, run, tmp_path):
    data = shutil.copytree(trained.parent / "data", tmp_path / "rows")
    with (data / "mood-dev.csv").open("a", encoding="utf-8") as file:
        file.write("one column\n")
    done = plait("audit", run, "--rows", 10, "--task", "mood", "--data", data)
    assert done.code == 0, done.err
    with (data / "same-dev.csv").open("a", encoding="utf-8") as file:
        file.write("one column\n")
    done = plait("audit", run, "--rows", 10, "--task", "same", "--data", data)
    assert done.code == 2
    assert "same-dev.csv, line " in done.complaint()
    assert done.complaint().endswith("--rows 0 audits on plait's own texts alone")


def test_a_folder_that_cannot_be_written_is_refused_before_anything_slow(plait, run, monkeypatch):
    monkeypatch.setattr("os.access", lambda _, mode: mode != os.W_OK)
    (run / "model.safetensors").unlink()  # which nobody has asked for yet
    done = plait("audit", run)
    assert done.code == 2
    assert "cannot be written; name another file for the score card with --out" in done.complaint()


def test_an_audit_of_another_task_keeps_the_first(plait, run):
    for task in ("mood", "same", "mood"):
        assert plait("audit", run, "--task", task, "--rows", 0).code == 0
    card = json.loads((run / "audit.json").read_text(encoding="utf-8"))
    for key in ("summary", "probes"):
        tasks = [entry["task"] for entry in card[key]]
        assert set(tasks) == {"mood", "same"}
        assert len(card[key]) == len({(e["task"], e["probe"]) for e in card[key]})
    weights = run / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")  # another model
    assert plait("audit", run, "--task", "same", "--rows", 0).code == 0
    card = json.loads((run / "audit.json").read_text(encoding="utf-8"))
    assert {entry["task"] for entry in card["summary"]} == {"same"}


def test_what_was_tried_of_other_tasks_is_not_forgotten(plait, run):
    assert plait("audit", run, "--task", "mood", "--rows", 0).code == 0
    assert plait("audit", run, "--task", "near", "--rows", 10, "--no-english").code == 0
    settings = json.loads((run / "audit.json").read_text(encoding="utf-8"))["settings"]
    assert settings["english"]
    assert settings["rows"].keys() == {"mood", "near"}
    page = (run / "card.md").read_text(encoding="utf-8")
    assert "No bias audit was run" not in page
    assert "are English." in page
    assert plait("audit", run, "--rows", 10, "--no-english").code == 0  # of all tasks
    assert "No bias audit was run" in (run / "card.md").read_text(encoding="utf-8")
