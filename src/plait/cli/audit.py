"""`plait audit`: what a run's answers do when texts change in ways that should matter, or not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plait.cli.evaluate import (
    DeviceOption,
    RunArgument,
    TasksOption,
    check_new_file,
    load_watched,
    require_writable,
)
from plait.cli.train import DataOption

if TYPE_CHECKING:
    from rich.console import Console

    from plait.analysis.audit import Card, Result
    from plait.cli.display import Display
    from plait.data import Dataset
    from plait.inference.predictor import Answerer


LISTS = ("summary", "probes")
"""Keys of a score card whose entries each name their task."""


def audit(
    run: RunArgument,
    task: TasksOption = None,
    positive: Annotated[
        str | None,
        typer.Option(
            "--positive",
            metavar="LABEL",
            help="Label that praises, or high or low of scores, where its word does not say so.",
        ),
    ] = None,
    rows: Annotated[
        int,
        typer.Option(
            "--rows", metavar="N", min=0, help="Dev rows a probe; 0 for plait's own texts alone."
        ),
    ] = 200,
    words: Annotated[
        Path | None,
        typer.Option(
            "--words", metavar="FILE", help="Words and sentences of yours, in any language (TOML)."
        ),
    ] = None,
    english: Annotated[
        bool,
        typer.Option(
            "--english/--no-english", help="Try plait's own sentences and words, all English."
        ),
    ] = True,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Seed of what is drawn.")
    ] = 0,
    data: DataOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Score card as JSON; RUN/audit.json unless set."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the card as JSON.")] = False,
    device: DeviceOption = "auto",
) -> None:
    """Probe a run with changed texts and keep a score card.

    Swaps of gendered words, names, nationalities, religions and festivals, beside neutral swaps;
    slips, case, punctuation and spaces; both orders of a pair; 'not'; words that change places.
    On sentences of plait's own, and on dev rows. Shown are the part of the answers that change and
    how far they move, from 0 to 1.

    plait's own sentences, and the words it looks for in rows, are English. --words brings yours,
    and --no-english leaves plait's out.
    """
    import json

    from plait.cli.display import Display

    if out is not None:
        check_new_file(out, "--out")
    else:
        require_writable(run, "the score card")
    with Display() as display:
        from plait.analysis.audit import read_own

        own = None if words is None else read_own(words)
        answerer = load_watched(run, device, display, "probing")
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
            seed=seed,
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
    if as_json:
        typer.echo(text)
        return
    _show(card)
    if english:
        typer.echo(
            "\nplait's own sentences, and the words it looks for in rows, are English: for texts "
            "in another language, bring yours with --words and leave these out with --no-english."
        )
    typer.echo(f"\nThe score card, with every interval and more examples, is in {path}.")


def _with_others(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Keep what an earlier audit of the same model found for other tasks."""
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
    """Tell of both audits what was tried: English or not, whose words, how many rows."""
    return new | {
        "english": new["english"] or old.get("english", True),
        "own": sorted({*old.get("own", ()), *new["own"]}),
        "rows": old.get("rows", {}) | new["rows"],
    }


def _read_texts(
    answerer: Answerer, tasks: list[str] | None, data: str | None, display: Display
) -> dict[str, list[tuple[str, ...]]]:
    """Read the texts of the dev rows; their labels are not asked for.

    Where a row cannot be read, those are taken that training takes, if the recipe skips bad rows.
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
            told = str(error)
            raise DataError(f"{told}; --rows 0 audits on plait's own texts alone") from error
    found = {
        name: [texts for texts in dataset.texts() if all(texts)]
        for name, dataset in datasets.items()
    }
    for name in tasks or answerer.tasks:
        if name not in found:
            display.note(f"task {name!r} has no dev files: only sentences are tried")
    return found


def _show(card: Card) -> None:
    from itertools import groupby

    from plait.cli.display import figure, make_console, print_table

    console = make_console()
    for number, (task, group) in enumerate(groupby(card.results, key=lambda r: r.task)):
        results = list(group)
        rows = [["probe", "texts", "changed", "moved", "neutral", "measured"]]
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
    """Print what moved farthest though it should stay, and least though it should move."""
    moved = [r for r in results if r.should == "stay" and r.examples]
    stayed = [r for r in results if r.should == "move" and r.examples]
    told = []
    if moved:
        told.append(("moved farthest", max(moved, key=lambda r: r.examples[0].change)))
    if stayed:
        told.append(("moved least", min(stayed, key=lambda r: r.examples[0].change)))
    for word, result in told:
        example = result.examples[0]
        console.print(f"{word} ({result.probe}): {example.answer_before}, {example.answer_after}")
        for texts in (example.before, example.after):
            console.print(f"  {' | '.join(texts)}")
