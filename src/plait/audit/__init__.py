"""A run is probed with changed texts, and what its answers do becomes a score card."""

from plait.audit.card import FILE, Card, Example, Result, audit
from plait.audit.lists import Lists, read_lists
from plait.audit.trials import Probe, Trial

__all__ = [
    "FILE",
    "Card",
    "Example",
    "Lists",
    "Probe",
    "Result",
    "Trial",
    "audit",
    "read_lists",
]
