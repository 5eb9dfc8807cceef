"""`plait results`: records of runs become a page beside what was published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def results(
    records: Annotated[
        Path, typer.Option("--records", metavar="DIR", help="Folder of the records.")
    ] = Path("results/reproduce"),
    profile: Annotated[
        str, typer.Option("--profile", metavar="NAME", help="The profile they were made with.")
    ] = "small",
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page to write.")] = Path(
        "docs/results.md"
    ),
    pictures: Annotated[
        Path, typer.Option("--pictures", metavar="DIR", help="Folder for a picture a table.")
    ] = Path("docs/pictures/results"),
    no_pictures: Annotated[
        bool, typer.Option("--no-pictures", help="Write the page alone; needs no matplotlib.")
    ] = False,
    best: Annotated[
        Path, typer.Option("--best", metavar="DIR", help="Folder of the best models' records.")
    ] = Path("results/best"),
) -> None:
    """Write what reruns came to beside what was published.

    The page has every table of the reports with ours below each row, every finding with a test
    over seeds, single tasks for comparison, costs and settings. Rows without a record say so.
    Pictures need matplotlib: pip install 'plait[report]'.
    """
    from plait.cli.display import Display
    from plait.results import write_results
    from plait.results.findings import count_verdicts

    with Display() as display:
        made = write_results(
            records,
            profile=profile,
            out=out,
            pictures=None if no_pictures else pictures,
            best=best,
            progress=display.work,
        )
    counts = count_verdicts(made.judgements)
    typer.echo(
        f"{len(made.records)} records. Findings: {counts['holds']} hold, {counts['does not']} do "
        f"not, {counts['within the noise']} within the noise, {counts['not tested']} not tested."
    )
    typer.echo(f"The page is in {out}.")
