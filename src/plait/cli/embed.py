"""`plait embed`: vectors of texts given as arguments, on standard input or in a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from plait.cli.evaluate import DeviceOption, PrecisionOption, note_unfinished
from plait.cli.texts import (
    QuotingOption,
    ResumeOption,
    SeparatorOption,
    check_reading,
    check_texts,
    from_arguments,
    from_lines,
    slice_texts,
)

if TYPE_CHECKING:
    from plait.inference.predictor import SingleModel

TEXT = ("text",)
"""What the column of texts without a file is called."""


def embed(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, or of its export.")],
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts to embed.")
    ] = None,
    input_: Annotated[
        Path | None,
        typer.Option(
            "--input", metavar="FILE", help="CSV, TSV, JSONL or Parquet, plain or .gz/.xz."
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            "--column", metavar="NAME", help="Text column of FILE; needed if several could be."
        ),
    ] = None,
    separator: SeparatorOption = None,
    quoting: QuotingOption = True,
    skip_empty: Annotated[
        bool, typer.Option("--skip-empty", help="Write rows without a text, too, with no vector.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="FILE", help="A new file for vectors: .npy, .parquet or .jsonl."
        ),
    ] = None,
    form: Annotated[
        Literal["npy", "parquet", "jsonl"] | None,
        typer.Option("--format", help="By --output's ending; JSONL without one."),
    ] = None,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Make them of length 1: products are cosines.")
    ] = False,
    resume: ResumeOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
) -> None:
    """Write the encoder's vectors of texts.

    A vector is what the trained encoder makes of a text, pooled as in training: texts are searched,
    clustered and compared by it. Without texts and --input, lines are read from standard input.

    A file may be of any size: it is read and embedded piece by piece, in its order. NumPy's .npy
    holds the vectors alone, .parquet and .jsonl the file's columns as well.
    """
    from plait.cli.display import Display
    from plait.errors import UsageError

    check_texts(texts, input_, column)
    separator = check_reading(input_, separator, quoting=quoting)
    if (input_ is None) != (output is None):
        other = "--output names a file for the vectors of another: give that one with --input"
        missing = "a file's vectors are for another file: name it with --output"
        raise UsageError(other if input_ is None else missing)
    if resume and output is None:
        raise UsageError("--resume goes on with a file: give the same --input and --output")
    if form not in (None, "jsonl") and output is None:
        raise UsageError(f"{form} is nothing for a terminal: name a file with --output")
    with Display() as display:
        if output is not None and form is None:
            from plait.inference.answers.vectors import choose_vector_format

            choose_vector_format(output)
        display.begin(f"loading {run}")
        note_unfinished(run, display)
        model = _load(run, device, precision)
        if input_ is None or output is None:
            display.close()
            _write_lines(model, texts, normalize=normalize, skip_empty=skip_empty)
            return
        from plait.cli.predict import is_finished
        from plait.inference.answers.vectors import embed_file

        if resume and is_finished(output):
            display.note(f"{output} is finished already")
            return
        done = embed_file(
            model,
            input_,
            output,
            text=column,
            form=form,
            normalize=normalize,
            separator=separator,
            quoting=quoting,
            skip_empty=skip_empty,
            resume=resume,
            command="the same command and --resume",
            reading=display.reading,
            progress=display.work,
        )
        if done.num_empty:
            lack = "lacks a text and has" if done.num_empty == 1 else "lack a text and have"
            display.note(f"{done.num_empty:,} of {done.num_rows:,} rows {lack} no vector")
        num = done.num_rows - done.num_empty
        vectors = f"1 vector of {done.width} is" if num == 1 else f"{num:,} vectors of {done.width}"
        display.note(f"{vectors}{'' if num == 1 else ' are'} in {output}")


def _load(run: Path, device: str, precision: str) -> SingleModel:
    """Load a run that has vectors."""
    from plait.errors import UsageError
    from plait.inference.ensemble import load
    from plait.inference.predictor import SingleModel

    model = load(run, device=device, precision=precision)
    if not isinstance(model, SingleModel):
        raise UsageError(f"{run} is an ensemble, which has no vectors of its own; name a member")
    return model


def _write_lines(
    model: SingleModel, texts: list[str] | None, *, normalize: bool, skip_empty: bool
) -> None:
    """Write a line of JSON for each text as soon as it is there."""
    from plait.data import text_schema
    from plait.inference.answers.vectors import CHUNK, JsonlVectors, count_width, embed_records

    if texts:
        lines = iter(from_arguments(texts, 1, [], skip_empty=skip_empty))
    else:
        lines = from_lines(sys.stdin.buffer, 1, skip_empty=skip_empty)
    width = count_width(model)
    written = JsonlVectors(text_schema(["id", *TEXT]), 0, width)
    slices = slice_texts(lines, TEXT, CHUNK)
    for records, vectors in embed_records(model, TEXT[0], slices, width=width, normalize=normalize):
        sys.stdout.buffer.write(written.encode(records, vectors))
        sys.stdout.buffer.flush()
