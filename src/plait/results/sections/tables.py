"""The tables' sections: every row as printed, and ours below it."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from plait.results.markdown import figure, items, over_seeds, paragraph, picture, table
from plait.results.records import SUMMARIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.results.gathering import Results
    from plait.results.records import Records
    from plait.results.tables import Report, Row, Table


def show_report(report: Report, results: Results, pictures: str | None) -> list[str]:
    """Return the lines of a report's section."""
    words = f"*{report.title}* ({report.authors})" if report.authors else report.title
    lines = [f"## System {report.system}" if report.authors else "## minBERT alone", ""]
    lines += paragraph(
        f"{words}. The upper line of a row is as printed, *slanted* where it was worked out from "
        "the printed figures; the lower one is the mean ± standard deviation over seeds here."
    )
    for printed in report.tables:
        lines += [f"### {report.system}, {printed.title}".replace("all four", "minBERT"), ""]
        if printed.name in results.pictures:
            about = f"{report.system}, {printed.title}: published and ours"
            lines += picture(pictures, printed.name, about)
        columns = (*printed.tasks, *printed.summaries)
        header = ["row", "", *(f"`{name}`" for name in columns), "seeds"]
        rows = [cells for row in printed.rows for cells in _row(row, columns, results.records)]
        lines += table(header, rows, num_words=2)
        lines += items(_notes(printed, results.records))
    return lines


def _row(row: Row, columns: Sequence[str], records: Records) -> Iterator[list[str]]:
    """Yield the printed line of a row, and ours."""
    again = " (again)" if row.is_repeated else ""
    blank = [""] * (len(columns) + 1)
    if row.published.figures:
        yield [f"{row.published.row}{again}", "published", *(_printed(row, c) for c in columns), ""]
    else:
        yield [f"{row.published.row}{again}", "no figure", *blank]
    name = f"`{row.recipe}`" if row.run == row.recipe else f"`{row.recipe}`, which is `{row.run}`"
    found = records.row(row.run)
    if not found:
        yield [name, "not run yet", *blank]
        return
    cells = []
    tasks = found[0].dev.tasks
    for column in columns:
        whole = column in tasks or (column in SUMMARIES and len(tasks) > 1)
        values = list(records.figures(row.run, column).values())
        cells.append(over_seeds(values) if whole else "")
    yield [name, "here", *cells, str(len(found))]


def _printed(row: Row, column: str) -> str:
    if (value := row.printed(column)) is not None:
        return figure(value)
    value = row.figure(column)
    return "" if value is None else f"*{figure(value)}*"


def _notes(printed: Table, records: Records) -> Iterator[str]:
    """Yield what is to be said of single rows."""
    usual = records.common_overrides
    notes = {row.published.note for row in printed.rows}
    if len(notes) == 1:  # of all rows at once
        yield from filter(None, notes)
    for row in printed.rows:
        if row.is_repeated:
            continue
        if row.published.note and len(notes) > 1:
            yield f"{row.published.row}: {row.published.note}"
        own = sorted({o for r in records.row(row.run) for o in r.overrides} - usual)
        if own:
            yield f"{row.published.row}: run with {', '.join(f'`-o {word}`' for word in own)}."
        for record in records.row(row.run):
            if record.guesses:
                yield (
                    f"{row.published.row}, seed {record.seed}: fell apart; its figures are those "
                    "of guessing."
                )
            if fall := record.fall:
                best, last = fall
                yield (
                    f"{row.published.row}, seed {record.seed}: overall fell from "
                    f"{figure(best.overall)} after {best.step:,} updates to "
                    f"{figure(last.overall)} at the end; shown is the best checkpoint."
                )
            if record.members:
                alone = [m.summary["overall"] for m in record.members.values()]
                yield (
                    f"{row.published.row}, seed {record.seed}: overall "
                    f"{figure(record.dev.figure('overall'))} from {len(alone)} members of "
                    f"{', '.join(map(figure, alone))}{_mean(alone)}."
                )


def _mean(figures: Sequence[float | None]) -> str:
    """Write the mean of what members have; the highest of them was picked by dev, and flatters."""
    known = [value for value in figures if value is not None]
    return f" (mean {figure(fmean(known))})" if known else ""
