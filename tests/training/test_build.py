"""A recipe becomes parts: what is built, and what is refused before anything slow begins."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from plait.config import read_recipe
from plait.data.loading import load_data
from plait.errors import RecipeError
from plait.inference.build import choose_precision
from plait.training.build import build, build_stage, check_stages


@pytest.fixture
def make(tiny_recipe):
    """Build the tiny recipe with some settings changed."""
    path = tiny_recipe()
    return lambda *overrides: build(read_recipe(path, overrides))


def test_what_is_built(make, tiny_encoder):
    parts = make()
    assert list(parts.tasks) == ["mood", "same", "near"]
    assert {name: task.metric for name, task in parts.tasks.items()} == {
        "mood": "accuracy",
        "same": "accuracy",
        "near": "pearson",
    }
    assert [type(task.loss).__name__ for task in parts.tasks.values()] == [
        "CrossEntropy",
        "BinaryCrossEntropy",
        "CosineMSE",
    ]
    assert list(parts.model.heads) == ["task-mood", "task-same", "task-near"]
    assert parts.device == torch.device("cpu")
    assert parts.autocast is None
    assert parts.encoder["origin"] == str(tiny_encoder)
    assert parts.collator.max_length == 32


def test_heads_start_from_the_seed_and_the_encoder_from_its_files(make):
    first, again, other = make("seed=1"), make("seed=1"), make("seed=2")
    name = "heads.task-mood.out.weight"
    weights = [parts.model.state_dict() for parts in (first, again, other)]
    assert torch.equal(weights[0][name], weights[1][name])
    assert not torch.equal(weights[0][name], weights[2][name])
    encoder = [k for k in weights[0] if k.startswith("encoder.")]
    assert all(torch.equal(weights[0][k], weights[2][k]) for k in encoder)


def test_the_encoders_dropout_can_be_set(make):
    def rates(*overrides):
        model = make(*overrides).model
        kinds = torch.nn.Dropout
        return {m.p for m in model.encoder.modules() if isinstance(m, kinds)}

    assert rates() == {0.1}
    assert rates("encoder.dropout=0.0") == {0.0}
    model = make("encoder.dropout=0.3", "encoder.attention_dropout=0.2").model
    assert {layer.attention.dropout for layer in model.encoder.layers} == {0.2}
    assert model.encoder.embeddings.dropout.p == 0.3


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("tasks.mood.loss='bce'", r"tasks\.mood\.loss: this loss is for binary, not 'classes'"),
        ("tasks.mood.metric='pearson'", "metric 'pearson' does not suit"),
        ("tasks.mood.metric='log_loss'", "less of it is better"),
        ("tasks.mood.head='cosine'", "cosine head returns cosine, but its loss needs logits"),
        ("tasks.same.head={name='mlp', hiden=3}", r"tasks\.same\.head\.hiden is not a setting"),
        ("train.schedule='robin'", r"stage\.finetune\.schedule: no schedule 'robin'"),
        ("encoder.architecture=brt", r"encoder\.architecture: no architecture 'brt'; .*'bert'"),
        ("train.aggregator={name='sum', x=1}", r"stage\.finetune\.aggregator\.x is not a setting"),
        ("train.regularizers=['smart?']", r"stage\.finetune\.regularizers\.0: no regularizer"),
        ("listeners=['x']", r"listeners\.0: no listener 'x'"),
        ("plugins=['/nowhere/x.py']", "plugins names /nowhere/x.py, which is not a file"),
        ("encoder.max_length=49", "encoder.max_length = 49, but this encoder reads at most 48"),
        ("device='cuda:99'", "device = 'cuda:99' cannot be used here"),
        ("tasks.near.head='linear'", "linear head returns logits"),
        ("listeners=['tensorbored']", "did you mean 'tensorboard'"),
    ],
)
def test_what_a_recipe_gets_wrong(make, override, sentence):
    with pytest.raises(RecipeError, match=sentence) as caught:
        make(override)
    assert "\n" not in str(caught.value)


@pytest.fixture
def make_stage(tiny_recipe):
    path = tiny_recipe()

    def build_it(*overrides, index=0):
        parts = build(read_recipe(path, overrides))
        return build_stage(parts, index, load_data(parts.config, parts.tokenizer, "train"))

    return build_it


def test_a_stage(make_stage):
    stage = make_stage("tasks.same.batch_size=5", "tasks.near.weight=0.5")
    assert {task: stream.batch_size for task, stream in stage.streams.items()} == {
        "mood": 12,
        "same": 5,
        "near": 12,
    }
    assert {task: stream.num_examples for task, stream in stage.streams.items()} == {
        "mood": 45,
        "same": 32,
        "near": 24,
    }
    assert [parts.weight for parts in stage.step.tasks.values()] == [1.0, 1.0, 0.5]
    assert stage.num_steps() == 2 * 3 * 7


def test_stages_take_their_own_tasks_and_settings(make_stage):
    settings = [
        "stages=['a', 'b']",
        "stage.a={tasks=['same'], mode='last-layer'}",
        "stage.b={freeze_layers=1, lr=0.5}",
    ]
    first = make_stage(*settings)
    assert list(first.streams) == ["same"]
    trains = [n for n, p in first.step.model.named_parameters() if p.requires_grad]
    assert all(name.startswith("heads.") for name in trains)
    second = make_stage(*settings, index=1)
    assert list(second.streams) == ["mood", "same", "near"]
    trains = [n for n, p in second.step.model.named_parameters() if p.requires_grad]
    assert "encoder.layers.1.up.weight" in trains
    assert "encoder.layers.0.up.weight" not in trains
    assert second.streams["same"].seed != first.streams["same"].seed


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["tasks.same.train=[]"], r"tasks\.same\.train names no files, but stage\.b trains on it"),
        (["stage.b.schedule={name='sequential', order=['mood']}"], "order must name each task"),
        (["stage.b.mode='last-layer'"], "task 'near' has no trainable parameters"),
        (
            ["stage.b.schedule={name='fixed', probabilities={moood=1}}"],
            r"stage\.b\.schedule: probabilities names 'moood', no task .*; did you mean 'mood'",
        ),
        (["stage.b.schedule={name='fixed', steps=0}"], r"stage\.b\.schedule: steps must be 1"),
    ],
)
def test_every_stage_is_checked_before_the_first(make, settings, sentence):
    with pytest.raises(RecipeError, match=sentence):  # noqa: PT012
        parts = make("stages=['a', 'b']", "stage.a.tasks=['mood']", *settings)
        check_stages(parts, load_data(parts.config, parts.tokenizer, "train"))


@pytest.mark.parametrize(("major", "precision"), [(7, None), (8, torch.bfloat16)])
def test_a_gpu_that_only_emulates_bf16_computes_in_fp32(monkeypatch, major, precision):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    properties = SimpleNamespace(major=major)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch.cuda, "_check_bf16_tensor_supported", lambda _: True)
    assert choose_precision("auto", torch.device("cuda")) is precision
