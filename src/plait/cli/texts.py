"""Texts of a command: from arguments, from a file, or lines of standard input."""

from __future__ import annotations

import sys
from itertools import count, islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from plait.data import Records


def check_texts(
    texts: list[str] | None, input_: Path | None, column: object, separator: str | None
) -> None:
    """Refuse sources of texts that cannot be combined, or none at all."""
    from plait.errors import UsageError

    if texts and input_ is not None:
        raise UsageError("give texts as arguments or a file with --input, not both")
    if input_ is None and (column or separator):
        option = "--column" if column else "--separator"
        raise UsageError(f"{option} describes a file: give the file with --input")
    if input_ is not None and not input_.exists():
        raise UsageError(f"there is no file {input_}; without --input, standard input is read")
    if not texts and input_ is None and sys.stdin.isatty():
        raise UsageError("give texts as arguments, a file with --input, or lines on standard input")


def read_separator(typed: str | None) -> str | None:
    r"""Return the separator: '\t' is typed as two characters."""
    return "\t" if typed == r"\t" else typed


def from_arguments(
    texts: list[str], width: int, names: Sequence[str], *, skip_empty: bool
) -> list[tuple[str, ...]]:
    """Return the texts in rows of `width` texts each."""
    from plait.errors import UsageError

    if len(texts) % width:
        tasks = ", ".join(map(repr, names))
        tasks = f"task {tasks} needs" if len(names) == 1 else f"tasks {tasks} need"
        raise UsageError(f"{tasks} pairs: give an even number of texts (got {len(texts)})")
    if not skip_empty and not all(text.strip() for text in texts):
        raise UsageError("one of the texts is empty; --skip-empty leaves its result empty")
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:  # Python has bytes that are not UTF-8 as surrogates
            raise UsageError(f"the text {text[:40]!a} is not UTF-8") from error
    return [tuple(texts[i : i + width]) for i in range(0, len(texts), width)]


def from_lines(stream: BinaryIO, width: int, *, skip_empty: bool) -> Iterator[tuple[str, ...]]:
    """Read one row per line; the two texts of a pair are separated by a tab."""
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
                f"a pair is two texts separated by one tab; this line has {len(texts) - 1} tabs",
                path="<stdin>",
                line=number,
            )
        if not skip_empty and not all(text.strip() for text in texts):
            raise DataError(
                "the text is empty; --skip-empty leaves its result empty",
                path="<stdin>",
                line=number,
            )
        if "\0" in text:
            raise DataError("the text contains a NUL character", path="<stdin>", line=number)
        yield texts


def slice_texts(
    lines: Iterator[tuple[str, ...]], text: tuple[str, ...], size: int
) -> Iterator[Records]:
    """Yield records of `size` rows each; `text` has the names of their columns."""
    from plait.data import Records

    for start in count(0, size):
        chunk = list(islice(lines, size))
        if not chunk:
            return
        columns = dict(zip(text, zip(*chunk, strict=True), strict=True))
        yield Records.of(columns, start)
