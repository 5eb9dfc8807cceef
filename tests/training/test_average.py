"""Averaged weights: the mean by hand, a folder that is a run, and what cannot be averaged."""

from __future__ import annotations

import hashlib
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import plait
from plait.config import read_recipe
from plait.errors import RunError
from plait.inference.predictor import Predictor
from plait.training.average import average_runs
from plait.training.run import train

TEXTS = ["the film was great .", "dull", "a b c"]


@pytest.fixture
def moved(tiny_run, tmp_path):
    """A copy of a run, every weight of it 1 more."""
    folder = shutil.copytree(tiny_run, tmp_path / "moved")
    weights = load_file(folder / "model.safetensors")
    save_file({k: v + 1 for k, v in weights.items()}, folder / "model.safetensors")
    return folder


def test_every_tensor_is_the_mean(tiny_run, moved, tmp_path):
    out = average_runs([tiny_run, tiny_run, moved], tmp_path / "soup")
    before, after = load_file(tiny_run / "model.safetensors"), load_file(out.weights)
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor + 1 / 3)
        assert after[name].dtype == tensor.dtype


def test_the_average_of_one_run_is_that_run(tiny_run, tmp_path):
    out = average_runs([tiny_run], tmp_path / "one")
    before, after = load_file(tiny_run / "model.safetensors"), load_file(out.weights)
    assert all(torch.equal(before[name], after[name]) for name in before)
    alone, one = Predictor.load(tiny_run), plait.load(out.path)
    assert one.predict("mood", TEXTS) == alone.predict("mood", TEXTS)
    assert one.evaluate("dev").to_json() == alone.evaluate("dev").to_json()


def test_a_damaged_model_spoils_no_mean(tiny_run, moved, tmp_path):
    weights = load_file(moved / "model.safetensors")
    name = next(name for name, tensor in weights.items() if tensor.is_floating_point())
    weights[name].view(-1)[0] = torch.nan
    save_file(weights, moved / "model.safetensors")
    for runs in ([tiny_run, moved], [moved, tiny_run]):
        with pytest.raises(RunError, match=f"moved.*is damaged: {name} has NaN or infinite values"):
            average_runs(runs, tmp_path / "soup")
    assert not (tmp_path / "soup").exists()


def test_what_is_in_the_folder(tiny_run, moved, tmp_path):
    out = average_runs([tiny_run, moved], tmp_path / "soup")
    names = ["encoder.json", "model.safetensors", "recipe.toml", "run.json", "tokenizer.json"]
    names = sorted(["card.md", *names])
    assert sorted(path.name for path in out.path.iterdir()) == names
    info = json.loads(out.info.read_text())
    assert [m["run"] for m in info["averaged"]] == [str(tiny_run), str(moved)]
    digest = hashlib.sha256((moved / "model.safetensors").read_bytes()).hexdigest()
    assert info["averaged"][1]["sha256"] == digest
    assert out.read_config() == read_recipe(tiny_run / "recipe.toml")


def test_it_can_be_averaged_and_joined_but_not_resumed(tiny_run, moved, tmp_path):
    out = average_runs([tiny_run, moved], tmp_path / "soup").path
    assert average_runs([out, tiny_run], tmp_path / "again").weights.is_file()
    weights = (out / "model.safetensors").read_bytes()
    with pytest.raises(RunError, match="soup is an average of runs, which cannot be resumed"):
        train(read_recipe(out / "recipe.toml"), out, resume=True)
    assert (out / "model.safetensors").read_bytes() == weights


def change_recipe(run, old, new):
    text = (run / "recipe.toml").read_text(encoding="utf-8")
    assert old in text
    (run / "recipe.toml").write_text(text.replace(old, new), encoding="utf-8")


def change_json(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def shorten_a_bias(run):
    """Leave one number of a bias, which torch would add to every number of another's."""
    weights = load_file(run / "model.safetensors")
    name = next(name for name in weights if name.startswith("encoder.") and name.endswith("bias"))
    save_file(weights | {name: weights[name][:1].clone()}, run / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda r: change_recipe(r, "so-so", "meh"), r"differ in tasks\.mood\.kind"),
        (lambda r: change_recipe(r, "[tasks.same", "[tasks.alike"), "differ in tasks "),
        (lambda r: change_recipe(r, 'pooling = "mean"', 'pooling = "cls"'), r"encoder\.pooling"),
        (lambda r: change_json(r / "encoder.json", hidden_size=9), "json: hidden_size"),
        (lambda r: change_json(r / "run.json", encoder={"sha256": "0"}), "the encoder they began"),
        (lambda r: (r / "tokenizer.json").write_text("{}"), "differ in tokenizer"),
        (
            lambda r: save_file({"a": torch.zeros(1)}, r / "model.safetensors"),
            "their models differ in the shape of",
        ),
        (shorten_a_bias, "their models differ in the shape of encoder.*bias"),
        (lambda r: (r / "model.safetensors").unlink(), "its model.safetensors is missing"),
    ],
)
def test_runs_of_another_shape_are_refused(tiny_run, moved, tmp_path, change, told):
    change(moved)
    with pytest.raises(RunError, match=told):
        average_runs([tiny_run, moved], tmp_path / "soup")
    assert not (tmp_path / "soup").exists()


def test_folders_are_checked(tiny_run, tmp_path):
    with pytest.raises(RunError, match="there is no run at nowhere"):
        average_runs([tiny_run, "nowhere"], tmp_path / "soup")
    with pytest.raises(RunError, match="exists already and is not overwritten"):
        average_runs([tiny_run], tiny_run)
    with pytest.raises(RunError, match="at least one run"):
        average_runs([], tmp_path / "soup")
