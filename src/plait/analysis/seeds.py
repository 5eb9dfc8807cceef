"""Compare recipes by the dev scores of their runs: paired t-tests over seeds, Holm-corrected.

The test pairs the runs of two recipes that have the same seed. It assumes that the differences
are about normally distributed over seeds. It says whether another set of seeds would show the same
difference on this dev set; it does not say anything about other dev rows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from plait.config import list_settings
from plait.errors import RunError, UsageError, suggest
from plait.inference.folders import RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from plait.config import RunConfig

LEVEL = 0.05
"""Significance level, of Holm-corrected p-values; intervals are of 1 - LEVEL."""

OVERALL = "overall"

HEADER = ["recipe", "score", "result", "mean", "std", "seeds", "difference", "95% interval"]
HEADER += ["p", "p (Holm)"]
"""Columns of the table; the first three hold words."""

_UNRELATED = {"seed", "name", "about", "device", "graphs", "save_every", "log_every", "listeners"}
_UNRELATED |= {"search", "data.root", "data.hint"}
"""Settings, or sections of them, in which runs of one recipe may differ."""


@dataclass(frozen=True, slots=True)
class RunScores:
    """Dev scores of one finished run."""

    folder: Path
    recipe: str
    seed: int
    settings: Mapping[str, Any]
    """By dotted key, without those that do not change scores; empty for an ensemble."""
    scores: Mapping[str, float]
    """By task, in its primary metric, and `overall` where there are several tasks."""
    num_examples: Mapping[str, int]
    """Dev rows by task."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Result of a paired t-test: the mean difference between two recipes in one score."""

    recipe: str
    score: str
    num_seeds: int
    """Seeds that both recipes have."""
    value: float | None
    interval: tuple[float, float] | None = None
    """95% confidence interval."""
    p: float | None = None
    corrected: float | None = None
    """The p-value after Holm correction for all tests of the comparison."""

    @property
    def result(self) -> str:
        """Say what the test found, in words."""
        if self.p is None or self.corrected is None or self.value is None:
            few = self.num_seeds < 2
            return "no test: fewer than 2 shared seeds" if few else "no test: equal for all seeds"
        if self.corrected < LEVEL:
            return "better" if self.value > 0 else "worse"
        return "not significant" + (" after Holm correction" if self.p < LEVEL else "")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Recipes under several seeds, each tested against the first."""

    runs: Mapping[str, Sequence[RunScores]]
    """By recipe; the first recipe is the reference."""
    differences: tuple[Difference, ...]

    def values(self, recipe: str, score: str) -> dict[int, float]:
        """Return a recipe's scores by seed."""
        return {run.seed: run.scores[score] for run in self.runs[recipe] if score in run.scores}

    @property
    def scores(self) -> list[str]:
        """Names of all scores."""
        return list(dict.fromkeys(name for runs in self.runs.values() for name in runs[0].scores))

    def table(self) -> list[list[str]]:
        """Return the rows of the table that `plait compare` shows, the header first."""
        rows = [HEADER]
        tests = {(test.recipe, test.score): test for test in self.differences}
        for score in self.scores:
            for recipe in self.runs:
                if found := list(self.values(recipe, score).values()):
                    spread = _number(stdev(found)) if len(found) > 1 else ""
                    test = tests.get((recipe, score))
                    cells = ["", "", "", ""] if test is None else _cells(test)
                    result = "" if test is None else test.result
                    mean = _number(fmean(found))
                    rows.append([recipe, score, result, mean, spread, str(len(found)), *cells])
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return scores by seed and the tests as plain values."""
        return {
            "against": next(iter(self.runs)),
            "scores": {
                recipe: {score: self.values(recipe, score) for score in runs[0].scores}
                for recipe, runs in self.runs.items()
            },
            "differences": [
                {
                    "recipe": test.recipe,
                    "score": test.score,
                    "result": test.result,
                    "seeds": test.num_seeds,
                    "difference": test.value,
                    "interval": test.interval,
                    "p": test.p,
                    "p_holm": test.corrected,
                }
                for test in self.differences
            ],
        }

    def to_markdown(self) -> str:
        """Return the table as a Markdown page."""
        header, *rows = self.table()
        lines = ["# Comparison", "", *_NOTE, ""]
        lines += [f"| {' | '.join(header)} |", f"|{'---|' * 3}{'---:|' * (len(header) - 3)}"]
        lines += [f"| `{name}` | {' | '.join(cells)} |" for name, *cells in rows]
        return "\n".join(lines) + "\n"


_NOTE = [
    "Dev scores at each run's best checkpoint: mean and standard deviation over seeds. Each recipe",
    "is compared with the first one by a paired t-test over the seeds that both have. *p (Holm)*",
    "is corrected for the number of tests; a difference is significant if it is below .05. *Not",
    "significant* does not prove that there is no difference: few seeds make wide intervals.",
]


def compare_runs(folders: Iterable[Path], against: str | None = None) -> Comparison:
    """Compare finished runs. Runs that differ in nothing but the seed belong to one recipe.

    `against` names the recipe that the others are compared with: the first one unless given.
    """
    runs = _group([read_run_scores(folder) for folder in folders])
    reference = next(iter(runs)) if against is None else against
    if reference not in runs:
        raise UsageError(f"no compared recipe is called {reference!r}{suggest(reference, runs)}")
    _check_dev_rows(runs)
    runs = {reference: runs[reference], **runs}
    both = {
        (recipe, score): _paired(own, runs[reference], score)
        for recipe, own in runs.items()
        if recipe != reference
        for score in own[0].scores
        if score in runs[reference][0].scores
        and (score != OVERALL or own[0].scores.keys() == runs[reference][0].scores.keys())
    }
    tested = [paired_t_test(*key, values) for key, values in both.items()]
    corrected = iter(holm([test.p for test in tested if test.p is not None]))
    found = (t if t.p is None else replace(t, corrected=next(corrected)) for t in tested)
    return Comparison(runs, tuple(found))


def find_runs(folder: Path) -> list[Path]:
    """Return the finished runs in a folder: itself, or those right below it."""
    if (folder / "scores.json").is_file():
        return [folder]
    found = sorted(path.parent for path in folder.glob("*/scores.json"))
    if not found:
        raise UsageError(f"{folder} is not a finished run and has none right below it")
    return found


def read_run_scores(folder: Path) -> RunScores:
    """Read the dev scores of a finished run or ensemble."""
    run = RunFolder(folder)
    result = run.read_json(run.scores)
    if "dev" not in result:
        raise RunError(f"{folder} has no dev scores to compare")
    if "members" in result:
        config = RunFolder(folder / "members" / next(iter(result["members"]))).read_config()
        name, settings = str(result["recipe"]), {}
    else:
        config = run.read_config()
        name, settings = config.name, _find_settings(config)
    dev = result["dev"]
    scores = {task: value for task, value in dev["primary"].items() if value is not None}
    if len(dev["primary"]) > 1 and dev["summary"][OVERALL] is not None:
        scores[OVERALL] = dev["summary"][OVERALL]
    sizes = {task: figures["num_examples"] for task, figures in dev["tasks"].items()}
    return RunScores(folder, name, config.seed, settings, scores, sizes)


def paired_t_test(recipe: str, score: str, differences: Sequence[float]) -> Difference:
    """Test with Student's one-sample t-test whether paired differences have the mean 0."""
    from scipy.stats import ttest_1samp

    count = len(differences)
    if count < 2:
        return Difference(recipe, score, count, fmean(differences) if differences else None)
    if stdev(differences) < 1e-9:  # equal up to rounding: the t statistic is not defined
        return Difference(recipe, score, count, fmean(differences))
    found = ttest_1samp(differences, 0.0)
    low, high = found.confidence_interval(1 - LEVEL)
    interval = float(low), float(high)
    return Difference(recipe, score, count, fmean(differences), interval, float(found.pvalue))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number by the method of Holm (1979), in the order given."""
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def _group(found: Sequence[RunScores]) -> dict[str, list[RunScores]]:
    """Group runs by recipe and settings; add to a name that several groups share what differs."""
    groups: dict[str, list[RunScores]] = {}
    for run in found:
        groups.setdefault(repr((run.recipe, sorted(run.settings.items()))), []).append(run)
    shared = Counter(runs[0].recipe for runs in groups.values())
    named: dict[str, list[RunScores]] = {}
    for runs in groups.values():
        name = runs[0].recipe
        if shared[name] > 1:
            others = [group[0].settings for group in groups.values() if group[0].recipe == name]
            own = runs[0].settings
            keys = [key for key in own if any(other.get(key) != own[key] for other in others)]
            name = f"{name} ({', '.join(f'{key}={own[key]}' for key in keys)})"
        named[name] = runs
        for seed, count in Counter(run.seed for run in runs).items():
            if count > 1:
                one, two, *_ = (run.folder for run in runs if run.seed == seed)
                raise UsageError(f"{one} and {two} are both seed {seed} of {name}: name one")
    return named


def _find_settings(config: RunConfig) -> dict[str, Any]:
    settings = list_settings(config)
    return {
        key: value
        for key, value in settings.items()
        if not {key, key.partition(".")[0]} & _UNRELATED
    }


def _check_dev_rows(runs: Mapping[str, Sequence[RunScores]]) -> None:
    sizes: dict[str, tuple[int, str]] = {}
    for recipe, own in runs.items():
        for task, size in ((t, s) for run in own for t, s in run.num_examples.items()):
            first, other = sizes.setdefault(task, (size, recipe))
            if first != size:
                raise UsageError(
                    f"{other} was scored on {first:,} dev rows of {task} and {recipe} on {size:,}: "
                    "these scores cannot be compared"
                )


def _paired(own: Sequence[RunScores], other: Sequence[RunScores], score: str) -> list[float]:
    """Return the differences of a score, one for each seed that both recipes have."""
    ours, theirs = ({r.seed: r.scores.get(score) for r in runs} for runs in (own, other))
    pairs = ((ours[seed], theirs[seed]) for seed in sorted(ours.keys() & theirs.keys()))
    return [a - b for a, b in pairs if a is not None and b is not None]


def _cells(test: Difference) -> list[str]:
    if test.value is None:
        return ["", "", "", ""]
    if test.interval is None or test.p is None or test.corrected is None:
        return [f"{test.value:+.3f}", "", "", ""]
    low, high = test.interval
    interval = f"{low:+.3f} to {high:+.3f}"
    return [f"{test.value:+.3f}", interval, *(f"{p:.3f}" for p in (test.p, test.corrected))]


def _number(value: float) -> str:
    return f"{value:.3f}"
