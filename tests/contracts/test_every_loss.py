"""What every loss must do, over all registered ones and every kind of task they allow."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from plait.errors import RecipeError
from plait.methods.losses import LOSSES, CosineMSE, Loss, MeanSquaredError
from plait.model.heads import HEADS
from plait.tasks import TaskSpec


@pytest.fixture
def loss(loss_case) -> Loss:
    """A loss built for a task it allows, which has seen training labels."""
    table, spec = loss_case
    loss = LOSSES.build(table, "tasks.x.loss", spec)
    loss.begin(make(loss, 40, seed=2)[1], torch.device("cpu"))
    return loss


def make(loss: Loss, num_examples: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random outputs a head could give, and labels of the types a batch has."""
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(num_examples, loss.num_outputs, generator=generator)
    if loss.takes == "cosine":
        outputs = outputs.tanh()
    spec = loss.spec
    if spec.kind.name == "score":
        low, high = spec.range
        return outputs, low + (high - low) * torch.rand(num_examples, generator=generator)
    if spec.kind.name == "labels":
        chances = torch.rand(num_examples, len(spec.labels), generator=generator)
        return outputs, (chances < 0.4).float()
    labels = torch.randint(len(spec.labels), (num_examples,), generator=generator)
    return outputs, labels.float() if spec.kind.name == "binary" else labels


def test_it_is_one_finite_number_with_a_gradient(loss):
    for num_examples in (1, 2, 9):
        outputs, labels = make(loss, num_examples)
        outputs = outputs.abs().requires_grad_()  # a clipped cosine below 0 has no gradient
        value = loss(outputs, labels)
        assert value.shape == ()
        assert value.dtype == torch.float32
        value.backward()
        assert outputs.grad.isfinite().all()
        assert outputs.grad.abs().sum() > 0


def test_it_stays_finite_far_out(loss):
    outputs, labels = make(loss, 6)
    far = (outputs.sign() * (1.0 if loss.takes == "cosine" else 1e4)).requires_grad_()
    value = loss(far, labels)
    value.backward()
    assert value.isfinite()
    assert far.grad.isfinite().all()
    assert loss.decode(far.detach()).isfinite().all()


def test_it_is_never_below_0(loss):
    assert loss(*make(loss, 50)) >= 0


def test_it_is_the_mean_over_the_examples(loss):
    outputs, labels = make(loss, 7)
    for cut in (1, 3, 6):
        first, second = loss(outputs[:cut], labels[:cut]), loss(outputs[cut:], labels[cut:])
        torch.testing.assert_close(
            loss(outputs, labels), (cut * first + (7 - cut) * second) / 7, rtol=1e-5, atol=1e-6
        )


def test_the_order_of_the_examples_does_not_matter(loss):
    outputs, labels = make(loss, 7)
    order = torch.tensor([3, 1, 6, 0, 5, 2, 4])
    torch.testing.assert_close(loss(outputs[order], labels[order]), loss(outputs, labels))


def test_half_precision_outputs_are_measured_in_full(loss):
    outputs, labels = make(loss, 7)
    half = outputs.bfloat16()
    assert loss(half, labels).dtype == torch.float32
    torch.testing.assert_close(loss(half, labels), loss(half.float(), labels))
    assert loss.decode(half).dtype == torch.float32


def test_decoded_answers_are_probabilities_or_scores_in_range(loss):
    spread = 1.0 if loss.takes == "cosine" else 8.0
    for num_examples in (1, 5):
        outputs, _ = make(loss, num_examples)
        decoded = loss.decode(outputs * spread)
        if loss.spec.kind.name == "score":
            low, high = loss.spec.range
            assert decoded.shape == (num_examples,)
            assert low - 1e-6 <= decoded.min() <= decoded.max() <= high + 1e-6
        else:
            assert decoded.shape == (num_examples, len(loss.spec.labels))
            assert decoded.min() >= 0
            assert decoded.max() <= 1
            if loss.spec.kind.name == "labels":
                continue
            torch.testing.assert_close(decoded.sum(dim=1), torch.ones(num_examples))


def test_examples_are_decoded_one_by_one(loss):
    outputs, _ = make(loss, 5)
    alone = torch.cat([loss.decode(row.unsqueeze(0)) for row in outputs])
    torch.testing.assert_close(loss.decode(outputs), alone)


def test_where_it_is_lowest_the_answer_is_the_label(loss):
    _, labels = make(loss, 6, seed=1)
    outputs = torch.full((6, loss.num_outputs), 0.3, requires_grad=True)
    before = loss(outputs, labels).item()
    optimizer = torch.optim.Adam([outputs], lr=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        loss(outputs, labels).backward()
        optimizer.step()
    assert loss(outputs, labels) < before
    decoded = loss.decode(outputs.detach())
    if loss.spec.kind.name == "score":
        low, high = loss.spec.range
        torch.testing.assert_close(decoded, labels, rtol=0, atol=0.01 * (high - low))
    elif loss.spec.kind.name == "labels":
        assert (decoded >= 0.5).tolist() == labels.bool().tolist()
    else:
        assert decoded.argmax(dim=1).tolist() == labels.long().tolist()


def test_outputs_as_a_distribution(loss):
    outputs, _ = make(loss, 5)
    outputs = outputs.abs() / 4  # a clipped cosine below 0 has no gradient
    logs = loss.log_probabilities(outputs)
    score = loss.spec.kind.name == "score"
    if loss.spec.kind.name == "labels":
        logs = logs.flatten(0, 1)  # a no and a yes each
        assert logs.shape == (5 * len(loss.spec.labels), 2)
        torch.testing.assert_close(logs.exp()[:, 1], loss.decode(outputs).flatten())
    else:
        assert logs.shape == (5, 2 if score else len(loss.spec.labels))
    torch.testing.assert_close(logs.exp().sum(dim=1), torch.ones(len(logs)))
    if loss.spec.kind.name == "labels":
        return
    low, high = loss.spec.range
    decoded = (loss.decode(outputs) - low) / (high - low) if score else loss.decode(outputs)
    if getattr(loss, "scale", "unit") != "raw" or loss.takes == "cosine":
        torch.testing.assert_close(logs.exp()[:, 1], decoded if score else decoded[:, 1])
    for far in (-1e4, 1e4):
        assert loss.log_probabilities(torch.full((1, loss.num_outputs), far)).isfinite().all()


def test_the_value_of_a_score_and_of_nothing_else(loss):
    outputs, labels = make(loss, 5)
    if loss.spec.kind.name != "score":
        with pytest.raises(TypeError, match="has no value"):
            loss.value(outputs)
        return
    value = loss.value(outputs)
    assert value.shape == (5,)
    assert value.dtype == torch.float32
    low, high = loss.spec.range
    raw = getattr(loss, "scale", "unit") == "raw"
    scores = value if raw else low + (high - low) * value
    torch.testing.assert_close(scores.clamp(low, high), loss.decode(outputs))
    if isinstance(loss, MeanSquaredError | CosineMSE):
        target = labels if raw else (labels - low) / (high - low)
        torch.testing.assert_close((value - target).square().mean(), loss(outputs, labels))


@pytest.mark.parametrize("task", ["mood", "same", "near", "many"])
def test_a_loss_of_ones_own_needs_only_to_decode(tiny_specs, task):
    """The distribution and the value are then read off its answers."""
    many = TaskSpec(kind="labels", labels=3, text=("text",))
    spec = {**tiny_specs, "many": many}[task]
    inner = LOSSES.build(spec.kind.default_loss, "loss", spec)

    class Own(Loss):
        forms = (spec.kind.form,)
        __call__ = inner.__call__
        decode = staticmethod(inner.decode)

    own = Own(spec)
    outputs, _ = make(inner, 6)
    torch.testing.assert_close(own.log_probabilities(outputs), inner.log_probabilities(outputs))
    if spec.kind.name == "score":
        assert torch.equal(own.value(outputs), inner.decode(outputs))


def test_other_kinds_are_refused_in_a_sentence(refused_case):
    table, spec = refused_case
    with pytest.raises(ValueError, match=f"not '{spec.kind.name}'"):
        LOSSES[table["name"]](spec)
    with pytest.raises(RecipeError, match=r"^tasks\.x\.loss: this loss is for .*, not"):
        LOSSES.build(table, "tasks.x.loss", spec)


def test_some_head_gives_what_it_takes(loss):
    assert loss.takes in {HEADS[name].gives for name in HEADS}
    assert loss.takes == "logits" or loss.num_outputs == 1
