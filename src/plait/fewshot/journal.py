"""Trials that are done stay done: a measurement that was stopped goes on with them.

CACHE/fewshot/KEY.jsonl     a line for each trial of one encoder on one task, measured in one way
"""

from __future__ import annotations

import hashlib
import json
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from plait import __version__
from plait.data import cache_root

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from plait.model.encoder import Encoder

    Key = tuple[int, int]
    """The number of examples, the draw."""


class Journal:
    """Figures of one encoder's trials that are done, by all that they follow from.

    Keeping them is a kindness, not a duty: where nothing can be written, they are measured again.
    """

    def __init__(self, encoder: str, facts: Mapping[str, Any]):
        values = {"encoder": encoder, "plait": __version__, "torch": torch.__version__, **facts}
        text = json.dumps(values, sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:40]
        self.path: Path = cache_root() / "fewshot" / f"{name}.jsonl"
        self.figures = self.read()
        self.kept = set(self.figures)
        """Trials that are on disk."""

    def read(self) -> dict[Key, float]:
        """Return the figures on disk, to which another process may add."""
        figures: dict[Key, float] = {}
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return figures
        for line in lines:
            with suppress(ValueError, TypeError):  # the last may have been cut off by a kill
                shots, draw, figure = json.loads(line)
                figures[shots, draw] = math.nan if figure is None else float(figure)
        return figures

    def add(self, key: Key, figure: float) -> None:
        """Keep the figure of a trial."""
        self.figures[key] = figure
        line = json.dumps([*key, figure if math.isfinite(figure) else None])
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"\n{line}")  # away from a line that was cut off
            self.kept.add(key)

    def remove(self) -> None:
        """Forget them all, once there is nothing left to go on with."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def hash_encoder(encoder: Encoder, *facts: str) -> str:
    """Hash an encoder's weights, and whatever else its figures follow from."""
    digest = hashlib.sha256(json.dumps(facts).encode())
    for name, tensor in sorted(encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
