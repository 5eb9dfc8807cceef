"""A run's folder becomes pages for people: its report, and its worst mistakes.

Both answer the run's own dev files, as its recipe names them, or files of the same names in
`data`. It takes seconds to minutes and all of torch, so that it has a process of its own
(errands.py).
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.analysis.mistakes import Mistake, Mistakes

    Tell = Callable[[str], None]
    """Hears in words what is under way."""

MOST = 30
"""Mistakes of a task that are shown; `plait mistakes --csv` writes all."""


def make_report(folder: Path, data: str | None, device: str, tell: Tell) -> bytes:
    """Make the page that `plait report` makes."""
    from plait.analysis.report import write_report

    with tempfile.TemporaryDirectory(prefix="plait-") as place:
        out = Path(place) / "report.html"
        write_report(
            [folder],
            out,
            data=data,
            device=device,
            reading=_counted("reading", tell),
            answering=_counted("answering", tell),
        )
        return out.read_bytes()


def make_mistakes(folder: Path, data: str | None, device: str, tell: Tell) -> bytes:
    """Find each task's worst mistakes on dev, and the kinds of text they gather in, as JSON."""
    from plait.analysis.mistakes import find_mistakes
    from plait.inference.fitting.answers import answer_dev

    model, answered = answer_dev(
        folder,
        data=data,
        device=device,
        reading=_counted("reading", tell),
        answering=_counted("answering", tell),
    )
    if not answered:
        raise DataError("its recipe names no dev files, so there are no rows to be wrong about")
    found = []
    for task, known in answered.items():
        tell(f"looking through {task}")
        mistakes = find_mistakes(model, task, known.dataset, answers=known.answers, top=MOST)
        found.append(_tell_task(mistakes))
    return json.dumps({"tasks": found}, ensure_ascii=False, allow_nan=False).encode()


MAKERS = {"report": make_report, "mistakes": make_mistakes}


def _tell_task(found: Mistakes) -> dict[str, Any]:
    values = found.to_json()
    wrong = found.verdicts.right
    return {
        "task": found.task,
        "kind": found.spec.kind.name,
        "rows": found.num_rows,
        "mistakes": None if wrong is None else int((~wrong).sum()),
        "metric": found.verdicts.metric,
        "value": values["metrics"][found.verdicts.metric],
        "worst": [_tell_mistake(mistake) for mistake in found.worst],
        "slices": values["slices"],
    }


def _tell_mistake(mistake: Mistake) -> dict[str, Any]:
    """Return plain values; of its file only the name, since where it lies is nobody's business."""
    place = mistake.place
    return {
        "id": mistake.id,
        "where": f"{place.path.name} {place.unit} {place.number}",
        "texts": list(mistake.texts),
        "truth": mistake.truth,
        "answer": mistake.answer,
        "confidence": mistake.confidence,
    }


def _counted(what: str, tell: Tell) -> Callable[[str, int, int], None]:
    def hear(name: str, done: int, total: int) -> None:
        tell(f"{what} {name}, {done:,} of {total:,}")

    return hear


def hide_folders(message: str) -> str:
    """Leave of every path in a sentence its last part; a word with one stroke in it is none."""
    part = r"[^\s/\\:,;'\"()]+"
    return re.sub(rf"(?:[A-Za-z]:|{part})?(?:[/\\]{part})+[/\\](?=[^\s/\\])", "", message)
