"""SMART against Algorithm 1 written out, and what must not be measured in its place."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from plait.errors import RecipeError
from plait.methods.regularizers import REGULARIZERS
from plait.methods.regularizers.smart import SMART
from plait.model.multitask import Group
from plait.types import Batch, Tokens

each_task = pytest.mark.parametrize("task", ["mood", "same", "near"])
BIG = {"epsilon": 0.05, "sigma": 0.02, "eta": 0.1}


# --- Algorithm 1, written out -------------------------------------------------------------


def probabilities(task: str, outputs: Tensor) -> Tensor:
    if task == "mood":
        return F.softmax(outputs, dim=1)
    yes = 1 / (1 + torch.exp(-outputs))
    return torch.cat([1 - yes, yes], dim=1)


def distance(task: str, one: Tensor, two: Tensor, how: str) -> Tensor:
    """l_s of the paper, or its other forms, from plain outputs; [examples]."""
    p, q = probabilities(task, one), probabilities(task, two)
    if how == "proper":
        how = "squared" if task == "near" else "symmetric"
    if how == "squared":
        return (p[:, 1] - q[:, 1]) ** 2
    if how == "plain":
        return (p * torch.log(p / q)).sum(dim=1)
    return ((p - q) * torch.log(p / q)).sum(dim=1)


def algorithm_1(model, task, tokens, noise, settings: SMART, inner: str, last: str) -> Tensor:
    """The paper's R_s; rows are inputs, positions of padding hold no x."""
    x = model.encoder.embeddings.word.weight[tokens.ids]
    fixed = model(task, tokens, x).detach()
    near = (x + noise).detach()
    for _ in range(settings.inner_steps):
        near.requires_grad_()
        total = distance(task, fixed, model(task, tokens, near), inner).sum()
        (slopes,) = torch.autograd.grad(total, near)
        rows = []
        for row in range(len(near)):
            real = tokens.mask[row]
            g, start, here = slopes[row][real], x[row][real].detach(), near[row][real].detach()
            moved = here + settings.eta * g / g.abs().max()
            moved = torch.maximum(moved, start - settings.epsilon)
            whole = x[row].detach().clone()
            whole[real] = torch.minimum(moved, start + settings.epsilon)
            rows.append(whole)
        near = torch.stack(rows)
    worst = x + (near - x).detach()
    return distance(task, model(task, tokens, x), model(task, tokens, worst), last).mean()


def draw_noise(model, tokens, sigma: float, seed: int) -> Tensor:
    torch.manual_seed(seed)
    words = model.encoder.word_embeddings(tokens.ids)
    noise = sigma * torch.randn(words.shape, dtype=words.dtype) * tokens.mask.unsqueeze(-1)
    torch.manual_seed(seed)
    return noise


@each_task
@pytest.mark.parametrize("settings", [{}, BIG, {**BIG, "inner_steps": 3}])
@pytest.mark.parametrize(
    ("variant", "inner", "last"),
    [(0, "proper", "proper"), (1, "plain", "plain"), (2, "plain", "symmetric")],
)
def test_the_term_and_its_gradient_equal_the_algorithm(
    tiny_model, losses, batches, task, settings, variant, inner, last
):
    model, batch = tiny_model().double(), batches[task]
    smart = SMART(weight=3.0, variant=variant, **settings)
    noise = draw_noise(model, batch.tokens, smart.sigma, seed=3)
    term = smart(model, task, batch, model(task, batch.tokens), losses[task])
    literal = 3.0 * algorithm_1(model, task, batch.tokens, noise, smart, inner, last)
    assert literal > 0
    # At the paper's sizes KL written out, p log(p/q), is itself only known to 1e-16 of 1e-10.
    tight = settings or variant == 0
    tolerance = {"rtol": 1e-9 if tight else 1e-4, "atol": 0.0}
    torch.testing.assert_close(term, literal, **tolerance)
    parameters = [p for n, p in model.named_parameters() if f"task-{task}" in n or "encoder." in n]
    mine, theirs = (torch.autograd.grad(t, parameters, allow_unused=True) for t in (term, literal))
    size = max(b.abs().max() for b in theirs if b is not None)
    for a, b in zip(mine, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=0, atol=float(size) * (1e-8 if tight else 1e-3))
    assert mine[0].abs().sum() > 0  # the word table


# --- the perturbation ---------------------------------------------------------------------


@each_task
@pytest.mark.parametrize("steps", [1, 3])
def test_the_perturbation_fills_the_ball_and_spares_padding(
    tiny_model, losses, batches, task, steps
):
    model, batch = tiny_model(), batches[task]
    smart = SMART(inner_steps=steps)
    clean = model(task, batch.tokens).detach()
    change = smart.perturb(model, Group.of({task: batch}), [clean], [losses[task]])
    assert not change.requires_grad
    assert change.abs().max() <= 1e-5
    real = change[batch.tokens.mask]
    assert not change[~batch.tokens.mask].any()
    # eta is a hundred times epsilon: most entries end on the ball's surface, by their sign.
    assert (real.abs() >= 0.999e-5).float().mean() > 0.7


@each_task
def test_an_examples_perturbation_does_not_depend_on_the_others(
    tiny_model, losses, batches, task, monkeypatch
):
    fixed = torch.randn(1, 7, 16, dtype=torch.float64)  # every row gets the same noise
    monkeypatch.setattr(torch, "randn_like", lambda words: fixed.expand_as(words))
    model, batch, loss = tiny_model().double(), batches[task], losses[task]
    clean = model(task, batch.tokens).detach()
    together = SMART().perturb(model, Group.of({task: batch}), [clean], [loss])
    rows = [1, 5] if task == "near" else [1]
    parts = (t[rows] for t in (batch.tokens.ids, batch.tokens.types, batch.tokens.mask))
    single = Batch(Tokens(*parts), batch.labels[1:2])
    alone = SMART().perturb(model, Group.of({task: single}), [clean[1:2]], [loss])
    torch.testing.assert_close(together[rows], alone, rtol=0, atol=1e-8)


def test_words_are_perturbed_before_positions_segments_and_the_norm(
    tiny_model, losses, batches, monkeypatch
):
    """What reaches the encoder is x + change, and what the first layer gets is made once."""
    model, batch = tiny_model(), batches["same"]
    inside, entered = model.encoder.embeddings, []
    inside.register_forward_hook(lambda module, args, output: entered.append((args, output)))
    SMART(**BIG)(model, "same", batch, model("same", batch.tokens), losses["same"])
    (plain, _), *_, ((moved, types), made) = entered
    table, places = inside.word.weight, inside.position.weight[: batch.tokens.ids.shape[1]]
    torch.testing.assert_close(plain[0], table[batch.tokens.ids])
    assert 0 < (moved - plain[0]).abs().max() <= 0.05 + 1e-6
    total = moved + places + inside.segment.weight[batch.tokens.types]
    by_hand = F.layer_norm(total, (16,), inside.norm.weight, inside.norm.bias, 1e-12)
    torch.testing.assert_close(made, by_hand)
    assert torch.equal(types, batch.tokens.types)


# --- precision and dropout ----------------------------------------------------------------


@each_task
def test_a_perturbation_of_1e_5_survives_in_fp32_and_not_in_bf16(tiny_model, losses, batches, task):
    model, batch = tiny_model(), batches[task]
    exact = tiny_model().double()
    with torch.no_grad():
        words = exact.encoder.word_embeddings(batch.tokens.ids)
    clean = exact(task, batch.tokens).detach()
    change = SMART().perturb(exact, Group.of({task: batch}), [clean], [losses[task]])

    def moved_by(one, words, *, bf16: bool = False) -> Tensor:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            moved = one(task, batch.tokens, words + change.to(words.dtype))
            return (moved - one(task, batch.tokens, words)).double()

    truth = moved_by(exact, words)
    single, half = moved_by(model, words.float()), moved_by(model, words.float(), bf16=True)
    assert (single - truth).norm() < 0.05 * truth.norm()
    assert (half - truth).norm() > 0.5 * truth.norm()


@each_task
def test_the_term_is_the_same_under_autocast_and_dropout(tiny_model, losses, batches, task):
    batch, terms = batches[task], []
    for dropout, bf16 in ((0.0, False), (0.0, True), (0.5, False), (0.5, True)):
        model = tiny_model(dropout=dropout).train()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            outputs = model(task, batch.tokens)
            torch.manual_seed(1)
            terms.append(SMART()(model, task, batch, outputs, losses[task]))
        assert all(module.training for module in model.modules())
        assert terms[-1].dtype == torch.float32
    assert terms[1] == terms[2] == terms[3]
    torch.testing.assert_close(terms[0], terms[1], rtol=1e-3, atol=0)
    truth = tiny_model().double()
    torch.manual_seed(1)
    outputs = truth(task, batch.tokens)
    exact = SMART()(truth, task, batch, outputs, losses[task])
    assert terms[0].item() == pytest.approx(exact.item(), rel=0.1)


@pytest.mark.parametrize(
    ("dropout", "bf16", "passes"),
    [(0.0, False, 2), (0.1, False, 3), (0.0, True, 3), (0.1, True, 3)],
)
def test_what_it_costs(tiny_model, losses, batches, count_passes, dropout, bf16, passes):
    """One pass per inner step and one at the end; one more where the training pass is no use."""
    model, batch = tiny_model(dropout=dropout).train(), batches["mood"]
    torch.set_float32_matmul_precision("high")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            outputs = model("mood", batch.tokens)
            for more in (0, 2):
                with count_passes(model) as seen:
                    smart = SMART(inner_steps=1 + more)
                    smart(model, "mood", batch, outputs, losses["mood"])
                assert len(seen) == passes + more
                for state in seen:
                    assert state == {
                        "training": False,
                        "dtype": torch.float32,
                        "autocast": False,
                        "precision": "highest",
                    }
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


# --- weights, side effects, settings ------------------------------------------------------


def test_one_weight_per_task(tiny_model, losses, batches, count_passes):
    model = tiny_model()
    smart = SMART(weight={"mood": 5.0, "same": 3.0, "near": 0.0})
    for task, weight in (("mood", 5.0), ("same", 3.0), ("near", 0.0)):
        terms = []
        for part in (smart, SMART()):
            outputs = model(task, batches[task].tokens)
            torch.manual_seed(0)
            with count_passes(model) as seen:
                terms.append(part(model, task, batches[task], outputs, losses[task]))
            assert len(seen) == (2 if weight or part is not smart else 0)
        torch.testing.assert_close(terms[0], weight * terms[1])


@pytest.mark.parametrize(
    "settings",
    [
        {"weight": -1.0},
        {"weight": {"mood": -1.0}},
        {"epsilon": 0.0},
        {"sigma": 0.0},
        {"eta": -1.0},
        {"inner_steps": 0},
        {"variant": 3},
    ],
)
def test_settings_that_make_no_sense(settings):
    with pytest.raises(RecipeError, match=r"^train\.regularizers\.0"):
        REGULARIZERS.build({"name": "smart", **settings}, "train.regularizers.0")
