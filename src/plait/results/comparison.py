"""Records of recipes under several seeds become a comparison with the first of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.config import flatten
from plait.errors import UsageError, counted, suggest
from plait.results.findings import compare
from plait.results.markdown import (
    between,
    figure,
    items,
    over_seeds,
    paragraph,
    probability,
    signed,
    table,
)
from plait.results.records import Records
from plait.results.sections.costs import mean_over
from plait.results.sections.findings import show_seeds
from plait.results.significance import LEVEL, Difference, holm

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.results.records import Record

OVERALL = "overall"
MOST_SETTINGS = 60
"""Settings that are shown at most."""

DIFFERENCES = ["recipe", "figure", "here", "difference", "95% interval", "seeds", "p", "Holm"]


@dataclass(frozen=True, slots=True)
class Step:
    """How far one recipe is from the first in one figure."""

    recipe: str
    figure: str
    found: Difference | str
    """Why it cannot be told, where it cannot."""
    corrected: float | None = None
    """The p-value with all of the comparison's tests in mind, by Holm."""

    @property
    def verdict(self) -> str:
        """What the seeds say; a difference that many tests would bring about counts as noise."""
        if isinstance(self.found, str):
            return self.found
        if self.corrected is None or self.corrected >= 1 - LEVEL:
            low, high = self.found.interval
            alone = low > 0 or high < 0
            return "perhaps: not with the other tests in mind" if alone else "within the noise"
        return "better" if self.found.value > 0 else "worse"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        told = {"recipe": self.recipe, "figure": self.figure, "here": self.verdict}
        if isinstance(self.found, str):
            return told
        return {
            **told,
            "difference": self.found.value,
            "interval": list(self.found.interval),
            "p": self.found.p_value(),
            "holm": self.corrected,
            "seeds": self.found.num_seeds,
            "paired": self.found.is_paired,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Recipes beside each other, the first one the measure of the others."""

    records: Records
    recipes: tuple[str, ...]
    """Those that have a record, in the order asked for."""
    steps: tuple[Step, ...]

    @property
    def tasks(self) -> list[str]:
        """Every task of any of them."""
        rows = (self.records.row(recipe) for recipe in self.recipes)
        return list(dict.fromkeys(task for row in rows for task in row[0].dev.tasks))

    @property
    def figures(self) -> list[str]:
        """The tasks, and what sums them up where there are several."""
        return [*self.tasks, OVERALL] if len(self.tasks) > 1 else self.tasks

    def figure_table(self) -> list[list[str]]:
        """Return what each came to and what it took, its header first."""
        rows = [["recipe", *self.figures, "seeds", "updates", "minutes", "peak MiB"]]
        for recipe in self.recipes:
            row = self.records.row(recipe)
            found = [self.records.figures(recipe, figure) for figure in self.figures]
            rows.append(
                [
                    recipe,
                    *(over_seeds(list(f.values())) if f else "" for f in found),
                    str(len(row)),
                    mean_over(row, lambda record: record.steps),
                    mean_over(row, lambda record: record.seconds and record.seconds / 60, 1),
                    mean_over(row, lambda record: record.peak_memory_mib),
                ]
            )
        if not any(row[-1] for row in rows[1:]):  # nobody counts a CPU's
            rows = [row[:-1] for row in rows]
        return rows

    def difference_table(self) -> list[list[str]]:
        """Return how far each is from the first, the header first."""
        rows = [DIFFERENCES]
        for step in self.steps:
            cells = [step.recipe, step.figure, step.verdict]
            if isinstance(step.found, Difference):
                cells += [signed(step.found.value), between(step.found.interval, signs=True)]
                cells += [show_seeds(step.found), probability(step.found.p_value())]
                cells += [probability(step.corrected or 0.0)]
            rows.append(cells + [""] * (len(DIFFERENCES) - len(cells)))
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return plain values: each figure by seed, and the tests."""
        return {
            "recipes": {
                recipe: {
                    figure: {str(s): v for s, v in self.records.figures(recipe, figure).items()}
                    for figure in self.figures
                }
                for recipe in self.recipes
            },
            "against": self.recipes[0] if self.recipes else None,
            "tests": [step.to_json() for step in self.steps],
        }

    def cautions(self) -> Iterator[str]:
        """Yield what to have in mind with the figures."""
        for recipe in self.recipes:
            for record in self.records.row(recipe):
                place = f"{recipe}, seed {record.seed}"
                if record.guesses:
                    yield f"{place}: no better than guessing in any task."
                elif record.fall:
                    best, last = record.fall
                    yield (
                        f"{place}: overall fell from {figure(best.overall)} after {best.step:,} "
                        f"updates to {figure(last.overall)} at the end; the best checkpoint counts."
                    )

    def settings(self) -> list[list[str]]:
        """Return the settings in which they differ, a header of the recipes first."""
        flat = {recipe: _settings(self.records.row(recipe)[0]) for recipe in self.recipes}
        keys = sorted(set().union(*flat.values()))
        rows = [["setting", *self.recipes]]
        for key in keys:
            values = [_show(own.get(key)) for own in flat.values()]
            if len(set(values)) > 1:
                rows.append([key, *values])
        return rows


def compare_recipes(
    records: Records,
    recipes: Sequence[str],
    figures: Sequence[str] = (),
    against: str | None = None,
) -> Comparison:
    """Compare each recipe with the first by every figure that both have, or by those named.

    `against` is the one that takes the first one's place.
    """
    run = tuple(recipe for recipe in recipes if records.row(recipe))
    if against is not None:
        if against not in run:
            raise UsageError(f"none of them is called {against!r}{suggest(against, run)}")
        run = (against, *(recipe for recipe in run if recipe != against))
    records = Records(record for record in records if record.recipe in run)
    _check_rows(records)
    known = [*dict.fromkeys(task for record in records for task in record.dev.tasks), OVERALL]
    for name in figures:
        if name not in known:
            raise UsageError(f"none of them has a figure {name!r}{suggest(name, known)}")
    pairs = [
        (recipe, figure)
        for recipe in run[1:]
        for figure in _shared(records, run[0], recipe)
        if not figures or figure in figures
    ]
    found = {
        (recipe, figure): compare([(recipe, None)], [(run[0], None)], figure, records, paired=True)
        for recipe, figure in pairs
    }
    tested = {
        "/".join(key): step.p_value() for key, step in found.items() if isinstance(step, Difference)
    }
    corrected = holm(tested)
    steps = (Step(*key, step, corrected.get("/".join(key))) for key, step in found.items())
    return Comparison(records, run, tuple(steps))


def write_comparison(comparison: Comparison) -> str:
    """Return the comparison as a Markdown page."""
    lines = ["# Comparison", ""]
    lines += paragraph(
        "Figures are on dev, at each run's best checkpoint there: the mean over seeds, ± their "
        "standard deviation. Minutes are those of a run, by the clock."
    )
    lines += _as_table(comparison.figure_table())
    if comparison.steps:
        lines += [f"## Against `{comparison.recipes[0]}`", ""]
        num_tests = sum(isinstance(step.found, Difference) for step in comparison.steps)
        lines += paragraph(
            "With three seeds or more that both have, the difference is tested seed by seed "
            "(Student's paired test); with fewer, by each one's spread over seeds and that of all "
            "these recipes. *p* is how often chance alone would be as far from 0; "
            f"*Holm* is the same with {counted(num_tests, 'test')} in mind, and decides. "
            "Tests over seeds speak of other seeds, not of other dev rows. *Within the "
            "noise* is no proof that nothing is there: few seeds make wide intervals."
        )
        lines += _as_table(comparison.difference_table(), num_words=3)
    lines += items(comparison.cautions())
    header, *settings = comparison.settings()
    if settings:
        lines += ["## Settings in which they differ", ""]
        lines += _as_table([header, *settings[:MOST_SETTINGS]], num_words=len(header))
        if len(settings) > MOST_SETTINGS:
            lines += paragraph(f"And {len(settings) - MOST_SETTINGS} more, in the records.")
    return "\n".join(lines).rstrip() + "\n"


def _as_table(rows: list[list[str]], num_words: int = 1) -> list[str]:
    header, *others = rows
    return table(header, ([f"`{name}`", *cells] for name, *cells in others), num_words)


def _check_rows(records: Records) -> None:
    """Refuse figures of one task that are of different dev rows."""
    sizes: dict[str, tuple[int, Record]] = {}
    for record in records:
        for task, own in record.dev.tasks.items():
            number, other = sizes.setdefault(task, (own.num_examples, record))
            if number != own.num_examples:
                raise UsageError(
                    f"{other.recipe} was scored on {number:,} dev rows of {task} and "
                    f"{record.recipe} on {own.num_examples:,}: their figures cannot be compared"
                )


def _shared(records: Records, first: str, second: str) -> list[str]:
    """Return the figures by which two rows can be compared."""
    ours, theirs = (records.row(recipe)[0].dev.tasks for recipe in (first, second))
    both = [task for task in ours if task in theirs]
    alike = ours.keys() == theirs.keys() and len(both) > 1
    return [OVERALL, *both] if alike else both


def _settings(record: Record) -> dict[str, Any]:
    table = flatten(record.settings)
    return {key: value for key, value in table.items() if key not in ("seed", "name")}


def _show(value: Any) -> str:
    text = "" if value is None else json.dumps(value, ensure_ascii=False)
    return (text if len(text) <= 60 else f"{text[:59]}…").replace("|", "\\|")
