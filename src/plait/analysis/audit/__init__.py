"""A run is probed with changed texts, and what its answers do becomes a score card."""

from plait.analysis.audit.card import FILE, Card, Result, audit
from plait.analysis.audit.lists import read_lists
from plait.analysis.audit.own import read_own

__all__ = [
    "FILE",
    "Card",
    "Result",
    "audit",
    "read_lists",
    "read_own",
]
