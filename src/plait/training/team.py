"""The interface between the training loop and its workers; this module has the team of one process.

All workers share each batch: each draws the same rows, encodes its share and gets the loss of the
whole batch. So every worker computes the same surgery, weights, clipping and early stopping, and
the number of workers changes only the time.

Gradients are averaged over the workers. A loss computed from the outputs of all workers therefore
counts `size` times for a worker's own rows.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import torch

from plait.types import Batch, Tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

Made = TypeVar("Made")


class Team:
    """A single process. Subclasses implement the same methods for several workers."""

    rank = 0
    """Rank of this process. Rank 0 is the leader: only it writes files and messages."""
    size = 1
    """Number of processes."""
    local_size = 1
    """How many of them are on this host."""

    @property
    def leads(self) -> bool:
        """Whether this process writes and speaks."""
        return self.rank == 0

    # --- rows ---

    def counts(self, num_examples: int) -> list[int]:
        """Return how many of a batch's examples each worker takes; the first may have one more."""
        whole, more = divmod(num_examples, self.size)
        return [whole + (rank < more) for rank in range(self.size)]

    def share(self, num_examples: int) -> slice:
        """Return which of a batch's examples are this worker's, at least one.

        Where there are fewer than workers, those left over take the first one for a guest: it
        goes through the model with them and counts for nothing.
        """
        counts = self.counts(num_examples)
        start = sum(counts[: self.rank])
        return slice(start, start + counts[self.rank]) if counts[self.rank] else slice(0, 1)

    def take(self, batch: Batch) -> Batch:
        """Return this worker's share of a whole batch, all rows of each of its examples."""
        assert batch.labels is not None
        num_examples = len(batch.labels)
        own = self.share(num_examples)

        def cut(rows: Tensor) -> Tensor:  # in blocks: all first texts, all second ones
            return rows.view(-1, num_examples, rows.shape[-1])[:, own].flatten(0, 1)

        ids, types, mask = map(cut, (batch.tokens.ids, batch.tokens.types, batch.tokens.mask))
        return Batch(Tokens(ids, types, mask), batch.labels[own], num_examples)

    # --- losses and gradients ---

    def loss(
        self, loss: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, batch: Batch
    ) -> Tensor:
        """Return the loss of the whole batch."""
        assert batch.labels is not None
        return loss(outputs, batch.labels)

    def mean(self, term: Tensor, batch: Batch) -> Tensor:  # noqa: ARG002
        """Return the mean over the whole batch of what is a mean over this worker's examples."""
        return term

    def reduce(self, gradients: Tensor) -> None:
        """Turn each worker's gradients into the whole batch's, in place."""

    # --- randomness ---

    def seed(self, seed: int) -> None:
        """Begin an update: what is drawn follows from the seed."""
        seed_devices(seed)

    def generator(self, device: torch.device) -> torch.Generator:
        """Return the generator that draws the same for everyone; alone, it is dropout's."""
        return default_generator(device)

    # --- agreement ---

    def lead(self, make: Callable[[], Made]) -> Made:
        """Return what the leader makes, who alone is asked; plain values."""
        return make()

    def spread(self, read: Callable[[], Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
        """Return the tensors that the leader reads, who alone is asked."""
        return read()

    def any(self, flag: bool) -> bool:
        """Say whether anyone says yes."""
        return flag

    def each(self, value: Made) -> list[Made]:
        """Return everyone's value, by rank; plain values."""
        return [value]

    def one_by_host(self) -> AbstractContextManager[object]:
        """Let one process of each host do what is inside first, which leaves files for the rest."""
        return nullcontext()

    def lost(self, error: BaseException) -> bool:  # noqa: ARG002
        """Say whether an error means that another worker is gone."""
        return False


ALONE = Team()


def seed_devices(seed: int) -> None:
    """Seed every device that is in use.

    torch.manual_seed does the same, and formats a stack for each kind of device that is not: at
    every update that would be a tenth of a millisecond and more.
    """
    if _accelerator() not in ("", "cuda", "mps"):
        torch.manual_seed(seed)
        return
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(seed)


@cache
def _accelerator() -> str:
    """Name the kind of device besides the CPU, if any; torch 2.6 fails if asked where none is."""
    there = torch.accelerator.is_available() and torch.accelerator.current_accelerator()
    return there.type if there else ""


def default_generator(device: torch.device) -> torch.Generator:
    """Return the generator that dropout on this device draws from."""
    if device.type == "cuda":
        torch.cuda.init()
        return torch.cuda.default_generators[
            torch.cuda.current_device() if device.index is None else device.index
        ]
    return torch.default_generator
