"""Probe a run with changed texts, and report how its predictions change."""

from plait.analysis.audit.card import FILE, Card, Result, audit
from plait.analysis.audit.probes import builtin, read_probes

__all__ = ["FILE", "Card", "Result", "audit", "builtin", "read_probes"]
