"""`plait search` as its users meet it."""

from __future__ import annotations

import re
import shlex

import pytest

pytest.importorskip("optuna")

SPACE = '[search.space]\n"train.lr" = {values = [1e-9, 3e-3]}\n'


@pytest.fixture
def words(tiny_recipe, tmp_path):
    """The words of a small search."""
    (tmp_path / "space.toml").write_text(SPACE, encoding="utf-8")
    out = tmp_path / "the out"
    more = ["--space", tmp_path / "space.toml", "--out", out, "-o", "train.tasks=['mood']"]
    return ["search", tiny_recipe(), *more]


def test_a_search_from_end_to_end(plait, words, tmp_path):
    done = plait(*words, "--trials", 4, "--holdout", "0.5")
    assert done.code == 0, done.err
    table, _, after = done.out.partition("\n\n")
    lines = table.splitlines()
    assert lines[0].split() == ["trial", "state", "sum", "train.lr"]
    assert len(lines) == 5
    assert lines[1].split()[1] == "done"
    best = tmp_path / "the out" / "best.toml"
    assert shlex.join(["plait", "train", str(best)]) in after
    assert re.search(r"^trial 1: train\.lr = ", done.err, re.M)
    assert "best so far" in done.err

    again = plait(*words)
    assert again.code == 2
    (command,) = re.findall(r"`(plait search .*--resume)`", again.complaint())
    resumed = plait(*shlex.split(command)[1:], "--holdout", "0.5", "--trials", 5)
    assert resumed.code == 0, resumed.err
    assert len(resumed.out.partition("\n\n")[0].splitlines()) == 6

    trained = plait("train", best, "--out", tmp_path / "best")
    assert trained.code == 0, trained.err


def test_a_bad_key_is_refused_with_a_suggestion(plait, words, tmp_path):
    (tmp_path / "space.toml").write_text(SPACE.replace("lr", "lrr"), encoding="utf-8")
    done = plait(*words)
    assert done.code == 2
    assert "train.lrr is not a setting; did you mean 'lr'?" in done.complaint()
    assert not (tmp_path / "the out").exists()


def test_without_optuna_it_says_what_to_install(plait, words, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    done = plait(*words)
    assert done.code == 2
    assert "pip install 'plait[search]'" in done.complaint()


def test_no_trial_with_a_score(plait, words, tmp_path):
    space = '[search.space]\n"encoder.max_length" = {values = [4096, 2048]}\n'
    (tmp_path / "space.toml").write_text(space, encoding="utf-8")
    done = plait(*words, "--trials", 1)
    assert done.code == 2
    assert "no trial of" in done.err
    assert "reads at most 48 tokens" in done.err


def test_resume_needs_a_folder(plait, words):
    done = plait("search", words[1], "--resume")
    assert "--resume needs --out" in done.complaint()
