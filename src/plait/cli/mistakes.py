"""`plait mistakes`: what a run gets wrong, where its mistakes gather, and beside another run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.evaluate import (
    DeviceOption,
    JsonOption,
    RunArgument,
    SplitOption,
    TasksOption,
    check_labelled,
    check_new_file,
    load_watched,
)
from plait.cli.train import DataOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from plait.analysis.comparison import Comparison
    from plait.analysis.mistakes import LabelledRow, Mistake, Mistakes
    from plait.analysis.slices import SliceScore
    from plait.cli.display import Display
    from plait.data import Dataset
    from plait.inference.predictor import Answerer, SingleModel

MOST_CHANGES = 2
"""Rows shown of those fixed, and of those broken; JSON has --top of each, the CSV all."""

MOST_LINES = 3
"""Lines of a text that are shown; the CSV has it whole."""


def mistakes(
    run: RunArgument,
    task: TasksOption = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="RUN", help="Another run: what is fixed, what broken?"),
    ] = None,
    data: DataOption = None,
    split: SplitOption = "dev",
    top: Annotated[
        int | None,
        typer.Option(
            "--top", metavar="N", min=0, help="Mistakes to show; 5, or 2 a task, unless set."
        ),
    ] = None,
    nearest: Annotated[
        bool,
        typer.Option("--nearest/--no-nearest", help="Show the training rows nearest to mistakes."),
    ] = True,
    csv: Annotated[
        Path | None,
        typer.Option(
            "--csv", metavar="FILE", help="Write every mistake, with its file and line, as CSV."
        ),
    ] = None,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Show what a run gets wrong, and in which kinds of text.

    The worst are those that the model is surest of, or scores farthest from the truth. Slices
    (long texts, negations, pairs of the same words ...) are set against all other rows, with an
    interval at 95%. With --against, rows are shown that RUN fixed of the other's mistakes, and
    those that it broke.
    """
    from plait.cli.display import Display

    if csv is not None:
        check_new_file(csv, "--csv")
    with Display() as display:
        answerer = load_watched(run, device, display)
        check_labelled(answerer, split, data, task)
        other = None if against is None else load_watched(against, device, display)
        if other is not None:
            _check_same(answerer, other, task)
        datasets = answerer.load_split(split, data=data, tasks=task, progress=display.reading)
        from plait.analysis.mistakes import find_mistakes

        found = {}
        for name, dataset in datasets.items():
            theirs = None
            if other is not None:
                view = other.read(answerer.config, split, data=data, tasks=[name])
                theirs = other.answer(name, view[name])
            is_train = split == "train"
            found[name] = find_mistakes(
                answerer,
                name,
                dataset,
                top=top if top is not None else 5 if len(datasets) == 1 else 2,
                train=dataset if is_train else _load_train(answerer, name, data, display),
                embedder=_first_member(answerer) if nearest else None,
                against=theirs,
                progress=display.work,
            )
        if csv is not None:
            _write_csv(csv, found, datasets)
    if as_json:
        import json

        heading = {"run": str(run), "split": split}
        heading |= {} if against is None else {"against": str(against)}
        values = {**heading, "tasks": {name: each.to_json() for name, each in found.items()}}
        typer.echo(json.dumps(values, indent=1, allow_nan=False, ensure_ascii=False))
        return
    for number, each in enumerate(found.values()):
        _show(each, split, against, is_alone=len(found) == 1, is_first=number == 0)
    if csv is not None:
        typer.echo(f"\nEvery mistake, with its file and line, is in {csv}.")


def _check_same(answerer: Answerer, other: Answerer, tasks: list[str] | None) -> None:
    """Refuse to compare runs whose tasks mean different things."""
    from plait.errors import RunError
    from plait.inference.ensemble import outline

    for name in tasks or answerer.tasks:
        if name not in other.tasks:
            raise RunError(
                f"{other.folder} has no task {name!r} to compare; choose shared ones with --task"
            )
        if outline(answerer.tasks[name].spec) != outline(other.tasks[name].spec):
            raise RunError(
                f"task {name!r} has other labels, or another range, in {other.folder}; runs are "
                "compared on tasks that mean the same"
            )


def _load_train(
    answerer: Answerer, name: str, data: str | None, display: Display
) -> Dataset | None:
    """Read a task's training rows; a run goes about without them, and so does this."""
    from plait.errors import DataError

    try:
        found = answerer.load_split("train", data=data, tasks=[name], progress=display.reading)
    except DataError as error:
        display.note(f"nothing is set beside training rows: {error}")
        return None
    return found.get(name)


def _first_member(answerer: Answerer) -> SingleModel:
    """Return the model whose embeddings tell what is near: an ensemble's first member."""
    from plait.inference.ensemble import Ensemble
    from plait.inference.predictor import SingleModel

    model = answerer.members[0] if isinstance(answerer, Ensemble) else answerer
    assert isinstance(model, SingleModel)
    return model


def _write_csv(path: Path, found: Mapping[str, Mistakes], datasets: Mapping[str, Dataset]) -> None:
    import csv

    from plait.analysis.mistakes import list_mistakes
    from plait.data.storage import atomic_path

    header = "task change file line id text text2 truth answer confidence severity against"
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header.split())
        for name, each in found.items():
            for word, mistake in list_mistakes(each, datasets[name]):
                sure = "" if mistake.confidence is None else f"{mistake.confidence:.4f}"
                first, second = (*mistake.texts, "")[:2]
                place = [mistake.place.path, mistake.place.number, mistake.id]
                judged = [mistake.truth, mistake.answer, sure, f"{mistake.severity:.4f}"]
                cells = [name, word, *place, first, second, *judged, mistake.against or ""]
                writer.writerow(cells)


# --- for a reader ------------------------------------------------------------------------


def _show(
    found: Mistakes, split: str, against: Path | None, *, is_alone: bool, is_first: bool
) -> None:
    from plait.cli.display import figure, make_console

    console = make_console()
    if not is_first:
        console.print()
    right = found.verdicts.right
    told = f"{found.verdicts.metric} {figure(found.metrics[found.verdicts.metric])}"
    num_wrong = 0 if right is None else int((~right).sum())
    surest = "the surest wrong label" if found.spec.kind.form == "independent" else "surest"
    order = "farthest first" if right is None else f"{num_wrong:,} wrong, {surest} first"
    order = order if found.verdicts.severity.any() else "nothing is wrong"
    console.print(f"{found.task}, {found.num_rows:,} {split} rows: {told}; {order}", style="bold")
    for mistake in found.worst:
        _show_mistake(console, mistake)
    if found.verdicts.severity.any():
        _show_slices(console, found, 6 if is_alone else 3)
    if found.comparison is not None:
        _show_comparison(console, found, found.comparison, str(against))


def _show_mistake(console: Console, mistake: Mistake) -> None:
    from plait.analysis.slices import share_words
    from plait.cli.display import shorten

    console.print(f"\n{_judge(mistake)}  [{mistake.id}, {_where(mistake)}]")
    shared = share_words(mistake.texts) if len(mistake.texts) == 2 else frozenset()
    for text in mistake.texts:
        _show_text(console, text, shared)
    for near in mistake.nearest[:1]:
        likeness = "a copy" if near.is_copy else f"nearest ({near.similarity:.2f})"
        console.print(f"  {likeness} in training: {near.truth}  [{_where(near)}]", style="dim")
        shown = " | ".join(" ".join(text.split()) for text in near.texts)
        console.print(shorten(f"    {shown}", console.width), style="dim")


def _judge(mistake: Mistake) -> str:
    """Say what was answered and what is true."""
    if mistake.confidence is None:
        return f"{mistake.answer} for {mistake.truth}"
    return f"{mistake.answer} ({mistake.confidence:.0%} sure) for {mistake.truth}"


def _where(row: LabelledRow) -> str:
    return f"{row.place.path.name} {row.place.unit} {row.place.number}"


def _show_text(console: Console, text: str, shared: frozenset[str]) -> None:
    """Print a text in a few lines, the words that both texts of a pair have underlined."""
    import textwrap

    from rich.text import Text

    from plait.analysis.slices import WORD, split_words
    from plait.errors import show_controls

    lines = textwrap.wrap(
        " ".join(text.split()),
        max(console.width - 2, 20),
        max_lines=MOST_LINES,
        placeholder=" …",
        break_long_words=True,
    )
    for line in lines:
        marked = Text(show_controls(line))
        for match in WORD.finditer(line):
            if shared.issuperset(split_words(match[0])):
                marked.stylize("underline", *match.span())
        console.print(Text("  ").append_text(marked))


def _show_slices(console: Console, found: Mistakes, most: int) -> None:
    """Print the slices that say most: those that stand out, then the worst."""
    from plait.cli.display import print_table

    order = sorted(found.slices, key=lambda s: (not s.stands_out, s.interval is None))
    if not order:
        return
    rows = [["rows with", "rows", found.verdicts.metric, "difference", "95% interval", ""]]
    rows += [_slice_row(piece) for piece in order[:most]]
    console.print()
    print_table(console, rows)
    left = len(order) - most
    marked = any(piece.stands_out for piece in order)
    star = "* more than" if marked else "no difference is more than"
    more = f"; --json has {left} more" if left > 0 else ""
    console.print(f"{star} chance makes of {len(order)} slices{more}")


def _slice_row(piece: SliceScore) -> list[str]:
    from plait.cli.display import figure

    ends = "too few rows"
    if piece.interval is not None:
        ends = f"{_signed(piece.interval.low)} to {_signed(piece.interval.high)}"
    mark = "*" if piece.stands_out else ""
    return [
        piece.name,
        f"{piece.count:,}",
        figure(piece.score),
        _signed(piece.difference),
        ends,
        mark,
    ]


def _show_comparison(
    console: Console, found: Mistakes, comparison: Comparison, against: str
) -> None:
    from plait.cli.display import figure, print_table, shorten

    counts = (len(comparison.fixed), len(comparison.broken))
    words = "{:,} rows nearer, {:,} farther" if comparison.p is None else "{:,} fixed, {:,} broken"
    chance = ""
    if comparison.p is not None:
        likely = "chance may do that" if comparison.p >= 0.05 else "chance seldom does that"
        chance = f"; McNemar's exact p {figure(comparison.p)}: {likely}"
    console.print(f"\nagainst {against}: {words.format(*counts)}{chance}", style="bold")
    rows = [["figure", "this run", "other", "difference", "95% interval"]]
    for name, metric in comparison.metrics.items():
        ends = f"{_signed(metric.interval.low)} to {_signed(metric.interval.high)}"
        difference = _signed(metric.value)
        rows.append([name, figure(metric.run), figure(metric.against), difference, ends])
    print_table(console, rows)
    verbs = ("nearer", "farther") if comparison.p is None else ("fixed", "broken")
    for verb, changed in zip(verbs, (found.fixed, found.broken), strict=True):
        for mistake in changed[:MOST_CHANGES]:
            said = f"{mistake.against} became {mistake.answer} for {mistake.truth}"
            console.print(f"{verb}: {said}  [{mistake.id}, {_where(mistake)}]")
            console.print(shorten(f"  {' | '.join(mistake.texts)}", console.width))


def _signed(value: float) -> str:
    from plait.cli.display import figure

    return figure(value) if not value > 0 else f"+{figure(value)}"
