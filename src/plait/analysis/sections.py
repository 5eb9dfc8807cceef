"""The sections of a report, in the order of the page."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.analysis import plots
from plait.analysis.answer_sections import show_calibration, show_errors
from plait.analysis.comparison import Difference, compare_answers
from plait.analysis.page import Report, Section, Table, number, percent, signed
from plait.analysis.plots import Panel, Series, draw_panel
from plait.config import list_settings, to_toml
from plait.errors import counted
from plait.inference.baselines import list_shortfalls
from plait.inference.intervals import DRAWS
from plait.tasks.metrics import metric_span, summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plait.analysis.runs import AnalysedRun, Points

MAX_PAIRS = 12
"""Pairs of tasks with a panel of their gradients' conflicts; the table has all."""
HOW_TO_READ = (
    f"Bars: 95% paired-bootstrap interval ({DRAWS:,} samples). Filled markers: the interval "
    "excludes 0."
)

# --- summary and comparison --------------------------------------------------------------


def summarise_scores(report: Report) -> Section:
    """Return each task's primary metric beside its best baseline."""
    names = ["model"] if report.is_single else [run.name for run in report.runs]
    head = ["task", *names, "baseline", "dev rows", "metric", "kind", "best baseline"]
    rows, notes = [], []
    for task in report.tasks:
        owner = report.owner(task)
        scores, (best, value) = owner.scores.get(task), owner.best_baseline(task) or ("none", None)
        row = [task, *(number(run.value(task)) for run in report.runs), number(value)]
        row += ["none" if scores is None else f"{scores.num_examples:,}"]
        rows.append([*row, owner.metric_name(task), owner.config.tasks[task].kind.name, best])
    for key, title in (
        ("mean", "average score"),
        ("overall", "average score, correlations as (1 + r) / 2"),
    ):
        cells = [title, *(number(_average(run)[key]) for run in report.runs)]
        rows.append(cells + [""] * (len(head) - len(cells)))
    for run in report.runs:
        sentences = list_shortfalls(run.result, run.config.tasks, number)
        notes += [report.title(f"{sentence}.", run) for sentence in sentences]
    return Section(
        "summary",
        "Summary",
        "Each task's primary metric on the dev set. The baseline is the best of several models "
        "that train no encoder: the majority class (or the mean label) and, where measured, linear "
        "models of frozen vectors and of TF-IDF.",
        notes=notes,
        tables=[Table("Primary metrics on the dev set", head, rows, is_open=True)],
    )


def _average(run: AnalysedRun) -> dict[str, float]:
    values = {task: run.value(task) for task in run.scores}
    primary = {task: math.nan if value is None else value for task, value in values.items()}
    return summarise(primary, {task: run.config.tasks[task].kind for task in primary})


def compare_runs(report: Report) -> Section | None:
    """Return the differences of all runs from the first; None for one run."""
    if report.is_single:
        return None
    first = report.runs[0]
    gaps = {
        run.name: {
            task: _subtract(report, task, run, first) for task in run.scores if task in first.scores
        }
        for run in report.runs[1:]
    }
    return Section(
        "comparison",
        f"Comparison with {first.name}",
        f"Differences from {first.name} on the same dev rows. {HOW_TO_READ} Intervals are about "
        "the choice of dev rows, not of the seed.",
        panels=_difference_panels(gaps, "difference", 1),
        tables=_difference_tables(report, gaps, "Differences", first.name),
    )


def compare_with_alone(report: Report) -> Section | None:
    """Return the differences of the runs from single-task runs; None without these."""
    if not report.alone:
        return None
    gaps = {
        run.name: {
            task: _subtract(report, task, run, single)
            for task, single in report.alone.items()
            if task in run.answers and task in single.answers
        }
        for run in report.runs
    }
    clear = [gap.value for by_task in gaps.values() for gap in by_task.values() if gap.is_clear]
    better, total = sum(value > 0 for value in clear), sum(map(len, gaps.values()))
    return Section(
        "joint",
        "Joint and single-task training",
        "Each task trained jointly, compared with the task trained alone. Joint training is "
        f"significantly better for {better} of {counted(total, 'score')} and worse for "
        f"{len(clear) - better}. {HOW_TO_READ}",
        panels=_difference_panels(gaps, "joint minus alone", 0),
        tables=_difference_tables(report, gaps, "Joint and single-task scores", "alone"),
    )


def _subtract(report: Report, task: str, run: AnalysedRun, other: AnalysedRun) -> Difference:
    """Return the difference of a task's primary metric; without interval for other rows."""
    metric = run.metric(task)
    ours, theirs = run.answers.get(task), other.answers.get(task)
    if ours is None or theirs is None or not ours.has_rows_of(theirs):
        theirs_value = other.scores[task].metrics.get(metric, math.nan)
        return Difference(run.scores[task].metrics[metric], theirs_value)
    progress = partial(report.progress, f"comparing {task}")
    found = compare_answers(ours.spec, ours.labels, ours.answers, theirs.answers, progress=progress)
    return found.metrics[metric]


def _difference_tables(
    report: Report, gaps: Mapping[str, Mapping[str, Difference]], caption: str, other: str
) -> list[Table]:
    rows = [
        [task, run.name, run.metric_name(task), number(gap.against), number(gap.run)]
        + [signed(value) for value in (gap.value, gap.interval.low, gap.interval.high)]
        for run in report.runs
        for task, gap in gaps.get(run.name, {}).items()
    ]
    head = ["task", "run", "metric", other, "this run", "difference", "low", "high"]
    return [Table(caption, head, rows, 3)] if rows else []


def _difference_panels(
    by_run: Mapping[str, Mapping[str, Difference]], xlabel: str, first: int
) -> list[Panel]:
    """Draw each run's differences, all on one scale; `first` is the first run's number."""
    gaps = [gap for by_task in by_run.values() for gap in by_task.values()]
    ends = [abs(v) for g in gaps for v in (g.value, g.interval.low, g.interval.high)]
    limit = max((end for end in ends if math.isfinite(end)), default=0.0) or 0.01
    return [
        draw_panel(
            name,
            f"{xlabel} of {name}: "
            + ", ".join(f"{task} {signed(gap.value)}" for task, gap in by_task.items()),
            partial(plots.differences, by_task=by_task, xlabel=xlabel, limit=limit, number=place),
            size=plots.rows_size(len(by_task)),
        )
        for place, (name, by_task) in enumerate(by_run.items(), first)
        if by_task
    ]


# --- learning curves ---------------------------------------------------------------------


def plot_learning(report: Report) -> Section:
    """Return each task's metric over the steps, and the losses where only these were logged."""
    panels, rows = [], []

    def add(task: str, what: str, series: list[Series], span: tuple[float, float]) -> None:
        ends = "; ".join(f"{line.label} {_ends(line.points)}" for line in series)
        plot = partial(plots.curves, series=series, ylabel=what.split()[-1], span=span)
        panels.append(draw_panel(f"{task}: {what}", f"{what} of {task} by step: {ends}.", plot))

    for task in report.tasks:
        owner, series = report.owner(task), []
        metric, name = owner.metric(task), owner.metric_name(task)
        for place, run in enumerate(report.runs):
            for split in ("train", "dev"):
                points = run.history.score(split, task, metric)
                label = split if report.is_single else f"{run.name}, {split}"
                best = run.result.get("best_step") if split == "dev" else None
                if points:
                    series.append(Series(label, points, place, split == "train", best))
                rows += _point_rows(task, run, split, name, points)
        if series:
            add(task, name, series, metric_span(metric))
    losses = [name for run in report.runs for name in run.history.losses]
    for name in dict.fromkeys([*report.tasks, *losses]):
        series = []
        for place, run in enumerate(report.runs):
            points = run.history.losses.get(name, [])
            if points and name not in run.history.scores.get("train", {}):
                series.append(Series(run.name, points, place, dashed=True))
                rows += _point_rows(name, run, "train", "loss", points)
        if series:
            add(name, "training loss", series, (-math.inf, math.inf))
    text = (
        "Dev scores by step, with a ring around the model that was kept. Dashed: scores of "
        "training rows, or the training loss. If training scores rise while dev scores do not, "
        "the model is overfitting."
    )
    configs = [run.config for run in report.runs]
    if any(c.stage_config(name).eval_limit is not None for c in configs for name in c.stages):
        text += " During training, only a sample of the dev rows was scored (`eval_limit`)."
    head = ["task", "run", "split", "metric", "step", "value"]
    return Section(
        "learning",
        "Learning curves",
        text if panels else "The runs logged no scores or losses.",
        panels=panels,
        tables=[Table("Scores and losses by step", head, rows, 4)] if rows else [],
    )


def _point_rows(
    task: str, run: AnalysedRun, split: str, metric: str, points: Points
) -> list[list[str]]:
    return [[task, run.name, split, metric, f"{step:,}", number(value)] for step, value in points]


def _ends(points: Points) -> str:
    (first, start), (last, end) = points[0], points[-1]
    return f"{number(start)} at step {first:,}, {number(end)} at step {last:,}"


# --- gradient conflicts ------------------------------------------------------------------


def show_conflicts(report: Report) -> Section | None:
    """Return a panel per pair of tasks whose gradients were logged."""
    found = [
        (pair, place, run, run.history.conflicts[pair])
        for place, run in enumerate(report.runs)
        for pair in run.history.conflicts
    ]
    if not found:
        return None
    most: dict[tuple[str, str], float] = {}
    for pair, _, _, curves in found:
        share = _mean(curves["share"])
        most[pair] = max(most.get(pair, 0.0), share if math.isfinite(share) else 0.0)
    panels: list[Panel] = []
    rows = []
    for pair in sorted(most, key=lambda pair: -most[pair]):
        name, ours = " and ".join(pair), [entry[1:] for entry in found if entry[0] == pair]
        cells = [
            [name, run.name, number(_mean(curves["cosine"])), percent(_mean(curves["share"]))]
            for _, run, curves in ours
        ]
        rows += cells
        if len(panels) < MAX_PAIRS:
            summary = "; ".join(
                f"{run} {cosine}, {share} of steps" for _, run, cosine, share in cells
            )
            cosines, shares = (
                [Series(run.name, curves[key], place) for place, run, curves in ours]
                for key in ("cosine", "share")
            )
            panels.append(
                draw_panel(
                    name,
                    f"Mean cosine of the gradients of {name}, and conflicts: {summary}.",
                    partial(plots.conflicts, cosines=cosines, shares=shares),
                    size=(plots.WIDTH, 2.8),
                )
            )
    left = len(most) - len(panels)
    more = f" The table has {counted(left, 'more pair')}." if left else ""
    head = ["tasks", "run", "mean cosine", "conflicting steps"]
    return Section(
        "conflicts",
        "Gradient conflicts",
        "Top: cosine of two tasks' gradients on the shared encoder; below 0 they conflict. Bottom: "
        f"share of the steps with a conflict. The pairs with most conflicts come first.{more}",
        panels=panels,
        tables=[Table("Means over all logged steps", head, rows, 2)],
    )


def _mean(points: Points) -> float:
    values = [value for _, value in points if math.isfinite(value)]
    return float(np.mean(values)) if values else math.nan


# --- reproducibility ---------------------------------------------------------------------


def show_settings(report: Report) -> Section:
    """Return the settings, versions, data and hardware of every run."""
    runs, names = report.runs, [run.name for run in report.runs]
    facts = [_facts(run) for run in runs]
    keys = dict.fromkeys(key for found in facts for key in found)
    rows = [[key, *(found.get(key, "unknown") for found in facts)] for key in keys]
    tables = [Table("Training", ["", *names], rows, len(names) + 1, is_open=True)]
    counts: dict[str, list[str]] = {}
    for place, run in enumerate(runs):
        for split, tasks in run.info.get("data", {}).items():
            for task, entry in tasks.items():
                row = counts.setdefault(f"{task}, {split}", ["none"] * len(runs))
                row[place] = f"{entry['rows']:,}"
    if counts:
        rows = [[key, *row] for key, row in counts.items()]
        tables.append(Table("Rows read", ["data", *names], rows, is_open=True))
    encoders = dict.fromkeys(run.info.get("encoder", {}).get("notes", "") for run in runs)
    notes = [f"Encoder: {text}" for text in encoders if text]
    differing = different_settings(report)
    if differing:
        rows = [[key, *values] for key, values in differing.items()]
        head = ["setting", *names]
        tables.append(Table("Different settings", head, rows, len(names) + 1, is_open=True))
    elif not report.is_single:
        notes.append("All settings are the same.")
    return Section(
        "reproducibility",
        "Reproducibility",
        "Settings, data, versions and hardware of the training.",
        notes=notes,
        tables=tables,
        code=[(f"All settings of {run.name}", to_toml(run.config)) for run in runs],
    )


def different_settings(report: Report) -> dict[str, list[str]]:
    """Return the settings that are not the same in all runs, one value a run."""
    tables = [list_settings(run.config) for run in report.runs]
    keys = dict.fromkeys(key for table in tables for key in table)
    rows = {key: [table.get(key) for table in tables] for key in keys}
    return {
        key: ["unset" if value is None else str(value) for value in values]
        for key, values in rows.items()
        if any(value != values[0] for value in values[1:])
    }


def _facts(run: AnalysedRun) -> dict[str, str]:
    info, result, config = run.info, run.result, run.config
    encoder: dict[str, Any] = info.get("encoder", {})
    memory, seconds = result.get("peak_memory_mib"), result.get("seconds")
    found: dict[str, object] = {
        "folder": run.folder,
        "members": ", ".join(member.name for member in run.members),
        "recipe": config.name,
        "seed": config.seed,
        "encoder": encoder.get("origin"),
        "encoder revision": encoder.get("revision"),
        "encoder sha256": (encoder.get("sha256") or "")[:12],
        "maximum length": f"{config.encoder.max_length} tokens",
        "steps": result.get("steps"),
        "best step": result.get("best_step"),
        "time": None if seconds is None else _clock(seconds),
        "peak GPU memory": None if memory is None else f"{memory:,} MiB",
        "hardware": info.get("device"),
        "threads": info.get("threads"),
        "precision": info.get("precision"),
        "average of": ", ".join(each["run"] for each in info.get("averaged", ())),
        "teachers": ", ".join(info.get("teachers", ())),
        "plait": info.get("plait"),
        "Python": info.get("python"),
        "torch": info.get("torch"),
    }
    return {key: str(value) for key, value in found.items() if value not in (None, "")}


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h" if hours else f"{minutes}:{rest:02} min"


SECTIONS: tuple[Callable[[Report], Section | None], ...] = (
    summarise_scores,
    compare_runs,
    plot_learning,
    show_errors,
    show_calibration,
    show_conflicts,
    compare_with_alone,
    show_settings,
)
"""In the order of the page."""
