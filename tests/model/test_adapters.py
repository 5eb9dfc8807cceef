"""Settings that adapters refuse, and their place in the model."""

from __future__ import annotations

import pytest
import torch

from plait.errors import RecipeError
from plait.model.adapters import ADAPTERS

EVERY = pytest.mark.parametrize("name", sorted(ADAPTERS))


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"name": "lora", "rank": 0}, "rank must be 1 or more, not 0"),
        ({"name": "lora", "alpha": 0.0}, "alpha must be above 0"),
        ({"name": "lora", "targets": []}, "targets must name different projections"),
        ({"name": "lora", "targets": ["key", "key"]}, "targets must name different projections"),
        ({"name": "lora", "targets": ["keys"]}, "targets"),
        ({"name": "lora", "dropout": 1.0}, "dropout must be 0 or more and below 1"),
        ({"name": "pal", "heads": 0}, "heads must be 1 or more"),
        ({"name": "pal", "size": 7}, "size = 7 is not divisible by 2 heads"),
        ({"name": "pal", "size": 0}, "size = 0 is not divisible"),
        ({"name": "pal", "dropout": -0.1}, "dropout must be 0 or more"),
    ],
)
def test_settings_that_make_no_sense(table, told):
    with pytest.raises(RecipeError, match=told):
        ADAPTERS.build(table, "tasks.x.adapter", 16, 2, 2)


@EVERY
def test_only_its_own_task_sees_it(tiny_model, tiny_batch, tiny_specs, name):
    plain = tiny_model().eval()
    model = tiny_model(adapters={"same": {"name": name}}).eval()
    for parameter in model.adapters.parameters():
        torch.nn.init.normal_(parameter)
    for task, spec in tiny_specs.items():
        tokens = tiny_batch(spec).tokens
        assert torch.equal(model(task, tokens), plain(task, tokens)) == (task != "same")
        assert torch.equal(model.embed(tokens), plain.embed(tokens))


@EVERY
def test_its_parameters_are_the_tasks(tiny_model, tiny_specs, name):
    plain, model = tiny_model(), tiny_model(adapters={"same": {"name": name}})
    assert model.shared_parameters().keys() == plain.shared_parameters().keys()
    found = dict(model.shared_parameters())
    for task in tiny_specs:
        found |= model.head_parameters(task)
        more = model.head_parameters(task).keys() - plain.head_parameters(task).keys()
        assert bool(more) == (task == "same")
        assert all(n.startswith("adapters.task-same.") for n in more)
    assert found.keys() == dict(model.named_parameters()).keys()


@pytest.mark.parametrize(
    "adapters", [{}, *({"same": {"name": name}} for name in ("lora", "pal", "top"))]
)
@pytest.mark.parametrize("pooling", ["mean", "cls-pooler"])
def test_a_reader_answers_alike_and_leaves_the_encoder_without_gradient(
    tiny_model, tiny_batch, tiny_specs, adapters, pooling
):
    model = tiny_model(adapters=adapters, pooling=pooling)
    reader = tiny_model(adapters=adapters, pooling=pooling, readers=("same",))
    assert [reader.touches_encoder(t) for t in tiny_specs] == [True, False, True]
    tokens = tiny_batch(tiny_specs["same"]).tokens
    outputs = {}
    for each in (model, reader):
        for name, parameter in each.adapters.named_parameters():
            torch.manual_seed(len(name))
            torch.nn.init.normal_(parameter)
        outputs[each] = each("same", tokens)
        outputs[each].square().sum().backward()
    assert torch.equal(outputs[model], outputs[reader])
    assert all(p.grad is None for p in reader.encoder.parameters())
    assert any(p.grad is not None for p in model.encoder.parameters())
    for name, parameter in reader.head_parameters("same").items():
        torch.testing.assert_close(parameter.grad, model.get_parameter(name).grad)
        assert parameter.grad.abs().sum() > 0, name
    # It is the encoder's own tensors that it reads: what others change, it sees.
    with torch.no_grad():
        reader.encoder.layers[0].up.weight.mul_(2)
        assert not torch.equal(reader("same", tokens), outputs[reader])


@torch.no_grad()
def test_lora_merges_into_the_weights(tiny_model, tiny_batch, tiny_specs):
    """Every target; the merged encoder alone answers what encoder and adapter did together."""
    targets = ["query", "key", "value", "output"]
    model = tiny_model(adapters={"same": {"name": "lora", "targets": targets}}).double()
    adapter = model.adapters["task-same"]
    for parameter in adapter.parameters():
        parameter.normal_(generator=torch.Generator().manual_seed(len(parameter)))
    tokens = tiny_batch(tiny_specs["same"]).tokens
    wanted = model.encoder(tokens, None, adapter).hidden
    assert not torch.allclose(model.encoder(tokens).hidden, wanted, atol=1e-2)
    assert adapter.merge(model.encoder)
    torch.testing.assert_close(model.encoder(tokens).hidden, wanted, atol=1e-12, rtol=0)
