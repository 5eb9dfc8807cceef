"""Capture the functions of a step as CUDA graphs: run once, capture the second time, then replay.

With small batches a GPU finishes a kernel before Python launches the next one. A CUDA graph
launches all kernels at once: it repeats what the function did on the device during the capture, on
the same memory. So a captured function may depend only on its key and its inputs, must change
tensors in place, and must not read values on the CPU.
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
"""Share of the device's memory in use above which no more functions are captured."""


@dataclass(slots=True)
class _Capture:
    """A function as captured: fill the inputs, replay, read the outputs."""

    inputs: tuple[Tensor, ...]
    replay: Callable[[], None]
    outputs: Outputs


class Plain:
    """Runs functions without capturing: on a CPU, or with `graphs = false`."""

    def __init__(self, device: torch.device):
        self.device = device
        self.trouble = ""
        """Why a function could not be captured; empty without a failure."""

    def run(self, key: Hashable, function: Function, inputs: Sequence[Tensor] = ()) -> Outputs:  # noqa: ARG002
        """Copy the inputs to the device and return the function's outputs."""
        return function(*(part.to(self.device, non_blocking=True) for part in inputs))

    def close(self) -> None:
        """Free all captures; later functions are captured again."""


class Graphs(Plain):
    """Captures a function when its key occurs for the second time, and replays it afterwards.

    The first time the function runs without capture: a key that occurs once is not worth a capture,
    and lazily created tensors (an optimizer's moments) exist by the second time. All captures of a
    stream share one memory pool, because they never run at the same time.
    """

    def __init__(self, device: torch.device, limit: int = 256):
        super().__init__(device)
        self._limit = limit
        self._captures: dict[Hashable, _Capture | None] = {}
        """By key; None for a key that occurred once or cannot be captured."""
        self._refused: set[Hashable] = set()
        self._pools: dict[torch.cuda.Stream, Any] = {}
        self._graphs: list[torch.cuda.CUDAGraph] = []
        """All graphs, including failed ones: destroying a graph also frees the workspace that other
        graphs of its stream use (torch 2.13)."""
        self._prepare()

    def _prepare(self) -> None:
        self._side = torch.cuda.Stream(self.device)

    def run(self, key: Hashable, function: Function, inputs: Sequence[Tensor] = ()) -> Outputs:
        """Return the function's outputs; `key` identifies everything else that it depends on."""
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
            # The next replay overwrites these tensors.
            return tuple(None if out is None else out.clone() for out in known.outputs)

    def close(self) -> None:
        """Destroy all graphs now, not at garbage collection, when other graphs may exist."""
        self._captures.clear()
        self._graphs.clear()
        self._pools.clear()

    @property
    def num_captures(self) -> int:
        """Number of captured functions."""
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
        except RuntimeError as error:  # it synchronizes with the device, or memory is full
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
        """Capture the function without running it."""
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
