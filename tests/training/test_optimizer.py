"""Which parameters train, how fast, and what decays."""

from __future__ import annotations

import math

import pytest
import torch

from plait.config import StageConfig
from plait.errors import RecipeError
from plait.training.optimizer import build_optimizer, freeze, rate_factor, set_rate


def training(model) -> set[str]:
    return {name for name, p in model.named_parameters() if p.requires_grad}


def settings_by_name(model, optimizer) -> dict[str, dict]:
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    return {name: groups[id(p)] for name, p in model.named_parameters() if id(p) in groups}


# --- AdamW -------------------------------------------------------------------------------


def test_weights_decay_but_biases_and_norms_do_not(tiny_model):
    model = tiny_model()
    found = settings_by_name(model, build_optimizer(model, StageConfig(weight_decay=0.3)))
    assert found.keys() == dict(model.named_parameters()).keys()
    for name, group in found.items():
        spared = name.endswith("bias") or "norm." in name
        assert group["weight_decay"] == (0.0 if spared else 0.3), name
    assert found["encoder.embeddings.word.weight"]["weight_decay"] == 0.3
    assert found["encoder.layers.0.attention_norm.weight"]["weight_decay"] == 0.0


@pytest.mark.parametrize("head_lr", [None, 1e-2])
def test_heads_may_have_a_rate_of_their_own(tiny_model, head_lr):
    model = tiny_model()
    optimizer = build_optimizer(model, StageConfig(lr=1e-3, head_lr=head_lr))
    set_rate(optimizer, 0.5)
    for name, group in settings_by_name(model, optimizer).items():
        peak = (head_lr or 1e-3) if name.startswith("heads.") else 1e-3
        assert group["lr"] == peak * 0.5, name


def test_each_layer_learns_slower_than_the_one_above(tiny_model):
    model = tiny_model(pooling="cls-pooler", adapters={"same": {"name": "lora"}})
    stage = StageConfig(lr=0.8, head_lr=3.0, layer_decay=0.5)
    optimizer = build_optimizer(model, stage)
    expected = {  # two layers
        "encoder.embeddings.": 0.2,
        "encoder.layers.0.": 0.4,
        "encoder.layers.1.": 0.8,
        "encoder.pooler.": 0.8,
        "heads.": 3.0,
        "adapters.": 3.0,
    }
    found = settings_by_name(model, optimizer)
    assert found.keys() == dict(model.named_parameters()).keys()
    for name, group in found.items():
        (rate,) = [r for start, r in expected.items() if name.startswith(start)]
        assert group["peak_lr"] == pytest.approx(rate), name
        assert group["weight_decay"] == (0.01 if model.get_parameter(name).ndim > 1 else 0.0)
    set_rate(optimizer, 0.5)
    assert found["encoder.layers.0.up.weight"]["lr"] == pytest.approx(0.2)
    # Weights and vectors of three rates inside, and of the heads'.
    assert len(optimizer.param_groups) == 8


# --- the rate ----------------------------------------------------------------------------


def factors(num_steps: int, **settings: object) -> list[float]:
    stage = StageConfig(**settings)
    return [rate_factor(stage, step, num_steps) for step in range(num_steps)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [1.0] * 10),
        ({"decay": "linear"}, [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]),
        ({"decay": "cosine"}, [(1 + math.cos(math.pi * i / 10)) / 2 for i in range(10)]),
        ({"warmup": 0.4}, [0.25, 0.5, 0.75, *[1.0] * 7]),
        (
            {"warmup": 0.2, "decay": "linear"},
            [0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125],
        ),
        ({"warmup": 0.11}, [0.5, *[1.0] * 9]),  # a begun update counts
        ({"warmup": 0.99, "decay": "linear"}, [i / 10 for i in range(1, 11)]),
    ],
)
def test_warm_up_and_decay(settings, expected):
    assert factors(10, **settings) == pytest.approx(expected)


@pytest.mark.parametrize("decay", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("num_steps", [1, 2, 3, 17])
def test_the_rate_is_never_0_and_reaches_its_peak(decay, warmup, num_steps):
    found = factors(num_steps, decay=decay, warmup=warmup)
    assert min(found) > 0
    assert max(found) == 1.0
    peak = found.index(1.0)
    assert found[: peak + 1] == sorted(found[: peak + 1])
    assert found[peak:] == sorted(found[peak:], reverse=True)


# --- freezing ----------------------------------------------------------------------------


def heads(model) -> set[str]:
    return {name for name in dict(model.named_parameters()) if name.startswith("heads.")}


@pytest.mark.parametrize("pooling", ["mean", "cls", "cls-pooler"])
def test_the_pooler_trains_where_it_is_used(tiny_model, pooling):
    model = tiny_model(pooling=pooling)
    freeze(model, StageConfig())
    frozen = dict(model.named_parameters()).keys() - training(model)
    pooler = {"encoder.pooler.dense.weight", "encoder.pooler.dense.bias"}
    assert frozen == (set() if pooling == "cls-pooler" else pooler)


@pytest.mark.parametrize("num_frozen", [0, 1, 2])
def test_layers_freeze_from_the_bottom_with_the_embeddings(tiny_model, num_frozen):
    model = tiny_model(pooling="cls-pooler")
    freeze(model, StageConfig(freeze_layers=num_frozen))
    below = tuple(f"encoder.layers.{i}." for i in range(num_frozen))
    below += ("encoder.embeddings.",) if num_frozen else ()
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad != (bool(below) and name.startswith(below)), name


def test_a_task_with_nothing_to_train_is_refused(tiny_model):
    model = tiny_model(heads={"near": {"name": "cosine"}})
    with pytest.raises(RecipeError, match="task 'near' has no trainable parameters"):
        freeze(model, StageConfig(mode="last-layer"))
    with pytest.raises(RecipeError, match="task 'near' has no trainable parameters"):
        freeze(model, StageConfig(freeze_layers=2))
    freeze(model, StageConfig(mode="last-layer", tasks=("mood", "same")))
    freeze(model, StageConfig(freeze_layers=1))
    model = tiny_model(heads={"near": {"name": "cosine"}}, readers=("near",))
    with pytest.raises(RecipeError, match="it may not touch the encoder and its head has no"):
        freeze(model, StageConfig())
    adapters = {"near": {"name": "lora"}}
    model = tiny_model(heads={"near": {"name": "cosine"}}, adapters=adapters, readers=("near",))
    freeze(model, StageConfig(mode="last-layer"))


def test_one_update_is_adamw_by_hand():
    """Decoupled: the weight shrinks by lr x decay, then moves lr along the gradient's sign."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = torch.nn.Linear(1, 1)

    model = Model()
    torch.nn.init.constant_(model.heads.weight, 2.0)
    torch.nn.init.constant_(model.heads.bias, 2.0)
    optimizer = build_optimizer(model, StageConfig(lr=0.1, weight_decay=0.5, eps=1e-6))
    set_rate(optimizer, 1.0)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 3.0)
    optimizer.step()
    assert model.heads.weight.item() == pytest.approx(2.0 * (1 - 0.1 * 0.5) - 0.1, abs=1e-6)
    assert model.heads.bias.item() == pytest.approx(2.0 - 0.1, abs=1e-6)


def test_groups_of_a_captured_step_have_rates_of_their_own(tiny_model, monkeypatch):
    """A GPU's rates are tensors; groups that shared one would all learn at the last one's rate."""
    monkeypatch.setattr(
        "plait.training.optimizer._rate", lambda rate, device: torch.tensor(rate, device=device)
    )
    stage = StageConfig(lr=1e-4, head_lr=1e-2, layer_decay=0.5)
    optimizer = build_optimizer(tiny_model(), stage)
    rates = [group["lr"] for group in optimizer.param_groups]
    assert len({rate.data_ptr() for rate in rates}) == len(rates) > 3
    set_rate(optimizer, 0.5)
    for group in optimizer.param_groups:
        assert group["lr"].item() == pytest.approx(group["peak_lr"] / 2)
