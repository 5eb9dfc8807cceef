"""What the tests of the regularizers share: losses, batches, and a count of passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from plait.methods.losses import LOSSES, Loss
from plait.model.multitask import MultitaskModel
from plait.types import Batch


@pytest.fixture
def losses(tiny_specs) -> dict[str, Loss]:
    """Each task's usual loss."""
    return {t: LOSSES.build(s.kind.default_loss, "loss", s) for t, s in tiny_specs.items()}


@pytest.fixture
def batches(tiny_specs, tiny_batch) -> dict[str, Batch]:
    """A batch of 4 per task, with padding in it."""
    made = {t: tiny_batch(s, 4, seed=i) for i, (t, s) in enumerate(tiny_specs.items())}
    assert not any(batch.tokens.mask.all() for batch in made.values())
    return made


@pytest.fixture
def count_passes() -> Callable:
    """Context that counts how often the encoder runs, and in which state each time."""

    @contextmanager
    def count(model: MultitaskModel) -> Iterator[list[dict[str, object]]]:
        seen: list[dict[str, object]] = []

        def note(module, args, output) -> None:
            seen.append(
                {
                    "training": module.training,
                    "dtype": output.hidden.dtype,
                    "autocast": torch.is_autocast_enabled("cpu"),
                    "precision": torch.get_float32_matmul_precision(),
                }
            )

        handle = model.encoder.register_forward_hook(note)
        try:
            yield seen
        finally:
            handle.remove()

    return count
