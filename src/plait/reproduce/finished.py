"""Finished runs, from wherever they are, become records under the names of their methods."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.config import flatten
from plait.errors import RunError, UsageError
from plait.inference.folders import RunFolder
from plait.reproduce.records import make_record, result_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plait.config import RunConfig


def find_runs(places: Iterable[Path]) -> list[Path]:
    """Return the runs that are meant: folders of runs, or folders with runs right below them."""
    found: list[Path] = []
    for place in places:
        if not place.is_dir():
            raise UsageError(f"there is no folder {place}")
        below = sorted(path.parent for path in place.glob("*/recipe.toml"))
        found += [place] if RunFolder(place).recipe.is_file() or not below else below
    return list(dict.fromkeys(found))


def gather_records(runs: Sequence[Path], profile: str) -> list[dict[str, Any]]:
    """Read runs as records. Those whose recipes differ in nothing but the seed are one method."""
    configs = {run: RunFolder(run).read_config() for run in runs}
    settings = {run: _find_settings(run, config) for run, config in configs.items()}
    names = _name_methods({run: config.name for run, config in configs.items()}, settings)
    taken: dict[tuple[str, int], Path] = {}
    records = []
    for run, name in names.items():
        record = make_record(run, recipe=name, profile=profile)
        if "dev" not in record:
            raise RunError(f"{run} has no dev scores to compare")
        if other := taken.get((name, record["seed"])):
            raise UsageError(
                f"{other} and {run} are both seed {record['seed']} of {name}: name one of them"
            )
        taken[name, record["seed"]] = run
        records.append(record)
    return records


def _find_settings(run: Path, config: RunConfig) -> dict[str, Any]:
    """Return what makes a run's method: settings but for the seed, and what its plugins were."""
    folder = RunFolder(run)
    table = flatten(result_settings(config))
    del table["seed"]
    if plugins := folder.read_json(folder.info).get("plugins", {}):
        del table["plugins"]  # where they lie is no matter
    return table | {Path(plugin).name: digest[:8] for plugin, digest in plugins.items()}


def _name_methods(names: dict[Path, str], settings: dict[Path, dict[str, Any]]) -> dict[Path, str]:
    """Name each run's method by its recipe; those of one name also by what sets them apart."""
    keys = {run: json.dumps([names[run], table], sort_keys=True) for run, table in settings.items()}
    firsts = {key: run for run, key in reversed(keys.items())}
    shared = Counter(names[run] for run in firsts.values())
    found = {}
    for run, key in keys.items():
        name, own = names[run], settings[run]
        if shared[name] > 1:
            others = [settings[o] for k, o in firsts.items() if names[o] == name and k != key]
            apart = sorted({k for o in others for k in {**own, **o} if own.get(k) != o.get(k)})
            told = ", ".join(f"{k}={own[k]}" for k in apart if k in own)
            name = f"{name} ({told or 'as it is'})"
        found[run] = name
    return found
