"""How every picture and page looks: colours by role, in light and dark, marks and fonts.

Plain values, so that whoever draws can share them. Pictures are drawn in the light colours; on a
page each is replaced by a variable of the style sheet, which knows the dark ones.
"""

from __future__ import annotations

from typing import Any

COLOURS: dict[str, tuple[str, str]] = {
    "ink": ("#1b1f24", "#e8e6e1"),
    "muted": ("#57606a", "#9aa4ae"),
    "line": ("#d3d9de", "#39414a"),
    "paper": ("#fefefe", "#15181c"),
    "fill": ("#2f8fca", "#0e70ae"),
    # Okabe and Ito's, those that stand out from white first, lighter on a dark page.
    "series-0": ("#0072b2", "#56b4e9"),
    "series-1": ("#d55e00", "#f08a3c"),
    "series-2": ("#008a64", "#2ec295"),
    "series-3": ("#b1568b", "#e09ac4"),
    "series-4": ("#8a6d00", "#e6c229"),
    "series-5": ("#5b4fa8", "#a99ff0"),
}
"""By role: on a light page and on a dark one. No two light ones are equal."""

NUM_SERIES = sum(name.startswith("series-") for name in COLOURS)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""One more than colours, so that the seventh series shares its colour, not its mark."""
HATCH = "////"

STRONGEST = 0.85
"""Opacity of `fill` for a share of 1: text in ink can still be read on it, light or dark."""

FONT_SIZE = 8.0

RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so texts take the same room everywhere
    "font.size": FONT_SIZE,
    "axes.titlesize": FONT_SIZE + 1,
    "axes.labelsize": FONT_SIZE,
    "xtick.labelsize": FONT_SIZE,
    "ytick.labelsize": FONT_SIZE,
    "legend.fontsize": FONT_SIZE,
    "legend.frameon": False,
    "text.color": COLOURS["ink"][0],
    "text.parse_math": False,  # a label with two dollars in it is no formula
    "axes.labelcolor": COLOURS["muted"][0],
    "axes.edgecolor": COLOURS["line"][0],
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "grid.color": COLOURS["line"][0],
    "grid.linewidth": 0.5,
    "xtick.color": COLOURS["line"][0],
    "ytick.color": COLOURS["line"][0],
    "xtick.labelcolor": COLOURS["muted"][0],
    "ytick.labelcolor": COLOURS["muted"][0],
    "figure.facecolor": COLOURS["paper"][0],
    "lines.linewidth": 1.6,
    "lines.markersize": 4.0,
    "hatch.linewidth": 0.6,
    "hatch.color": COLOURS["series-1"][0],
    "svg.fonttype": "none",  # texts stay texts: small, searchable, in the reader's own fonts
    "svg.hashsalt": "plait",  # the same picture has the same bytes
}


def colour(role: str) -> str:
    """Return a role's colour as pictures are drawn."""
    return COLOURS[role][0]


def series_role(number: int) -> str:
    """Return the role of a run's, or another series', colour."""
    return f"series-{number % NUM_SERIES}"


def series_marker(number: int) -> str:
    """Return its mark, so that colour is never alone."""
    return MARKERS[number % len(MARKERS)]


def variables(dark: bool) -> str:
    """Return the colours as declarations of a style sheet."""
    return " ".join(f"--{name}: {pair[dark]};" for name, pair in COLOURS.items())


def with_variables(svg: str) -> str:
    """Replace every colour of a drawn picture by its variable."""
    for name, (light, _) in COLOURS.items():
        svg = svg.replace(light, f"var(--{name})")
    return svg
