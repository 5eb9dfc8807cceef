"""GradVac, MGDA, CAGrad, Aligned-MTL, UPGrad and Nash-MTL: what their papers claim of them."""

from __future__ import annotations

import sys
from itertools import permutations, product

import numpy as np
import pytest
import torch
from torch import Tensor

from plait.errors import RecipeError
from plait.methods.aggregators import AGGREGATORS, Aggregator
from plait.methods.aggregators.gradvac import GradVac
from plait.methods.aggregators.mgda import find_shortest
from plait.methods.aggregators.nash_mtl import NashMTL
from plait.methods.aggregators.pcgrad import PCGrad

THROUGH_TORCHJD = ["aligned-mtl", "cagrad", "upgrad"]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(num_tasks: int, num_parameters: int, seed: int) -> Tensor:
    return torch.randn(num_tasks, num_parameters, generator=generator(seed))


def build(name: str, **settings: object) -> Aggregator:
    if name in THROUGH_TORCHJD:
        pytest.importorskip("torchjd")
    return AGGREGATORS.build({"name": name, **settings}, "train.aggregator")


def answer(name: str, gradients: Tensor, **settings: object) -> Tensor:
    return build(name, **settings)(gradients, generator())


def theirs(name: str, gradients: Tensor, *needs: str, **settings: object) -> Tensor:
    """What torchjd itself makes of the gradients, by its own solvers."""
    for need in needs:
        pytest.importorskip(need)
    aggregation = pytest.importorskip("torchjd.aggregation")
    return getattr(aggregation, name)(**settings)(gradients)


# --- the extra ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", THROUGH_TORCHJD)
def test_a_missing_torchjd_is_told_with_the_extra_that_brings_it(name, monkeypatch):
    for module in [m for m in sys.modules if m.split(".")[0] == "torchjd"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "torchjd", None)
    with pytest.raises(RecipeError, match=r"train.aggregator: .*pip install 'plait\[surgery\]'"):
        AGGREGATORS.build(name, "train.aggregator")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"name": "gradvac", "beta": 1.5}, "beta = 1.5"),
        ({"name": "nash-mtl", "every": 0}, "every = 0"),
        ({"name": "nash-mtl", "max_norm": -1.0}, "max_norm = -1.0"),
        ({"name": "cagrad", "c": -0.1}, "c must be"),
    ],
)
def test_settings_out_of_range_are_refused(table, words):
    if table["name"] in THROUGH_TORCHJD:
        pytest.importorskip("torchjd")
    with pytest.raises(RecipeError, match=words):
        AGGREGATORS.build(table, "train.aggregator")


@pytest.mark.parametrize("name", [*THROUGH_TORCHJD, "mgda"])
@pytest.mark.parametrize("scale", [1e-9, 1e6])
def test_very_small_and_very_large_gradients_are_no_less_solved(name, scale):
    """torchjd alone takes inner products that add up to less than 1e-4 for 0."""
    gradients = draw(3, 12, seed=1)
    torch.testing.assert_close(
        answer(name, gradients * scale) / scale, answer(name, gradients), rtol=1e-3, atol=1e-4
    )


# --- GradVac -----------------------------------------------------------------------------


def literal_gradvac(
    gradients: Tensor, orders: list[tuple[int, ...]], targets: Tensor, beta: float
) -> tuple[Tensor, Tensor]:
    """Wang et al. 2021, Algorithm 1, line by line in float64."""
    original, targets = gradients.double(), targets.clone()
    turned = original.clone()
    for i, order in enumerate(orders):
        for j in order:
            norm, other = turned[i].norm(), original[j].norm()
            phi, target = (turned[i] @ original[j] / norm / other).item(), targets[i, j].item()
            if phi < target:
                amount = norm * (target * (1 - phi**2) ** 0.5 - phi * (1 - target**2) ** 0.5)
                turned[i] += amount / (other * (1 - target**2) ** 0.5) * original[j]
            targets[i, j] = (1 - beta) * target + beta * phi
    return turned.sum(dim=0), targets


def targets_of(gradvac: Aggregator, names: str) -> Tensor:
    kept = gradvac.tensors()
    return torch.tensor(
        [[0.0 if i == j else kept[f"{i}/{j}"].item() for j in names] for i in names],
        dtype=torch.float64,
    )


def test_gradvac_by_hand():
    """From a right angle to a cosine of 0.6: 3/4 of the other."""
    gradvac = GradVac(beta=0.5)
    gradvac.load_tensors({"a/b": torch.tensor(0.6), "b/a": torch.tensor(0.6)})
    combined = gradvac(torch.eye(2), generator(), ["a", "b"])
    torch.testing.assert_close(combined, torch.tensor([1.75, 1.75]))
    assert gradvac.tensors()["a/b"].item() == pytest.approx(0.3)


@pytest.mark.parametrize("num_tasks", [2, 3, 5])
def test_gradvac_with_targets_of_0_is_pcgrad(num_tasks):
    for seed in range(10):
        gradients = draw(num_tasks, 9, seed)
        ours = GradVac(beta=0.0)(gradients, generator(seed))
        pcgrads = PCGrad()(gradients, generator(seed))
        torch.testing.assert_close(ours, pcgrads, rtol=1e-4, atol=1e-5)


def test_two_tasks_follow_the_literal_gradvac_over_many_updates():
    gradvac, targets = GradVac(beta=0.3), torch.zeros(2, 2, dtype=torch.float64)
    for seed in range(30):
        gradients = draw(2, 6, seed) + 0.5  # they mostly agree, so that targets rise
        expected, targets = literal_gradvac(gradients, [(1,), (0,)], targets, 0.3)
        combined = gradvac(gradients, generator(seed), "ab")
        torch.testing.assert_close(combined.double(), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(targets_of(gradvac, "ab"), targets, rtol=1e-4, atol=1e-5)
    assert targets.max() > 0.1


def test_three_tasks_equal_the_literal_gradvac_in_some_order():
    start = torch.tensor([[0.0, 0.4, 0.2], [0.3, 0.0, 0.5], [0.1, 0.6, 0.0]]).double()
    named = {f"{i}/{j}": start[i, j].float() for i, j in permutations(range(3), 2)}
    own = [list(permutations([j for j in range(3) if j != i])) for i in range(3)]
    for seed in range(5):
        gradients = draw(3, 5, seed)
        outcomes = [literal_gradvac(gradients, list(o), start, 0.2) for o in product(*own)]
        gradvac = GradVac(beta=0.2)
        gradvac.load_tensors(named)
        combined = gradvac(gradients, generator(seed)).double()
        targets = targets_of(gradvac, "012")
        apart = [
            max((combined - one).abs().max().item(), (targets - other).abs().max().item())
            for one, other in outcomes
        ]
        assert min(apart) < 1e-4


def test_gradvac_remembers_pairs_by_their_names():
    """What two tasks did together does not change when a third joins, in whatever order."""
    gradvac = GradVac(beta=0.5)
    gradients = draw(2, 6, seed=3).abs()
    gradvac(gradients, generator(), ["a", "b"])
    before = gradvac.tensors()["a/b"].clone()
    gradvac(draw(2, 6, seed=4).abs(), generator(), ["c", "b"])
    assert torch.equal(gradvac.tensors()["a/b"], before)
    assert gradvac.tensors().keys() == {"a/b", "b/a", "c/b", "b/c"}


def test_gradvac_equals_torchjd():
    aggregation = pytest.importorskip("torchjd.aggregation")
    reference, gradvac = aggregation.GradVac(beta=0.3), GradVac(beta=0.3)
    for seed in range(20):
        gradients = draw(2, 6, seed) + 0.3
        expected = reference(gradients)
        torch.testing.assert_close(gradvac(gradients, generator()), expected, rtol=1e-4, atol=1e-4)


# --- MGDA --------------------------------------------------------------------------------


def test_mgda_by_hand():
    # The shortest between (1, 0) and (0, 2) is 4/5 of the first and 1/5 of the second.
    combined = answer("mgda", torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    torch.testing.assert_close(combined, torch.tensor([0.8, 0.4]))


@pytest.mark.parametrize("num_tasks", [2, 3, 5, 8])
def test_nobody_loses_by_mgda(num_tasks):
    """At the shortest vector d of the hull, g . d >= |d|^2 for every g in it."""
    for seed in range(10):
        gradients = draw(num_tasks, 8, seed).double()
        d = answer("mgda", gradients)
        assert (gradients @ d >= d @ d - 1e-9 * gradients.norm(dim=1).max()).all()


@pytest.mark.parametrize("num_tasks", [3, 5, 8])
def test_mgda_stays_between_the_gradients(num_tasks):
    """Weights of 0 or more: the shortest vector in line with them all would satisfy the above."""
    some_are_left_out = False
    for seed in range(10):
        numbers = np.random.default_rng(seed)
        gradients = numbers.normal(size=(num_tasks, 12)) * numbers.lognormal(size=(num_tasks, 1))
        weights = find_shortest(gradients @ gradients.T)
        assert weights.min() >= 0
        assert weights.sum() == pytest.approx(1)
        shortest = weights @ gradients
        assert (gradients @ shortest >= shortest @ shortest - 1e-9).all()
        some_are_left_out |= bool((weights == 0).any())
    assert some_are_left_out


def test_mgda_nears_torchjd():
    gradients = draw(3, 8, seed=4)
    expected = theirs("MGDA", gradients, epsilon=1e-5, max_iters=250)
    torch.testing.assert_close(answer("mgda", gradients), expected, rtol=1e-3, atol=1e-4)


# --- CAGrad ------------------------------------------------------------------------------


@pytest.mark.parametrize("num_tasks", [2, 3, 5])
def test_cagrad_with_c_of_0_is_the_mean_or_the_sum(num_tasks):
    gradients = draw(num_tasks, 8, seed=2)
    torch.testing.assert_close(answer("cagrad", gradients, c=0.0), gradients.mean(dim=0))
    total = answer("cagrad", gradients, c=0.0, reduction="sum")
    torch.testing.assert_close(total, gradients.sum(dim=0))


@pytest.mark.parametrize("c", [0.2, 0.5, 0.9])
def test_cagrad_stays_in_its_ball_and_helps_the_worst_task_most(c):
    for seed in range(5):
        gradients = draw(2, 6, seed).double()
        mean = gradients.mean(dim=0)
        d = answer("cagrad", gradients, c=c)
        assert (d - mean).norm() <= c * mean.norm() * 1.001
        # Of the ball's vectors in the plane of the two gradients, none does better.
        basis = torch.linalg.qr(gradients.T).Q
        turns = torch.linspace(0, 2 * torch.pi, 2000, dtype=torch.float64)
        circle = torch.stack([turns.cos(), turns.sin()]).T @ basis.T
        best = (gradients @ (mean + c * mean.norm() * circle).T).amin(dim=0).max()
        worst = (gradients @ d).min()
        assert worst >= best - 2e-3
        assert worst >= (gradients @ mean).min() - 1e-6


def test_cagrad_equals_torchjd():
    gradients = draw(3, 8, seed=5)
    expected = theirs("CAGrad", gradients, "cvxpy", c=0.4)
    torch.testing.assert_close(answer("cagrad", gradients, c=0.4), expected, rtol=1e-3, atol=1e-4)


# --- Aligned-MTL -------------------------------------------------------------------------


@pytest.mark.parametrize("num_tasks", [2, 3, 5])
def test_aligned_gradients_are_orthogonal_and_equally_long(num_tasks):
    """Their condition number is 1, and their mean is the answer."""
    gradients = draw(num_tasks, 9, seed=6)
    u, s, v = np.linalg.svd(gradients.double().numpy(), full_matrices=False)
    aligned = s.min() * u @ v  # the nearest matrix whose singular values are all the same
    np.testing.assert_allclose(
        aligned @ aligned.T, s.min() ** 2 * np.eye(num_tasks), rtol=0, atol=1e-9
    )
    combined = answer("aligned-mtl", gradients).double().numpy()
    np.testing.assert_allclose(combined, aligned.mean(axis=0), rtol=1e-3, atol=1e-4)
    total = answer("aligned-mtl", gradients, reduction="sum").double().numpy()
    np.testing.assert_allclose(total, aligned.sum(axis=0), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("scale", ["min", "median", "rmse"])
def test_orthogonal_gradients_of_one_length_are_left_alone(scale):
    combined = answer("aligned-mtl", 3 * torch.eye(4)[:3], scale=scale, reduction="sum")
    torch.testing.assert_close(combined, torch.tensor([3.0, 3.0, 3.0, 0.0]))


@pytest.mark.parametrize("scale", ["min", "median", "rmse"])
def test_aligned_mtl_equals_torchjd(scale):
    gradients = draw(3, 8, seed=7)
    expected = theirs("AlignedMTL", gradients, scale_mode=scale)
    combined = answer("aligned-mtl", gradients, scale=scale)
    torch.testing.assert_close(combined, expected, rtol=1e-3, atol=1e-4)


# --- UPGrad ------------------------------------------------------------------------------


@pytest.mark.parametrize("num_tasks", [2, 3, 5, 8])
def test_nobody_loses_by_upgrad(num_tasks):
    for seed in range(20):
        gradients = draw(num_tasks, 6, seed)
        combined = answer("upgrad", gradients)
        assert (gradients @ combined > -1e-4).all()


def test_upgrad_equals_torchjd_with_the_solver_it_comes_with():
    for seed in range(5):
        gradients = draw(4, 6, seed)
        expected = theirs("UPGrad", gradients, "quadprog", "qpsolvers")
        # Theirs adds 1e-4 to the diagonal of the inner products.
        torch.testing.assert_close(answer("upgrad", gradients), expected, rtol=0, atol=5e-3)


# --- Nash-MTL ----------------------------------------------------------------------------


@pytest.mark.parametrize("num_tasks", [2, 3, 5])
def test_the_bargain_is_struck(num_tasks):
    """G w = 1 / w, so that the answer is of length sqrt(tasks)."""
    for seed in range(10):
        gradients = draw(num_tasks, 12, seed).double()
        combined = NashMTL(max_norm=0.0)(gradients, generator())
        weights = torch.linalg.lstsq(gradients.T, combined.unsqueeze(1)).solution.squeeze(1)
        assert (weights > 0).all()
        torch.testing.assert_close(
            weights * (gradients @ combined), torch.ones(num_tasks).double(), rtol=1e-6, atol=1e-6
        )
        assert combined.norm().item() == pytest.approx(num_tasks**0.5)
        assert NashMTL()(gradients, generator()).norm().item() == pytest.approx(1.0)
        longer = NashMTL(max_norm=9.0)(gradients, generator())
        torch.testing.assert_close(longer, combined)  # cut, never stretched


def test_weights_are_kept_for_some_updates_and_found_anew_for_other_tasks():
    nash, names = NashMTL(max_norm=0.0, every=3), ["a", "b"]
    gradients = [draw(2, 12, seed) for seed in range(5)]

    def fresh(which: int) -> Tensor:
        return NashMTL(max_norm=0.0)(gradients[which], generator())

    answers = [nash(g, generator(), names) for g in gradients[:4]]
    torch.testing.assert_close(answers[0], fresh(0))
    weights = torch.linalg.lstsq(gradients[0].T, answers[0].unsqueeze(1)).solution.squeeze(1)
    torch.testing.assert_close(answers[1], weights @ gradients[1])
    torch.testing.assert_close(answers[2], weights @ gradients[2])
    torch.testing.assert_close(answers[3], fresh(3))
    torch.testing.assert_close(nash(gradients[4], generator(), ["a", "c"]), fresh(4))


@pytest.mark.filterwarnings("ignore:You are solving a parameterized problem")
def test_nash_mtl_equals_torchjd_with_the_solver_it_comes_with():
    for seed in range(3):
        gradients = draw(3, 12, seed)
        expected = theirs("NashMTL", gradients, "ecos", "cvxpy", n_tasks=3)
        torch.testing.assert_close(
            NashMTL()(gradients, generator()), expected, rtol=0.02, atol=0.01
        )
