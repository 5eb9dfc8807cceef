"""Answers to a text with words left out become what each word adds, for who asks over HTTP."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from plait.analysis.explanation import MOST_EXACT, Plan
from plait.errors import suggest
from plait.serve.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.serve.catalog import TaskFacts

MOST_PARTS, MOST_DRAWS = 24, 8
"""Fewer than `plait explain` takes: many may ask at once."""


def choose_label(task: TaskFacts, label: str | None) -> str | None:
    """Refuse a label that the task does not have."""
    if label is not None and label not in task.labels:
        told = f"task {task.name!r} has no label {label[:80]!r}{suggest(label[:80], task.labels)}"
        raise Problem(422, "unknown_label", told)
    return label


def plan_words(texts: Sequence[str], most_rows: int) -> Plan:
    """Choose what to leave out, so that an explanation takes no more rows than a request may."""
    plan = Plan.make(texts, "occlusion", most_parts=MOST_PARTS)
    num = len(plan.parts)
    draws = MOST_DRAWS if num <= MOST_EXACT else min(MOST_DRAWS, (most_rows - 2) // (2 * num - 2))
    if draws < 2 or (num <= MOST_EXACT and 2**num > most_rows):
        return plan
    return Plan.make(texts, "shapley", draws, most_parts=MOST_PARTS)


def conclude(plan: Plan, answers: Sequence[Mapping[str, Any]], label: str | None) -> dict[str, Any]:
    """Return what the answers to a plan's rows tell."""
    whole = answers[0]
    shares = whole.get("probabilities")
    if shares is not None and label is None:
        # Of labels that hold together, the surest; else the answer.
        label = whole["label"] if "labels" not in whole else max(shares, key=_known(shares))
    values = [a["value"] if label is None else a["probabilities"][label] for a in answers]
    if any(value is None for value in values):
        raise Problem(500, "no_number", "the model answers with what is no number; train it anew")
    return {
        "answer": whole["label"],
        "explained": label,
        "value": values[0],
        "bare": values[1],
        "method": plan.method,
        "parts": [asdict(part) for part in plan.share(values)],
    }


def _known(shares: Mapping[str, float | None]) -> Any:
    return lambda name: shares[name] if shares[name] is not None else -1.0
