"""Aligned-MTL (Senushkin et al. 2023, Independent Component Alignment for Multi-Task Learning,
Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from plait.methods.aggregators.base import AGGREGATORS
from plait.methods.aggregators.gram import TorchJDAggregator


@AGGREGATORS.register("aligned-mtl")
@dataclass(kw_only=True)
class AlignedMTL(TorchJDAggregator):
    """Makes the tasks' gradients orthogonal and equally long, as near to them as can be, first.

    The matrix of gradients gets all its singular values replaced by one, so that no task
    stands in another's way or outweighs it: by the smallest (`scale = "min"`, the paper's), the
    median, or the root of the mean square. The paper's mean of the aligned gradients is the
    default; `reduction = "sum"` gives their sum. Through torchjd.
    """

    scale: Literal["min", "median", "rmse"] = "min"
    reduction: Literal["mean", "sum"] = "mean"

    def build(self) -> Any:
        """Make torchjd's solver."""
        from torchjd.aggregation import AlignedMTLWeighting

        return AlignedMTLWeighting(scale_mode=self.scale)
