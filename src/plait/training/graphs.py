"""A step's functions become CUDA graphs: run once, captured the second time, then replayed.

At small batches a GPU finishes a kernel sooner than Python can ask for the next one. A CUDA graph
asks for all of them at once: whatever a function did on the device while it was captured is
done again, on the same memory. So a captured function may depend on nothing but its key and
its inputs, changes tensors in place only, and never looks at a value.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from plait.errors import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from torch import Tensor

    Outputs = Sequence[Tensor | None]
    Function = Callable[..., Outputs]

MEMORY_SHARE = 0.9
"""Part of the device's memory in use beyond which nothing more is captured."""


@dataclass(slots=True)
class _Capture:
    """A function as captured: fill the inputs, replay, read the outputs."""

    inputs: tuple[Tensor, ...]
    replay: Callable[[], None]
    outputs: Outputs


class Plain:
    """Runs every function as it is: on a CPU, or where capturing is not wanted."""

    def __init__(self, device: torch.device):
        self.device = device
        self.trouble = ""
        """Why something could not be captured; empty when nothing was in the way."""

    def run(self, key: Hashable, function: Function, inputs: Sequence[Tensor] = ()) -> Outputs:  # noqa: ARG002
        """Return what the function makes of the inputs, once they are on the device."""
        return function(*(part.to(self.device, non_blocking=True) for part in inputs))

    def close(self) -> None:
        """Let go of all that is captured; whoever runs more captures anew."""


class Graphs(Plain):
    """Captures a function when its key comes for the second time, and replays it from then on.

    The first time it runs as it is: a key that never comes again is not worth a capture,
    and what is made lazily (an optimizer's moments) is there by the second. All captures of a
    stream share one pool of memory, as no two of them run at once.
    """

    def __init__(self, device: torch.device, limit: int = 256):
        super().__init__(device)
        self._limit = limit
        self._captures: dict[Hashable, _Capture | None] = {}
        """By key; None for one that came once, or that cannot be captured."""
        self._refused: set[Hashable] = set()
        self._pools: dict[torch.cuda.Stream, Any] = {}
        self._graphs: list[torch.cuda.CUDAGraph] = []
        """All there ever were, broken ones too: a graph that is destroyed takes with it the memory
        that the products of others on its stream work in (torch 2.13)."""
        self._prepare()

    def _prepare(self) -> None:
        self._side = torch.cuda.Stream(self.device)

    def run(self, key: Hashable, function: Function, inputs: Sequence[Tensor] = ()) -> Outputs:
        """Return what the function makes of the inputs; `key` tells all it depends on besides."""
        with self._off_default_stream():
            known = self._captures.get(key)
            if known is None:
                if key not in self._captures or key in self._refused or not self._has_room():
                    self._captures.setdefault(key, None)
                    return super().run(key, function, inputs)
                known = self._try_capture(key, function, inputs)
                if known is None:
                    return super().run(key, function, inputs)
            else:
                for place, given in zip(known.inputs, inputs, strict=True):
                    place.copy_(given, non_blocking=True)
            known.replay()
            # The next replay writes to the same places.
            return tuple(None if out is None else out.clone() for out in known.outputs)

    def close(self) -> None:
        """Destroy all graphs now, and not when the garbage collector does: others may be there."""
        self._captures.clear()
        self._graphs.clear()
        self._pools.clear()

    @property
    def num_captures(self) -> int:
        """How many functions are captured."""
        return sum(capture is not None for capture in self._captures.values())

    def _has_room(self) -> bool:
        if self.num_captures >= self._limit:
            return False
        free, whole = torch.cuda.mem_get_info(self.device)
        cached = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return free + cached > (1 - MEMORY_SHARE) * whole

    def _try_capture(
        self, key: Hashable, function: Function, inputs: Sequence[Tensor]
    ) -> _Capture | None:
        places = tuple(part.to(self.device, copy=True) for part in inputs)
        try:
            replay, outputs = self._record(function, places)
        except RuntimeError as error:  # it waits for the device, or there is no memory left
            # Ending a broken capture fails as well.
            self.trouble = first_line(error.__context__ or error)
            self._refused.add(key)
            self._recover()
            return None
        capture = self._captures[key] = _Capture(places, replay, outputs)
        return capture

    def _record(
        self, function: Function, inputs: tuple[Tensor, ...]
    ) -> tuple[Callable[[], None], Outputs]:
        """Capture what the function does, without its being done."""
        graph = torch.cuda.CUDAGraph()
        self._graphs.append(graph)
        stream = torch.cuda.current_stream(self.device)
        if stream not in self._pools:
            self._pools[stream] = torch.cuda.graph_pool_handle()
        torch.cuda.synchronize(self.device)
        # Other threads may use the device meanwhile.
        graph.capture_begin(pool=self._pools[stream], capture_error_mode="thread_local")
        try:
            outputs = function(*inputs)
        finally:
            graph.capture_end()
        return graph.replay, outputs

    def _recover(self) -> None:
        """Leave what a broken capture may have left half done.

        Its pool counts as being recorded to, and the generator as being captured, until another
        capture ends well.
        """
        self._pools.pop(torch.cuda.current_stream(self.device), None)
        with suppress(RuntimeError):
            self._record(lambda: (torch.rand(1, device=self.device),), ())

    @contextmanager
    def _off_default_stream(self) -> Iterator[None]:
        """Go aside where the default stream is current, which cannot be captured."""
        current = torch.cuda.current_stream(self.device)
        if current != torch.cuda.default_stream(self.device):
            yield
            return
        self._side.wait_stream(current)
        try:
            with torch.cuda.stream(self._side):
                yield
        finally:
            current.wait_stream(self._side)
