"""Where a command's texts come from: arguments, a file, or lines of standard input."""

from __future__ import annotations

import sys
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    from plait.data import Records

SeparatorOption = Annotated[
    str | None,
    typer.Option(
        "--separator",
        metavar="SIGN",
        help=r"Between columns of FILE: ';' or '\t'. By its header line unless set.",
    ),
]
QuotingOption = Annotated[
    bool,
    typer.Option("--quoting/--no-quoting", help="Whether double quotes enclose a field of FILE."),
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on with an --output that was stopped.")
]


def check_texts(texts: list[str] | None, input_: Path | None, column: object) -> None:
    """Refuse ways to give texts that do not go together, or none at all."""
    from plait.errors import UsageError

    if texts and input_ is not None:
        raise UsageError("give texts as arguments or a file with --input, not both")
    if column and input_ is None:
        raise UsageError("--column names a column of a file: give the file with --input")
    if input_ is not None and not input_.exists():
        raise UsageError(
            f"there is no file {input_}; leave out --input to read lines from standard input"
        )
    if not texts and input_ is None and sys.stdin.isatty():
        raise UsageError("give texts as arguments, a file with --input, or lines on standard input")


def check_reading(input_: Path | None, separator: str | None, *, quoting: bool) -> str | None:
    """Refuse ways to read a file where there is none; return the separator meant."""
    from plait.errors import UsageError

    if input_ is None and (separator is not None or not quoting):
        raise UsageError(
            "--separator and --no-quoting say how a file is read: give it with --input"
        )
    return read_separator(separator)


def read_separator(typed: str | None) -> str | None:
    """Return the sign meant: what a shell passes on of '\\t' is two letters."""
    return "\t" if typed == r"\t" else typed


def from_arguments(
    texts: list[str], width: int, names: Sequence[str], *, skip_empty: bool
) -> list[tuple[str, ...]]:
    """Return the texts of each row, as many as it has."""
    from plait.errors import UsageError

    if len(texts) % width:
        count = f"{len(texts)} {'was' if len(texts) == 1 else 'were'} given"
        takes = f"{' and '.join(names)} {'take' if len(names) > 1 else 'takes'}"
        raise UsageError(f"{takes} texts two by two, and {count}")
    if not skip_empty and not all(text.strip() for text in texts):
        raise UsageError("one of the texts is empty; --skip-empty leaves it unanswered")
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:  # Python has bytes that are not UTF-8 as surrogates
            raise UsageError(f"the text {text[:40]!a} is not UTF-8") from error
    return [tuple(texts[i : i + width]) for i in range(0, len(texts), width)]


def from_lines(stream: BinaryIO, width: int, *, skip_empty: bool) -> Iterator[tuple[str, ...]]:
    """Read the texts of a row a line; the two of a pair have a tab between them."""
    from plait.errors import DataError

    for number, line in enumerate(stream, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError("the text is not UTF-8", path="<stdin>", line=number) from error
        texts = tuple(text.split("\t")) if width == 2 else (text,)
        if skip_empty and len(texts) != width and not text.strip():
            texts = ("",) * width
        if len(texts) != width:
            raise DataError(
                f"a pair is two texts with one tab between them, and this line has "
                f"{len(texts) - 1} tabs",
                path="<stdin>",
                line=number,
            )
        if not skip_empty and not all(text.strip() for text in texts):
            raise DataError(
                "the text is empty; fill it in, or leave it unanswered with --skip-empty",
                path="<stdin>",
                line=number,
            )
        if "\0" in text:
            raise DataError("the text holds a NUL", path="<stdin>", line=number)
        yield texts


def slice_texts(
    lines: Iterator[tuple[str, ...]], text: tuple[str, ...], size: int
) -> Iterator[Records]:
    """Make records of rows, so many at a time; `text` is what the columns are called."""
    from plait.data import Records

    for start in count(0, size):
        chunk = list(islice(lines, size))
        if not chunk:
            return
        columns = dict(zip(text, zip(*chunk, strict=True), strict=True))
        yield Records.of(columns, start)
