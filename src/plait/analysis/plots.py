"""The figures of reports, drawn by matplotlib as SVG elements for an HTML page."""

from __future__ import annotations

import io
import math
import re
import warnings
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.errors import UsageError
from plait.inference.intervals import wilson
from plait.tasks.metrics import name_classes

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import MaxNLocator, PercentFormatter
except ImportError as error:
    raise UsageError(
        "figures need matplotlib, which is not installed: pip install 'plait[report]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes

    from plait.analysis.comparison import Difference
    from plait.analysis.runs import Points
    from plait.inference.calibration import Bin
    from plait.tasks.kind import Floats

# --- colours and fonts -------------------------------------------------------------------

COLOURS: dict[str, tuple[str, str]] = {
    "ink": ("#1b1f24", "#e8e6e1"),
    "muted": ("#57606a", "#9aa4ae"),
    "line": ("#d3d9de", "#39414a"),
    "paper": ("#fefefe", "#15181c"),
    "fill": ("#2f8fca", "#0e70ae"),
    # Okabe and Ito's colours, darker on a light page and lighter on a dark one.
    "series-0": ("#0072b2", "#56b4e9"),
    "series-1": ("#d55e00", "#f08a3c"),
    "series-2": ("#008a64", "#2ec295"),
    "series-3": ("#b1568b", "#e09ac4"),
    "series-4": ("#8a6d00", "#e6c229"),
    "series-5": ("#5b4fa8", "#a99ff0"),
}
"""By role, on a light page and on a dark one. Figures are drawn in the light colours, which a
page replaces by CSS variables, so all light colours are different."""

NUM_SERIES = sum(name.startswith("series-") for name in COLOURS)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""One more than colours, so that the seventh series has another marker than the first."""

STRONGEST = 0.85
"""Opacity of `fill` for a share of 1, on which text is still legible, light or dark."""

WIDTH = 3.6
"""Inches of a figure; shown about 340 pixels wide, which fits a phone."""
MAX_LABEL = 18
"""Characters of a label beside an axis; the table behind the figure has all of it."""
MAX_CELLS = 12
"""Classes up to which the cells of a confusion matrix have numbers."""
MAX_POINTS = 400
"""Rows up to which a scatter plot has a point per row; above, cells are shaded."""
DASHED = (0, (3, 1.5))

_INK, _MUTED, _LINE, _PAPER = (COLOURS[role][0] for role in ("ink", "muted", "line", "paper"))
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: texts have the same size everywhere
    "font.size": 8.0,
    "axes.labelsize": 8.0,
    "legend.frameon": False,
    "text.color": _INK,
    "text.parse_math": False,  # a label with two dollar signs is not a formula
    "axes.labelcolor": _MUTED,
    "axes.edgecolor": _LINE,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": _LINE,
    "grid.linewidth": 0.5,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "xtick.color": _LINE,
    "ytick.color": _LINE,
    "xtick.labelcolor": _MUTED,
    "ytick.labelcolor": _MUTED,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.0,
    "svg.fonttype": "none",  # texts stay texts: small, searchable, in the reader's own fonts
}


def series_colour(number: int) -> str:
    """Return the colour of a run, or of another series."""
    return COLOURS[f"series-{number % NUM_SERIES}"][0]


def series_marker(number: int) -> str:
    """Return the marker of a series, so that it is not known by its colour alone."""
    return MARKERS[number % len(MARKERS)]


def css_variables(*, dark: bool) -> str:
    """Return the colours as CSS declarations."""
    return " ".join(f"--{role}: {pair[dark]};" for role, pair in COLOURS.items())


def shorten(text: str, width: int) -> str:
    """Cut a text to a number of characters."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


# --- a panel -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Panel:
    """A figure of a page."""

    title: str
    svg: str
    caption: str
    is_wide: bool


def draw_panel(
    title: str,
    alt: str,
    plot: Callable[[Figure], None],
    *,
    caption: str = "",
    size: tuple[float, float] = (WIDTH, 2.3),
) -> Panel:
    """Draw a panel with a legend below it; `alt` describes it to who cannot see it."""
    # The salt makes ids inside the SVG unique on the page, and equal from one report to the next.
    with mpl.rc_context(STYLE | {"svg.hashsalt": title + alt}), warnings.catch_warnings():
        # A browser has characters that matplotlib's font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_visible(False)
        plot(figure)
        handles = {
            label: handle
            for axes in figure.axes
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        if handles:
            labels = [shorten(label, 30) for label in handles]
            figure.legend(handles.values(), labels, loc="outside lower center", ncols=2)
            figure.set_figheight(size[1] + 0.1 + 0.17 * math.ceil(len(handles) / 2))
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return Panel(title, _to_html(file.getvalue(), alt), caption, size[0] > WIDTH * 1.02)


def _to_html(svg: bytes, alt: str) -> str:
    """Return an SVG file as an element of a page: CSS variables for colours, an alt text."""
    root = ET.fromstring(svg)
    _, _, width, height = root.attrib["viewBox"].split()
    values = (value for element in root.iter() for value in element.attrib.values())
    used = {found[1] for value in values if (found := re.match(r"(?:url\()?#([^)]+)", value))}
    for element in root.iter():
        for child in list(element):
            if child.tag.endswith(("}metadata", "}style")):
                element.remove(child)
        element.tag = element.tag.rpartition("}")[2]
        given = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
        if given.get("id") not in used:
            given.pop("id", None)
        for role, (light, _) in COLOURS.items():
            given = {name: value.replace(light, f"var(--{role})") for name, value in given.items()}
        element.attrib = given
        element.text = element.text if (element.text or "").strip() else None
        element.tail = "\n"
    root.attrib = {
        "viewBox": f"0 0 {width} {height}",
        "role": "img",
        "aria-label": alt,
        "style": f"--width: {float(width):.0f}",
    }
    return ET.tostring(root, encoding="unicode")


# --- curves ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a panel."""

    label: str
    points: Points
    number: int
    """Chooses the colour and the marker."""
    dashed: bool = False
    best: int | None = None
    """Step with a ring: that of the model which was kept."""


def curves(
    figure: Figure,
    series: Sequence[Series],
    ylabel: str,
    span: tuple[float, float] = (-math.inf, math.inf),
) -> None:
    """Plot values over steps; the axis ends at `span`, beyond which no value can be."""
    axes = figure.subplots()
    _plot_lines(axes, series)
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, span[0]), min(high, span[1]))
    _step_axis(axes, series)
    axes.set_ylabel(ylabel)


def conflicts(figure: Figure, cosines: Sequence[Series], shares: Sequence[Series]) -> None:
    """Plot the cosine of two tasks' gradients, and below it the share of conflicting steps."""
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    _plot_lines(above, cosines)
    above.axhline(0, color=_MUTED, linewidth=0.8)
    limit = max((abs(y) for s in cosines for _, y in s.points if math.isfinite(y)), default=1)
    above.set_ylim(-limit * 1.15 or -1, limit * 1.15 or 1)  # the sign is what matters
    above.yaxis.set_major_locator(MaxNLocator(4, symmetric=True))
    above.set_ylabel("cosine")
    _plot_lines(below, shares)
    below.set_ylim(0, 1)
    below.yaxis.set_major_locator(MaxNLocator(2))
    below.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    below.set_ylabel("conflicts")
    _step_axis(below, shares)


def _plot_lines(axes: Axes, series: Sequence[Series]) -> None:
    for line in series:
        points = [(x, y) for x, y in line.points if math.isfinite(y)]
        if not points:
            continue
        x, y = zip(*points, strict=True)
        colour = series_colour(line.number)
        axes.plot(
            x,
            y,
            color=colour,
            linestyle=DASHED if line.dashed else "-",
            marker=series_marker(line.number) if len(points) <= 30 else None,
            markersize=3 if line.dashed else 4,
            markerfacecolor=_PAPER if line.dashed else colour,
            linewidth=1.1 if line.dashed else 1.6,
            label=line.label,
            clip_on=False,
        )
        if line.best is not None and line.best in x:
            _ring(axes, line.best, y[x.index(line.best)], 9, _INK, "kept model")


def _ring(axes: Axes, x: float, y: float, size: int, colour: str, label: str) -> None:
    axes.plot(
        [x],
        [y],
        linestyle="none",
        marker="o",
        markersize=size,
        markerfacecolor="none",
        markeredgecolor=colour,
        label=label,
        clip_on=False,
    )


def _step_axis(axes: Axes, series: Sequence[Series]) -> None:
    last = max((step for line in series for step, _ in line.points), default=1)
    axes.set_xlim(0, max(last, 1) * 1.03)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    axes.set_xlabel("steps")


# --- classes -----------------------------------------------------------------------------


def matrix_size(num_classes: int) -> tuple[float, float]:
    """Return the inches of a confusion matrix."""
    side = max(WIDTH - 1.3, (0.22 if num_classes > MAX_CELLS else 0.33) * num_classes)
    return side + 1.3, max(1.6, side * 0.86 + 0.45)


def rows_size(num_rows: int, least: float = 1.2) -> tuple[float, float]:
    """Return the inches of a panel with a row per label."""
    return WIDTH, max(least, 0.6 + (0.3 if num_rows <= MAX_CELLS else 0.2) * num_rows)


def confusion(figure: Figure, counts: Sequence[Sequence[int]], labels: Sequence[str]) -> None:
    """Draw a confusion matrix, shaded by the share of each actual class."""
    axes = figure.subplots()
    size, cells = len(labels), np.asarray(counts)
    for i, j in zip(*np.nonzero(cells), strict=True):
        share = cells[i, j] / cells[i].sum()
        _shade(axes, j - 0.5, i - 0.5, 1, share * STRONGEST)
        if size <= MAX_CELLS:
            axes.text(j, i - 0.03, f"{share:.0%}", ha="center", va="bottom")
            axes.text(j, i + 0.06, f"{cells[i, j]:,}", ha="center", va="top", fontsize=6.5)
    for i in range(size):  # a frame marks right answers without colour
        corner = (i - 0.46, i - 0.46)
        axes.add_patch(Rectangle(corner, 0.92, 0.92, fill=False, edgecolor=_INK, lw=0.7))
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    ticks = range(0, size, max(1, size // 25))
    names, short = name_classes([shorten(label, MAX_LABEL) for label in labels])
    axes.set_xticks(ticks, [short[i] for i in ticks])
    axes.set_yticks(ticks, [names[i] for i in ticks])
    axes.set_xlabel("predicted")
    axes.set_ylabel("actual")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _shade(axes: Axes, x: float, y: float, side: float, strength: float) -> None:
    face = (COLOURS["fill"][0], strength)
    axes.add_patch(Rectangle((x, y), side, side, facecolor=face, edgecolor="none", linewidth=0))


def class_metrics(figure: Figure, per_class: Sequence[Mapping[str, Any]]) -> None:
    """Plot precision, recall and F1 of each class, a marker each."""
    axes = figure.subplots()
    # A little apart, so that equal values do not hide each other.
    marks = (("precision", ">", 0, -0.2), ("f1", "o", 2, 0.0), ("recall", "s", 1, 0.2))
    for key, marker, number, shift in marks:
        values = [float(entry[key]) for entry in per_class]
        places = [place + shift for place in range(len(per_class))]
        axes.hlines(places, 0, values, color=_LINE, linewidth=0.7)
        axes.plot(
            values,
            places,
            linestyle="none",
            marker=marker,
            markersize=4.5,
            markerfacecolor=_PAPER if key == "recall" else series_colour(number),
            markeredgecolor=series_colour(number),
            label="F1" if key == "f1" else key,
            clip_on=False,
        )
    axes.set_xlim(-0.04, 1)
    _label_rows(axes, name_classes([str(entry["label"]) for entry in per_class])[0])


def _label_rows(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), [shorten(label, MAX_LABEL + 2) for label in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


# --- numbers -----------------------------------------------------------------------------


def scatter(
    figure: Figure, labels: Floats, answers: Floats, span: tuple[float, float], worst: int | None
) -> None:
    """Plot every row by its label and its answer, with a ring around the largest error."""
    axes = figure.subplots()
    finite = np.concatenate([labels, answers[np.isfinite(answers)], span])
    low, high = float(finite.min()), float(finite.max())
    axes.plot([low, high], [low, high], color=_MUTED, linewidth=0.8)
    if len(labels) <= MAX_POINTS:
        colour = series_colour(0)
        axes.scatter(labels, answers, s=14, facecolor=(colour, 0.35), edgecolor=colour, lw=0.5)
    else:
        edges = np.linspace(low, high, 31)
        counts, _, _ = np.histogram2d(labels, answers, bins=(edges, edges))
        for i, j in zip(*np.nonzero(counts), strict=True):
            # The square root keeps cells of a few rows apart from empty ones.
            strength = max(STRONGEST * math.sqrt(counts[i, j] / counts.max()), 0.08)
            _shade(axes, float(edges[i]), float(edges[j]), float(edges[1] - edges[0]), strength)
    if worst is not None:
        place = float(labels[worst]), float(answers[worst])
        _ring(axes, *place, 10, series_colour(1), "largest error")
    room = (high - low) * 0.04
    axes.set_xlim(low - room, high + room)
    axes.set_ylim(low - room, high + room)
    axes.set_aspect("equal")
    axes.set_xlabel("actual")
    axes.set_ylabel("predicted")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6))


# --- calibration and differences ---------------------------------------------------------


def reliability(figure: Figure, sides: Sequence[tuple[str, Sequence[Bin]]]) -> None:
    """Plot accuracy over confidence for each named list of bins; below, rows of the last one."""
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    above.plot([0, 1], [0, 1], color=_MUTED, linewidth=0.8)
    for number, (label, bins) in enumerate(sides):
        colour, full = series_colour(number), [b for b in bins if b.count]
        x = [b.confidence for b in full]
        low, high = wilson([b.accuracy * b.count for b in full], [b.count for b in full])
        above.vlines(x, low, high, color=colour, linewidth=0.8, alpha=0.7)
        above.plot(
            x,
            [b.accuracy for b in full],
            color=colour,
            marker=series_marker(number),
            linestyle=DASHED if number else "-",
            markerfacecolor=_PAPER if number else colour,
            label=label if len(sides) > 1 else None,
            clip_on=False,
        )
    last, colour = sides[-1][1], series_colour(len(sides) - 1)
    middles, width = [(b.low + b.high) / 2 for b in last], last[0].high * 0.9
    below.bar(middles, [b.count for b in last], width, color=(colour, 0.55), edgecolor=colour)
    above.set_xlim(0, 1)
    above.set_ylim(0, 1)
    above.set_ylabel("accuracy")
    below.set_ylabel("rows")
    below.set_xlabel("confidence")
    below.yaxis.set_major_locator(MaxNLocator(2, integer=True))
    for axis in (above.yaxis, below.xaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=0))


def differences(
    figure: Figure, by_task: Mapping[str, Difference], xlabel: str, limit: float, number: int
) -> None:
    """Plot differences with their intervals, a row per task; above 0 is better."""
    axes = figure.subplots()
    axes.axvline(0, color=_MUTED, linewidth=1)
    colour = series_colour(number)
    for place, gap in enumerate(by_task.values()):
        if not math.isfinite(gap.value):
            axes.text(0, place, "  undefined", va="center", color=_MUTED)
            continue
        if math.isfinite(gap.interval.low):
            ends = [gap.interval.low, gap.interval.high]
            axes.plot(ends, [place, place], color=colour, linewidth=1.4)
        axes.plot(
            [gap.value],
            [place],
            linestyle="none",
            marker=series_marker(number),
            markersize=6,
            markeredgecolor=colour,
            markerfacecolor=colour if gap.is_clear else _PAPER,
        )
    axes.set_xlim(-limit * 1.1, limit * 1.1)
    axes.xaxis.set_major_locator(MaxNLocator(5, symmetric=True))
    axes.set_xlabel(xlabel)
    _label_rows(axes, list(by_task))
