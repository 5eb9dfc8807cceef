"""`plait audit`: how predictions change when texts change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plait.cli.evaluate import load_watched
from plait.cli.options import (
    DataOption,
    RunArgument,
    TasksOption,
    check_new_file,
    require_writable,
)

if TYPE_CHECKING:
    from rich.console import Console

    from plait.analysis.audit import Card, Result
    from plait.cli.display import Display
    from plait.data import Dataset
    from plait.inference.predictor import Answerer


LISTS = ("summary", "probes")
"""Keys of the result whose entries each name their task."""


def audit(
    run: RunArgument,
    task: TasksOption = None,
    positive: Annotated[
        str | None,
        typer.Option(
            "--positive",
            metavar="LABEL",
            help="Positive label, or high or low for scores, if the names do not say.",
        ),
    ] = None,
    rows: Annotated[
        int,
        typer.Option(
            "--rows", metavar="N", min=0, help="Dev rows per probe; 0 uses only sentences."
        ),
    ] = 200,
    words: Annotated[
        Path | None,
        typer.Option("--words", metavar="FILE", help="Your own words and sentences (TOML)."),
    ] = None,
    data: DataOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Result as JSON. Default: RUN/audit.json."),
    ] = None,
) -> None:
    """Test how predictions change when texts change.

    The changes are swaps of gendered words, names, nationalities, religions and festivals, compared
    with neutral swaps; typing errors, case, punctuation and spaces; the order of a pair; negation;
    and word order. They are made in built-in sentences and in dev rows. The table shows the share
    of predictions that change, and the mean change from 0 to 1.

    The built-in sentences and words are English. --words adds yours, in any language; english =
    false in that file leaves out the built-in ones.
    """
    import json

    from plait.cli.display import Display

    if out is not None:
        check_new_file(out, "--out")
    else:
        require_writable(run, "the result")
    with Display() as display:
        from plait.analysis.audit import read_probes

        own = None if words is None else read_probes(words)
        english = own is None or own.english
        answerer = load_watched(run, "auto", display, "probing")
        texts = _read_texts(answerer, task, data, display) if rows else {}
        from plait.analysis.audit import FILE
        from plait.analysis.audit import audit as probe
        from plait.data.storage import write_text
        from plait.inference.card import update_card

        card = probe(
            answerer,
            texts,
            tasks=task,
            positive=positive,
            most=rows,
            own=own,
            english=english,
        )
        path = out or run / FILE
        values = {"run": str(run), "model": answerer.identify(), **card.to_json()}
        if out is None:
            values = _with_others(path, values)
        text = json.dumps(values, indent=1, allow_nan=False, ensure_ascii=False)
        write_text(path, text + "\n")
        if out is None:
            update_card(run)
    _show(card)
    if english:
        typer.echo(
            "\nThe built-in sentences and words are English. For texts in another language, give "
            "your own with --words and set english = false in that file."
        )
    typer.echo(f"\nAll intervals and more examples are in {path}.")


def _with_others(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Add the results of an earlier audit of the same model for other tasks."""
    import json

    try:
        old = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError:  # it is written anew
        old = {}
    if old.get("model") != values["model"]:
        return values
    now = {entry["task"] for entry in values["summary"]}
    kept = {
        key: [entry for entry in old[key] if entry["task"] not in now]
        for key in LISTS
        if key in old
    }
    if any(kept.values()):
        values = values | {"settings": _join_settings(old.get("settings", {}), values["settings"])}
    return values | {key: kept.get(key, []) + values[key] for key in LISTS}


def _join_settings(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of both audits."""
    return new | {
        "english": new["english"] or old.get("english", True),
        "own": sorted({*old.get("own", ()), *new["own"]}),
        "rows": old.get("rows", {}) | new["rows"],
    }


def _read_texts(
    answerer: Answerer, tasks: list[str] | None, data: str | None, display: Display
) -> dict[str, list[tuple[str, ...]]]:
    """Read the texts of the dev rows, without their labels.

    If a row cannot be read, only the rows that training uses are read (bad_rows = "skip").
    """
    from plait.errors import DataError

    def load(*, labelled: bool) -> dict[str, Dataset]:
        return answerer.load_split(
            "dev", data=data, tasks=tasks, labelled=labelled, progress=display.reading
        )

    for name in tasks or ():
        answerer.task(name)
    try:
        datasets = load(labelled=False)
    except DataError as error:
        try:
            datasets = load(labelled=True)
        except DataError:
            raise DataError(f"{error}; --rows 0 uses only sentences") from error
    found = {
        name: [texts for texts in dataset.texts() if all(texts)]
        for name, dataset in datasets.items()
    }
    for name in tasks or answerer.tasks:
        if name not in found:
            display.note(f"task {name!r} has no dev files: only sentences are used")
    return found


def _show(card: Card) -> None:
    from itertools import groupby

    from plait.cli.display import figure, make_console, print_table

    console = make_console()
    for number, (task, group) in enumerate(groupby(card.results, key=lambda r: r.task)):
        results = list(group)
        rows = [["probe", "texts", "changed", "mean change", "neutral", "verdict"]]
        for result in results:
            neutral = result.neutral
            beside = "" if neutral is None else figure(neutral["mean_change"])
            figures = [f"{result.count}", f"{result.changed:.0%}", figure(result.mean_change)]
            rows.append([result.probe, *figures, beside, result.verdict])
        console.print(f"{chr(10) * bool(number)}{task}", style="bold")
        width = max(len(row[-1]) for row in rows)
        print_table(console, [[*row[:-1], row[-1].ljust(width)] for row in rows])
        _show_examples(console, results)


def _show_examples(console: Console, results: list[Result]) -> None:
    """Print the largest unwanted change, and the smallest where a change is expected."""
    moved = [r for r in results if r.should == "stay" and r.examples]
    stayed = [r for r in results if r.should == "move" and r.examples]
    shown = []
    if moved:
        shown.append(("largest change", max(moved, key=lambda r: r.examples[0].change)))
    if stayed:
        shown.append(("smallest change", min(stayed, key=lambda r: r.examples[0].change)))
    for word, result in shown:
        example = result.examples[0]
        console.print(f"{word} ({result.probe}): {example.answer_before} -> {example.answer_after}")
        for texts in (example.before, example.after):
            console.print(f"  {' | '.join(texts)}")
