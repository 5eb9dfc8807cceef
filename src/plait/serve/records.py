"""What a run's folder tells of itself: recipe, scores, curves, a report, in plain values.

Only files of fixed names directly in the folder are read, and links are not followed.
"""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.analysis.runs import read_history
from plait.config import read_resolved
from plait.errors import PlaitError

if TYPE_CHECKING:
    from plait.analysis.runs import Points
    from plait.config import RunConfig

MOST_POINTS = 300
"""Of one curve; more are thinned out, since a screen shows no more."""
REPORT = "report.html"


def read_record(folder: Path) -> dict[str, Any]:
    """Tell what a run, an ensemble or an exported folder is, and how well it does on dev."""
    config, info, result = _read_config(folder), _read_json(folder / "run.json"), {}
    kind, members = _tell_kind(folder)
    if kind == "run":  # an export has its run's file only by chance
        result = _read_json(folder / "scores.json")
    return {
        "kind": kind,
        "recipe": config.name if config else "",
        "about": config.about if config else "",
        "is_finished": bool(result) or kind != "run",
        "steps": result.get("steps"),
        "best_step": result.get("best_step"),
        "seconds": result.get("seconds"),
        "encoder": _name_encoder(config, info),
        "device": info.get("device"),
        "plait": info.get("plait"),
        "members": members,
        "scores": _tell_scores(config, result),
    }


def read_curves(folder: Path) -> dict[str, Any]:
    """Tell losses and dev scores over the updates."""
    log = folder / "metrics.jsonl"
    history = read_history(log) if not log.is_symlink() else read_history(folder / "none")
    scores = history.scores.get("dev", {})
    return {
        "losses": {name: _thin(points) for name, points in history.losses.items()},
        "scores": {
            task: {metric: _thin(points) for metric, points in curves.items()}
            for task, curves in scores.items()
        },
    }


def find_report(folder: Path) -> Path | None:
    """Return a report that `plait report` wrote into the folder since the model was."""
    from plait.analysis.report import is_report

    path, weights = folder / REPORT, folder / "model.safetensors"
    if path.is_symlink() or not is_report(path):
        return None
    is_old = weights.is_file() and weights.stat().st_mtime > path.stat().st_mtime
    return None if is_old else path


def _read_config(folder: Path) -> RunConfig | None:
    path = folder / "recipe.toml"
    if path.is_symlink() or not path.is_file():
        return None
    try:
        return read_resolved(path)
    except PlaitError:  # it names a part that is not here, say; the rest can be told
        return None


def _read_json(path: Path) -> dict[str, Any]:
    """Read one file of a run; what is absent or damaged tells nothing."""
    if path.is_symlink():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _tell_kind(folder: Path) -> tuple[str, list[str]]:
    """Return the kind of a folder, and the names of an ensemble's members."""
    path = folder / "ensemble.toml"
    if path.is_file():
        try:
            table = {} if path.is_symlink() else tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return "ensemble", []
        return "ensemble", [Path(str(member)).name for member in table.get("members", [])]
    return ("export" if (folder / "export.json").is_file() else "run"), []


def _name_encoder(config: RunConfig | None, info: dict[str, Any]) -> str:
    """Return an encoder's name; where it lies is nobody's business."""
    origin = str(info.get("encoder", {}).get("origin") or (config and config.encoder.source) or "")
    return Path(origin).name if Path(origin).is_absolute() else origin


def _tell_scores(config: RunConfig | None, result: dict[str, Any]) -> list[dict[str, Any]]:
    dev, baseline = result.get("dev", {}), result.get("baseline", {}).get("primary", {})
    found = []
    for task, values in dev.get("tasks", {}).items():
        metrics = values.get("metrics", {})
        known = config.tasks.get(task) if config else None
        found.append(
            {
                "task": task,
                "kind": values.get("kind", ""),
                "rows": values.get("num_examples"),
                "metric": (known and known.metric) or next(iter(metrics), ""),
                "value": _finite(dev.get("primary", {}).get(task)),
                "baseline": _finite(baseline.get(task)),
                "metrics": {name: _finite(value) for name, value in metrics.items()},
            }
        )
    return found


def _thin(points: Points) -> list[list[float | None]]:
    """Return as many points as a screen shows, the last one among them."""
    step = max(1, math.ceil(len(points) / MOST_POINTS))
    kept = points[::-1][::step][::-1]
    return [[number, _finite(value)] for number, value in kept]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
