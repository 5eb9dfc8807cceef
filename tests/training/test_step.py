"""One update equals what plain autograd and torch's own AdamW would make of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from plait.config import StageConfig
from plait.data import Buckets, Parcel
from plait.errors import RecipeError
from plait.methods.aggregators import AGGREGATORS, Aggregator
from plait.methods.aggregators.pcgrad import PCGrad
from plait.methods.losses import LOSSES, Loss
from plait.methods.regularizers import REGULARIZERS, Regularizer
from plait.methods.weighting import WEIGHTINGS
from plait.model.multitask import MultitaskModel
from plait.training.optimizer import add_weighting, build_optimizer, freeze, set_rate
from plait.training.step import Step, TaskParts
from plait.training.team import Team
from plait.types import Batch, Tokens

# Attention keys' biases have no gradient but rounding, which AdamW's own eps would make large.
STAGE = StageConfig(lr=1e-2, weight_decay=0.1, eps=1e-4)
WEIGHTS = {"mood": 1.0, "same": 0.5, "near": 2.0}
PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "training.md"


@pytest.fixture
def losses(tiny_specs):
    """Each task's usual loss."""
    return {t: LOSSES.build(s.kind.default_loss, "loss", s) for t, s in tiny_specs.items()}


@pytest.fixture
def batches(tiny_specs, tiny_batch) -> dict[str, Batch]:
    """A batch of 4 per task."""
    return {task: tiny_batch(spec, 4, seed=i) for i, (task, spec) in enumerate(tiny_specs.items())}


@pytest.fixture
def make_step(losses):
    """Factory of a step over a model, ready to be called."""

    def make(
        model: MultitaskModel,
        aggregator: str | dict = "sum",
        *,
        stage: StageConfig = STAGE,
        weights: dict[str, float] = WEIGHTS,
        tasks: tuple[str, ...] = ("mood", "same", "near"),
        regularizers: tuple[Regularizer, ...] = (),
        weighting: str | dict | None = None,
        **settings: object,
    ) -> Step:
        freeze(model, stage)
        optimizer = build_optimizer(model, stage)
        set_rate(optimizer, 1.0)
        parts = {task: TaskParts(losses[task], weights[task], regularizers) for task in tasks}
        built = build_aggregator(aggregator)
        if isinstance(weighting, str | dict):
            device = next(model.parameters()).device
            weighting = WEIGHTINGS.build(weighting, "train.weighting", tasks, device)
            add_weighting(optimizer, weighting, stage)
            set_rate(optimizer, 1.0)
        return Step(model.train(), parts, built, optimizer, weighting=weighting, **settings)

    return make


def build_aggregator(table: str | dict) -> Aggregator:
    """Build it, or skip the test where what it needs is not installed."""
    try:
        return AGGREGATORS.build(table, "train.aggregator")
    except RecipeError as error:
        if "plait[surgery]" not in str(error):
            raise
        pytest.skip(str(error))


def reference_adamw(model: MultitaskModel) -> torch.optim.AdamW:
    """AdamW as STAGE describes it, in torch's plainest form."""
    trains = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(
        [
            {"params": [p for p in trains if p.ndim > 1], "weight_decay": 0.1},
            {"params": [p for p in trains if p.ndim == 1], "weight_decay": 0.0},
        ],
        lr=1e-2,
        eps=1e-4,
        foreach=False,
    )


def weights_of(model: MultitaskModel) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(one: MultitaskModel, other: MultitaskModel, atol: float = 1e-6) -> None:
    for (name, a), b in zip(one.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


def part(batch: Batch, start: int, stop: int) -> Batch:
    """Some examples of a batch, texts apart or joined."""
    rows = torch.arange(start, stop)
    if len(batch.tokens.ids) == 2 * len(batch.labels):
        rows = torch.cat([rows, rows + len(batch.labels)])
    tokens = Tokens(batch.tokens.ids[rows], batch.tokens.types[rows], batch.tokens.mask[rows])
    return Batch(tokens, batch.labels[start:stop])


def shared_gradients(model, losses, batches, weights=WEIGHTS) -> Tensor:
    """Each task's gradient on the encoder, [tasks, parameters], by torch.autograd.grad."""
    shared = [p for p in model.shared_parameters().values() if p.requires_grad]
    rows = []
    for task, batch in batches.items():
        loss = weights[task] * losses[task](model(task, batch.tokens), batch.labels)
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, shared)]))
    return torch.stack(rows)


# --- against plain autograd --------------------------------------------------------------


@pytest.mark.parametrize(
    "tasks", [("mood",), ("near",), ("same", "near"), ("mood", "same", "near")]
)
def test_the_sum_equals_one_backward_of_the_weighted_losses(
    tiny_model, make_step, losses, batches, tasks
):
    model, reference = tiny_model(), tiny_model()
    step = make_step(model)
    freeze(reference, STAGE)
    optimizer = reference_adamw(reference)
    for _ in range(3):
        result = step([{task: batches[task] for task in tasks}])
        optimizer.zero_grad()
        each = {t: losses[t](reference(t, batches[t].tokens), batches[t].labels) for t in tasks}
        sum(WEIGHTS[task] * loss for task, loss in each.items()).backward()
        optimizer.step()
        assert result.losses.keys() == each.keys()
        for task, loss in each.items():  # told without its weight
            torch.testing.assert_close(result.losses[task], loss.detach(), rtol=1e-4, atol=1e-5)
        assert result.terms == {}
    assert_same(model, reference, atol=1e-5)


@pytest.mark.parametrize("regularizers", [(), ("smart-unit",)], ids=str)
@pytest.mark.parametrize("aggregator", ["sum", "pcgrad"])
def test_the_update_in_plain_pytorch_on_the_page_is_the_same(
    tiny_model, make_step, batches, aggregator, regularizers
):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (code,) = (block for block in blocks if "def update" in block)
    shown: dict = {}
    exec(compile(code, str(PAGE), "exec"), shown)
    model, reference = tiny_model(), tiny_model()
    terms = tuple(REGULARIZERS.build(name, "train.regularizers") for name in regularizers)
    step = make_step(model, aggregator, regularizers=terms)
    freeze(reference.train(), STAGE)
    optimizer = reference_adamw(reference)
    turns = [batches, {"same": batches["same"]}]
    for seed, clip in enumerate([100.0, 0.5, 0.5]):  # at first nothing is clipped
        step.clip = clip
        torch.manual_seed(seed)
        step(turns)
        torch.manual_seed(seed)
        shown["update"](reference, step.tasks, turns, step.aggregator, optimizer, clip)
    assert_same(model, reference, atol=1e-5)


@pytest.mark.parametrize("tasks", [("mood",), ("same", "near"), ("near", "mood", "same")])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_pcgrad_works_on_the_encoder_and_leaves_the_heads(
    tiny_model, make_step, losses, batches, tasks, reduction
):
    model, reference = tiny_model(), tiny_model()
    turn = {task: batches[task] for task in tasks}
    step = make_step(model, {"name": "pcgrad", "reduction": reduction})
    torch.manual_seed(5)  # what PCGrad shuffles by
    step([turn])

    freeze(reference, STAGE)
    rows = shared_gradients(reference, losses, turn)
    combined = PCGrad(reduction=reduction)(rows, torch.Generator().manual_seed(5))
    optimizer = reference_adamw(reference)
    for task, batch in turn.items():
        loss = WEIGHTS[task] * losses[task](reference(task, batch.tokens), batch.labels)
        head = list(reference.head_parameters(task).values())
        for parameter, gradient in zip(head, torch.autograd.grad(loss, head), strict=True):
            parameter.grad = gradient
    shared = [p for p in reference.shared_parameters().values() if p.requires_grad]
    pieces = combined.split([p.numel() for p in shared])
    for parameter, gradient in zip(shared, pieces, strict=True):
        parameter.grad = gradient.view_as(parameter)
    # Adam's first update is lr x sign(g), so the gradients are what must agree.
    torch.testing.assert_close(step.gradients.reduced, combined, rtol=1e-4, atol=1e-6)
    for task in tasks:
        for mine, theirs in zip(
            model.head_parameters(task).values(),
            reference.head_parameters(task).values(),
            strict=True,
        ):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-6)
    optimizer.step()
    assert_same(model, reference, atol=1e-5)


# --- turns, clipping, freezing -----------------------------------------------------------


@pytest.mark.parametrize("aggregator", ["sum", "pcgrad"])
def test_two_turns_of_half_batches_equal_one_of_whole_ones(
    tiny_model, make_step, batches, aggregator
):
    whole, halves = (make_step(tiny_model(), aggregator) for _ in range(2))
    torch.manual_seed(0)
    one = whole([batches])
    torch.manual_seed(0)
    two = halves([{t: part(b, i, i + 2) for t, b in batches.items()} for i in (0, 2)])
    torch.testing.assert_close(halves.gradients.total, whole.gradients.total, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(two.grad_norm, one.grad_norm)
    for task, loss in one.losses.items():
        torch.testing.assert_close(two.losses[task], loss)
    assert_same(halves.model, whole.model, atol=1e-5)


def test_turns_of_different_tasks_count_the_same(tiny_model, make_step, losses, batches):
    step = make_step(tiny_model())
    result = step([{"mood": batches["mood"]}, {"near": batches["near"]}])
    assert set(result.losses) == {"mood", "near"}
    reference = tiny_model()
    freeze(reference, STAGE)
    two = {task: batches[task] for task in ("mood", "near")}
    expected = shared_gradients(reference, losses, two).sum(dim=0) / 2
    torch.testing.assert_close(step.gradients.reduced, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("aggregator", ["sum", "pcgrad"])
@pytest.mark.parametrize("clip", [0.0, 0.05, 1e6])
def test_clipping_equals_torchs(tiny_model, make_step, batches, clip, aggregator):
    plain, clipped = (make_step(tiny_model(), aggregator, clip=c) for c in (0.0, clip))
    torch.manual_seed(0)
    norm = plain([batches]).grad_norm
    torch.manual_seed(0)
    told = clipped([batches]).grad_norm
    with_gradient = [p for p in plain.model.parameters() if p.grad is not None]
    expected = torch.nn.utils.clip_grad_norm_(with_gradient, clip or 1e9)
    torch.testing.assert_close(norm, expected)
    torch.testing.assert_close(told, expected)  # as it was before clipping
    for (name, p), q in zip(
        clipped.model.named_parameters(), plain.model.parameters(), strict=True
    ):
        assert (p.grad is None) == (q.grad is None), name
        if p.grad is not None:
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("aggregator", ["sum", "pcgrad"])
def test_heads_of_absent_tasks_do_not_move(tiny_model, make_step, batches, aggregator):
    model = tiny_model()
    step = make_step(model, aggregator, stage=StageConfig(lr=0.1, weight_decay=0.5))
    step([batches])  # every head has momentum now
    before = weights_of(model)
    step([{"same": batches["same"]}])
    for name, tensor in model.state_dict().items():
        if name.startswith(("heads.task-mood", "heads.task-near")):
            assert torch.equal(tensor, before[name]), name
        elif not name.startswith("encoder.pooler"):
            assert not torch.equal(tensor, before[name]), name


@pytest.mark.parametrize("aggregator", ["sum", "pcgrad"])
@pytest.mark.parametrize("stage", [{"mode": "last-layer"}, {"freeze_layers": 1}])
def test_what_is_frozen_stays(tiny_model, make_step, batches, stage, aggregator):
    model = tiny_model()
    before = weights_of(model)
    step = make_step(model, aggregator, stage=StageConfig(lr=0.1, weight_decay=0.5, **stage))
    for _ in range(2):
        step([batches])
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]) != parameter.requires_grad, name


def test_a_head_without_parameters(tiny_model, make_step, batches, tiny_specs):
    model = tiny_model(heads={"near": {"name": "cosine"}})
    step = make_step(model)
    step.tasks["near"] = TaskParts(LOSSES.build("cosine-mse", "loss", tiny_specs["near"]))
    assert step([{"near": batches["near"]}]).grad_norm > 0


# --- regularizers ------------------------------------------------------------------------


@dataclass(kw_only=True)
class Nudge(Regularizer):
    """Test only: outputs should not change when the words move a little."""

    weight: float = 3.0

    def __call__(
        self, model: MultitaskModel, task: str, batch: Batch, outputs: Tensor, loss: Loss
    ) -> Tensor:
        words = model.encoder.word_embeddings(batch.tokens.ids)
        moved = model(task, batch.tokens, words + 0.3 * words.detach().sin())
        return self.weight * (moved - outputs).square().mean()


@pytest.fixture
def nudge() -> Iterator[str]:
    """A regularizer known only as long as the test runs."""
    name = "nudge-of-the-step-test"
    REGULARIZERS.register(name)(Nudge)
    yield name
    del REGULARIZERS._parts[name]


@pytest.mark.parametrize("aggregator", ["sum", "pcgrad"])
def test_regularizer_terms_join_the_gradient_and_are_told(
    tiny_model, make_step, losses, batches, nudge, aggregator
):
    terms = tuple(
        REGULARIZERS.build({"name": nudge, "weight": weight}, "x") for weight in (3.0, 1.0)
    )
    step = make_step(tiny_model(), aggregator, regularizers=terms)
    result = step([{"near": batches["near"]}])

    reference, batch = tiny_model(), batches["near"]
    freeze(reference, STAGE)
    outputs = reference("near", batch.tokens)
    loss = losses["near"](outputs, batch.labels)
    term = sum(t(reference, "near", batch, outputs, losses["near"]) for t in terms)
    (WEIGHTS["near"] * (loss + term)).backward()
    expected = torch.cat(
        [p.grad.flatten() for p in reference.shared_parameters().values() if p.requires_grad]
    )
    torch.testing.assert_close(step.gradients.reduced, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(result.losses["near"], loss.detach())
    torch.testing.assert_close(result.terms["near"], term.detach())
    assert term > 0
    assert not result.terms["near"].requires_grad


class Stray(Regularizer):
    """Test only: runs a backward pass of its own on the way, and adds nothing."""

    def __call__(
        self, model: MultitaskModel, task: str, batch: Batch, outputs: Tensor, loss: Loss
    ) -> Tensor:
        model(task, batch.tokens).square().sum().backward()
        return outputs.new_zeros(())


@pytest.mark.parametrize("aggregator", ["sum", "pcgrad"])
def test_what_a_regularizer_asks_for_on_the_way_is_no_part_of_the_gradient(
    tiny_model, make_step, batches, aggregator
):
    plain, strayed = (
        make_step(tiny_model(), aggregator, regularizers=terms) for terms in ((), (Stray(),))
    )
    for step in (plain, strayed):
        for _ in range(2):
            torch.manual_seed(0)
            step([batches, {"mood": batches["mood"]}])
    assert torch.equal(plain.gradients.total, strayed.gradients.total)


# --- weighting ---------------------------------------------------------------------------


@pytest.mark.parametrize("lr", [None, 0.3])
def test_uncertainty_learns_with_the_optimizer_as_plain_autograd_would(
    tiny_model, make_step, losses, batches, lr
):
    model, reference = tiny_model(), tiny_model()
    step = make_step(model, weighting={"name": "uncertainty", **({} if lr is None else {"lr": lr})})
    freeze(reference, STAGE)
    s = {task: torch.nn.Parameter(torch.zeros(())) for task in WEIGHTS}
    optimizer = reference_adamw(reference)
    optimizer.add_param_group({"params": list(s.values()), "weight_decay": 0.0})
    optimizer.param_groups[-1]["lr"] = lr or 1e-2
    for tasks in (("mood", "near"), ("mood", "same", "near"), ("near",)):
        step([{task: batches[task] for task in tasks}])
        optimizer.zero_grad()
        for task in tasks:
            loss = losses[task](reference(task, batches[task].tokens), batches[task].labels)
            (WEIGHTS[task] * (loss * torch.exp(-s[task]) + s[task])).backward()
        optimizer.step()
    assert_same(model, reference, atol=1e-5)
    for task, parameter in s.items():
        learned = step.weighting.tensors()[f"s/{task}"]
        assert parameter.abs() > 1e-3
        torch.testing.assert_close(learned, parameter, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("aggregator", ["sum", "pcgrad"])
def test_famo_divides_every_gradient_by_its_loss_and_makes_the_weights_add_up_to_1(
    tiny_model, make_step, losses, batches, aggregator
):
    step = make_step(tiny_model(), aggregator, weighting="famo")
    step.weighting._logits.copy_(torch.tensor([0.3, -0.2, 1.0]))
    z = dict(zip(WEIGHTS, torch.softmax(torch.tensor([0.3, -0.2, 1.0]), dim=0), strict=True))
    torch.manual_seed(2)
    result = step([batches])
    shares = {task: z[task] / loss for task, loss in result.losses.items()}
    total = sum(shares.values())
    factors = {task: WEIGHTS[task] * (share / total).item() for task, share in shares.items()}
    reference = tiny_model()
    freeze(reference, STAGE)
    rows = shared_gradients(reference, losses, batches, factors)
    combined = build_aggregator(aggregator)(rows, torch.Generator().manual_seed(2))
    torch.testing.assert_close(step.gradients.reduced, combined, rtol=1e-4, atol=1e-6)
    for task, batch in batches.items():
        loss = factors[task] * losses[task](reference(task, batch.tokens), batch.labels)
        head = list(reference.head_parameters(task).values())
        for mine, theirs in zip(
            step.model.head_parameters(task).values(), torch.autograd.grad(loss, head), strict=True
        ):
            torch.testing.assert_close(mine.grad, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weighting", sorted(WEIGHTINGS))
def test_two_turns_of_one_batch_weigh_as_one(tiny_model, make_step, batches, weighting):
    one, two = (make_step(tiny_model(), weighting=weighting) for _ in range(2))
    one([batches])
    two([batches, batches])
    torch.testing.assert_close(two.gradients.total, one.gradients.total, rtol=1e-4, atol=1e-6)


# --- conflicts ---------------------------------------------------------------------------


@pytest.mark.parametrize("aggregator", ["pcgrad", "gradvac", {"name": "sum", "watch": True}])
def test_the_cosines_of_the_tasks_gradients_are_told(
    tiny_model, make_step, losses, batches, aggregator
):
    turn = {task: batches[task] for task in ("near", "mood", "same")}
    result = make_step(tiny_model(), aggregator)([turn])
    reference = tiny_model()
    freeze(reference, STAGE)
    rows = shared_gradients(reference, losses, turn).double()
    rows = rows / rows.norm(dim=1, keepdim=True)
    assert result.rows == ("near", "mood", "same")
    torch.testing.assert_close(result.cosines.double(), rows @ rows.T, rtol=1e-4, atol=1e-5)


class Halving(Aggregator):
    """Half of the sum: an aggregator that does not care which task a gradient came from."""

    per_task = False

    def __call__(self, gradients, generator, tasks=()):
        """Return half of the one row."""
        assert len(gradients) == 1
        return gradients[0] / 2


def test_an_aggregator_that_wants_the_sum_is_handed_it(tiny_model, make_step, batches):
    """It may do more with it than plain addition does."""
    plain, halved = make_step(tiny_model()), make_step(tiny_model())
    halved.aggregator = Halving()
    for step in (plain, halved):
        step([batches])
    assert torch.equal(halved.gradients.reduced, plain.gradients.reduced / 2)
    heads = len(plain.gradients.reduced)
    assert torch.equal(halved.gradients.total[heads:], plain.gradients.total[heads:])


@pytest.mark.parametrize("tasks", [("mood", "near"), ("mood", "same", "near")])
def test_watching_the_sum_does_not_change_it(tiny_model, make_step, batches, tasks):
    plain, watched = (
        make_step(tiny_model(), {"name": "sum", "watch": watch}, tasks=tasks)
        for watch in (False, True)
    )
    assert len(plain.gradients.rows) == 1
    assert len(watched.gradients.rows) == len(tasks)
    batches = {task: batches[task] for task in tasks}
    halves = [{t: part(b, i, i + 2) for t, b in batches.items()} for i in (0, 2)]
    for turns in ([batches], halves):
        plain(turns)
        watched(turns)
        torch.testing.assert_close(
            watched.gradients.total, plain.gradients.total, rtol=1e-4, atol=1e-6
        )
    assert_same(plain.model, watched.model, atol=1e-5)


# --- devices and processes ---------------------------------------------------------------


class Reducing(Team):
    """A team of one that does something to every gradient where several would make them one."""

    def __init__(self, reduce):
        self.reduce = reduce


def test_reduce_sees_every_tasks_row_before_they_meet(tiny_model, make_step, losses, batches):
    seen: list[Tensor] = []
    step = make_step(tiny_model(), "pcgrad", team=Reducing(lambda t: seen.append(t.clone())))
    turn = {task: batches[task] for task in ("near", "mood")}
    step([turn, turn])
    reference = tiny_model()
    freeze(reference, STAGE)
    rows = shared_gradients(reference, losses, turn)
    assert len(seen) == 2  # the tasks' rows and, last, the heads
    torch.testing.assert_close(seen[0], rows, rtol=1e-4, atol=1e-6)
    assert len(seen[1]) == len(step.gradients.total) - rows.shape[1]


@pytest.mark.parametrize("aggregator", ["sum", "pcgrad"])
def test_bf16_keeps_parameters_and_gradients_in_fp32(tiny_model, make_step, batches, aggregator):
    half = make_step(tiny_model(), aggregator, autocast=torch.bfloat16)
    full = make_step(tiny_model(), aggregator)
    for step in (half, full):
        torch.manual_seed(0)
        result = step([batches])
        assert result.grad_norm.isfinite()
        for parameter in step.model.parameters():
            assert parameter.dtype == torch.float32
            assert parameter.grad is None or parameter.grad.dtype == torch.float32
        assert all(loss.dtype == torch.float32 for loss in result.losses.values())
    difference = (half.gradients.total - full.gradients.total).norm()
    assert 0 < difference < 0.1 * full.gradients.total.norm()


def test_nothing_is_read_from_the_device(tiny_model, make_step, batches, monkeypatch):
    steps = [
        make_step(tiny_model(dropout=0.1), name, clip=1.0, regularizers=(Nudge(),))
        for name in AGGREGATORS
        if AGGREGATORS[name].capturable
    ]
    steps += [make_step(tiny_model(), {"name": "sum", "watch": True})]
    steps += [make_step(tiny_model(), weighting=name) for name in WEIGHTINGS]

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a value is read from the device")

    for name in ("item", "tolist", "numpy", "cpu", "__bool__", "__float__", "__int__", "__index__"):
        monkeypatch.setattr(Tensor, name, refuse)
    for step in steps:
        for turns in ([batches], [{"mood": batches["mood"]}, {"near": batches["near"]}]):
            step(turns)
        step.end_epoch()


def joinable(batch: Batch) -> Parcel:
    """Wrap up a batch as one whose length others may set."""

    def unpack(*inputs: Tensor, length: int = 16, total: int | None = None) -> Batch:
        parts = [torch.nn.functional.pad(p, (0, length - p.shape[1])) for p in inputs[:3]]
        return Batch(Tokens(*parts, total), inputs[3])

    lengths = batch.tokens.mask.sum(dim=1).numpy().reshape(-1, len(batch.labels))
    return replace(Parcel.of(batch), unpack=unpack, lengths=lengths)


@pytest.mark.parametrize(
    ("weighting", "regularizer"),
    [
        ("fixed", None),
        ("dwa", None),
        ("uncertainty", "bregman"),
        ("fixed", "smart"),
        ("famo", "smart-unit"),
    ],
)
def test_tasks_in_one_pass_make_the_same_updates(
    tiny_model, make_step, batches, monkeypatch, weighting, regularizer
):
    # The same noise for every row, however many there are.
    monkeypatch.setattr(torch, "randn_like", lambda x: torch.ones_like(x) * x.sign())
    steps = []
    for together in (None, Buckets((16,), (200,))):
        model = tiny_model(dropout=0.0)
        table = {"name": regularizer, "weight": {"mood": 0.5, "near": 2.0}}
        terms = () if regularizer is None else (REGULARIZERS.build(table, "x"),)
        step = make_step(
            model, clip=1.0, weighting=weighting, regularizers=terms, together=together
        )
        for term in terms:
            term.begin(model, 10)
        steps.append(step)
    calls = []
    monkeypatch.setattr(
        steps[1].model.encoder, "forward", counted(steps[1].model.encoder.forward, calls)
    )
    for _ in range(3):
        turn = {task: joinable(batch) for task, batch in batches.items()}
        results = [step([turn]) for step in steps]
        for task, loss in results[0].losses.items():
            torch.testing.assert_close(loss, results[1].losses[task], rtol=1e-5, atol=1e-6)
            if regularizer is not None:
                torch.testing.assert_close(
                    results[0].terms[task], results[1].terms[task], rtol=1e-4, atol=1e-9
                )
        torch.testing.assert_close(results[0].grad_norm, results[1].grad_norm, rtol=1e-4, atol=1e-6)
    assert_same(steps[0].model, steps[1].model, atol=1e-3 if regularizer else 1e-4)
    passes = {None: 1, "bregman": 2, "smart": 3, "smart-unit": 3}[regularizer]
    looks = 3 if weighting == "famo" else 0
    assert len(calls) == 3 * (passes + looks)


def test_tasks_of_other_regularizers_do_not_join(tiny_model, make_step, batches):
    """A pass of all tasks would give every one of them the terms of all."""
    turn = {task: joinable(batch) for task, batch in batches.items()}
    results = []
    for together in (None, Buckets((16,), (200,))):
        step = make_step(tiny_model())
        tasks = {**step.tasks, "near": replace(step.tasks["near"], regularizers=(Nudge(),))}
        own = Step(step.model, tasks, step.aggregator, step.optimizer, together=together)
        results.append(own([turn]))
    assert results[0].terms.keys() == results[1].terms.keys() == {"near"}
    assert torch.equal(results[0].grad_norm, results[1].grad_norm)


@pytest.mark.parametrize(
    ("aggregator", "num_turns", "wrap"),
    [("pcgrad", 1, joinable), ("sum", 2, joinable), ("sum", 1, Parcel.of)],
    ids=["an aggregator's", "of two turns", "of unknown lengths"],
)
def test_batches_that_cannot_go_as_one_do_not(
    tiny_model, make_step, batches, aggregator, num_turns, wrap
):
    turns = [{task: wrap(batch) for task, batch in batches.items()}] * num_turns
    steps = []
    for together in (None, Buckets((16,), (200,))):
        steps.append(make_step(tiny_model(dropout=0.0), aggregator, together=together))
        steps[-1].generator.manual_seed(0)
        steps[-1](turns)
    assert_same(steps[0].model, steps[1].model, atol=0)


def counted(function, calls: list):
    def call(*args, **settings):
        calls.append(1)
        return function(*args, **settings)

    return call


@pytest.mark.parametrize(
    ("aggregator", "weighting"),
    [
        ("sum", "fixed"),
        ("gradvac", "uncertainty"),
        ("nash-mtl", "fixed"),
        ("pcgrad", "dwa"),
        ("pcgrad", "famo"),
    ],
)
def test_replayed_halves_make_the_same_updates(
    tiny_model, make_step, batches, recorder, aggregator, weighting
):
    steps = [
        make_step(tiny_model(dropout=0.1), aggregator, clip=1.0, weighting=weighting)
        for _ in range(2)
    ]
    steps[1].runner = recorder(torch.device("cpu"))
    turns = [
        [batches],
        [{"mood": batches["mood"]}],
        [{"mood": batches["mood"]}, {"near": batches["near"]}],
    ]
    for place in range(9):
        results = []
        for step in steps:
            torch.manual_seed(place)
            results.append(step(turns[place % 3]))
        assert results[0].losses.keys() == results[1].losses.keys()
        for task, loss in results[0].losses.items():
            assert torch.equal(loss, results[1].losses[task])
        assert torch.equal(results[0].grad_norm, results[1].grad_norm)
    assert_same(steps[0].model, steps[1].model, atol=0)
    assert steps[1].runner.num_captures >= 4


class TwoPlaces:
    """Lanes that overlap in every other update."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    @contextmanager
    def open(self, num_lanes: int, _: object) -> Iterator[object]:
        self.asked.append(num_lanes)
        yield lambda _: nullcontext(len(self.asked) % 2 == 0)


def test_a_gradient_is_captured_once_for_each_place_it_is_taken_in(
    tiny_model, make_step, batches, recorder
):
    step = make_step(tiny_model(), "pcgrad")
    step.runner, step.lanes = recorder(torch.device("cpu")), TwoPlaces()
    counts = []
    for _ in range(6):
        step([batches])
        counts.append(step.runner.num_captures)
    # The update's own in the second; each task's in the third and, elsewhere, in the fourth.
    assert counts == [0, 1, 4, 7, 7, 7]
    assert step.lanes.asked == [3] * 6


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize(
    ("aggregator", "weighting"),
    [
        *((name, "fixed") for name in AGGREGATORS if AGGREGATORS[name].capturable),
        *(("sum", name) for name in WEIGHTINGS),
    ],
)
def test_a_gpu_is_never_waited_for(tiny_model, make_step, batches, aggregator, weighting):
    device = torch.device("cuda")
    model = tiny_model(dropout=0.1).to(device)
    step = make_step(model, aggregator, clip=1.0, weighting=weighting)
    turns = [{task: batch.to(device) for task, batch in batches.items()}]
    step(turns)  # the first one may set things up
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(turns)
    finally:
        torch.cuda.set_sync_debug_mode(mode)
