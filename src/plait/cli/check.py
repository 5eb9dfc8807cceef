"""`plait check`: check the data of a recipe before training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.options import (
    DataOption,
    JsonOption,
    OverrideOption,
    RecipeArgument,
    check_new_file,
)
from plait.errors import counted

if TYPE_CHECKING:
    from rich.console import Console

    from plait.analysis.check import Finding, Report, SplitSummary

MOST_PLACES = 5
"""Lines shown per finding; --json and --csv have all."""
MOST_SHOWN = 1000
"""Characters shown of a text with --show; --csv and --json have all."""


def check(
    recipe: RecipeArgument,
    data: DataOption = None,
    override: OverrideOption = None,
    mislabelled: Annotated[
        bool,
        typer.Option(
            "--mislabelled",
            help="Also look for wrong labels; encodes every text once.",
        ),
    ] = False,
    show: Annotated[
        bool,
        typer.Option("--show", help="Show the texts, including personal data."),
    ] = False,
    as_json: JsonOption = False,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Write every row that was found."),
    ] = None,
) -> None:
    """Check the data of a recipe before training.

    Shows the number of rows, label balance and text lengths of every split, and finds bad rows,
    duplicates, contradictory labels, rows in two splits, very short or truncated texts, and
    personal data. Every finding names files and lines and says what to do. The exit code is 2
    if training would stop.
    """
    from plait.cli.display import Display
    from plait.config import read_recipe

    config = read_recipe(recipe, override or ())
    if csv is not None:
        check_new_file(csv, "--csv")
    with Display() as display:
        display.begin("loading")
        from plait.analysis.check import check_recipe

        def progress(what: str, done: int, total: int) -> None:
            encodes = what.startswith("encoding")
            display.work(what if encodes else f"reading {what}", done, total, is_bytes=not encodes)

        report = check_recipe(config, data=data, mislabelled=mislabelled, progress=progress)
    if csv is not None:
        _write_csv(csv, report, show=show)
    if as_json:
        import json

        values = {"recipe": recipe, **report.to_json(show=show)}
        typer.echo(json.dumps(values, indent=1, allow_nan=False))
    else:
        _show(report, show=show)
        if csv is not None:
            typer.echo(f"\nEvery row is in {csv}.")
    if report.stops:
        raise typer.Exit(2)


def _show(report: Report, *, show: bool) -> None:
    from plait.cli.display import make_console, print_table

    console = make_console()
    if report.splits:
        rows = [
            ["task", "split", "labels", "rows", "tokens", "95%", "longest", "truncated", "unknown"]
        ]
        rows += [_row(split) for split in report.splits]
        print_table(console, rows, num_words=3)
    for finding in report.findings:
        _show_finding(console, finding, show=show)
    if not report.findings:
        console.print("\nNo findings.")
        return
    counts = dict.fromkeys(("stop", "warning", "note"), 0)
    for finding in report.findings:
        counts[finding.level] += 1
    stop, warning, note = counts.values()
    end = f"{counted(stop, 'error')} would stop training" if stop else "no errors"
    console.print(f"\n{end}; {counted(warning, 'warning')}, {counted(note, 'note')}")


def _row(split: SplitSummary) -> list[str]:
    lengths = split.lengths
    numbers = (lengths.median, lengths.most, lengths.longest, lengths.cut) if lengths else ()
    tokens = [f"{n:,}" for n in numbers] if numbers else ["?"] * 4
    tokens.append(f"{max(split.unknown.values()):.1%}" if split.unknown else "?")
    return [split.task, split.split, _labels(split), f"{split.num_rows:,}", *tokens]


def _labels(split: SplitSummary) -> str:
    """Return the share of each class, or the range of scores."""
    from plait.cli.display import shorten

    if split.scores:
        least, mean, greatest = split.scores
        return f"{least:g} to {greatest:g}, mean {mean:.2f}"
    if not split.labels:
        return "none"
    counts = split.labels
    if len(counts) > 5:
        least, most = min(counts.values()), max(counts.values())
        return f"{len(counts)} classes of {least:,} to {most:,} rows"
    shares = (f"{shorten(name, 16)} {n / split.num_rows:.0%}" for name, n in counts.items())
    return ", ".join(shares)


def _show_finding(console: Console, finding: Finding, *, show: bool) -> None:
    from plait.cli.display import shorten

    where = " ".join(filter(None, (finding.task, finding.split)))
    console.print(f"\n{finding.level}: {where}{': ' if where else ''}{finding.sentence}")
    places = finding.places[:MOST_PLACES]
    if show or any(place.detail for place in places):
        for place in places:
            detail = f": {place.detail}" if place.detail else ""
            console.print(f"  {place.file}, {place.unit} {place.line}{detail}")
            if show and place.text:
                console.print(f"    {shorten(place.text, MOST_SHOWN)}")
    else:
        by_file: dict[tuple[str, str], list[str]] = {}
        for place in places:
            by_file.setdefault((place.file, place.unit), []).append(str(place.line))
        for (file, unit), lines in by_file.items():
            console.print(f"  {file}, {unit}{'s' * (len(lines) > 1)} {', '.join(lines)}")
    if finding.count > len(places) > 0:
        console.print(f"  and {finding.count - len(places):,} more")
    if finding.advice:
        console.print(f"  -> {finding.advice}")


def _write_csv(path: Path, report: Report, *, show: bool) -> None:
    import csv

    header = ["check", "level", "task", "split", "file", "line", "detail", "sentence"]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*header, "text"] if show else header)
        for finding in report.findings:
            about = [finding.check, finding.level, finding.task, finding.split]
            for place in finding.places:
                row = [*about, place.file, place.line, place.detail, finding.sentence]
                writer.writerow([*row, place.text] if show else row)
            if not finding.places:
                row = [*about, "", "", "", finding.sentence]
                writer.writerow([*row, ""] if show else row)
