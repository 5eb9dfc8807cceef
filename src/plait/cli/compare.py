"""`plait compare`: runs of several seeds become a table with spread, and a test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.evaluate import JsonOption

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.methods import Comparison, Test


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="Folders of finished runs, or folders with runs in them."
        ),
    ],
    figure: Annotated[
        list[str] | None,
        typer.Option(
            "--figure",
            metavar="NAME",
            help="Test this figure: overall (unless given), mean, sum or a task; may be repeated.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="METHOD",
            help="Which to hold the others against; the first run's unless given.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare methods over seeds by their dev scores.

    Runs whose recipes differ in nothing but the seed are one method. Each is shown with its mean
    and standard deviation, and tested against one of them: seed by seed (Student's paired test)
    where three seeds or more are shared, else by the spread of all methods and dev's own error.
    Holm's p-value has the number of tests in mind.
    """
    from plait.methods import FIGURE, compare_methods, find_runs

    found = compare_methods(find_runs(runs), figure or [FIGURE], against)
    if as_json:
        import json

        typer.echo(json.dumps(found.to_json(), indent=1, allow_nan=False))
        return
    show_comparison(found)


def show_comparison(found: Comparison) -> None:
    """Print methods with their spread, and what sets them apart from the first."""
    from plait.cli.display import make_console, print_table
    from plait.results.markdown import over_seeds

    console = make_console()
    columns = [*found.tasks, *(["overall"] if len(found.tasks) > 1 else [])]
    rows = [["method", *columns, "seeds"]]
    for method in found.methods:
        cells = [over_seeds(list(found.figures(method, name).values())) for name in columns]
        rows.append([method, *cells, str(len(found.records.row(method)))])
    print_table(console, rows)
    if not found.tests:
        return
    console.print(f"\nagainst {found.methods[0]}:")
    told = [test for test in found.tests if test.difference is not None]
    if told:
        print_table(console, list(_table(told)), num_words=2)
    for test in found.tests:
        if test.difference is None:
            console.print(f"{test.method}, {test.figure}: {test.reason}")


def _table(tests: Sequence[Test]) -> Iterator[list[str]]:
    from plait.results.markdown import probability, signed

    yield ["method", "figure", "difference", "95% from", "to", "p", "Holm", "seeds"]
    for test in tests:
        found = test.difference
        assert found is not None
        assert test.corrected is not None
        low, high = found.interval
        yield [
            test.method,
            test.figure,
            *map(signed, (found.value, low, high)),
            *map(probability, (found.p_value(), test.corrected)),
            str(found.num_seeds) if found.is_paired else f"{found.num_seeds}, pooled",
        ]
