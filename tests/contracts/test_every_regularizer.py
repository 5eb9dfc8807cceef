"""What every regularizer must do, over all registered ones."""

from __future__ import annotations

import torch

from plait.regularizers import REGULARIZERS


def test_it_is_one_finite_number_and_leaves_the_model_as_it_was(
    regularizer_table, tiny_model, tiny_batch, tiny_specs
):
    regularizer = REGULARIZERS.build(regularizer_table, "train.regularizers.0")
    for task, spec in tiny_specs.items():
        model, batch = tiny_model(dropout=0.1).train(), tiny_batch(spec)
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        outputs = model(task, batch.tokens)
        value = regularizer(model, task, batch, outputs)
        assert value.shape == ()
        assert value.isfinite()
        assert model.training
        assert all(p.grad is None for p in model.parameters()), "only the step runs backward"
        assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
        (outputs.sum() * 0 + value).backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
