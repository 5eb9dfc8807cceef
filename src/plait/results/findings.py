"""What the reports claim, held against the records: holds, does not, or is within the noise."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from plait.results.records import SUMMARIES, Records
from plait.results.significance import (
    FEWEST_SEEDS,
    LEVEL,
    Difference,
    accuracy_variance,
    compare_moderated,
    compare_paired,
    correlation_variance,
    expect_spread,
    holm,
    own_spread,
)
from plait.results.tables import Row, read_published

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.results.records import Record
    from plait.results.significance import Expected, Spread

MARGIN = 0.005
"""What a gain must stay below to be called none: half a point."""

Verdict = Literal["holds", "does not", "within the noise", "not tested"]


class Finding(BaseModel):
    """A claim, as a comparison of rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    system: str
    where: str
    """Of the report."""
    says: str
    better: tuple[str, ...] = Field(min_length=1)
    worse: tuple[str, ...] = Field(min_length=1)
    figure: str
    claim: Literal["gain", "no gain", "best"] = "gain"

    @property
    def published(self) -> float | None:
        """The difference as printed; none where a figure was not."""
        sides = [[_printed(recipe, self.figure) for recipe in s] for s in (self.better, self.worse)]
        known = [[value for value in side if value is not None] for side in sides]
        if known != sides:
            return None
        others = max(known[1]) if self.claim == "best" else fmean(known[1])
        return fmean(known[0]) - others


@dataclass(frozen=True, slots=True)
class Judgement:
    """A finding, and what the records say of it."""

    finding: Finding
    verdict: Verdict
    difference: Difference | None
    """None where it could not be tested."""
    p_value: float | None
    corrected: float | None
    """The p-value with all that were tested in mind, by Holm."""
    reason: str = ""
    """Why it could not be tested."""


def read_findings() -> list[Finding]:
    """Read findings.toml."""
    text = (resources.files("plait.results") / "findings.toml").read_text(encoding="utf-8")
    return [Finding.model_validate(entry) for entry in tomllib.loads(text)["finding"]]


def judge_all(findings: Sequence[Finding], records: Records) -> list[Judgement]:
    """Judge every finding, and correct their p-values for how many there are."""
    judged = [_judge(finding, records) for finding in findings]
    known = {str(i): j.p_value for i, j in enumerate(judged) if j.p_value is not None}
    corrected = holm(known)
    return [
        Judgement(j.finding, j.verdict, j.difference, j.p_value, corrected.get(str(i)), j.reason)
        for i, j in enumerate(judged)
    ]


def _judge(finding: Finding, records: Records) -> Judgement:
    better, worse = ([(recipe, None) for recipe in s] for s in (finding.better, finding.worse))
    found = compare(better, worse, finding.figure, records)
    num_tries = 1
    if finding.claim == "best" and not isinstance(found, str):
        # What beats each of the others beats the one that it beats least surely; that this one
        # is ahead counts for less, since it is the one of several that came out so.
        each = (compare(better, [row], finding.figure, records) for row in worse)
        pairs = [pair for pair in each if not isinstance(pair, str)]
        found = min(pairs, key=lambda pair: pair.interval[0])
        num_tries = len(worse) if found.value < 0 else 1
    if isinstance(found, str):
        return Judgement(finding, "not tested", None, None, None, found)
    low, high = found.interval
    verdict: Verdict = "within the noise"
    if finding.claim != "no gain":
        p_value = min(1.0, num_tries * found.p_value())
        if low > 0:
            verdict = "holds"
        elif high < 0 and p_value < 1 - LEVEL:
            verdict = "does not"
    else:
        p_value = found.p_value(MARGIN)
        if low > 0:
            verdict, p_value = "does not", found.p_value()
        elif high < MARGIN:
            verdict = "holds"
    return Judgement(finding, verdict, found, p_value, None)


def _printed(recipe: str, figure: str) -> float | None:
    return Row(recipe, recipe, read_published()[recipe], False).figure(figure)


# --- comparing rows ----------------------------------------------------------------------

RowKey = tuple[str, str | None]
"""A recipe, and the task it was trained on alone, if it was."""


def compare(
    better: Sequence[RowKey],
    worse: Sequence[RowKey],
    figure: str,
    records: Records,
    *,
    paired: bool = False,
) -> Difference | str:
    """Compare two groups of rows by a figure, or say why that cannot be done.

    Each row varies from seed to seed as its own seeds and those of all rows tell. `paired` compares
    the groups' means seed by seed instead, where all rows share enough seeds.
    """
    rows = [*better, *worse]
    found = {(recipe, alone): records.figures(recipe, figure, alone) for recipe, alone in rows}
    absent = [_name(key) for key in rows if not records.row(*key)]
    if absent:
        return "not run yet" if len(absent) == len(rows) else f"not run yet: {', '.join(absent)}"
    lost = [_name(key) for key in rows if all(record.guesses for record in records.row(*key))]
    if lost:
        return f"cannot be told, as it fell apart: {', '.join(lost)}"
    empty = [_name(key) for key in rows if not found[key]]
    if empty:
        return f"no `{figure}` of {', '.join(empty)}"
    shared = set.intersection(*(set(by_seed) for by_seed in found.values()))
    if paired and len(shared) >= FEWEST_SEEDS:
        rounding = sum(
            fmean(rounding_variance(records.row(*key)[0], figure) for key in side) / len(side)
            for side in (better, worse)
        )
        return compare_paired(
            [
                fmean(found[key][seed] for key in better) - fmean(found[key][seed] for key in worse)
                for seed in sorted(shared)
            ],
            rounding,
        )
    # A head that nobody trained varies more from seed to seed than those that are compared.
    untrained = not all(record.trains(figure) for key in rows for record in records.row(*key))
    expected = expect(records, figure, untrained=untrained)
    if expected is None:
        return "one seed, and no row has two to tell the spread from"
    ours, theirs = (
        [(list(found[key].values()), _spread(key, figure, records)) for key in side]
        for side in (better, worse)
    )
    return compare_moderated(ours, theirs, expected)


def expect(records: Records, figure: str, *, untrained: bool = False) -> Expected | None:
    """Return how much a row's figure is to be expected to vary; none where no row has two seeds."""
    rows = records.rows_that_vary(figure, untrained=untrained)
    spreads = (_spread((recipe, None), figure, records) for recipe in rows)
    return expect_spread([spread for spread in spreads if spread is not None])


def _spread(key: RowKey, figure: str, records: Records) -> Spread | None:
    recipe, alone = key
    values = list(records.figures(recipe, figure, alone).values())
    return own_spread(values, rounding_variance(records.row(*key)[0], figure)) if values else None


def _name(key: RowKey) -> str:
    recipe, alone = key
    return f"`{recipe}`" if alone is None else f"`{recipe}` ({alone} alone)"


def sampling_variance(record: Record, figure: str) -> float:
    """Return how much a figure would vary over other dev rows of the same number."""

    def of_task(name: str) -> float:
        task, value = record.dev.tasks[name], record.dev.figure(name) or 0.0
        of_kind = correlation_variance if task.kind == "score" else accuracy_variance
        return of_kind(value, task.num_examples)

    return _put_together(record, figure, of_task)


def rounding_variance(record: Record, figure: str) -> float:
    """Return the variance of what a figure is rounded by: a share of rows comes in whole rows."""

    def of_task(name: str) -> float:
        task = record.dev.tasks[name]
        return 0.0 if task.kind == "score" else 1 / (12 * task.num_examples**2)

    return _put_together(record, figure, of_task)


def _put_together(record: Record, figure: str, of_task: Callable[[str], float]) -> float:
    """Return the variance of a figure from that of each task's."""
    if figure not in SUMMARIES:
        return of_task(figure)
    tasks = record.dev.tasks
    # `overall` halves a correlation, and so quarters its variance.
    halved = {task for task in tasks if figure == "overall" and tasks[task].kind == "score"}
    total = sum(of_task(task) / (4 if task in halved else 1) for task in tasks)
    return total if figure == "sum" else total / len(tasks) ** 2


def count_verdicts(judgements: Sequence[Judgement]) -> dict[Verdict, int]:
    """Count the judgements of each kind."""
    kinds: tuple[Verdict, ...] = ("holds", "does not", "within the noise", "not tested")
    return {kind: sum(j.verdict == kind for j in judgements) for kind in kinds}


def stays_corrected(judgement: Judgement) -> bool:
    """Say whether a verdict is still told from chance with the number of tests in mind."""
    p = judgement.corrected
    return judgement.verdict in ("holds", "does not") and p is not None and p < 1 - LEVEL
