"""Trials that are done stay done: a measurement that was stopped goes on with them.

CACHE/fewshot/KEY.jsonl     a line for each trial of one encoder on one task, measured in one way,
                            and one where a measurement that wants them was begun or ended
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
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from plait.model.encoder import Encoder

    Key = tuple[int, int]
    """The number of examples, the draw."""

BEGUN, ENDED = "begun", "ended"


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
        for line in self._lines():
            with suppress(ValueError, TypeError):
                shots, draw, figure = line
                figures[shots, draw] = math.nan if figure is None else float(figure)
        return figures

    def add(self, key: Key, figure: float) -> None:
        """Keep the figure of a trial."""
        self.figures[key] = figure
        if self._write([*key, figure if math.isfinite(figure) else None]):
            self.kept.add(key)

    def begin(self, plan: str) -> None:
        """Say that a measurement wants these trials, until it ends."""
        if plan not in self._open_plans():
            self._write({BEGUN: plan})

    def end(self, plan: str) -> None:
        """Forget the trials, unless another measurement that was begun has still to end."""
        plans = self._open_plans()
        if plans - {plan}:
            if plan in plans:
                self._write({ENDED: plan})
            return
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _open_plans(self) -> set[str]:
        """Return the measurements that were begun and not ended: stopped, or under way."""
        plans: set[str] = set()
        for line in self._lines():
            if isinstance(line, dict):
                plans |= {line[BEGUN]} if BEGUN in line else set()
                plans -= {line.get(ENDED)}
        return plans

    def _lines(self) -> Iterator[Any]:
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return
        for line in lines:
            with suppress(ValueError):  # the last may have been cut off by a kill
                yield json.loads(line)

    def _write(self, value: Any) -> bool:
        """Add a line; say whether that was possible."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"\n{json.dumps(value)}")  # away from a line that was cut off
        except OSError:
            return False
        return True


def name_plan(journals: Sequence[Journal], keys: Sequence[Key]) -> str:
    """Name a measurement by the trials that it wants."""
    wanted = json.dumps([sorted(journal.path.stem for journal in journals), sorted(keys)])
    return hashlib.sha256(wanted.encode()).hexdigest()[:16]


def hash_encoder(encoder: Encoder, *facts: str) -> str:
    """Hash an encoder's weights, and whatever else its figures follow from."""
    digest = hashlib.sha256(json.dumps(facts).encode())
    for name, tensor in sorted(encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
