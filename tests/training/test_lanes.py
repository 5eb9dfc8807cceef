"""Lanes where there is nothing to overlap: what is asked for is done as it comes.

scripts/check_gpu.py compares whole runs on a GPU, side by side and one after the other.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from plait.data.buckets import SMALL
from plait.training.lanes import Lanes, _is_small


@pytest.mark.parametrize("num_lanes", [0, 1, 3])
def test_a_cpu_draws_what_it_would_draw_anyway(num_lanes: int) -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    with Lanes(torch.device("cpu")).open(num_lanes, ()) as enter:
        drawn = []
        for lane in (None, 0, 2):
            with enter(lane):
                drawn.append(torch.rand(1))
    assert torch.equal(torch.cat(drawn), expected)


@pytest.mark.parametrize(
    ("lengths", "small"),
    [([[SMALL]], True), ([[SMALL, 1]], False), ([[SMALL // 2], [SMALL // 2]], True), (None, False)],
)
def test_small_is_by_tokens(lengths, small: bool) -> None:
    known = None if lengths is None else np.array(lengths)
    assert bool(_is_small(SimpleNamespace(lengths=known))) == small
