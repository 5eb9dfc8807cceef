"""A run is probed with changed texts, and what its answers do becomes a score card."""

from plait.audit.card import FILE, Card, Example, Result, audit
from plait.audit.lists import Lists, read_lists
from plait.audit.own import OwnProbes, read_own
from plait.audit.trials import Probe, Trial

__all__ = [
    "FILE",
    "Card",
    "Example",
    "Lists",
    "OwnProbes",
    "Probe",
    "Result",
    "Trial",
    "audit",
    "read_lists",
    "read_own",
]
