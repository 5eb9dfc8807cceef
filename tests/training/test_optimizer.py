"""Which parameters train, how fast, and what decays."""

from __future__ import annotations

import math

import pytest
import torch

from plait.config import StageConfig
from plait.errors import RecipeError
from plait.model.encoder import build_encoder
from plait.model.heads import HEADS
from plait.model.multitask import MultitaskModel
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


def test_its_settings_are_the_recipes(tiny_model):
    model = tiny_model()
    for group in build_optimizer(model, StageConfig()).param_groups:
        assert (group["eps"], group["betas"]) == (1e-6, (0.9, 0.999))
    stage = StageConfig(eps=1e-8, betas=(0.8, 0.95))
    for group in build_optimizer(model, stage).param_groups:
        assert (group["eps"], group["betas"]) == (1e-8, (0.8, 0.95))


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


def test_without_decay_by_layer_there_are_as_few_groups_as_rates(tiny_model):
    model = tiny_model(pooling="cls-pooler")
    assert len(build_optimizer(model, StageConfig()).param_groups) == 2
    assert len(build_optimizer(model, StageConfig(head_lr=1.0)).param_groups) == 4


@pytest.mark.parametrize("decay", [0.0, -0.5, 1.1])
def test_a_decay_by_layer_lies_between_0_and_1(decay):
    with pytest.raises(ValueError, match="layer_decay"):
        StageConfig(layer_decay=decay)


def test_setting_the_rate_does_not_add_up(tiny_model):
    optimizer = build_optimizer(tiny_model(), StageConfig(lr=1e-3))
    for factor in (0.5, 0.5, 1.0):
        set_rate(optimizer, factor)
        assert {group["lr"] for group in optimizer.param_groups} == {1e-3 * factor}


def test_what_is_frozen_is_not_in_it(tiny_model):
    model = tiny_model()
    stage = StageConfig(freeze_layers=1)
    freeze(model, stage)
    assert settings_by_name(model, build_optimizer(model, stage)).keys() == training(model)


# --- the rate ----------------------------------------------------------------------------


def factors(num_steps: int, **settings: object) -> list[float]:
    stage = StageConfig(**settings)
    return [rate_factor(stage, step, num_steps) for step in range(num_steps)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [1.0] * 10),
        ({"decay": "linear"}, [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]),
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


def test_cosine_decay():
    found = factors(8, decay="cosine")
    assert found[0] == 1.0
    assert found[4] == pytest.approx(0.5)
    assert found[2] == pytest.approx(0.5 + math.sqrt(2) / 4)
    assert found[7] == pytest.approx(0.5 * (1 + math.cos(math.pi * 7 / 8)))
    warmed = factors(10, decay="cosine", warmup=0.2)
    assert warmed == pytest.approx([0.5, 1.0, *found])


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


def test_the_last_layer_alone(tiny_model):
    model = tiny_model()
    freeze(model, StageConfig(mode="last-layer"))
    assert training(model) == heads(model)


SHARING = {"albert": {"embedding_size": 8}, "mpnet": {}}
"""Architectures whose layers share parameters: all of them, or what tells places apart."""


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("kind", SHARING)
def test_what_layers_share_trains_whatever_the_pooling(tiny_encoder_config, kind, pooling):
    pytest.importorskip("transformers")
    config = {**tiny_encoder_config, **SHARING[kind], "model_type": kind, "pad_token_id": 0}
    encoder = build_encoder(config, "auto")
    head = HEADS.build("linear", "tasks.mood.head", encoder.width, 3, False)
    model = MultitaskModel(encoder, {"mood": head}, pooling)
    freeze(model, StageConfig())
    names = {name for name, _ in model.named_parameters()}
    assert names - training(model) == {name for name in names if ".pooler." in name}


def test_adapters_train_with_the_last_layer(tiny_model):
    model = tiny_model(adapters={"same": {"name": "pal"}, "near": {"name": "lora"}})
    freeze(model, StageConfig(mode="last-layer"))
    inside = {n for n in dict(model.named_parameters()) if n.startswith("adapters.")}
    assert inside
    assert training(model) == heads(model) | inside


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


def test_a_later_stage_thaws_what_an_earlier_one_froze(tiny_model):
    model = tiny_model(pooling="cls-pooler")
    freeze(model, StageConfig(mode="last-layer"))
    freeze(model, StageConfig())
    assert training(model) == dict(model.named_parameters()).keys()


def test_everything_that_trains_has_a_gradient(tiny_model, tiny_batch, tiny_specs):
    for pooling in ("mean", "cls", "cls-pooler"):
        model = tiny_model(pooling=pooling)
        freeze(model, StageConfig())
        total = sum(model(t, tiny_batch(s).tokens).square().sum() for t, s in tiny_specs.items())
        total.backward()
        without = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
        assert without == []


def test_a_task_with_nothing_to_train_is_refused(tiny_model):
    model = tiny_model(heads={"near": {"name": "cosine"}})
    with pytest.raises(RecipeError, match="task 'near' has nothing to train"):
        freeze(model, StageConfig(mode="last-layer"))
    with pytest.raises(RecipeError, match="task 'near' has nothing to train"):
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
