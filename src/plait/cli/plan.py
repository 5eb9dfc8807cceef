"""`plait plan`: what a recipe will do, before it does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.train import DataOption, OverrideOption, ProfileOption, RecipeArgument

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.config import RunConfig
    from plait.training.plan import EpochPlan, Rates, RunPlan, StagePlan, TaskPlan


def plan(
    recipe: RecipeArgument,
    data: DataOption = None,
    override: OverrideOption = None,
    profile: ProfileOption = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            "--rows",
            metavar="TASK=N",
            help="Plan with N training rows of a task, its files unread; may be repeated.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show what a recipe will do, without training anything.

    For each stage: its tasks and how often their examples will be seen, the turns and updates
    of every epoch, in which order the tasks come, and the learning rate. The counts are exact,
    under the recipe's seed.
    """
    from plait.config import read_recipe

    config = read_recipe(recipe, override or (), profile=profile)
    given = _read_rows(rows or (), config)

    from plait.training.plan import plan_run

    planned = plan_run(config, count_rows(config, data, given))
    if as_json:
        import json

        typer.echo(json.dumps(planned.to_json(), indent=1, allow_nan=False))
        return
    for line in _describe(planned):
        typer.echo(line)


def _read_rows(options: Sequence[str], config: RunConfig) -> dict[str, int]:
    from plait.errors import UsageError, suggest

    rows = {}
    for option in options:
        task, _, count = option.partition("=")
        if task not in config.tasks:
            raise UsageError(f"--rows names task {task!r}{suggest(task, config.tasks)}")
        if not (count.isdecimal() and int(count)):
            raise UsageError(f"--rows {option!r} is not of the form TASK=N, N being 1 or more")
        rows[task] = int(count)
    return rows


def count_rows(config: RunConfig, data: str | None, given: dict[str, int]) -> dict[str, int]:
    """Count the training rows of the tasks that take part, those that are not given."""
    stages = [config.stage_config(name) for name in config.stages]
    needed = {task for stage in stages for task in stage.tasks or config.tasks}
    to_read = {task: None for task in config.tasks if task in needed - given.keys()}
    if not to_read:
        return given

    from plait.cli.display import Display
    from plait.data import Tokenizer
    from plait.model.sources import find_encoder
    from plait.training.build import load_data

    source = config.encoder
    files = find_encoder(source.source, revision=source.revision, sha256=source.sha256)
    tokenizer = Tokenizer.from_file(files.tokenizer)
    display = Display()
    try:
        datasets = load_data(
            config, tokenizer, "train", data=data, tasks=to_read, progress=display.reading
        )
    finally:
        display.close()
    return given | {task: len(dataset) for task, dataset in datasets.items()}


# --- writing -----------------------------------------------------------------------------


def _describe(planned: RunPlan) -> Iterator[str]:
    for name, kind in planned.pretraining.items():
        yield f"stage {name}: pre-training ({kind})"
        yield "not counted: how many texts there are without doubles is known once they are read"
        yield ""
    for stage in planned.stages:
        yield from _describe_stage(stage)
        yield ""
    what = _count(len(planned.stages), "stage")
    yield f"{planned.name}: {_count(planned.updates, 'update')} in {what}"


def _describe_stage(stage: StagePlan) -> Iterator[str]:
    import json

    epochs = _count(len(stage.epochs), "epoch")
    yield f"stage {stage.name}: {epochs}, {_count(stage.updates, 'update')}"
    yield f"schedule {stage.schedule}: {stage.about}"
    for setting, value in stage.settings.items():
        if value is not None:
            yield f"  {setting} = {json.dumps(value)}"
    if stage.accumulate > 1:
        yield f"{stage.accumulate} turns make an update"
    rates = stage.rates
    if rates.get("encoder") == rates["heads"]:  # one rate for both needs one line
        rates = {"": rates["heads"]}
    for what, rate in rates.items():
        yield f"learning rate{f' of the {what}' if what else ''}: {_show_rates(rate, stage)}"
    if stage.layer_decay < 1 and "encoder" in stage.rates:
        yield f"each layer of the encoder has {stage.layer_decay:g} of the rate of the one above"
    if stage.may_stop_early:
        yield "early stopping may end it sooner; what follows is all of it"
    yield ""
    titles = ["task", "examples", "batch", "batches", "taken", "passes", "each example seen"]
    yield from _columns([titles, *(_show_task(name, t) for name, t in stage.tasks.items())])
    yield ""
    titles = ["epoch", "turns", "updates", *stage.tasks, "order"]
    yield from _columns([titles, *_show_epochs(stage.epochs)])


def _show_rates(rates: Rates, stage: StagePlan) -> str:
    shown = [f"{rates.begin:.3g} at the first update"]
    if rates.peak > rates.begin:
        shown.append(f"{rates.peak:.3g} at update {rates.peak_update:,}")
    shown.append(f"{rates.end:.3g} at the last")
    if rates.begin == rates.peak == rates.end:
        return f"{rates.peak:.3g} throughout"
    return ", ".join(shown if stage.updates > 1 else shown[:1])


def _show_task(name: str, task: TaskPlan) -> list[str]:
    if task.seen_most == 0:
        seen = "never"
    elif task.seen_least == task.seen_most:
        seen = _count(task.seen_most, "time")
    else:
        seen = f"{task.seen_least} to {_count(task.seen_most, 'time')}, {task.seen_mean:.2f} mean"
        seen += f"; {task.never_seen:,} never" if task.never_seen else ""
    numbers = (task.examples, task.batch_size, task.batches, task.batches_taken)
    return [name, *(f"{number:,}" for number in numbers), f"{task.passes:.2f}", seen]


def _show_epochs(epochs: Sequence[EpochPlan]) -> Iterator[list[str]]:
    """Write a row per epoch, epochs that are alike in one."""
    from itertools import groupby

    def content(epoch: EpochPlan) -> list[str]:
        numbers = (epoch.turns, epoch.updates, *epoch.batches.values())
        return [*(f"{number:,}" for number in numbers), epoch.order]

    for row, group in groupby(epochs, content):
        numbers = [epoch.epoch for epoch in group]
        shown = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
        yield [shown, *row]


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Line rows up: words on the left in the first and last column, figures on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *middle, last in rows:
        figures = [cell.rjust(width) for cell, width in zip(middle, widths[1:-1], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *figures, last])


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
