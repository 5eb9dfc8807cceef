"""How positive an answer is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from plait.tasks import Kind
    from plait.tasks.kind import Floats

_PRAISE = {"positive", "good", "great", "happy", "favourable", "favorable", "satisfied"}
_BLAME = {"negative", "bad", "awful", "unhappy", "unfavourable", "unfavorable", "dissatisfied"}
_DEGREES = {"very": 2.0, "extremely": 2.0, "highly": 2.0, "somewhat": 0.5, "slightly": 0.5}


def find_praise(kind: Kind, positive: str | None) -> Floats | None:
    """Return how positive each output is, [outputs]; None if unknown.

    `positive` is the positive label or, for scores, high or low: the positive end. By default it
    is read off the labels' words, which have to name both positive and negative.
    """
    if positive is not None:
        return kind.polarity(positive)
    weights = [_weigh(label) for label in kind.words]
    return np.array(weights) if weights and min(weights) < 0 < max(weights) else None


def measure_praise(praise: Floats, answers: Floats) -> Floats:
    """Return how much praise is in each answer."""
    found: Floats = answers.reshape(len(answers), -1) @ praise
    return found


def _weigh(label: str) -> float:
    words = set(re.findall(r"[a-z]+", label.lower()))
    sign = float(bool(words & _PRAISE)) - float(bool(words & _BLAME))
    return sign * next((degree for word, degree in _DEGREES.items() if word in words), 1.0)
