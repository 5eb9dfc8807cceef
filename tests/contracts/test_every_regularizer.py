"""What every regularizer must do, over all registered ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from plait.methods.losses import LOSSES, Loss
from plait.methods.regularizers import REGULARIZERS, Regularizer
from plait.model.multitask import MultitaskModel

each_precision = pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "bf16"])


@pytest.fixture
def losses(tiny_specs) -> dict[str, Loss]:
    """Each task's usual loss."""
    return {t: LOSSES.build(s.kind.default_loss, "loss", s) for t, s in tiny_specs.items()}


@pytest.fixture
def begin(regularizer_table):
    """Factory: a regularizer one update into a stage, so that it has something to say."""

    def make(model: MultitaskModel) -> Regularizer:
        regularizer = REGULARIZERS.build(regularizer_table, "train.regularizers.0")
        regularizer.begin(model, 10)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.01)
        regularizer.after_update(model, 1)
        return regularizer

    return make


def call(regularizer, model, task, batch, loss, *, bf16: bool = False) -> tuple[Tensor, Tensor]:
    """Return outputs and term, as the step makes them."""
    torch.manual_seed(0)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        outputs = model(task, batch.tokens)
        return outputs, regularizer(model, task, batch, outputs, loss)


@each_precision
def test_it_is_one_finite_number_and_leaves_the_model_as_it_was(
    begin, tiny_model, tiny_batch, tiny_specs, losses, bf16
):
    for task, spec in tiny_specs.items():
        model, batch = tiny_model(dropout=0.1).train(), tiny_batch(spec)
        regularizer = begin(model)
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        outputs, value = call(regularizer, model, task, batch, losses[task], bf16=bf16)
        assert value.shape == ()
        assert value.dtype == torch.float32
        assert value.isfinite()
        assert value >= 0
        assert all(module.training for module in model.modules())
        assert all(p.grad is None for p in model.parameters()), "only the step runs backward"
        assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
        (outputs.sum() * 0 + value).backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_it_has_a_say_in_the_gradient(begin, tiny_model, tiny_batch, tiny_specs, losses):
    model, batch = tiny_model(dropout=0.1).train(), tiny_batch(tiny_specs["mood"])
    _, value = call(begin(model), model, "mood", batch, losses["mood"])
    assert value > 0
    value.backward()
    assert model.heads["task-mood"].out.weight.grad.abs().sum() > 0
    assert model.encoder.layers[0].up.weight.grad.abs().sum() > 0
    assert all(p.grad is None for p in model.heads["task-same"].parameters())


def test_it_repeats_under_the_same_seed(begin, tiny_model, tiny_batch, tiny_specs, losses):
    values = []
    for _ in range(2):
        model, batch = tiny_model(dropout=0.1).train(), tiny_batch(tiny_specs["mood"])
        values.append(call(begin(model), model, "mood", batch, losses["mood"])[1])
    assert torch.equal(*values)


def test_one_example_is_enough(begin, tiny_model, tiny_batch, tiny_specs, losses):
    for task, spec in tiny_specs.items():
        model, batch = tiny_model().train(), tiny_batch(spec, 1)
        assert call(begin(model), model, task, batch, losses[task])[1].isfinite()


def test_nothing_is_read_from_the_device(
    begin, tiny_model, tiny_batch, tiny_specs, losses, monkeypatch
):
    model = tiny_model(dropout=0.1).train()
    regularizer = begin(model)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a value is read from the device")

    for name in ("item", "tolist", "numpy", "cpu", "__bool__", "__float__", "__int__", "__index__"):
        monkeypatch.setattr(Tensor, name, refuse)
    for task, spec in tiny_specs.items():
        outputs, value = call(regularizer, model, task, tiny_batch(spec), losses[task])
        (outputs.sum() * 0 + value).backward()
    regularizer.after_update(model, 2)
