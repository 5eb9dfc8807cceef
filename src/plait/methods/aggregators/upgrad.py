"""UPGrad (Quinton and Rey 2024, Jacobian Descent For Multi-Objective Optimization)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from plait.methods.aggregators.base import AGGREGATORS
from plait.methods.aggregators.gram import TorchJDAggregator

if TYPE_CHECKING:
    from torch import Tensor


@AGGREGATORS.register("upgrad")
@dataclass(kw_only=True)
class UPGrad(TorchJDAggregator):
    """Projects each task's gradient to where no task loses by it, then takes the mean.

    Like PCGrad, but each gradient goes to the nearest vector that conflicts with none of the
    others at once, so that neither does their mean, and no order has to be drawn. The paper's
    mean is the default; `reduction = "sum"` gives the sum, which is the plain sum where nothing
    conflicts. Through torchjd, with a solver of our own instead of one under the GPL.
    """

    reduction: Literal["mean", "sum"] = "mean"

    def build(self) -> Any:
        """Make torchjd's solver."""
        from torchjd.aggregation import UPGradWeighting

        return UPGradWeighting(projector=_projector())


def _projector() -> Any:
    """Make the projector that torchjd asks for, on scipy's non-negative least squares."""
    import numpy as np
    import torch
    from scipy.optimize import nnls
    from torchjd.linalg import DualConeProjector

    class Projector(DualConeProjector):  # type: ignore[misc]
        """Finds the v >= u with the smallest v G v, which weighs the rows of the projection."""

        def __call__(self, U: Tensor, G: Tensor) -> Tensor:  # noqa: N803
            values, vectors = np.linalg.eigh(G.double().numpy())
            root = (vectors * np.sqrt(values.clip(min=0))).T  # root^T root = G
            # v = u + z: |root z + root u| is smallest over z >= 0.
            rows = [u + nnls(root, -root @ u)[0] for u in U.double().numpy()]
            return torch.from_numpy(np.stack(rows)).to(G)

    return Projector()
