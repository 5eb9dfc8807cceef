"""Train with several processes, connected by torch.distributed."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from plait.training.team import Made, Team, seed_devices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

    from plait.types import Batch

PATIENCE = timedelta(minutes=10)
"""Time limit for the other workers' part of an update."""
LONG_PATIENCE = timedelta(days=1)
"""Time limit for work that one worker does alone, such as reading data."""


class Workers(Team):
    """A team of processes with one device each, connected by torch.distributed."""

    def __init__(self, local_rank: int, local_size: int):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.local_rank, self.local_size = local_rank, local_size
        # A separate group on the CPU, so that messages never wait for a device.
        self._talk = dist.new_group(backend="gloo", timeout=LONG_PATIENCE)
        self._generators: dict[torch.device, torch.Generator] = {}

    def leave(self) -> None:
        """Leave the group and wait for its communication threads.

        Such a thread holds the tensors of its last message for a moment, and lives as long as this
        object has its group. If Python ended first, the process would crash.
        """
        del self._talk
        dist.destroy_process_group()

    # --- losses and gradients ---

    def loss(
        self, loss: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, batch: Batch
    ) -> Tensor:
        """Return the loss of the whole batch.

        A loss may compare rows of a batch, so it gets the outputs of all workers. A loss with the
        attribute `counts` is a mean over that count, so each worker computes it on its own rows.
        """
        assert batch.labels is not None
        assert batch.whole is not None
        if (counts := getattr(loss, "counts", None)) is not None:
            part = loss(outputs, batch.labels)
            count = counts(batch.labels).to(part) * self._takes_part(batch)
            total = count.clone()
            dist.all_reduce(total)
            return _mean(part, count / total.clamp(min=1), self.size)
        wide = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        return loss(self.gather(wide, batch.whole), self.gather(batch.labels, batch.whole))

    def mean(self, term: Tensor, batch: Batch) -> Tensor:
        """Return the mean over the whole batch, given the mean over this worker's examples."""
        assert batch.whole is not None
        share = self.counts(batch.whole)[self.rank] / batch.whole
        return _mean(term, torch.full_like(term, share), self.size)

    def gather(self, own: Tensor, num_examples: int) -> Tensor:
        """Return the rows of all workers in the order of the whole batch, with their gradient.

        If an example has several rows, they are in blocks: all first rows, then all second rows.
        """
        counts = self.counts(num_examples)
        gathered: Tensor = _Gather.apply(own, counts, self.rank)  # type: ignore[no-untyped-call]
        return gathered

    def reduce(self, gradients: Tensor) -> None:
        """Replace each worker's gradients with the mean over all workers, in place."""
        if gradients.numel():
            dist.all_reduce(gradients)
            gradients.div_(self.size)

    def _takes_part(self, batch: Batch) -> bool:
        assert batch.whole is not None
        return self.counts(batch.whole)[self.rank] > 0

    # --- randomness ---

    def seed(self, seed: int) -> None:
        """Seed an update: dropout differs between workers, all other draws are equal."""
        for generator in self._generators.values():
            generator.manual_seed(seed)
        own = np.random.SeedSequence((seed, self.rank)).generate_state(1, np.uint64)[0]
        seed_devices(int(own) >> 1)

    def generator(self, device: torch.device) -> torch.Generator:
        """Return a generator that draws the same numbers on all workers."""
        return self._generators.setdefault(device, torch.Generator(device))

    # --- agreement ---

    def lead(self, make: Callable[[], Made]) -> Made:
        """Return the result of `make`, which only the leader calls."""
        held: list[Any] = [make() if self.leads else None]
        dist.broadcast_object_list(held, src=0, group=self._talk)
        made: Made = held[0]
        return made

    def spread(self, read: Callable[[], Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
        """Return the tensors that only the leader reads, on the CPU."""
        tensors: Mapping[str, Tensor] = read() if self.leads else {}
        shapes = self.lead(lambda: {name: (t.shape, t.dtype) for name, t in tensors.items()})
        found = {}
        for name, (shape, dtype) in shapes.items():
            tensor = tensors[name].cpu() if self.leads else torch.empty(shape, dtype=dtype)
            found[name] = tensor.contiguous()
            dist.broadcast(found[name], src=0, group=self._talk)
        return found

    def any(self, flag: bool) -> bool:
        """Return whether the flag of any worker is True."""
        tensor = torch.tensor([flag], dtype=torch.int32)
        dist.all_reduce(tensor, group=self._talk)
        return bool(tensor.item())

    def each(self, value: Made) -> list[Made]:
        """Return the values of all workers, by rank."""
        held: list[Any] = [None] * self.size
        dist.all_gather_object(held, value, group=self._talk)
        return held

    @contextmanager
    def one_by_host(self) -> Iterator[None]:
        """Let one process of each host run first; the others wait."""
        if self.local_rank:
            dist.barrier(group=self._talk)
        yield
        if not self.local_rank:
            dist.barrier(group=self._talk)

    def lost(self, error: BaseException) -> bool:
        """Return whether an error means that another worker is gone."""
        # Torch has a class for some of these errors; those of sockets are plain RuntimeErrors.
        return isinstance(error, dist.DistError) or (
            isinstance(error, RuntimeError)
            and any(word in str(error) for word in ("gloo", "NCCL", "Connection", "peer"))
        )


class _Gather(torch.autograd.Function):
    """Gather the rows of all workers; backward, return the gradient of the worker's own rows."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, counts: list[int], rank: int) -> Tensor:
        mine, most = counts[rank], max(counts)
        blocks = len(own) // max(mine, 1)  # a worker without examples has a placeholder row
        rest = own.shape[1:]
        ctx.place = (counts, rank, own.shape, blocks)
        sent = own.new_zeros(blocks, most, *rest)
        sent[:, :mine] = own.reshape(blocks, -1, *rest)[:, :mine]
        found = [torch.empty_like(sent) for _ in counts]
        dist.all_gather(found, sent)
        parts = zip(found, counts, strict=True)
        return torch.cat([part[:, :count] for part, count in parts], dim=1).flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        counts, rank, shape, blocks = ctx.place
        own = gradient.new_zeros(shape)
        if mine := counts[rank]:
            start = sum(counts[:rank])
            every = gradient.reshape(blocks, sum(counts), *shape[1:])
            own = every[:, start : start + mine].reshape(shape) * len(counts)
        return own, None, None


def _mean(value: Tensor, share: Tensor, size: int) -> Tensor:
    whole: Tensor = _Mean.apply(value, share, size)  # type: ignore[no-untyped-call]
    return whole


class _Mean(torch.autograd.Function):
    """Sum the weighted values of all workers; backward, multiply by the own weight."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, share: Tensor, size: int) -> Tensor:
        ctx.factor = share * size
        whole = value * share
        dist.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0] * ctx.factor, None, None
