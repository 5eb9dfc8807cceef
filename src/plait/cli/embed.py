"""`plait embed`: vectors of texts, standard input or a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.evaluate import note_unfinished
from plait.cli.options import (
    DeviceOption,
    PrecisionOption,
    ResumeOption,
    SeparatorOption,
    SkipEmptyOption,
    TextsArgument,
    resume_command,
)
from plait.cli.texts import check_texts, from_arguments, from_lines, read_separator, slice_texts

if TYPE_CHECKING:
    from plait.inference.predictor import SingleModel

TEXT = ("text",)
"""Column name of texts that are not from a file."""


def embed(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, or of its export.")],
    texts: TextsArgument = None,
    input_: Annotated[
        Path | None,
        typer.Option(
            "--input", metavar="FILE", help="CSV, TSV, JSONL or Parquet, plain, .gz or .xz."
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option("--column", metavar="NAME", help="Text column, if there are several."),
    ] = None,
    separator: SeparatorOption = None,
    skip_empty: SkipEmptyOption = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="New file: .npy, .parquet or .jsonl."),
    ] = None,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Scale vectors to length 1.")
    ] = False,
    resume: ResumeOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
) -> None:
    """Write the encoder's vectors of texts.

    A vector is the pooled output of the trained encoder, for search, clustering and comparison.
    On standard input, each line is one text. Vectors of texts and lines are printed as JSON.

    A file may be of any size. A .npy file has the vectors only; .parquet and .jsonl also have the
    columns of the input.
    """
    from plait.cli.display import Display
    from plait.errors import UsageError

    check_texts(texts, input_, column, separator)
    if input_ is None and out is not None:
        raise UsageError("--out needs --input")
    if input_ is not None and out is None:
        raise UsageError("--input needs --out")
    if resume and out is None:
        raise UsageError("--resume needs the same --input and --out as before")
    with Display() as display:
        if out is not None:
            from plait.inference.answers.vectors import choose_vector_format

            choose_vector_format(out)
        display.begin(f"loading {run}")
        note_unfinished(run, display)
        model = _load(run, device, precision)
        if input_ is None or out is None:
            display.close()
            _write_lines(model, texts, normalize=normalize, skip_empty=skip_empty)
            return
        from plait.cli.predict import is_finished
        from plait.inference.answers.vectors import embed_file

        if resume and is_finished(out):
            display.note(f"{out} is already finished")
            return
        done = embed_file(
            model,
            input_,
            out,
            text=column,
            normalize=normalize,
            separator=read_separator(separator),
            skip_empty=skip_empty,
            resume=resume,
            command=resume_command(),
            reading=display.reading,
            progress=display.work,
        )
        if done.num_empty:
            display.note(f"{done.num_empty:,} of {done.num_rows:,} rows have no text and no vector")
        from plait.errors import counted

        vectors = counted(done.num_rows - done.num_empty, "vector")
        display.note(f"{vectors} of {done.width} dimensions in {out}")


def _load(run: Path, device: str, precision: str) -> SingleModel:
    """Load a single model."""
    from plait.errors import UsageError
    from plait.inference.ensemble import load
    from plait.inference.predictor import SingleModel

    model = load(run, device=device, precision=precision)
    if not isinstance(model, SingleModel):
        raise UsageError(f"{run} is an ensemble, which has no encoder; use one of its members")
    return model


def _write_lines(
    model: SingleModel, texts: list[str] | None, *, normalize: bool, skip_empty: bool
) -> None:
    """Print one line of JSON per text, as soon as it is computed."""
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
