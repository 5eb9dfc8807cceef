"""A running mean of the weights: how it follows, and that it is what is scored and kept."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from plait.config import read_recipe
from plait.inference.predictor import Predictor
from plait.training import run as run_module
from plait.training.listeners import Listener
from plait.training.mean import RunningMean


def model_of(value):
    layer = torch.nn.Linear(2, 1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(value)
    return layer


def move(layer, value):
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(value)


def test_the_first_means_by_hand():
    """Decays of 2/11 and 3/12 before .9: 0 -> 9/11 of 11 = 9 -> 9 + (21 - 9) * 9/12 = 18."""
    layer = model_of(0.0)
    mean = RunningMean(layer, 0.9)
    for update, (value, expected) in enumerate([(11.0, 9.0), (21.0, 18.0)], 1):
        move(layer, value)
        mean.follow(update)
        assert mean.means["bias"].item() == pytest.approx(expected)
    mean.follow(10**6)
    assert mean.means["bias"].item() == pytest.approx(18 * 0.9 + 21 * 0.1)


def test_it_takes_the_weights_place_and_gives_it_back():
    layer = model_of(1.0)
    mean = RunningMean(layer, 0.5)
    move(layer, 3.0)
    with mean.in_place():
        assert layer.bias.item() == 1
    assert layer.bias.item() == 3
    with pytest.raises(ZeroDivisionError), mean.in_place():
        raise ZeroDivisionError
    assert layer.bias.item() == 3
    mean.settle()
    assert layer.bias.item() == 1


class Losses(Listener):
    """Remembers every update's."""

    def __init__(self):
        self.found = []

    def step(self, record):
        self.found.append({task: float(loss) for task, loss in record.result.losses.items()})


class Stages:
    """Remembers the weights before and after every stage."""

    def __init__(self, monkeypatch):
        self.weights = []
        original = run_module._Session._train_stage

        def look(session, index, data):
            self.take(session)
            original(session, index, data)
            self.take(session)

        monkeypatch.setattr(run_module._Session, "_train_stage", look)

    def take(self, session):
        named = session.parts.model.named_parameters()
        self.weights.append({name: p.detach().clone() for name, p in named})


def are_equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_it_is_what_is_scored_and_kept(runs, monkeypatch):
    """The kept model is the mean of the weights as they were after each update."""
    seen = []
    follow = RunningMean.follow

    def watch(mean, num_updates):
        follow(mean, num_updates)
        seen.append({name: m.clone() for name, m in mean.means.items()})

    monkeypatch.setattr(RunningMean, "follow", watch)
    done = runs.train("mean", "train.average=0.9", "train.eval_every=8")
    kept = load_file(done.folder / "model.safetensors")
    assert are_equal(seen[done.result["best_step"] - 1], kept)
    told = Predictor.load(done.folder).evaluate("dev").to_json()
    assert told["summary"] == pytest.approx(done.result["dev"]["summary"])


def test_training_goes_on_with_the_weights_themselves(runs):
    """Losses are those of a run without a mean, however often that is scored."""
    runs.train("mean", "train.average=0.9", "train.eval_every=3")
    plain = runs.whole("train.eval_every=3")
    lines = [[x for x in runs.log(str(out)) if x["event"] == "losses"] for out in ("mean", plain)]
    assert lines[0] == lines[1]
    folders = (runs.folder / "mean", plain)
    assert not are_equal(*(load_file(folder / "model.safetensors") for folder in folders))


def test_the_next_stage_begins_with_the_mean(runs, monkeypatch):
    two = ["stages=['one', 'two']", "train.epochs=1"]
    mean = Stages(monkeypatch)
    runs.train("mean", *two, "stage.one.average=0.9")
    assert are_equal(mean.weights[1], mean.weights[2])
    plain = Stages(monkeypatch)
    runs.train("plain", *two)
    assert not are_equal(mean.weights[1], plain.weights[1])


@pytest.mark.parametrize("value", ["0", "1", "1.5", "-0.1"])
def test_what_is_no_share_is_refused(tiny_recipe, value):
    with pytest.raises(Exception, match="average"):
        read_recipe(str(tiny_recipe()), [f"train.average={value}"])
