"""One encoder and a head per task, seen as one model."""

from __future__ import annotations

import pytest
import torch

from plait.model.encoder import pool
from plait.model.heads import Head
from plait.tasks import TaskSpec
from plait.types import Tokens


@pytest.mark.parametrize("pooling", ["mean", "cls", "cls-pooler"])
def test_each_task_gets_its_own_head_on_the_pooled_vectors(
    tiny_model, tiny_batch, tiny_specs, pooling
):
    model = tiny_model(pooling=pooling).eval()
    for task, spec in tiny_specs.items():
        tokens = tiny_batch(spec, 3).tokens
        vectors = model.embed(tokens)
        assert vectors.shape == (6 if spec.inputs == "apart" else 3, 16)
        assert torch.equal(vectors, pool(model.encoder(tokens), tokens.mask, pooling))
        outputs = model(task, tokens)
        assert outputs.shape == (3, {"mood": 3, "same": 1, "near": 1}[task])
        assert torch.equal(outputs, model.heads[f"task-{task}"](vectors))


class LargestToken(Head):
    """The largest of each number over all real tokens, then a linear layer."""

    takes = "hidden"

    def __init__(self, width: int, num_outputs: int):
        super().__init__()
        self.out = torch.nn.Linear(width, num_outputs)

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        return self.out(hidden.masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(dim=1))


def test_a_head_that_reads_all_tokens_is_told_which_are_real(tiny_model, tiny_batch, tiny_specs):
    model = tiny_model().eval()
    model.add_head("mood", LargestToken(16, 3))
    tokens = tiny_batch(tiny_specs["mood"]).tokens
    wide = [torch.nn.functional.pad(t, (0, 4)) for t in (tokens.ids, tokens.types, tokens.mask)]
    for padded in (Tokens(*wide), Tokens(*wide, total=int(tokens.mask.sum()))):
        outputs = model("mood", padded)
        torch.testing.assert_close(outputs, model("mood", tokens), rtol=0, atol=1e-5)


NAMES = ["type", "keys", "items", "forward", "training", "0", "a-b_c"]


@pytest.mark.parametrize("name", NAMES)
def test_a_task_may_be_called_anything(tiny_model, tiny_batch, name):
    spec = TaskSpec(kind="binary", text=("text",))
    model = tiny_model({name: spec, "other": spec})
    assert model(name, tiny_batch(spec).tokens).shape == (4, 1)
    assert set(model.head_parameters(name)) == {
        f"heads.task-{name}.out.weight",
        f"heads.task-{name}.out.bias",
    }


def test_every_parameter_is_shared_or_one_tasks(tiny_model, tiny_specs):
    model = tiny_model()
    found = dict(model.shared_parameters())
    assert all(name.startswith("encoder.") for name in found)
    for task in tiny_specs:
        head = model.head_parameters(task)
        assert head
        assert not found.keys() & head.keys()
        found |= head
    named = dict(model.named_parameters())
    assert found.keys() == named.keys()
    assert all(found[name] is named[name] for name in named)
