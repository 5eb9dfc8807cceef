"""The findings' section: what is tested how, and what came of it."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING

from plait.errors import counted
from plait.results.findings import MARGIN, expect, sampling_variance
from plait.results.gathering import FINDINGS_PICTURE
from plait.results.markdown import (
    between,
    figure,
    items,
    paragraph,
    picture,
    probability,
    signed,
    table,
    unbroken,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.results.findings import Judgement
    from plait.results.gathering import Results
    from plait.results.records import Records
    from plait.results.significance import Difference


def show_findings(results: Results, pictures: str | None) -> list[str]:
    """Return the section's lines."""
    lines = ["## Findings", ""]
    lines += paragraph(
        "A finding compares two rows, or the means of two groups of rows, by one figure: the "
        "difference of their means over seeds, with an interval of 95%. Most rows come out much "
        "alike under other seeds and a few come out far apart, so no spread is right for all, and "
        "a few seeds alone tell little of a row's own. Each row's variance is therefore its own "
        "and the one that all rows lead to expect, weighed by their degrees of freedom (Smyth's "
        "moderated variances, known from limma), and the difference has the distribution of "
        "Behrens and Fisher. Of a row with one seed, what is expected is all that is known, and "
        "its interval is wide."
    )
    lines += paragraph(_expected(results.records))
    lines += paragraph(
        "A finding **holds** where the whole interval is above 0, **does not** where it is "
        "below, and is **within the noise** "
        f"otherwise; one that says nothing is gained holds where the interval ends below "
        f"+{figure(MARGIN)}, and does not where it begins above 0. A row that is said to be best "
        "has to beat each of the others, and is shown against the one it beats least surely. Which "
        "run is a report's best, its print says: to pick the highest here would flatter it."
    )
    num_tested = sum(j.p_value is not None for j in results.judgements)
    lines += paragraph(
        f"{counted(num_tested, 'test')} are made here, so one in twenty would come out by chance "
        "alone where there is nothing: *p* is each test's own, *Holm* is corrected for their "
        "number; where nothing is said to be gained, they are of a gain as large as "
        f"+{figure(MARGIN)}. The tests speak of other seeds on these dev rows, not of "
        "other rows; other rows of the same number would move "
        f"{_dev_error(results.records)}. Published differences "
        "of `mean` and `overall` are worked out from the three printed figures."
    )
    if FINDINGS_PICTURE in results.pictures:
        lines += picture(pictures, FINDINGS_PICTURE, "Every finding: published difference and ours")
    for report in results.reports:
        judged = [j for j in results.judgements if j.finding.system == report.system]
        if not judged:
            continue
        lines += [f"### Findings {_of(report.system)}", ""]
        lines += table(
            [
                "finding",
                "here",
                "figure",
                "published",
                "ours",
                "95% interval",
                "seeds",
                "p",
                "Holm",
            ],
            map(_finding_cells, judged),
            num_words=3,
        )
        lines += items(_cautions(judged, results.records))
    return lines


def _cautions(judged: Sequence[Judgement], records: Records) -> Iterator[str]:
    """Yield what to have in mind with a report's findings, of those that were tested."""
    tested = [j for j in judged if j.difference is not None]
    rows = dict.fromkeys(r for j in tested for r in (*j.finding.better, *j.finding.worse))
    several = {recipe for recipe in records.recipes if len(records.row(recipe)) > 1}
    if rows and not several & rows.keys():
        folders = sorted({f"`{recipe.partition('/')[0]}/...`" for recipe in several})
        yield (
            f"No row compared here has a second seed: the spread over seeds is the one that rows "
            f"of {', '.join(folders)} lead to expect."
        )
    if low := [f"`{row}`" for row in rows if any(record.fall for record in records.row(row))]:
        yield f"Rows compared here that ended low, as noted below their table: {', '.join(low)}."


def _expected(records: Records) -> str:
    """Say how much rows vary from seed to seed."""
    tasks = dict.fromkeys(task for record in records for task in record.dev.tasks)
    told = []
    for name in (*tasks, "mean", "overall"):
        found = expect(records, name)
        if found is not None and found.variance > 0 and len(records.rows_that_vary(name)) > 2:
            alike = math.isinf(found.freedom)
            weight = "alike in all rows" if alike else f"as good as {found.freedom:.1f} seeds more"
            told.append(f"`{name}` {figure(math.sqrt(found.variance), 4)} ({weight})")
    if not told:
        return "No row has a second seed yet, so nothing is known of the spread."
    return (
        "The standard deviation to expect of a row from seed to seed, and what it counts for "
        f"beside the row's own seeds: {', '.join(told)}."
    )


def _dev_error(records: Records) -> str:
    """Say how large the dev set's own error is, in the middle of all runs."""
    errors: dict[str, list[float]] = {}
    for record in records:
        for name in (*record.dev.tasks, "overall"):
            if len(record.dev.tasks) > 1 and record.dev.figure(name) is not None:
                errors.setdefault(name, []).append(sampling_variance(record, name) ** 0.5)
    told = ", ".join(f"`{name}` by {figure(median(each))}" for name, each in errors.items())
    return f"{told} (the median standard error)" if told else "figures as well"


def _finding_cells(judgement: Judgement) -> list[str]:
    finding, found = judgement.finding, judgement.difference
    cells = [f"{finding.says} ({finding.where})", _verdict(judgement), f"`{finding.figure}`"]
    published = finding.published
    cells.append("no figure" if published is None else signed(published))
    if found is None or judgement.p_value is None or judgement.corrected is None:
        return [*cells, *[""] * 5]
    p_values = (judgement.p_value, judgement.corrected)
    return [
        *cells,
        signed(found.value),
        between(found.interval, signs=True),
        show_seeds(found),
        *map(probability, p_values),
    ]


def show_seeds(found: Difference) -> str:
    """Write how many seeds a difference rests on."""
    words = {1: "one seed", 2: "two seeds"}
    return unbroken(words.get(found.num_seeds, str(found.num_seeds)))


def _of(system: str) -> str:
    return f"of {system}" if len(system) == 1 else f"over {system}"


def _verdict(judgement: Judgement) -> str:
    if judgement.verdict == "not tested":
        return judgement.reason
    here = " here" if judgement.verdict == "holds" else ""
    return unbroken(f"**{judgement.verdict}{here}**")
