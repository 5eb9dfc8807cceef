"""Tasks' gradients are taken side by side on a GPU, each in a lane of its own.

A small batch keeps a small part of a GPU busy, and gradients that are wanted apart need a pass
each. In streams of their own those passes overlap. Each lane draws its own random numbers, seeded
by the update and the lane's number, so that results do not depend on which pass is ahead, nor on
whether they overlap at all.
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
"""Steps of this size never come back to where they were within 2^64."""


class Lanes:
    """The lanes of one device, by their numbers."""

    def __init__(self, device: torch.device):
        self.device = device
        self._lanes: dict[int, _Lane] = {}

    @contextmanager
    def open(self, num_lanes: int, parcels: Iterable[Parcel]) -> Iterator[Enter]:
        """Give what enters a lane by its number; all of them are done when this is left.

        They overlap where all parcels are small: many tokens keep a GPU busy alone, and lanes
        that overlap hold their memory at once. There is nothing to enter for one lane, on a CPU,
        or for no number.

        Who enters is told the place: whether lanes overlap, or None where there is no lane. What
        is captured in one place must not be replayed in another: it has the memory, the products'
        workspace and the random numbers of where it was captured.
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
        finally:  # also after an error: what they work on may be freed next
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
        """Ask for work in this lane, drawing its numbers where the device's would be drawn."""
        default = default_generator(self.device)
        own = default.graphsafe_get_state()
        # What is captured meanwhile reads this generator's state whenever it is replayed.
        default.graphsafe_set_state(self.generator)
        try:
            with torch.cuda.stream(self.stream) if overlap else nullcontext():
                yield overlap
        finally:
            default.graphsafe_set_state(own)


def _is_small(parcel: Parcel) -> bool:
    return parcel.lengths is not None and parcel.lengths.sum() <= SMALL
