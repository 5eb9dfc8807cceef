"""Lanes where there is nothing to overlap, and what is asked of a GPU where there is.

Stand-ins for CUDA's streams and generators write down what they are asked for.
scripts/check_gpu.py compares whole runs on a GPU, side by side and one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from plait.data.buckets import SMALL
from plait.training import lanes
from plait.training.lanes import Lanes, _is_small

SHORT, LONG = SimpleNamespace(lengths=np.array([[SMALL]])), SimpleNamespace(lengths=None)


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


class Stream:
    """Knows whom it waited for."""

    def __init__(self, _device: object = None):
        self.waits: list[Stream] = []

    def wait_stream(self, other: Stream) -> None:
        self.waits.append(other)


class Generator:
    """Holds a state that others can share."""

    def __init__(self, _device: object = None):
        self.state = {"seed": 0}

    def manual_seed(self, seed: int) -> None:
        self.state["seed"] = seed

    def initial_seed(self) -> int:
        return self.state["seed"]

    def graphsafe_get_state(self) -> Generator:
        shared = Generator()
        shared.state = self.state
        return shared

    def graphsafe_set_state(self, other: Generator) -> None:
        self.state = other.state


class Gpu:
    """A GPU's current stream and its own generator."""

    def __init__(self) -> None:
        self.current, self.generator = Stream(), Generator()

    @contextmanager
    def use(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before


@pytest.fixture
def gpu(monkeypatch) -> Gpu:
    """Stand in for a GPU."""
    gpu = Gpu()
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: gpu.current)
    monkeypatch.setattr(torch.cuda, "stream", gpu.use)
    monkeypatch.setattr(torch, "Generator", Generator)
    monkeypatch.setattr(lanes, "default_generator", lambda _: gpu.generator)
    return gpu


def test_each_lane_has_its_stream_and_its_numbers(gpu) -> None:
    own = Lanes(torch.device("cuda"))
    current, state = gpu.current, gpu.generator.state
    seen = []
    for seed in (7, 7, 8):
        gpu.generator.manual_seed(seed)
        with own.open(2, [SHORT, SHORT]) as enter:
            for number in (0, 1, 0):
                with enter(number):
                    seen.append((gpu.current, gpu.generator.state["seed"]))
            with enter(None):
                assert (gpu.current, gpu.generator.state) == (current, state)
        assert (gpu.current, gpu.generator.state) == (current, state)
    assert seen[0] == seen[2] == seen[3]
    assert seen[0][0] is seen[6][0] is not seen[1][0] is not current
    assert len({seed for _, seed in seen}) == 4
