"""Test the reports' claims against the records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from plait.analysis.seeds import holm
from reproduction.records import SUMMARIES, Records
from reproduction.statistics import LEVEL, compare_moderated, expect_spread, own_spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reproduction.published import Claim
    from reproduction.records import Record
    from reproduction.statistics import Difference, Expected, Spread

MARGIN = 0.005
"""A claim that nothing is gained holds if the gain is smaller than this."""

Verdict = Literal["holds", "does not hold", "not significant", "not tested"]

RowKey = tuple[str, str | None]
"""A recipe, and the task where it was trained alone."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A claim and the result of its test."""

    claim: Claim
    verdict: Verdict
    difference: Difference | None = None
    """None if it was not tested."""
    p_value: float | None = None
    corrected: float | None = None
    """The p-value after Holm correction for all claims."""
    reason: str = ""
    """Why it was not tested."""

    @property
    def is_firm(self) -> bool:
        """Whether the verdict stays significant after Holm correction."""
        told = self.verdict in ("holds", "does not hold")
        return told and self.corrected is not None and self.corrected < 1 - LEVEL


def judge_all(claims: Sequence[Claim], records: Records) -> list[Judgement]:
    """Test all claims and correct their p-values for their number."""
    judged = [_judge(claim, records) for claim in claims]
    corrected = iter(holm([j.p_value for j in judged if j.p_value is not None]))
    return [j if j.p_value is None else replace(j, corrected=next(corrected)) for j in judged]


def _judge(claim: Claim, records: Records) -> Judgement:
    better, worse = ([(recipe, None) for recipe in side] for side in (claim.better, claim.worse))
    found = compare(better, worse, claim.score, records)
    num_tries = 1
    if claim.kind == "best" and not isinstance(found, str):
        # A row that beats each of the others beats the one with the lowest bound. If that one is
        # ahead instead, it is the first of several candidates, which costs a factor.
        each = (compare(better, [row], claim.score, records) for row in worse)
        found = min((pair for pair in each if not isinstance(pair, str)), key=_lower_bound)
        num_tries = len(worse) if found.value < 0 else 1
    if isinstance(found, str):
        return Judgement(claim, "not tested", reason=found)
    low, high = found.interval
    verdict: Verdict = "not significant"
    if claim.kind == "no gain":
        p_value = found.p_value(MARGIN)
        if low > 0:
            verdict, p_value = "does not hold", found.p_value()
        elif high < MARGIN:
            verdict = "holds"
    else:
        p_value = min(1.0, num_tries * found.p_value())
        if low > 0:
            verdict = "holds"
        elif high < 0 and p_value < 1 - LEVEL:
            verdict = "does not hold"
    return Judgement(claim, verdict, found, p_value)


def _lower_bound(difference: Difference) -> float:
    return difference.interval[0]


def compare(
    better: Sequence[RowKey], worse: Sequence[RowKey], score: str, records: Records
) -> Difference | str:
    """Compare two groups of rows by a score, or return the reason why that is not possible."""
    keys = [*better, *worse]
    rows = {key: records.row(*key) for key in keys}
    if absent := [_name(key) for key in keys if not rows[key]]:
        return f"not run yet: {', '.join(absent)}"
    if lost := [_name(key) for key in keys if all(r.is_chance for r in rows[key])]:
        return f"not tested, no better than the baseline: {', '.join(lost)}"
    # An untrained head varies more from seed to seed than trained ones.
    untrained = not all(record.trains(score) for row in rows.values() for record in row)
    expected = expect(records, score, untrained=untrained)
    if expected is None:
        return "not tested: no row has two seeds"
    ours, theirs = (
        [(records.scores(key[0], score, key[1]), _spread(key, score, records)) for key in side]
        for side in (better, worse)
    )
    return compare_moderated(ours, theirs, expected)


def expect(records: Records, score: str, *, untrained: bool = False) -> Expected | None:
    """Return the distribution of a score's variance over seeds; None if no row has two seeds."""
    rows = records.rows_that_vary(score, untrained=untrained)
    spreads = (_spread((recipe, None), score, records) for recipe in rows)
    return expect_spread([spread for spread in spreads if spread is not None])


def _spread(key: RowKey, score: str, records: Records) -> Spread | None:
    values = records.scores(key[0], score, key[1])
    return own_spread(values, _rounding_variance(records.row(*key)[0], score)) if values else None


def _name(key: RowKey) -> str:
    recipe, alone = key
    return f"`{recipe}`" if alone is None else f"`{recipe}` ({alone} alone)"


def sampling_variance(record: Record, score: str) -> float:
    """Return the variance of a score over other dev sets of the same size."""

    def of_task(name: str) -> float:
        task, value = record.dev.tasks[name], record.dev.get(name) or 0.0
        if task.kind == "score":  # Fisher's variance of a correlation
            return (1 - value**2) ** 2 / max(task.num_examples - 3, 1)
        return value * (1 - value) / task.num_examples

    return _combine(record, score, of_task)


def _rounding_variance(record: Record, score: str) -> float:
    """Return the variance of the rounding of a score: accuracies are multiples of one row."""

    def of_task(name: str) -> float:
        task = record.dev.tasks[name]
        return 0.0 if task.kind == "score" else 1 / (12 * task.num_examples**2)

    return _combine(record, score, of_task)


def _combine(record: Record, score: str, of_task: Callable[[str], float]) -> float:
    """Return the variance of a task's score or a summary, from the variances of the tasks."""
    if score not in SUMMARIES:
        return of_task(score)
    tasks = record.dev.tasks
    # `overall` halves a correlation, which divides its variance by 4.
    halved = {task for task in tasks if score == "overall" and tasks[task].kind == "score"}
    total = sum(of_task(task) / (4 if task in halved else 1) for task in tasks)
    return total if score == "sum" else total / len(tasks) ** 2


def count_verdicts(judgements: Sequence[Judgement]) -> dict[Verdict, int]:
    """Count the judgements of each verdict."""
    kinds: tuple[Verdict, ...] = ("holds", "does not hold", "not significant", "not tested")
    return {kind: sum(j.verdict == kind for j in judgements) for kind in kinds}


def mean_score(records: Records, recipe: str, score: str) -> float | None:
    """Return the mean of a row's score over seeds."""
    values = records.scores(recipe, score)
    return fmean(values) if values else None
