"""Numbers become pictures: the only place that knows matplotlib."""

from __future__ import annotations

import io
import math
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.analysis.report.markup import shorten
from plait.analysis.report.style import HATCH, RC, STRONGEST, colour, series_marker, series_role
from plait.analysis.report.vectors import embed
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
        "pictures are drawn by matplotlib, which is not installed: pip install 'plait[report]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from plait.analysis.report.comparison import Difference
    from plait.analysis.report.history import Points
    from plait.inference.calibration import Bin
    from plait.tasks.kind import Floats

WIDTH = 3.6
"""Inches of a panel; shown about 340 pixels wide, which a phone has."""

MOST_LETTERS = 18
"""Of a label beside an axis; the table behind the picture has it whole."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawn picture, ready for the page."""

    title: str
    svg: str
    is_wide: bool


class Easel:
    """Draws pictures for the page, and into a folder of files if there is one."""

    def __init__(self, folder: Path | None = None, drawn: Callable[[str], None] = lambda _: None):
        self.folder, self.drawn = folder, drawn
        self._names: set[str] = set()

    def draw(
        self,
        name: str,
        title: str,
        alt: str,
        plot: Callable[[Figure], None],
        size: tuple[float, float] = (WIDTH, 2.3),
        short: str | None = None,
    ) -> Picture:
        """Draw one picture; `name` is its file's, and the prefix of what is named inside it.

        `short` is the title where what stands around it says the rest.
        """
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", name)
        while name in self._names:
            name += "-"
        self._names.add(name)
        self.drawn(name)
        svg = embed(_save(_build(plot, size), "svg"), name, alt)
        if self.folder is not None:
            figure = _build(plot, size, title)
            for ending in ("svg", "png"):
                (self.folder / f"{name}.{ending}").write_bytes(_save(figure, ending))
        return Picture(short or title, svg, size[0] > WIDTH * 1.02)


def _build(
    plot: Callable[[Figure], None], size: tuple[float, float], title: str | None = None
) -> Figure:
    """Draw; with a title where the picture has to stand alone, and then with its legend."""
    with mpl.rc_context(dict[Any, Any](RC)):
        figure = Figure(figsize=size, layout="constrained")
        plot(figure)
        if title is None:
            figure.patch.set_visible(False)
            return figure
        figure.suptitle(shorten(title, 48), fontsize=RC["axes.titlesize"], fontweight="bold")
        handles = {
            label: handle
            for axes in figure.axes
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.set_figheight(size[1] + 0.25 + 0.2 * math.ceil(len(handles) / 2))
        if handles:
            labels = [shorten(label, 40) for label in handles]
            figure.legend(handles.values(), labels, loc="outside lower center", ncols=2)
        return figure


def _save(figure: Figure, ending: str) -> bytes:
    facts = {"Date": None} if ending == "svg" else {"Software": None}
    file = io.BytesIO()
    with mpl.rc_context(dict[Any, Any](RC)), warnings.catch_warnings():
        # Letters that matplotlib's font lacks, the reader's has.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(file, format=ending, metadata=facts, dpi=200)
    return file.getvalue()


# --- curves ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a picture."""

    label: str
    points: Points
    number: int
    """Which colour and mark it has."""
    dashed: bool = False
    marked: tuple[int, ...] = ()
    """Updates at which it has a ring: those of the model that was kept."""


def curves(
    figure: Figure,
    series: Sequence[Series],
    axis: str,
    span: tuple[float, float] = (-math.inf, math.inf),
) -> None:
    """Draw figures over the updates; the axis ends where no figure can be, outside `span`."""
    axes = figure.subplots()
    _draw_lines(axes, series)
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, span[0]), min(high, span[1]))
    _count_updates(axes, series)
    axes.set_ylabel(axis)


def _count_updates(axes: Axes, series: Sequence[Series]) -> None:
    """Begin at 0, so that how long it took is seen, and pictures of a run can be compared."""
    last = max((step for line in series for step, _ in line.points), default=1)
    axes.set_xlim(0, max(last, 1) * 1.03)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    axes.set_xlabel("updates")


def _draw_lines(axes: Axes, series: Sequence[Series]) -> None:
    for line in series:
        points = [(x, y) for x, y in line.points if math.isfinite(y)]
        if not points:
            continue
        x, y = zip(*points, strict=True)
        ink = colour(series_role(line.number))
        many = len(points) > 30
        axes.plot(
            x,
            y,
            color=ink,
            linestyle=(0, (3, 1.5)) if line.dashed else "-",
            marker=series_marker(line.number) if not many else None,
            markersize=3 if line.dashed else 4,
            markerfacecolor=colour("paper") if line.dashed else ink,
            linewidth=1.1 if line.dashed else 1.6,
            label=line.label,
            clip_on=False,
        )
        for best in line.marked:
            if best in x:
                axes.plot(
                    [best],
                    [y[x.index(best)]],
                    marker="o",
                    markersize=9,
                    markerfacecolor="none",
                    markeredgecolor=colour("ink"),
                    markeredgewidth=0.9,
                    clip_on=False,
                )


def conflicts(figure: Figure, cosines: Sequence[Series], shares: Sequence[Series]) -> None:
    """Draw the cosine of two tasks' gradients above, how often they conflict below."""
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    _draw_lines(above, cosines)
    above.axhline(0, color=colour("muted"), linewidth=0.8)
    furthest = max((abs(y) for s in cosines for _, y in s.points if math.isfinite(y)), default=1)
    # Near 0 the sign is what matters, so the axis is as long on both sides.
    above.set_ylim(-furthest * 1.15 or -1, furthest * 1.15 or 1)
    above.yaxis.set_major_locator(MaxNLocator(4, symmetric=True))
    above.set_ylabel("cosine")
    _draw_lines(below, shares)
    below.set_ylim(0, 1)
    below.yaxis.set_major_locator(MaxNLocator(2))
    below.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    below.set_ylabel("conflict")
    _count_updates(below, shares)


# --- classes -----------------------------------------------------------------------------

MOST_WRITTEN = 12
"""Classes up to which every cell has its share and its count written in it."""


def matrix_size(num_classes: int) -> tuple[float, float]:
    """Return the inches that a confusion matrix takes."""
    side = max(WIDTH - 1.3, 0.22 * num_classes) if num_classes > MOST_WRITTEN else WIDTH - 1.3
    if 7 < num_classes <= MOST_WRITTEN:
        side = 0.42 * num_classes
    return side + 1.3, max(1.6, side * 0.86 + 0.45)


def confusion(figure: Figure, counts: Sequence[Sequence[int]], labels: Sequence[str]) -> None:
    """Draw who was taken for whom: rows true, columns answered, shares of the true class."""
    axes = figure.subplots()
    size = len(labels)
    cells = np.asarray(counts)
    for i, j in zip(*np.nonzero(cells), strict=True):
        share = cells[i, j] / cells[i].sum()
        face = (colour("fill"), share * STRONGEST)
        axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=face, edgecolor="none"))
        if size <= MOST_WRITTEN:
            axes.text(j, i - 0.03, f"{share:.0%}", ha="center", va="bottom")
            axes.text(j, i + 0.06, f"{cells[i, j]:,}", ha="center", va="top", fontsize=6.5)
    for i in range(size):  # a frame, so that what is right is seen without colour
        place = (i - 0.46, i - 0.46)
        axes.add_patch(Rectangle(place, 0.92, 0.92, fill=False, edgecolor=colour("ink"), lw=0.7))
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    every = max(1, size // 25)
    ticks = range(0, size, every)
    names, short = name_classes([shorten(label, MOST_LETTERS) for label in labels])
    axes.set_xticks(ticks, [short[i] for i in ticks])
    axes.set_yticks(ticks, [names[i] for i in ticks])
    axes.set_xlabel("answered")
    axes.set_ylabel("true")
    _bare(axes)


def rows_size(num_rows: int, least: float = 1.2) -> tuple[float, float]:
    """Return the inches that a picture of one row per label takes."""
    return WIDTH, max(least, 0.6 + (0.3 if num_rows <= MOST_WRITTEN else 0.2) * num_rows)


def class_figures(figure: Figure, per_class: Sequence[dict[str, Any]]) -> None:
    """Draw precision, recall and F1 of each class, a mark each."""
    axes = figure.subplots()
    # A little apart, so that equal ones do not hide each other.
    marks = (("precision", ">", 0, -0.2), ("f1", "o", 2, 0.0), ("recall", "s", 1, 0.2))
    for key, marker, number, shift in marks:
        values = [float(entry[key]) for entry in per_class]
        places = [place + shift for place in range(len(per_class))]
        axes.hlines(places, 0, values, color=colour("line"), linewidth=0.7)
        axes.plot(
            values,
            places,
            linestyle="none",
            marker=marker,
            markersize=4.5,
            markerfacecolor=colour("paper") if key == "recall" else colour(series_role(number)),
            markeredgecolor=colour(series_role(number)),
            label={"f1": "F1"}.get(key, key),
            clip_on=False,
        )
    axes.set_xlim(-0.04, 1)
    _label_rows(axes, name_classes([str(entry["label"]) for entry in per_class])[0])


def class_shares(
    figure: Figure, labels: Sequence[str], true: Sequence[int], answered: Sequence[int]
) -> None:
    """Draw how often each class is true and how often it was answered."""
    axes = figure.subplots()
    places = np.arange(len(labels))
    axes.barh(places - 0.19, true, 0.34, color=colour("series-0"), label="true")
    axes.barh(
        places + 0.19,
        answered,
        0.34,
        facecolor="none",
        edgecolor=colour("series-1"),
        hatch=HATCH,
        linewidth=0.9,
        label="answered",
    )
    axes.set_xlabel("rows")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    _label_rows(axes, name_classes(labels)[0])


def _label_rows(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), [shorten(label, MOST_LETTERS + 2) for label in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _bare(axes: Axes) -> None:
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


# --- scores ------------------------------------------------------------------------------

MOST_POINTS = 400
"""Rows up to which each is a point; above, cells are the darker the more fall into them."""


def true_against_answered(
    figure: Figure, true: Floats, answered: Floats, span: tuple[float, float], worst: int | None
) -> None:
    """Draw every row by its true score and the answer, the row missed worst in a ring."""
    axes = figure.subplots()
    low, high = _widen(span, true, answered)
    axes.plot([low, high], [low, high], color=colour("muted"), linewidth=0.8)
    if len(true) <= MOST_POINTS:
        ink = colour("series-0")
        axes.scatter(true, answered, s=14, facecolor=(ink, 0.35), edgecolor=ink, linewidth=0.5)
    else:
        _draw_density(axes, true, answered, low, high)
    if worst is not None:
        place = float(true[worst]), float(answered[worst])
        axes.plot(
            *([end] for end in place),
            marker="o",
            markersize=10,
            markerfacecolor="none",
            markeredgecolor=colour("series-1"),
            markeredgewidth=1.4,
            linestyle="none",
        )
        left = place[0] > (low + high) / 2
        axes.annotate(
            "worst miss",
            place,
            xytext=(-9 if left else 9, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            bbox={"facecolor": (colour("paper"), 0.75), "edgecolor": "none", "pad": 0.5},
        )
    room = (high - low) * 0.04
    axes.set_xlim(low - room, high + room)
    axes.set_ylim(low - room, high + room)
    axes.set_aspect("equal")
    axes.set_xlabel("true score")
    axes.set_ylabel("answered")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6))


def _draw_density(axes: Axes, true: Floats, answered: Floats, low: float, high: float) -> None:
    edges = np.linspace(low, high, 31)
    counts, _, _ = np.histogram2d(true, answered, bins=(edges, edges))
    most = counts.max()
    step = edges[1] - edges[0]
    for i, j in zip(*np.nonzero(counts), strict=True):
        # The root keeps cells of a few rows apart from empty ones.
        strength = STRONGEST * math.sqrt(counts[i, j] / most)
        axes.add_patch(
            Rectangle(
                (float(edges[i]), float(edges[j])),
                float(step),
                float(step),
                facecolor=(colour("fill"), max(strength, 0.08)),
                edgecolor="none",
                linewidth=0,
            )
        )


def score_shares(figure: Figure, true: Floats, answered: Floats, span: tuple[float, float]) -> None:
    """Draw how true scores and answers are spread."""
    axes = figure.subplots()
    edges = np.linspace(*_widen(span, true, answered), 21).tolist()
    finite = answered[np.isfinite(answered)]
    axes.hist(true, edges, color=colour("series-0"), alpha=0.55, label="true")
    axes.hist(
        finite,
        edges,
        histtype="stepfilled",
        facecolor="none",
        edgecolor=colour("series-1"),
        hatch=HATCH,
        linewidth=1.1,
        label="answered",
    )
    axes.set_xlabel("score")
    axes.set_ylabel("rows")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))


def _widen(span: tuple[float, float], *values: Floats) -> tuple[float, float]:
    """Return a range that holds all values."""
    finite = [v[np.isfinite(v)] for v in values]
    ends = [end for v in finite if len(v) for end in (float(v.min()), float(v.max()))]
    return min(span[0], *ends), max(span[1], *ends)


# --- calibration -------------------------------------------------------------------------


def reliability(figure: Figure, sides: Sequence[tuple[str, Sequence[Bin]]]) -> None:
    """Draw how often answers of some confidence are right, and how many there are of each."""
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    above.plot([0, 1], [0, 1], color=colour("muted"), linewidth=0.8)
    for number, (label, bins) in enumerate(sides):
        ink = colour(series_role(number))
        full = [b for b in bins if b.count]
        x = [b.confidence for b in full]
        y = [b.accuracy for b in full]
        low, high = wilson([b.accuracy * b.count for b in full], [b.count for b in full])
        above.vlines(x, low, high, color=ink, linewidth=0.8, alpha=0.7)
        above.plot(
            x,
            y,
            color=ink,
            marker=series_marker(number),
            linestyle="-" if number == 0 else (0, (3, 1.5)),
            markerfacecolor=ink if number == 0 else colour("paper"),
            label=label,
            clip_on=False,
        )
    above.set_xlim(0, 1)
    above.set_ylim(0, 1)
    above.set_ylabel("right")
    _, last = sides[-1]
    ink = colour(series_role(len(sides) - 1))
    below.bar(
        [(b.low + b.high) / 2 for b in last],
        [b.count for b in last],
        last[0].high * 0.9,
        color=(ink, 0.55),
        edgecolor=ink,
        linewidth=0.5,
    )
    below.set_ylabel("rows")
    below.yaxis.set_major_locator(MaxNLocator(2, integer=True))
    below.set_xlabel("how sure")
    below.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    above.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))


# --- differences -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """A difference of one task."""

    label: str
    difference: Difference
    number: int = 0
    """Which colour and mark it has."""


def reach(rows: Sequence[Row]) -> float:
    """Return how far from 0 differences and their intervals go."""
    gaps = [row.difference for row in rows]
    ends = [abs(end) for gap in gaps for end in (gap.value, gap.low, gap.high)]
    return max((end for end in ends if math.isfinite(end)), default=0.0) or 0.01


def differences(figure: Figure, rows: Sequence[Row], axis: str, furthest: float) -> None:
    """Draw differences with their intervals, a row each; to the right of 0 is a gain."""
    axes = figure.subplots()
    axes.axvline(0, color=colour("muted"), linewidth=1)
    for place, row in enumerate(rows):
        gap = row.difference
        if not math.isfinite(gap.value):
            axes.text(0, place, "  none", va="center", color=colour("muted"))
            continue
        ink = colour(series_role(row.number))
        if math.isfinite(gap.low):
            axes.plot([gap.low, gap.high], [place, place], color=ink, linewidth=1.4)
        axes.plot(
            [gap.value],
            [place],
            linestyle="none",
            marker=series_marker(row.number),
            markersize=6,
            markeredgecolor=ink,
            markerfacecolor=ink if gap.is_clear else colour("paper"),
        )
    axes.set_xlim(-furthest * 1.1, furthest * 1.1)
    axes.xaxis.set_major_locator(MaxNLocator(5, symmetric=True))
    axes.set_xlabel(axis)
    _label_rows(axes, [row.label for row in rows])
