"""The section of docs/defaults.md on what was tried before a rule was written.

The figures are of a prototype (the packaged encoder on a GPU, TF32, one task at a time unless it
says together), made to choose between settings before plait had them. Each line compares two
settings on the tasks, sizes and seeds that both have.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

RECORDS = Path(__file__).parent / "records" / "defaults-search.jsonl"

Place = tuple[str, str, int]
"""Task, size and seed."""

FITTED = "fitted head, lr 5e-5, 10 epochs"
COMPARED: dict[str, list[tuple[str, str, str]]] = {
    "start": [
        (FITTED, "before: random mlp head, one rate of 1e-4, 6 epochs", "text"),
        (FITTED, "random linear head, head_lr 1e-3, lr 5e-5, 10 epochs", "text"),
        (FITTED, "random linear head, head_lr 1e-2, lr 5e-5, 10 epochs", "text"),
        (FITTED, "fitted head of C = 1, lr 5e-5, 10 epochs", "text"),
        (
            FITTED,
            "fitted head of the C that cross-validation chooses, lr 5e-5, 10 epochs",
            "text",
        ),
        (
            "fitted head, lr 5e-5, 20 epochs",
            "fitted head of C = 3, lr 5e-5, 20 epochs",
            "text",
        ),
        (FITTED, "fitted head of 10 times the regularisation, lr 5e-5", "text"),
        (FITTED, "fitted head of 30 times the regularisation, lr 5e-5", "text"),
    ],
    "rate": [
        (FITTED, "fitted head, lr 2e-5, 10 epochs", "text"),
        (FITTED, "fitted head, lr 1e-4, 10 epochs", "text"),
        ("fitted head, lr 5e-5, 6 epochs", "fitted head, lr 1e-4, 6 epochs", "text"),
        ("fitted head, lr 5e-5, 4 epochs", "fitted head, lr 1e-4, 4 epochs", "text"),
        ("fitted head, lr 5e-5, 4 epochs", "fitted head, lr 2e-5, 4 epochs", "text"),
        (FITTED, "fitted head, head_lr = lr = 5e-5, 10 epochs", "text"),
        (FITTED, "fitted head, head_lr 1e-2, lr 5e-5, 10 epochs", "text"),
    ],
    "epochs": [
        (FITTED, "fitted head, lr 5e-5, 5 epochs", "text"),
        (FITTED, "fitted head, lr 5e-5, 20 epochs", "text"),
        ("fitted head, lr 1e-4, 6 epochs", "fitted head, lr 1e-4, 10 epochs", "text"),
        ("fitted head, lr 1e-4, 4 epochs", "fitted head, lr 1e-4, 6 epochs", "text"),
        ("fitted head, lr 5e-5, 4 epochs", "fitted head, lr 5e-5, 2 epochs", "text"),
        (FITTED, "fitted head, lr 5e-5, 10 epochs, batches of 32", "text"),
    ],
    "contrast": [
        (FITTED, "contrast 50 updates, then fitted head, lr 5e-5, 10 epochs", "text"),
        (FITTED, "contrast 25 updates, then fitted head, lr 5e-5, 10 epochs", "text"),
        (FITTED, "contrast 50 updates, then the regression", "text"),
        (FITTED, "contrast 100 updates, then the regression", "text"),
        (FITTED, "contrast, 20 texts a row, then the regression", "text"),
        (FITTED, "contrast by squared error of cosines, 50 updates, then the regression", "text"),
        (FITTED, "contrast 50 updates at 2e-5, then the regression", "text"),
        (FITTED, "contrast 50 updates at temperature .2, then the regression", "text"),
        (FITTED, "SetFit's recipe: pairs, 20 of each sign a row, then the regression", "text"),
    ],
    "names": [
        (
            "contrast 50 updates, then the regression",
            "contrast 50 updates with names, then the regression",
            "text",
        ),
        (FITTED, "fitted head, lr 5e-5, 10 epochs, names of classes as rows", "text"),
    ],
}
"""By rule: a setting, what was tried in its place, and how the task was read."""

TOGETHER = "together, "
PAIRED = ("follows", "samewords", "stance", "difficulty", "sts")
SIZES = ("8c", "16c", "100", "300", "800", "1000", "3000", "whole")


def section() -> list[str]:
    """Return the section's lines."""
    records = [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]
    found: dict[tuple[str, str], dict[Place, float]] = defaultdict(dict)
    for record in records:
        place = (record["task"], record["size"], record["seed"])
        found[record["setting"], record["reads"]][place] = record["score"]
    lines = ["## What was tried first", "", (__doc__ or "").split("\n\n", 1)[1].strip(), ""]
    lines += ["Change of the score when the second setting takes the place of the first, with its"]
    lines += ["standard error over tasks and seeds, and their number.", ""]
    header = ["rule", "setting", "in its place", *SIZES[:4], "1000", "whole"]
    rows = []
    for rule, pairs in COMPARED.items():
        for one, other, reads in pairs:
            cells = [_change(found[one, reads], found[other, reads], size) for size in header[3:]]
            rows.append([f"`{rule}`", one, other, *cells])
    lines += _table(header, rows)
    lines += ["### Pairs", "", "Mean score by how the two texts are read (`pairs`).", ""]
    rows = []
    for task in PAIRED:
        for (setting, reads), scores in sorted(found.items()):
            if reads in ("text", "together"):
                continue
            cells = [_mean(scores, task, size) for size in SIZES]
            if any(cells):
                rows.append([task, reads, setting, *cells])
    lines += _table(["task", "read", "setting", *SIZES], rows)
    lines += ["### Together", "", "Twelve tasks, one seed; means of those with single texts.", ""]
    rows = []
    singles = {place[0] for (_, reads), some in found.items() for place in some if reads == "text"}
    for (setting, reads), scores in sorted(found.items()):
        for size in dict.fromkeys(place[1] for place in scores if reads == "together"):
            own = [v for p, v in scores.items() if p[1] == size and p[0] in singles]
            rows.append([setting, size, _shown(mean(own))])
    return [*lines, *_table(["setting (`schedule`)", "size", "mean"], rows)]


def _change(one: dict[Place, float], other: dict[Place, float], size: str) -> str:
    gaps = [other[place] - one[place] for place in other if place in one and place[1] == size]
    if not gaps:
        return ""
    error = f" ± {_shown(stdev(gaps) / math.sqrt(len(gaps)))}" if len(gaps) > 1 else ""
    change = mean(gaps)
    return f"{'+' if change >= 0 else '-'}{_shown(abs(change))}{error} ({len(gaps)})"


def _mean(scores: dict[Place, float], task: str, size: str) -> str:
    some = [score for place, score in scores.items() if place[:2] == (task, size)]
    return f"{_shown(mean(some))} ({len(some)})" if some else ""


def _shown(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1)


def _table(header: list[str], rows: list[list[Any]]) -> list[str]:
    return [*(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows]), ""]
