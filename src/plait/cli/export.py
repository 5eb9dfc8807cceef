"""`plait export`: a run as ONNX, sentence-transformers or transformers files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from plait.cli.evaluate import note_unfinished
from plait.cli.options import DataOption

if TYPE_CHECKING:
    from plait.export.run import Export


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    form: Annotated[
        Literal["onnx", "sentence-transformers", "hf"],
        typer.Option("--format", help="The format."),
    ] = "onnx",
    task: Annotated[
        list[str] | None,
        typer.Option("--task", metavar="TASK", help="Only this task; onnx: several, hf: one."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="New folder. Default: RUN-FORMAT."),
    ] = None,
    precision: Annotated[
        Literal["fp32", "int8"],
        typer.Option("--precision", help="int8 (onnx only) is smaller and less exact."),
    ] = "fp32",
    data: DataOption = None,
) -> None:
    """Export a run to ONNX, sentence-transformers or transformers.

    onnx has all tasks and runs on ONNX Runtime; `plait predict DIR` and plait.load read it too. It
    is compared with the run on dev if the recipe's files are available.

    sentence-transformers is the encoder for SentenceTransformer or, with --task, one task for
    CrossEncoder. hf is one task for AutoModelForSequenceClassification. Both are exact; a run that
    these classes cannot express is refused.
    """
    from plait.cli.display import Display

    with Display() as display:
        display.begin(f"exporting {run}")
        from plait.export.run import export as export_run

        note_unfinished(run, display)
        done = export_run(
            run,
            out,
            form=form,
            tasks=task,
            precision=precision,
            data=data,
            reading=display.reading,
            answering=display.scoring,
        )
        if done.note:
            display.note(done.note)
    _show(done, precision)
    typer.echo(f"The export is in {done.folder}; see README.md there.")


def _show(done: Export, precision: str) -> None:
    from plait.cli.display import figure, make_console, print_table

    if not done.comparisons:
        return
    rows = [
        ["task", "metric", "dev rows", "run", precision, "same predictions", "largest difference"]
    ]
    for name, each in done.comparisons.items():
        figures = [figure(each.before), figure(each.after)]
        rows.append(
            [
                name,
                each.metric,
                f"{each.rows:,}",
                *figures,
                f"{each.equal:.1%}",
                f"{each.largest:.2g}",
            ]
        )
    print_table(make_console(), rows, num_words=2)
    typer.echo()
