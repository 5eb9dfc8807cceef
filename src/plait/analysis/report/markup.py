"""Values become HTML: everything that is not markup already is escaped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from plait.analysis.report.plots import Picture

VOID = {"meta", "br"}

MARK = "<!-- plait report -->"
"""What a file begins with that may be written over."""


def is_report(path: Path) -> bool:
    """Say whether a file is a report that plait wrote."""
    if not path.is_file():  # a device, say
        return False
    with path.open("rb") as file:
        return MARK.encode() in file.read(200)


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(name: str, /, *children: str | Iterable[str], **attributes: str | bool | None) -> Html:
    """Return an element; `class_` is class, and an attribute of None or False is left out."""
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in VOID:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{join(*children)}</{name}>")


def join(*children: str | Iterable[str]) -> Html:
    """Return pieces one after the other, escaped where they are bare text."""
    pieces = []
    for child in children:
        if isinstance(child, str):
            pieces.append(child if isinstance(child, Html) else escape(child, quote=False))
        else:
            pieces.extend(join(piece) for piece in child)
    return Html("".join(pieces))


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], caption: str, num_words: int = 1
) -> Html:
    """Return a table that scrolls where it is too wide; the first `num_words` columns are words.

    The first column names the row.
    """

    def cells(row: Sequence[str]) -> Iterable[Html]:
        for place, cell in enumerate(row):
            kind = None if place < num_words else "number"
            if place:
                yield tag("td", cell, class_=kind)
            else:
                yield tag("th", cell, scope="row")

    heads = [
        tag("th", cell, scope="col", class_=None if i < num_words else "number")
        for i, cell in enumerate(head)
    ]
    body = [tag("tr", cells(row)) for row in rows]
    inside = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", heads)),
        tag("tbody", body),
    )
    # What scrolls can be reached by keyboard.
    return tag("div", inside, class_="scroll", tabindex="0", role="group", aria_label=caption)


def details(summary: str, *children: str) -> Html:
    """Return something that is folded away until it is asked for."""
    return tag("details", tag("summary", summary), *children)


def panel(
    picture: Picture, sentence: str = "", level: str = "h4", entries: Sequence[Entry] = ()
) -> Html:
    """Return a picture under its title, with a legend and a sentence on how to read it."""
    return tag(
        "figure",
        tag(level, picture.title),
        *([legend(entries)] if entries else []),
        Html(picture.svg),
        *([tag("figcaption", sentence)] if sentence else []),
        class_="panel wide" if picture.is_wide else "panel",
    )


def grid(panels: Iterable[str]) -> Html:
    """Return panels side by side, as many as there is room for."""
    return tag("div", panels, class_="grid")


MARKS = {
    "o": "M17 2.2a3.8 3.8 0 1 0 .01 0z",
    "s": "M13.5 2.5h7v7h-7z",
    "^": "M17 1.8l4.2 7.6h-8.4z",
    "v": "M17 10.2l4.2-7.6h-8.4z",
    ">": "M21.2 6l-7.6 4.2v-8.4z",
    "D": "M17 1.4l4.6 4.6-4.6 4.6-4.6-4.6z",
    "P": "M15.5 2h3v2.5h2.5v3h-2.5v2.5h-3v-2.5h-2.5v-3h2.5z",
    "X": "M14 2l3 2.2 3-2.2 1 1.2-2.2 2.8 2.2 2.8-1 1.2-3-2.2-3 2.2-1-1.2 2.2-2.8-2.2-2.8z",
}
"""Outlines of matplotlib's marks, on a line that is 34 long and 12 high."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a line, a mark or a bar of a picture stands for."""

    label: str
    role: str
    mark: str = ""
    """One of MARKS, `bar` or `hatch`; none unless set."""
    line: Literal["", "solid", "dashed"] = ""
    hollow: bool = False


def legend(entries: Iterable[Entry]) -> Html:
    """Return what stands for what in the pictures below."""
    return tag("ul", (tag("li", _sample(e), e.label) for e in entries), class_="legend")


def _sample(entry: Entry) -> Html:
    ink = f"var(--{entry.role})"
    pieces = []
    if entry.line:
        dash = "5 2.5" if entry.line == "dashed" else None
        pieces.append(tag("path", d="M0 6h34", stroke=ink, stroke_width="2", stroke_dasharray=dash))
    if entry.mark in ("bar", "hatch"):
        solid = entry.mark == "bar"
        face = ink if solid else "none"
        pieces.append(tag("path", d="M4 1.5h26v9h-26z", fill=face, stroke=ink))
        if not solid:
            lines = "M4 10.5l9-9M11 10.5l9-9M18 10.5l9-9M25 10.5l5-5"
            pieces.append(tag("path", d=lines, stroke=ink))
    elif entry.mark:
        face = "var(--paper)" if entry.hollow else ink
        pieces.append(tag("path", d=MARKS[entry.mark], fill=face, stroke=ink, stroke_width="1.2"))
    return tag("svg", pieces, viewBox="0 0 34 12", aria_hidden="true")


def section(name: str, title: str, lead: str, *children: str) -> Html:
    """Return a part of the page under its heading, with a sentence on what it is about."""
    return tag("section", tag("h2", title), tag("p", lead, class_="lead"), *children, id=name)


def number(value: float | None, places: int = 3) -> str:
    """Write a figure; one that does not exist is none."""
    if value is None or not math.isfinite(value):
        return "none"
    text = f"{value:.{places}f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


def signed(value: float) -> str:
    """Write a difference with its sign."""
    text = number(value)
    return f"+{text}" if value > 0 and float(f"{value:.3f}") else text


def percent(value: float) -> str:
    """Write a share."""
    return f"{value:.0%}" if math.isfinite(value) else "none"


def shorten(text: str, width: int) -> str:
    """Cut a text to a number of letters."""
    return text if len(text) <= width else f"{text[: width - 1]}…"
