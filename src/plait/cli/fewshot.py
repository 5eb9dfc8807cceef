"""`plait fewshot`: how well a run's encoder learns a new task from few examples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.evaluate import DeviceOption
from plait.cli.train import DataOption

if TYPE_CHECKING:
    from plait.fewshot import FewShot, Figures


def fewshot(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    task: Annotated[
        Path, typer.Option("--task", metavar="FILE", help="A .toml file with one [tasks.NAME].")
    ],
    shots: Annotated[
        str, typer.Option("--shots", metavar="N,N,...", help="Numbers of training examples.")
    ] = "16,32,64",
    draws: Annotated[
        int, typer.Option("--draws", metavar="N", help="Times the examples are drawn.")
    ] = 5,
    against: Annotated[
        list[Path] | None,
        typer.Option("--against", metavar="RUN", help="Another run beside it; may be repeated."),
    ] = None,
    data: DataOption = None,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "-o",
            "--override",
            metavar="KEY=VALUE",
            help="Set one of the task's settings, such as train.epochs=10; may be repeated.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Seed of the draws.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write every figure into this JSON file."),
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Measure how well a new task is learnt from few examples.

    Each draw takes some of the task's training rows, as many of each class, fine-tunes a copy of
    the encoder with a fresh head on them, and scores all of dev. Shown are the mean and the
    standard deviation over the draws, for the encoder that the run began with (raw), the run's,
    and those of other runs. What the file and -o leave out is chosen for the number of examples,
    as for `plait train`.

    Ctrl-C keeps the trials that are done, and the same command goes on with them.
    """
    numbers = _read_shots(shots)
    from plait.cli.display import Display
    from plait.errors import RunError

    if out is not None and out.exists():
        raise RunError(f"{out} exists already and is not overwritten; choose another --out")
    if out is not None:  # what is in the way is told before the work
        out.parent.mkdir(parents=True, exist_ok=True)
    with Display() as display:
        display.begin("loading")
        from plait.fewshot import measure_few_shot

        found = measure_few_shot(
            run,
            task,
            numbers,
            draws=draws,
            against=against or (),
            data=data,
            overrides=[*(override or ()), *(() if seed is None else (f"seed={seed}",))],
            device=device,
            note=display.note,
            progress=display.work,
        )
    _show(found, draws)
    if out is not None:
        import json

        from plait.data.storage import write_text

        values = {"run": str(run), **found.to_json()}
        write_text(out, json.dumps(values, indent=1, allow_nan=False) + "\n")
        typer.echo(f"\nEvery figure is in {out}.")


def _read_shots(text: str) -> list[int]:
    from plait.errors import UsageError

    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) for word in words):
        raise UsageError(f"--shots {text!r} is not of the form 16,32,64")
    return [int(word) for word in words]


def _show(found: FewShot, draws: int) -> None:
    from plait.cli.display import figure, make_console, print_table

    def cell(figures: Figures) -> str:
        spread = f" ±{figure(figures.spread)}" if draws > 1 else ""
        return f"{figure(figures.mean)}{spread}"

    console = make_console()
    what = f"{found.metric} on {found.num_dev:,} dev rows"
    times = f", mean ± standard deviation of {draws} draws" if draws > 1 else ""
    console.print(f"{found.task}: {what}{times}; baseline {figure(found.baseline)}")
    shots = [figures.shots for figures in next(iter(found.encoders.values()))]
    rows = [["encoder", *(f"{number} examples" for number in shots)]]
    rows += [[name, *map(cell, figures)] for name, figures in found.encoders.items()]
    print_table(console, rows)
