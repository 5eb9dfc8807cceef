"""`plait train` and `plait plan` of recipes that list members; a student through the commands."""

from __future__ import annotations

import json

import pytest

from plait.inference.ensemble import Ensemble


@pytest.fixture
def recipe(tiny_recipe):
    """Two members of the tiny recipe, by seed."""
    path = tiny_recipe().with_name("pair.toml")
    path.write_text(
        "name = 'pair'\n[ensemble]\nmembers = ['recipe.toml']\nhow = 'mean'\nseeds = [1, 2]\n"
    )
    return path


def test_from_members_to_a_student(plait, recipe, tmp_path):
    out = tmp_path / "pair"
    done = plait("train", recipe, "--out", out, "-o", "train.epochs=1")
    assert done.code == 0, done.err
    assert "note: member 1 of 2: tiny-seed-1" in done.err
    assert "note: member 2 of 2: tiny-seed-2" in done.err
    assert "of one run" not in done.err
    words = [line.split()[0] for line in done.out.splitlines() if line.strip()]
    assert words[:5] == ["mood", "baseline", "tiny-seed-1", "tiny-seed-2", "ensemble"]
    assert f"The ensemble is in {out}. Try next:\n  plait evaluate {out}" in done.out

    done = plait("evaluate", out, "--json")
    assert (done.code, done.err) == (0, "")
    ensemble = Ensemble.load(out)
    assert ensemble.how == "mean"
    assert {m.config.seed: m.config.train.epochs for m in ensemble.members} == {1: 1, 2: 1}
    scores = json.loads((out / "scores.json").read_text())
    assert json.loads(done.out)["primary"] == scores["dev"]["primary"]
    done = plait("predict", out, "--task", "mood", "the film was great .")
    assert (done.code, done.err) == (0, "")

    kind = f"stage.distill.kind={{name='distill', teacher='{out}', weight=0.8}}"
    student = tmp_path / "student"
    words = ["-o", "stages=['distill']", "-o", kind]
    done = plait("train", recipe.with_name("recipe.toml"), "--out", student, *words)
    assert done.code == 0, done.err
    info = json.loads((student / "run.json").read_text())
    assert [member["run"] for member in info["teachers"]["distill"]] == [
        str((out / "members" / f"tiny-seed-{seed}").resolve()) for seed in (1, 2)
    ]
    assert plait("evaluate", student).code == 0


def test_resume_goes_on(plait, recipe, tmp_path):
    out = tmp_path / "pair"
    words = ["train", recipe, "--out", out, "-o", "train.epochs=1"]
    assert plait(*words).code == 0
    done = plait(*words)
    assert done.code == 2
    assert (
        "exists already and is not overwritten; go on there with `plait train" in done.complaint()
    )
    first = plait(*words, "--resume")
    assert first.code == 0, first.err
    assert "training tiny on" not in first.err  # all are finished


def test_the_seed_is_for_members_without_seeds(plait, recipe, tmp_path):
    done = plait("train", recipe, "--out", tmp_path / "x", "--seed", 4)
    assert "-o 'ensemble.seeds=[...]' instead of a seed" in done.complaint()
    recipe.write_text(recipe.read_text().replace("seeds = [1, 2]\n", ""))
    done = plait("train", recipe, "--out", tmp_path / "x", "--seed", 4, "-o", "train.max_steps=2")
    assert done.code == 0, done.err
    assert Ensemble.load(tmp_path / "x").members[0].config.seed == 4
    assert " ".join(done.err.split()).startswith("note: an ensemble of one run answers as the run")


def test_each_alone_is_for_runs(plait, recipe, tmp_path):
    done = plait("train", recipe, "--out", tmp_path / "x", "--each-alone")
    assert done.complaint() == f"{recipe} lists members; --each-alone takes one of them"


def test_plan(plait, recipe):
    done = plait("plan", recipe)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("member tiny-seed-1\nstage finetune: 2 epochs")
    assert done.out.endswith("pair: 48 updates in 2 members\n")
    values = json.loads(plait("plan", recipe, "--json").out)
    assert (values["name"], values["updates"]) == ("pair", 48)
    assert values["members"].keys() == {"tiny-seed-1", "tiny-seed-2"}


def test_plan_of_the_published_ensemble(plait):
    rows = [word for task in ("sst", "quora", "sts") for word in ("--rows", f"{task}=80")]
    done = plait("plan", "d/ensemble", "-o", "encoder.source=packaged", *rows)
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("d/ensemble: 550 updates in 5 members\n")


def test_a_teacher_that_is_not_there(plait, recipe, tmp_path):
    words = ["-o", "stages=['distill']"]
    words += ["-o", "stage.distill.kind={name='distill', teacher='runs/nobody'}"]
    done = plait("train", recipe.with_name("recipe.toml"), "--out", tmp_path / "x", *words)
    assert done.code == 2
    assert done.err.splitlines()[-1] == (
        "plait: stage.distill.kind.teacher: there is no run at runs/nobody"
    )
    assert not (tmp_path / "x").exists()


def test_members_at_once(plait, recipe, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    words = ["-o", "train.epochs=1"]
    assert plait("train", recipe, "--out", one, *words).code == 0
    done = plait("train", recipe, "--out", two, *words, "--jobs", "2")
    assert done.code == 0, done.err
    names = [path.name for path in sorted((two / "members").iterdir())]
    assert len(names) == 2
    for name in names:
        files = [out / "members" / name / "model.safetensors" for out in (one, two)]
        assert files[0].read_bytes() == files[1].read_bytes()
    figures = [json.loads((out / "scores.json").read_text())["dev"] for out in (one, two)]
    assert figures[0] == figures[1]
