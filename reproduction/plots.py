"""Draw the tables and the claims as SVG.

Published scores are hollow diamonds and ours are dots, so that they differ without colour. The same
records give the same bytes.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from reproduction.formatting import number, signed
from reproduction.page import CLAIMS_PICTURE

if TYPE_CHECKING:
    from pathlib import Path

    from reproduction.claims import Judgement
    from reproduction.page import Results
    from reproduction.published import Table
    from reproduction.records import Records

OURS, THEIRS = "#0072B2", "#333333"
"""Blue and grey of Okabe and Ito's colours, which colour-blind people can distinguish."""
FAINT, GRID = "#9a9a9a", "#e6e6e6"

# Hollow and drawn over ours, so that both are visible at the same place.
PUBLISHED = {"ls": "", "marker": "D", "ms": 4.6, "mfc": "none", "mec": THEIRS, "mew": 1.0}
HERE = {"ls": "", "marker": "o", "ms": 5.2, "mfc": OURS, "mec": OURS, "mew": 1.0}
NOISE = HERE | {"mfc": "white"}
SEED = {"ls": "", "marker": "|", "ms": 4, "mew": 0.8, "color": OURS}

STYLE: Any = {
    "svg.hashsalt": "plait",
    "svg.fonttype": "none",  # text stays text: small files that can be searched
    "font.size": 8,
    "axes.linewidth": 0.6,
    "axes.edgecolor": FAINT,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "xtick.color": "#555555",
    "xtick.major.size": 0,
    "ytick.major.size": 0,
}

WIDTH, LINE, TOP, BOTTOM = 9.2, 0.27, 0.62, 0.3
"""Inches: width of a picture, height of a row, space above and below the rows."""


def draw(results: Results, name: str, path: Path) -> None:
    """Draw one picture into a file."""
    with rc_context(STYLE):
        if name == CLAIMS_PICTURE:
            made = _draw_claims([j for j in results.judgements if j.difference])
        else:
            table = next(table for table in results.tables if table.name == name)
            made = _draw_table(table, results.records)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without date and version, which would change the file but not the picture.
        made.savefig(path, metadata={"Date": None, "Creator": None})


# --- tables ------------------------------------------------------------------------------


def _draw_table(table: Table, records: Records) -> Figure:
    """Draw a panel for each score and a line for each row: published, ours, each seed."""
    columns = (*table.tasks, *(name for name in table.summaries if name != "sum"))
    labels = [row.row for row in table.rows]
    made, panels = _make(len(labels), len(columns), longest=max(map(len, labels)))
    for column, panel in zip(columns, panels, strict=True):
        panel.set_title(column)
        theirs = {place: row.score(column) for place, row in enumerate(table.rows)}
        ours = {place: records.scores(row.run, column) for place, row in enumerate(table.rows)}
        printed = {place: value for place, value in theirs.items() if value is not None}
        means = {place: fmean(values) for place, values in ours.items() if values}
        both = sorted(printed.keys() & means.keys())
        panel.hlines(
            both,
            [printed[place] for place in both],
            [means[place] for place in both],
            color=FAINT,
            lw=0.8,
            zorder=2,
        )
        _mark(panel, means, HERE, 4)
        _mark(panel, printed, PUBLISHED, 5)
        seeds = [(value, place + 0.29) for place, values in ours.items() for value in values]
        panel.plot([x for x, _ in seeds], [y for _, y in seeds], zorder=3, **SEED)
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value, 2)))
    _label(panels, labels)
    _explain(made, {"published": PUBLISHED, "here, mean of seeds": HERE, "each seed": SEED})
    return made


# --- claims ------------------------------------------------------------------------------


def _draw_claims(judgements: list[Judgement]) -> Figure:
    """Draw the difference and interval of every tested claim, grouped by report."""
    labels = [f"{j.claim.says} ({j.claim.score})" for j in judgements]
    made, (panel,) = _make(len(labels), 1, longest=max(map(len, labels)))
    panel.axvline(0, color=FAINT, lw=0.8, zorder=1)
    # A few published differences are twenty times the others: logarithmic beyond .02.
    panel.set_xscale("symlog", linthresh=0.02, linscale=1.2)
    significant = {place: j.verdict != "not significant" for place, j in enumerate(judgements)}
    published: dict[int, float] = {}
    firm: dict[int, float] = {}
    noise: dict[int, float] = {}
    for place, judgement in enumerate(judgements):
        found = judgement.difference
        assert found is not None  # the others are not passed
        panel.hlines(
            place, *found.interval, color=OURS, lw=1.6 if significant[place] else 0.8, zorder=2
        )
        (firm if significant[place] else noise)[place] = found.value
        if judgement.claim.published is not None:
            published[place] = judgement.claim.published
        system = judgement.claim.system
        if place == 0 or system != judgements[place - 1].claim.system:
            panel.axhline(place - 0.5, color=FAINT, lw=0.6)
            across = panel.get_yaxis_transform()
            panel.text(
                0.995, place, system, transform=across, ha="right", va="center", weight="bold"
            )
    for layer, points, marker in ((4, firm, HERE), (4, noise, NOISE), (5, published, PUBLISHED)):
        _mark(panel, points, marker, layer)
    low, high = panel.get_xlim()
    steps = (-0.2, -0.05, -0.02, -0.01, 0, 0.01, 0.02, 0.05, 0.2)
    panel.set_xticks([step for step in steps if low <= step <= high])
    panel.set_xlim(low, high * 1.3)  # room for the reports' names
    panel.minorticks_off()
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _difference(value)))
    panel.set_title("difference with 95% interval; logarithmic beyond .02")
    _label([panel], labels)
    _explain(
        made,
        {"published": PUBLISHED, "here, significant": HERE, "here, not significant": NOISE},
    )
    return made


def _difference(value: float) -> str:
    return "0" if value == 0 else signed(value).rstrip("0")


# --- shared parts ------------------------------------------------------------------------


def _make(num_rows: int, num_panels: int, longest: int) -> tuple[Figure, list[Any]]:
    """Make panels side by side, with room for the names of the rows on the left."""
    height = TOP + BOTTOM + LINE * num_rows
    made = Figure(figsize=(WIDTH, height), facecolor="white")
    left = min(0.085 * longest * 8 / 10 + 0.15, 0.55 * WIDTH)  # inches; 8 points a letter's height
    panels = made.subplots(1, num_panels, sharey=True, squeeze=False)[0]
    made.subplots_adjust(
        left=left / WIDTH,
        right=1 - 0.15 / WIDTH,
        top=1 - TOP / height,
        bottom=BOTTOM / height,
        wspace=0.12,
    )
    for panel in panels:
        panel.set_ylim(num_rows - 0.4, -0.6)  # the first row on top
        panel.grid(axis="x", color=GRID, lw=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        panel.margins(x=0.08)
    return made, list(panels)


def _label(panels: list[Any], labels: list[str]) -> None:
    """Name the rows and shade every second one."""
    panels[0].set_yticks(range(len(labels)), labels)
    for panel in panels:
        for place in range(0, len(labels), 2):
            panel.axhspan(place - 0.5, place + 0.5, color="#f6f6f6", lw=0, zorder=0)


def _mark(panel: Any, points: dict[int, float], marker: dict[str, Any], layer: int) -> None:
    """Draw a mark for each row."""
    panel.plot(list(points.values()), list(points), zorder=layer, **marker)


def _explain(made: Figure, marks: dict[str, dict[str, Any]]) -> None:
    """Draw a legend above the panels."""
    made.legend(
        [Line2D([], [], **marker) for marker in marks.values()],
        list(marks),
        loc="upper right",
        ncols=len(marks),
        frameon=False,
        handletextpad=0.2,
        borderpad=0.2,
    )
