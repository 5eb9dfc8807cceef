"""MGDA (Désidéri 2012, Multiple-gradient descent algorithm; for several tasks: Sener and Koltun
2018, Multi-Task Learning as Multi-Objective Optimization)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from plait.methods.aggregators.base import AGGREGATORS
from plait.methods.aggregators.gram import GramAggregator

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor


@AGGREGATORS.register("mgda")
@dataclass(kw_only=True)
class MGDA(GramAggregator):
    """Takes the shortest vector between the tasks' gradients: no task loses by a step along it.

    The shortest weighted mean. A task whose gradient is small decides alone, and one whose
    gradient is 0 stops the encoder. Gradients are taken as they come; the paper's ways to
    normalise them are left to the tasks' weights. Sener and Koltun near the answer by Frank-Wolfe
    (their Algorithm 2), which for many tasks is still some hundredths off after hundreds of rounds
    and depends on rounding; here it is found exactly, by an active set (Lawson and Hanson 1974).
    """

    def weights(self, gram: Tensor, size: float, tasks: list[str]) -> Tensor:  # noqa: ARG002
        """Return the weights of the shortest mean, which add up to 1."""
        return torch.from_numpy(find_shortest(gram.double().numpy()))


def find_shortest(gram: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Turn vectors' inner products into the weights (0 or more, of sum 1) of their shortest mean.

    Up to a factor they are the w >= 0 for which w' (gram + c) w / 2 - c sum(w) is least, for any
    c > 0: a problem of non-negative least squares.
    """
    num = len(gram)
    sizes = gram.diagonal()
    scale = float(sizes.min())
    if scale <= 0:  # nothing is shorter than 0
        alone: npt.NDArray[np.float64] = np.eye(num)[sizes.argmin()]
        return alone
    matrix = gram + scale
    found, active = np.zeros(num), np.zeros(num, bool)
    for _ in range(10 * num):  # each round is nearer; rounding alone could go in a circle
        # Over what rounding alone could make of it.
        pull = (scale - matrix @ found) / (scale + np.abs(matrix) @ found)
        pull[active] = 0.0
        if pull.max() <= 1e-12:
            break
        active[pull.argmax()] = True
        while True:
            inside = np.flatnonzero(active)
            wanted = np.zeros(num)
            wanted[inside] = np.linalg.lstsq(
                matrix[np.ix_(inside, inside)], np.full(len(inside), scale), rcond=None
            )[0]
            below = inside[wanted[inside] <= 0]
            if not len(below):
                break
            # As far as the first that would fall below 0, which is left out from there on.
            steps = found[below] / np.maximum(found[below] - wanted[below], 1e-300)
            found += steps.min() * (wanted - found)
            active[below[steps.argmin()]] = False
            found[~active] = 0.0
        found = wanted
    weights: npt.NDArray[np.float64] = found / found.sum()
    return weights
