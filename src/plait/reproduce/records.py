"""A finished run's folder becomes a record: what was run, on what, how long, and what came of it.

One line a key, so that a change of one shows as one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from plait.config import EnsembleConfig, RunConfig, flatten
from plait.data.storage import write_text
from plait.errors import RunError
from plait.inference.folders import RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

# What a recipe says that a run's figures do not follow from.
ASIDE: dict[str, Any] = dict.fromkeys(
    (
        "name",
        "about",
        "published",
        "device",
        "graphs",
        "save_every",
        "log_every",
        "listeners",
        "search",
    ),
    True,
) | {"data": {"root", "hint"}}


def make_record(
    run: Path,
    *,
    recipe: str,
    profile: str,
    overrides: Sequence[str] = (),
    alone: str | None = None,
) -> dict[str, Any]:
    """Gather what is worth keeping of a finished run."""
    folder = RunFolder(run)
    config = folder.read_config()
    result, made = folder.read_json(folder.scores), folder.read_json(run / "run.json")
    kept = ("steps", "best_step", "seconds", "peak_memory_mib", "dev", "baseline")
    return {
        "recipe": recipe,
        "profile": profile,
        "alone": alone,
        "seed": config.seed,
        "overrides": list(overrides),
        "settings": result_settings(config),
        **{key: result[key] for key in kept if key in result},
        "versions": {key: made[key] for key in ("plait", "python", "torch")},
        "hardware": made["device"],
        "precision": made["precision"],
        "encoder": made["encoder"],
        "data": {
            split: {task: counts["rows"] for task, counts in tasks.items()}
            for split, tasks in made["data"].items()
            if split in ("train", "dev")
        },
        "curves": _read_curves(folder),
    }


def result_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings that a run's figures follow from."""
    table: dict[str, Any] = config.model_dump(mode="json", exclude_none=True, exclude=ASIDE)
    for task in table["tasks"].values():
        for told in ("about", "licence"):
            task.pop(told, None)
    return table


def make_ensemble_record(
    members: Mapping[str, Mapping[str, Any]],
    scores: Mapping[str, Any],
    *,
    recipe: str,
    profile: str,
    how: str,
    seconds: float,
    overrides: Sequence[str] = (),
) -> dict[str, Any]:
    """Gather what is worth keeping of an ensemble, given its members' records.

    `seconds` are those of the scoring: what training took, the members' own records say.
    """
    first = next(iter(members.values()))
    shared = ("seed", "versions", "hardware", "precision", "encoder", "data", "baseline")
    return {
        "recipe": recipe,
        "profile": profile,
        "alone": None,
        "overrides": list(overrides),
        "how": how,
        "settings": {name: record["settings"] for name, record in members.items()},
        "members": {
            name: {key: record["dev"][key] for key in ("primary", "summary")}
            for name, record in members.items()
        },
        "seconds": round(seconds, 1),
        "dev": dict(scores),
        **{key: first[key] for key in shared if key in first},
    }


def check_record(path: Path, config: RunConfig | EnsembleConfig) -> None:
    """Refuse a record that other settings made than those a run, or members, would have today."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        then = record["settings"]
        if isinstance(config, RunConfig):
            changed = _changes(then, config)
        else:
            changed = ["ensemble.how"] if record["how"] != config.how else []
            members = config.members.items()
            changed += [key for name, member in members for key in _changes(then[name], member)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{path} is no record of this row; remove it to run the row again"
        ) from error
    if changed:
        raise RunError(
            f"{path} was made under other settings ({', '.join(changed[:3])}"
            f"{', ...' if len(changed) > 3 else ''}); remove it to run the row again, or choose "
            "another --out"
        )


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record, whole or not at all."""
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in record.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def _read_curves(folder: RunFolder) -> list[dict[str, Any]]:
    """Return every evaluation: dev figures, and the losses on the way to it."""
    curves: list[dict[str, Any]] = []
    losses: dict[str, list[float]] = {}
    epoch = 0
    primary = _primary_metrics(folder)
    for event in _read_log(folder):
        if event["event"] == "losses":
            epoch = event["epoch"]
            for task, loss in event["losses"].items():
                losses.setdefault(task, []).append(loss)
        if event["event"] != "scores":
            continue
        figures = {task: m.get(primary[task]) for task, m in event["metrics"].items()}
        if event["split"] == "dev":
            means = {task: round(sum(some) / len(some), 5) for task, some in losses.items()}
            point = {"step": event["step"], "epoch": epoch, "dev": figures}
            point["overall"] = event["summary"]["overall"]
            curves.append(point | ({"loss": means} if means else {}))
            losses = {}
        elif curves and curves[-1]["step"] == event["step"]:
            curves[-1]["train"] = figures
    return curves


def _primary_metrics(folder: RunFolder) -> dict[str, str]:
    from plait.tasks.metrics import primary_metric

    tasks = folder.read_config().tasks
    return {name: primary_metric(task.kind, task.metric) for name, task in tasks.items()}


def _read_log(folder: RunFolder) -> Iterator[dict[str, Any]]:
    for line in folder.log.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def _changes(then: dict[str, Any], config: RunConfig) -> list[str]:
    """List the settings that are not what they were.

    One that there was not yet, and that stands at its default, changes nothing. Where the
    encoder lies is no setting; which one it is, the record says by its hash.
    """
    before, now = flatten(then), flatten(result_settings(config))
    set_now = flatten(config.model_dump(mode="json", exclude_defaults=True, exclude=ASIDE))
    return sorted(
        key
        for key in before.keys() | now.keys()
        if key != "encoder.source"
        and before.get(key) != now.get(key)
        and (key in before or key in set_now)
    )
