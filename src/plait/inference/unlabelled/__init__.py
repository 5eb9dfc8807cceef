"""A task's training texts become new rows without labels, for a teacher or a person to answer."""

from __future__ import annotations

from plait.inference.unlabelled.pairs import Pairs, find_pairs
from plait.inference.unlabelled.variations import Variations, vary_rows

__all__ = ["Pairs", "Variations", "find_pairs", "vary_rows"]
