"""Two outputs of one model become their distance, one number per example.

What is compared differs by little: two passes 1e-5 apart in their input have a KL divergence
of 1e-10, the small remainder of terms that nearly cancel. So distances are taken in fp64,
which costs nothing on a few numbers per example and leaves the passes' own rounding as the
only one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from plait.methods.losses import Loss

Variant = Literal[0, 1, 2]
"""Which distance in the inner steps and in the last one, in the words of system C's report.

0: symmetric KL for classes, yes/no and labels, squared difference for scores, in both.
1: plain KL for every task, in both.
2: plain KL for every task in the inner steps, symmetric KL in the last.
"""


def inner_distance(variant: Variant, loss: Loss, clean: Tensor, moved: Tensor) -> Tensor:
    """Measure how far `moved` is from `clean` while looking for a worse input, [examples]."""
    return _proper(loss, clean, moved) if variant == 0 else plain_kl(loss, clean, moved)


def last_distance(variant: Variant, loss: Loss, clean: Tensor, moved: Tensor) -> Tensor:
    """Measure how far `moved` is from `clean` for the term itself, [examples]."""
    if variant == 0:
        return _proper(loss, clean, moved)
    kl = plain_kl if variant == 1 else symmetric_kl
    return kl(loss, clean, moved)


def mean_distances(
    variant: Variant, losses: Iterable[Loss], clean: Iterable[Tensor], moved: Iterable[Tensor]
) -> list[Tensor]:
    """Return the terms of several tasks: the mean of each one's last distances."""
    each = zip(losses, clean, moved, strict=True)
    return [last_distance(variant, *one).mean() for one in each]


def _proper(loss: Loss, clean: Tensor, moved: Tensor) -> Tensor:
    """The paper's l_s: by what the task is."""
    measure = squared if loss.spec.kind.form == "number" else symmetric_kl
    return measure(loss, clean, moved)


def plain_kl(loss: Loss, clean: Tensor, moved: Tensor) -> Tensor:
    """KL(clean || moved)."""
    p, q = _log_probabilities(loss, clean, moved)
    return _per_example((p.exp() * (p - q)).sum(dim=-1))


def symmetric_kl(loss: Loss, clean: Tensor, moved: Tensor) -> Tensor:
    """KL(clean || moved) + KL(moved || clean)."""
    p, q = _log_probabilities(loss, clean, moved)
    return _per_example(((p.exp() - q.exp()) * (p - q)).sum(dim=-1))


def squared(loss: Loss, clean: Tensor, moved: Tensor) -> Tensor:
    """The squared difference of a score, in the scale of its loss."""
    return (loss.value(clean.double()) - loss.value(moved.double())).square()


def _log_probabilities(loss: Loss, clean: Tensor, moved: Tensor) -> tuple[Tensor, Tensor]:
    return loss.log_probabilities(clean.double()), loss.log_probabilities(moved.double())


def _per_example(distances: Tensor) -> Tensor:
    """Return [examples]: of labels, which are a distribution each, the mean, as of their loss."""
    return distances.mean(dim=-1) if distances.dim() > 1 else distances
