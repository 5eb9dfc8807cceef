"""Format numbers, names and paragraphs for the page."""

from __future__ import annotations

import math
import textwrap
from statistics import fmean, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def number(value: float | None, digits: int = 3) -> str:
    """Format a score: .512, -.007, 1.535."""
    if value is None or math.isnan(value):
        return "none"
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text.replace("0.", ".", 1) if abs(float(text)) < 1 else text


def signed(value: float | None) -> str:
    """Format a difference: +.013, -.001."""
    text = number(value)
    return text if value is None or text.startswith("-") else f"+{text}"


def unbroken(text: str) -> str:
    """Replace spaces with non-breaking ones, to keep a cell on one line."""
    return text.replace(" ", "\u00a0")


def interval(ends: tuple[float, float], form: Callable[[float], str] = signed) -> str:
    """Format an interval: +.001 to +.030."""
    return unbroken(f"{form(ends[0])} to {form(ends[1])}")


def over_seeds(values: Sequence[float]) -> str:
    """Format a mean with the standard deviation over seeds."""
    if not values:
        return "none"
    spread = f" ± {number(stdev(values))}" if len(values) > 1 else ""
    return unbroken(f"{number(fmean(values))}{spread}")


def p_text(value: float) -> str:
    """Format a p-value."""
    return "<.001" if value < 0.001 else number(value)


def names(words: Iterable[str]) -> str:
    """Join names as code: `a`, `b`."""
    return ", ".join(f"`{word}`" for word in words)


def count(amount: int, noun: str) -> str:
    """Count things: 1 run, 3 runs."""
    return f"{amount:,} {noun}{'s' * (amount != 1)}"


def wrap(text: str) -> str:
    """Wrap paragraphs at 100 columns."""
    return "\n\n".join(_fill(paragraph) for paragraph in text.strip().split("\n\n")) + "\n"


def item(text: str) -> str:
    """Format an item of a list."""
    return _fill(text, initial_indent="- ", subsequent_indent="  ")


def _fill(text: str, **how: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False, **how)  # type: ignore[arg-type]
