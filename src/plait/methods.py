"""Runs of several seeds become methods: means, spread, and a test against the first.

Runs whose recipes differ in nothing but the seed are one method. The test is that of the findings
of `plait results`: seed by seed where enough seeds are shared, else by the spread of all methods.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from plait.config import flatten
from plait.errors import RunError, UsageError, suggest
from plait.reproduce.records import make_record, result_settings
from plait.results.findings import compare
from plait.results.records import SUMMARIES, Record, Records
from plait.results.significance import Difference, holm
from plait.training.folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plait.config import RunConfig

FIGURE = "overall"
"""What methods are compared by unless told."""


@dataclass(frozen=True, slots=True)
class Test:
    """A method against the first, by one figure."""

    method: str
    figure: str
    difference: Difference | None
    """None where it could not be tested."""
    corrected: float | None = None
    """The p-value with all tests that were asked for in mind, by Holm."""
    reason: str = ""
    """Why it could not be tested."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        values = {"method": self.method, "figure": self.figure}
        if self.difference is None:
            return {**values, "reason": self.reason}
        low, high = self.difference.interval
        return {
            **values,
            "difference": self.difference.value,
            "interval": [low, high],
            "p": self.difference.p_value(),
            "holm": self.corrected,
            "seeds": self.difference.num_seeds,
            "paired": self.difference.is_paired,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Methods, and what sets them apart from the first."""

    records: Records
    methods: tuple[str, ...]
    tests: tuple[Test, ...]

    @property
    def tasks(self) -> list[str]:
        """Every task that some method has."""
        return list(dict.fromkeys(task for record in self.records for task in record.dev.tasks))

    def figures(self, method: str, name: str) -> dict[int, float]:
        """Return a method's figure by seed: of a task, or `overall`, `mean` or `sum`."""
        return self.records.figures(method, name)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        columns = (*self.tasks, *SUMMARIES)
        return {
            "methods": {
                method: {name: _describe(self.figures(method, name)) for name in columns}
                for method in self.methods
            },
            "against": self.methods[0],
            "tests": [test.to_json() for test in self.tests],
        }


def _describe(by_seed: dict[int, float]) -> dict[str, Any]:
    values = list(by_seed.values())
    return {
        "mean": fmean(values) if values else None,
        "deviation": stdev(values) if len(values) > 1 else None,
        "by_seed": {str(seed): value for seed, value in by_seed.items()},
    }


def find_runs(places: Iterable[Path]) -> list[Path]:
    """Return the runs that are meant: folders of runs, or folders with runs right below them."""
    found: list[Path] = []
    for place in places:
        if not place.is_dir():
            raise UsageError(f"there is no folder {place}")
        below = sorted(path.parent for path in place.glob("*/recipe.toml"))
        if not below or RunFolder(place).recipe.is_file():
            below = [place]
        found += below
    return list(dict.fromkeys(found))


def compare_methods(
    runs: Sequence[Path], figures: Sequence[str] = (FIGURE,), against: str | None = None
) -> Comparison:
    """Compare the methods of some finished runs by dev figures.

    `against` names the one that the others are held against; that of the first run unless given.
    """
    read = _read(runs)
    records, methods = Records(read), list(dict.fromkeys(record.recipe for record in read))
    if against is not None:
        if against not in methods:
            raise UsageError(f"no run is of a method {against!r}{suggest(against, methods)}")
        methods.sort(key=lambda method: method != against)
    known = [*dict.fromkeys(task for record in read for task in record.dev.tasks), *SUMMARIES]
    for figure in figures:
        if figure not in known:
            raise UsageError(f"no run has a figure {figure!r}{suggest(figure, known)}")
    first, *others = methods
    made: list[Test] = []
    for method in others:
        for figure in figures:
            found = compare([(method, None)], [(first, None)], figure, records)
            if isinstance(found, str):
                made.append(Test(method, figure, None, reason=found))
            else:
                made.append(Test(method, figure, found))
    p_values = {str(i): t.difference.p_value() for i, t in enumerate(made) if t.difference}
    corrected = holm(p_values)
    tests = (
        Test(t.method, t.figure, t.difference, corrected.get(str(i)), t.reason)
        for i, t in enumerate(made)
    )
    return Comparison(records, tuple(methods), tuple(tests))


def _read(runs: Sequence[Path]) -> list[Record]:
    """Read finished runs as records, each under the name of its method."""
    if not runs:
        raise UsageError("there is no run to compare")
    configs = {run: RunFolder(run).read_config() for run in runs}
    settings = {run: _find_settings(run, config) for run, config in configs.items()}
    names = _name_methods({run: config.name for run, config in configs.items()}, settings)
    taken: dict[tuple[str, int], Path] = {}
    rows: dict[str, tuple[int, Path]] = {}
    records = []
    for run, name in names.items():
        values = make_record(run, recipe=name, profile="")
        if "dev" not in values:
            raise RunError(f"{run} has no dev scores to compare")
        record = Record.model_validate(values)
        if other := taken.get((name, record.seed)):
            raise UsageError(
                f"{other} and {run} are both seed {record.seed} of {name}: name one of them"
            )
        taken[name, record.seed] = run
        for task, figures in record.dev.tasks.items():
            number, before = rows.setdefault(task, (figures.num_examples, run))
            if number != figures.num_examples:
                raise UsageError(
                    f"{before} and {run} were scored on other dev rows of {task} ({number:,} and "
                    f"{figures.num_examples:,}): their figures cannot be compared"
                )
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
