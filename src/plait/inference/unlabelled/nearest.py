"""Vectors become the places of those most like each, every one being set against every other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from plait.analysis.check.rows import Progress

BLOCK = 1 << 26
"""Similarities that are looked at together."""


def find_nearest(
    vectors: Tensor, count: int, device: torch.device, what: str, progress: Progress | None
) -> tuple[Tensor, Tensor]:
    """Return for each row the `count` rows with the largest product, itself apart, and these.

    Both [rows, count] on the CPU, the nearest first; fewer where there are fewer rows.
    """
    vectors = vectors.to(device)
    total, most = len(vectors), min(count, len(vectors) - 1)
    places, products = [], []
    block = max(1, BLOCK // total)
    for begin in range(0, total, block):
        some = torch.arange(begin, min(begin + block, total), device=device)
        cosines = vectors[some] @ vectors.T
        cosines[some - begin, some] = -torch.inf  # itself
        best = cosines.topk(most, dim=1)
        places.append(best.indices.cpu())
        products.append(best.values.cpu())
        if progress is not None:
            progress(f"comparing {what}", begin + len(some), total)
    return torch.cat(places), torch.cat(products)
