"""Compute the gradients of several tasks in parallel CUDA streams ("lanes").

A small batch uses a small part of a GPU, and separate gradients need one pass per task. In separate
streams these passes overlap. Each lane has its own random number generator, seeded by the update
and the lane's number, so that results do not depend on the order of the passes or on whether they
overlap.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch

from plait.data.buckets import SMALL
from plait.training.team import default_generator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from plait.data import Parcel

    Enter = Callable[[int | None], AbstractContextManager[bool | None]]

GOLDEN = 0x9E3779B97F4A7C15
"""Odd constant (2^64 / golden ratio) that gives each lane a different seed."""


class Lanes:
    """The lanes of one device, by their numbers."""

    def __init__(self, device: torch.device):
        self.device = device
        self._lanes: dict[int, _Lane] = {}

    @contextmanager
    def open(self, num_lanes: int, parcels: Iterable[Parcel]) -> Iterator[Enter]:
        """Yield a function that enters a lane by its number; on exit, all lanes are finished.

        Lanes overlap only if all parcels are small: many tokens already use the whole GPU, and
        overlapping lanes need their memory at the same time. With one lane, on a CPU, or for the
        number None, entering does nothing.

        Entering yields whether lanes overlap, or None without a lane. A CUDA graph must be
        replayed in the same situation as it was captured: it keeps the memory, workspace and
        random number generator of its capture.
        """
        if num_lanes < 2 or self.device.type != "cuda":
            yield lambda _: nullcontext()
            return
        current = torch.cuda.current_stream(self.device)
        seed = default_generator(self.device).initial_seed()
        overlap = all(_is_small(parcel) for parcel in parcels)
        lanes = [self._lane(number) for number in range(num_lanes)]
        for number, lane in enumerate(lanes, 1):
            lane.generator.manual_seed((seed + number * GOLDEN) % 2**63)
            if overlap:
                lane.stream.wait_stream(current)
        try:
            yield lambda n: nullcontext() if n is None else lanes[n].entered(overlap=overlap)
        finally:  # also after an error: the tensors may be freed next
            if overlap:
                for lane in lanes:
                    current.wait_stream(lane.stream)

    def _lane(self, number: int) -> _Lane:
        if number not in self._lanes:
            self._lanes[number] = _Lane(self.device)
        return self._lanes[number]


class _Lane:
    def __init__(self, device: torch.device):
        self.device = device
        self.stream = torch.cuda.Stream(device)
        self.generator = torch.Generator(device)

    @contextmanager
    def entered(self, *, overlap: bool) -> Iterator[bool]:
        """Run the block in this lane, with its generator as the device's default generator."""
        default = default_generator(self.device)
        own = default.graphsafe_get_state()
        # A graph captured in this block reads this generator's state at every replay.
        default.graphsafe_set_state(self.generator)
        try:
            with torch.cuda.stream(self.stream) if overlap else nullcontext():
                yield overlap
        finally:
            default.graphsafe_set_state(own)


def _is_small(parcel: Parcel) -> bool:
    return parcel.lengths is not None and parcel.lengths.sum() <= SMALL
