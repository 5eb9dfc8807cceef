"""`plait train --each-alone`: one run per task, each with the budget it has in the joint run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from plait.errors import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from plait.config import RunConfig
    from plait.scale.running import Runs
    from plait.training.alone import Alone

JOINT = "joint"
"""Folder beside the single tasks' whose scores the table shows as well."""


def train_each_alone(
    config: RunConfig,
    out: Path,
    data: str | None,
    *,
    resume: bool,
    command: str,
    train_several: Callable[[Runs], None] | None,
) -> None:
    """Train every task by itself into OUT/TASK and print each one's dev figure.

    `train_several` may train them beforehand; else they are trained here, one after the other.
    """
    from plait.cli.display import Display
    from plait.cli.plan import read_amounts
    from plait.cli.train import resumable
    from plait.errors import RunError

    begun = [name for name in config.tasks if (out / name).exists()]
    if begun and not resume:
        raise RunError(
            f"{out / begun[0]} exists already and is not overwritten; go on there with "
            f"`{command}`, or choose another --out"
        )
    from plait.training.alone import plan_alone

    planned = plan_alone(config, read_amounts(config, data, {}))
    if train_several is not None:
        from plait.scale.running import Runs

        wanted = {task: (alone.config, out / task) for task, alone in planned.items()}
        train_several(Runs(wanted, data, command))
    results: dict[str, dict[str, Any]] = {}
    for task, alone in planned.items():
        folder = out / task
        with resumable(folder, command, len(results)), Display() as display:
            before = f", after {alone.pretraining:,} of pre-training" * (alone.pretraining > 0)
            if train_several is None:
                shared = counted(alone.batches, "batch of it is", "batches of it are")
                updates = counted(alone.updates, "update")
                display.note(f"{task} alone: {shared} in the joint run, {updates} here{before}")
            from plait.training.runs import train

            outcome = train(
                alone.config,
                folder,
                data=data,
                resume=folder.exists(),
                command=command,
                listeners=[display],
            )
        results[task] = outcome.result
    _show(results, planned, _joint_scores(config, out))
    typer.echo(f"\nThe runs are in {out}, a folder for each task.")


def _joint_scores(config: RunConfig, out: Path) -> Mapping[str, float | None]:
    """Return the joint run's dev figures if it was trained into the folder beside the others."""
    from plait.inference.folders import RunFolder

    folder = RunFolder(out / JOINT)
    if JOINT in config.tasks or not folder.scores.is_file():
        return {}
    figures: dict[str, float | None] = (
        folder.read_json(folder.scores).get("dev", {}).get("primary", {})
    )
    return figures


def _show(
    results: Mapping[str, dict[str, Any]],
    planned: Mapping[str, Alone],
    joint: Mapping[str, float | None],
) -> None:
    from plait.cli.display import figure, make_console, print_table
    from plait.inference.baselines import best_in, list_shortfalls
    from plait.tasks.metrics import primary_metric

    rows = [["task", "figure", "updates", "baseline", "alone", *([JOINT] if joint else [])]]
    notes = []
    for task, result in results.items():
        if "dev" not in result:
            continue
        settings = planned[task].config.tasks[task]
        row = [task, primary_metric(settings.kind, settings.metric), f"{result['steps']:,}"]
        best = best_in(result, task, settings.kind)
        row.append(figure(None if best is None else best[1]))
        row.append(figure(result["dev"]["primary"][task]))
        rows.append([*row, *([figure(joint.get(task))] if joint else [])])
        notes += list_shortfalls(result, planned[task].config.tasks, figure)
    console = make_console()
    console.print()
    if len(rows) == 1:
        console.print("There is no dev set to score.")
        return
    print_table(console, rows, num_words=2)
    for note in notes:
        console.print(f"note: {note}")
