"""SMART as a public code runs it."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from plait.methods.regularizers.smart_unit import SMARTUnit
from plait.model.encoder import Encoded, pool


def encode_from(model, tokens, noise):
    """Run the layers and the head by hand on what the embedding layer puts out, and noise."""
    encoder = model.encoder
    hidden = encoder.embeddings(encoder.word_embeddings(tokens.ids), tokens.types) + noise
    for layer in encoder.layers:
        hidden = layer(hidden, tokens.mask[:, None, None, :])
    encoded = Encoded(hidden, (), encoder.pooler(hidden))
    return model.heads["task-mood"](pool(encoded, tokens.mask, model.pooling))


@pytest.mark.parametrize("steps", [1, 2])
def test_the_term_equals_the_code_written_out(tiny_model, losses, batches, steps):
    model, batch = tiny_model().double(), batches["mood"]
    tokens = batch.tokens
    outputs = model("mood", tokens)

    torch.manual_seed(3)
    shape = (*tokens.ids.shape, model.encoder.width)
    noise = 1e-5 * torch.randn(shape, dtype=torch.float64) * tokens.mask.unsqueeze(-1)
    for _ in range(steps):
        noise = noise.detach().requires_grad_()
        p = F.softmax(outputs.detach(), dim=1)
        q = F.softmax(encode_from(model, tokens, noise), dim=1)
        total = (p * (p / q).log()).sum() + (q * (q / p).log()).sum()
        (slopes,) = torch.autograd.grad(total, noise, retain_graph=True)
        step = noise + 1e-3 * slopes
        noise = step / (step.norm(p=float("inf"), dim=-1, keepdim=True) + 1e-6)
    q = F.softmax(encode_from(model, tokens, noise.detach()), dim=1)
    p = F.softmax(outputs, dim=1)
    literal = ((p * (p / q).log()).sum() + (q * (q / p).log()).sum()) / 4

    torch.manual_seed(3)
    term = SMARTUnit(inner_steps=steps)(model, "mood", batch, outputs, losses["mood"])
    torch.testing.assert_close(term, literal, rtol=1e-6, atol=0)
    parameters = [*model.encoder.layers.parameters(), *model.heads["task-mood"].parameters()]
    for mine, theirs in zip(
        torch.autograd.grad(term, parameters, retain_graph=True),
        torch.autograd.grad(literal, parameters),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7)


def test_it_runs_as_the_training_pass_does(tiny_model, losses, batches, count_passes):
    model, batch = tiny_model(dropout=0.1).train(), batches["mood"]
    for bf16 in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            outputs = model("mood", batch.tokens)
            for steps in (1, 3):
                with count_passes(model) as seen:
                    unit = SMARTUnit(inner_steps=steps)
                    term = unit(model, "mood", batch, outputs, losses["mood"])
                assert len(seen) == 1 + steps
                assert all(state["training"] for state in seen)
                assert all(state["autocast"] == bf16 for state in seen)
        assert term.dtype == torch.float32
        term.backward()
