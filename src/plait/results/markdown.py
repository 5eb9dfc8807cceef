"""Figures and tables as Markdown."""

from __future__ import annotations

import math
import textwrap
from statistics import fmean, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDTH = 100


def figure(value: float | None, digits: int = 3) -> str:
    """Write a figure the way the tables of the field do: .512, -.007, 1.535."""
    if value is None or math.isnan(value):
        return "none"
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text.replace("0.", ".", 1) if abs(float(text)) < 1 else text


def signed(value: float | None) -> str:
    """Write a difference: +.013, -.001."""
    text = figure(value)
    return text if value is None or text.startswith("-") else f"+{text}"


def unbroken(text: str) -> str:
    """Keep the words of a cell on one line."""
    return text.replace(" ", "\u00a0")


def between(low_high: tuple[float, float], *, signs: bool = False) -> str:
    """Write an interval: .512 to .530, or +.001 to +.030 where it is one of differences."""
    low, high = (signed(end) if signs else figure(end) for end in low_high)
    return unbroken(f"{low} to {high}")


def over_seeds(values: Sequence[float]) -> str:
    """Write a mean with the standard deviation over seeds, which one seed does not have."""
    if not values:
        return "none"
    spread = f" ± {figure(stdev(values))}" if len(values) > 1 else ""
    return unbroken(f"{figure(fmean(values))}{spread}")


def probability(value: float) -> str:
    """Write a p-value."""
    return "<.001" if value < 0.001 else figure(value)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], num_words: int = 1) -> list[str]:
    """Return the lines of a table; columns after the first `num_words` are set to the right."""
    rules = ["---"] * num_words + ["---:"] * (len(header) - num_words)
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return [lines[0], f"|{'|'.join(rules)}|", *lines[1:], ""]


def paragraph(text: str) -> list[str]:
    """Return the lines of a paragraph, and an empty one."""
    return [*textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False), ""]


def items(texts: Iterable[str]) -> list[str]:
    """Return the lines of a list, and an empty one."""
    lines = [
        line
        for text in texts
        for line in textwrap.wrap(
            text,
            WIDTH,
            initial_indent="- ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]
    return [*lines, ""] if lines else []


def picture(folder: str | None, name: str, about: str) -> list[str]:
    """Return the lines that show a picture; none where there is no folder of them."""
    return [] if folder is None else [f"![{about}]({folder}/{name}.svg)", ""]
