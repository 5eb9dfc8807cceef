"""`plait plan`: the updates and batches of a recipe, without training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from plait.cli.options import (
    DataOption,
    JsonOption,
    OverrideOption,
    RecipeArgument,
)
from plait.errors import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.config import EnsembleConfig, RunConfig
    from plait.training.amounts import Amounts
    from plait.training.counting import Counts, EpochCounts, Rates, StageCounts, TaskCounts


def plan(
    recipe: RecipeArgument,
    data: DataOption = None,
    override: OverrideOption = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            "--rows",
            metavar="TASK=N",
            help="Assume N training rows instead of reading the files. Repeatable.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the updates and batches of a recipe without training.

    For each stage: the tasks and how often each example is seen, the updates of every epoch, the
    order of the tasks, and the learning rate. The counts are exact for the recipe's seed. For an
    ensemble recipe, the plan of every member is shown.
    """
    from plait.config import lists_members, read_ensemble, read_recipe

    overrides = override or ()
    if lists_members(recipe):
        ensemble = read_ensemble(recipe, overrides)
        _plan_members(ensemble, data, rows or (), as_json=as_json)
        return
    planned = _plan(read_recipe(recipe, overrides), data, rows or ())
    if as_json:
        _echo_json(planned.to_json())
        return
    for line in _describe(planned):
        typer.echo(line)


def _plan(config: RunConfig, data: str | None, rows: Sequence[str]) -> Counts:
    given = _read_rows(rows, config)

    from plait.config.choose import complete, find_facts, is_whole
    from plait.training.counting import count_run
    from plait.training.plan import Plan
    from plait.training.starting import find_width

    amounts = read_amounts(config, data, given)
    if not is_whole(config):
        facts = find_facts(config, amounts.rows, amounts.train)
        config, _ = complete(config, facts, find_width(config))
    return count_run(Plan.build(config), amounts)


def _plan_members(
    ensemble: EnsembleConfig, data: str | None, rows: Sequence[str], *, as_json: bool
) -> None:
    planned = {name: _plan(config, data, rows) for name, config in ensemble.members.items()}
    updates = sum(plan.updates for plan in planned.values())
    if as_json:
        members = {name: plan.to_json() for name, plan in planned.items()}
        _echo_json({"name": ensemble.name, "updates": updates, "members": members})
        return
    for name, plan in planned.items():
        typer.echo(f"member {name}")
        for line in _describe(plan):
            typer.echo(line)
        typer.echo("")
    what = counted(len(planned), "member")
    typer.echo(f"{ensemble.name}: {counted(updates, 'update')} in {what}")


def _echo_json(values: dict[str, Any]) -> None:
    import json

    typer.echo(json.dumps(values, indent=1, allow_nan=False))


def _read_rows(options: Sequence[str], config: RunConfig) -> dict[str, int]:
    from plait.errors import UsageError, suggest

    rows = {}
    for option in options:
        task, _, count = option.partition("=")
        if task not in config.tasks:
            raise UsageError(f"--rows names task {task!r}{suggest(task, config.tasks)}")
        if not (count.isdecimal() and int(count)):
            raise UsageError(f"--rows {option!r} should be TASK=N with N of 1 or more")
        rows[task] = int(count)
    return rows


def read_amounts(config: RunConfig, data: str | None, given: dict[str, int]) -> Amounts:
    """Count the training rows and texts of the tasks; `given` counts replace reading."""
    from plait.training.amounts import Amounts

    needed = config.trained_tasks
    to_read = {task: None for task in needed if task not in given}
    to_answer = {task: None for task in needed if config.tasks[task].unlabelled}
    if not to_read and not to_answer:
        return Amounts(given)

    from plait.cli.display import Display
    from plait.data.loading import load_data
    from plait.training.build import load_named_texts
    from plait.training.plan import Plan
    from plait.training.starting import find_tokenizer

    tokenizer = find_tokenizer(config)
    display = Display()
    try:
        train = load_data(
            config, tokenizer, "train", data=data, tasks=to_read, progress=display.reading
        )
        texts = load_named_texts(Plan.build(config), tokenizer, data=data, progress=display.reading)
        unlabelled = load_data(
            config, tokenizer, "unlabelled", data=data, tasks=to_answer, progress=display.reading
        )
    finally:
        display.close()
    return Amounts(given, train, texts, unlabelled)


# --- writing -----------------------------------------------------------------------------


def _describe(planned: Counts) -> Iterator[str]:
    known = {stage.name for stage in planned.stages}
    for name, kind in planned.pretraining.items():
        if name not in known:
            yield f"stage {name}: pre-training ({kind})"
            yield "not counted: the number of texts is known only after reading them"
            yield ""
    for stage in planned.stages:
        yield from _describe_stage(stage)
        yield ""
    what = counted(len(planned.stages), "stage")
    about = "" if all(stage.is_exact for stage in planned.stages) else "about "
    yield f"{planned.name}: {about}{counted(planned.updates, 'update')} in {what}"


def _describe_stage(stage: StageCounts) -> Iterator[str]:
    epochs = counted(len(stage.epochs), "epoch")
    about = "" if stage.is_exact else "about "
    kind = f"pre-training ({stage.kind}), " if stage.pretrains else ""
    kind = kind or (f"{stage.kind}, " if stage.kind != "finetune" else "")
    yield f"stage {stage.name}: {kind}{epochs}, {about}{counted(stage.updates, 'update')}"
    if not stage.is_exact:
        yield "approximate: the number of texts without duplicates is known only after reading them"
    if not stage.pretrains:
        yield from _describe_schedule(stage)
    yield from _describe_rates(stage)
    yield ""
    titles = ["task", "examples", "batch", "batches", "taken", "passes", "each example seen"]
    yield from _columns([titles, *(_show_task(name, t) for name, t in stage.tasks.items())])
    for name, count in stage.unlabelled.items():
        yield f"{name}: {counted(count, 'example')} labelled by the teacher only"
    yield ""
    titles = ["epoch", "turns", "updates", *stage.tasks, "order"]
    yield from _columns([titles, *_show_epochs(stage.epochs)])


def _describe_schedule(stage: StageCounts) -> Iterator[str]:
    import json

    yield f"schedule {stage.schedule}: {stage.about}"
    for setting, value in stage.settings.items():
        if value is not None:
            yield f"  {setting} = {json.dumps(value)}"
    if stage.batches_per_turn > 1:
        yield f"each turn has {stage.batches_per_turn} batches per task"


def _describe_rates(stage: StageCounts) -> Iterator[str]:
    if stage.accumulate > 1:
        yield f"one update per {stage.accumulate} turns"
    rates = stage.rates
    if rates.get("encoder") == rates["heads"]:  # both have the same rate
        rates = {"": rates["heads"]}
    for what, rate in rates.items():
        yield f"learning rate{f' of the {what}' if what else ''}: {_show_rates(rate, stage)}"
    if stage.layer_decay < 1 and "encoder" in stage.rates:
        yield f"rate of each encoder layer: {stage.layer_decay:g} times that of the layer above"
    if stage.may_stop_early:
        yield "early stopping may end the stage sooner"


def _show_rates(rates: Rates, stage: StageCounts) -> str:
    shown = [f"{rates.begin:.3g} at the first update"]
    if rates.peak > rates.begin:
        shown.append(f"{rates.peak:.3g} at update {rates.peak_update:,}")
    shown.append(f"{rates.end:.3g} at the last")
    if rates.begin == rates.peak == rates.end:
        return f"{rates.peak:.3g} (constant)"
    return ", ".join(shown if stage.updates > 1 else shown[:1])


def _show_task(name: str, task: TaskCounts) -> list[str]:
    if task.seen_most == 0:
        seen = "never"
    elif task.seen_least == task.seen_most:
        seen = counted(task.seen_most, "time")
    else:
        seen = f"{task.seen_least} to {counted(task.seen_most, 'time')}, {task.seen_mean:.2f} mean"
        seen += f"; {task.never_seen:,} never" if task.never_seen else ""
    numbers = (task.examples, task.batch_size, task.batches, task.batches_taken)
    return [name, *(f"{number:,}" for number in numbers), f"{task.passes:.2f}", seen]


def _show_epochs(epochs: Sequence[EpochCounts]) -> Iterator[list[str]]:
    """Yield one row per group of equal epochs."""
    from itertools import groupby

    def content(epoch: EpochCounts) -> list[str]:
        numbers = (epoch.turns, epoch.updates, *epoch.batches.values())
        return [*(f"{number:,}" for number in numbers), epoch.order]

    for row, group in groupby(epochs, content):
        numbers = [epoch.epoch for epoch in group]
        shown = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
        yield [shown, *row]


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Align the columns: the first and last on the left, the others on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *middle, last in rows:
        figures = [cell.rjust(width) for cell, width in zip(middle, widths[1:-1], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *figures, last])
