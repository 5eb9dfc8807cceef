"""Sections of a report about the answers to the dev set: errors by task, and calibration."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from plait.analysis import plots
from plait.analysis.page import Example, Report, Section, Table, number, percent
from plait.analysis.plots import Panel, draw_panel, shorten
from plait.errors import counted
from plait.inference.calibration import (
    cross_fit,
    fit_scaling,
    fit_temperature,
    measure,
    reliability,
    tells_temperature,
)
from plait.tasks.metrics import name_classes

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.analysis.runs import AnalysedRun
    from plait.inference.calibration import Bin
    from plait.inference.fitting.answers import TaskAnswers
    from plait.tasks.kind import Form

MAX_ERRORS = 3
"""Errors whose texts are shown, per task and run."""
MAX_TEXT = 400
"""Characters shown of a text."""
MAX_CLASSES = 30
"""Classes up to which the confusion matrix has a table."""

# --- errors ------------------------------------------------------------------------------


def show_errors(report: Report) -> Section:
    """Return each task's errors: a confusion matrix or a scatter plot, and the worst answers."""
    reasons = "; ".join(f"{run.name}: {run.unanswered}" for run in report.runs if run.unanswered)
    sections = [
        _task_section(report, task)
        for task in report.tasks
        if any(task in run.scores for run in report.runs)
    ]
    text = "Dev answers compared with the labels, by task."
    return Section("errors", "Errors", text if sections else f"None: {reasons}.", sections=sections)


def _task_section(report: Report, task: str) -> Section:
    runs = [run for run in report.runs if task in run.scores]
    scores, config = runs[0].scores[task], runs[0].config.tasks[task]
    panels: list[tuple[int, Panel]] = []
    examples, tables = [], []
    for run in runs:
        drawn = _DRAW[run.config.tasks[task].kind.form](report, run, task)
        panels += enumerate(drawn)
        tables += _score_tables(report, run, task)
        if task in run.answers and (worst := _worst_answers(run.answers[task])):
            title = "Largest errors" if config.kind.form == "number" else "Most confident errors"
            examples.append((report.title(title, run), worst))
    return Section(
        f"task-{task}",
        task,
        f"{scores.kind}, {counted(scores.num_examples, 'dev row')}. {config.about}".strip(),
        # Panels of the same kind are next to each other.
        panels=[panel for _, panel in sorted(panels, key=lambda entry: entry[0])],
        examples=examples,
        tables=tables,
    )


def _draw_classes(report: Report, run: AnalysedRun, task: str) -> list[Panel]:
    scores, labels = run.scores[task], run.config.tasks[task].labels
    if scores.confusion is None:
        return _draw_labels(report, run, task)
    cells = "share and rows" if len(labels) <= plots.MAX_CELLS else "darker for a larger share"
    matrix = draw_panel(
        report.title("Confusion matrix", run),
        f"Confusion matrix of {task}: {run.describe(task)}.",
        partial(plots.confusion, counts=scores.confusion, labels=labels),
        caption=f"Rows: actual class. Columns: predicted class ({cells}). Frames: right.",
        size=plots.matrix_size(len(labels)),
    )
    return [matrix, *_draw_labels(report, run, task)]


def _draw_labels(report: Report, run: AnalysedRun, task: str) -> list[Panel]:
    scores = run.scores[task]
    if not scores.per_class:
        return []
    panel = draw_panel(
        report.title("Precision, recall and F1", run),
        f"Precision, recall and F1 of {task}: {run.describe(task)}.",
        partial(plots.class_metrics, per_class=scores.per_class),
        size=plots.rows_size(len(scores.per_class), 1.5),
    )
    return [panel]


def _draw_numbers(report: Report, run: AnalysedRun, task: str) -> list[Panel]:
    if task not in run.answers:
        return []
    answers = run.answers[task]
    worst = answers.spec.kind.judge(answers.labels, answers.answers).order()
    plot = partial(
        plots.scatter,
        labels=answers.labels,
        answers=answers.answers,
        span=answers.spec.range,
        worst=int(worst[0]) if len(worst) else None,
    )
    shaded = " Darker cells have more rows." if len(answers.labels) > plots.MAX_POINTS else ""
    panel = draw_panel(
        report.title("Predicted and actual", run),
        f"Predictions and labels of {task}: {run.describe(task)}.",
        plot,
        caption=f"On the line, the prediction is exact.{shaded}",
        size=(plots.WIDTH, 3.1),
    )
    return [panel]


_DRAW: dict[Form, Callable[[Report, AnalysedRun, str], list[Panel]]] = {
    "distribution": _draw_classes,
    "independent": _draw_labels,
    "number": _draw_numbers,
}


def _score_tables(report: Report, run: AnalysedRun, task: str) -> list[Table]:
    """Return all metrics of a task, by class too, and the confusion matrix."""
    scores, noun = run.scores[task], run.config.tasks[task].kind.noun
    names, short = name_classes([str(entry["label"]) for entry in scores.per_class])
    rows = [[name.replace("_", " "), number(value)] for name, value in scores.metrics.items()]
    tables = [Table(report.title(f"Metrics of {task}", run), ["metric", "value"], rows)]
    if scores.per_class:
        rows = [
            [
                name,
                *(number(float(entry[key])) for key in ("precision", "recall", "f1")),
                f"{entry['support']:,}",
            ]
            for name, entry in zip(names, scores.per_class, strict=True)
        ]
        head = [noun, "precision", "recall", "F1", "rows"]
        tables.append(Table(report.title(f"Metrics of {task} by {noun}", run), head, rows))
    if scores.confusion is not None and len(names) <= MAX_CLASSES:
        rows = [[name, *map(str, row)] for name, row in zip(names, scores.confusion, strict=True)]
        caption = report.title(f"Confusion matrix of {task}", run)
        tables.append(Table(caption, ["actual", *short], rows))
    return tables


def _worst_answers(task: TaskAnswers) -> list[Example]:
    """Return the worst answers with their texts."""
    verdicts = task.spec.kind.judge(task.labels, task.answers)
    found = []
    rows = [int(row) for row in verdicts.order()[:MAX_ERRORS]]
    for row, texts in zip(rows, task.dataset.texts(rows) if rows else [], strict=True):
        answer, truth = verdicts.answers[row], verdicts.truths[row]
        if verdicts.confidences is None:
            error = number(float(verdicts.severity[row]), 2)
            note = f"predicted {answer}, actual {truth} (error {error})"
        else:
            sure = percent(float(verdicts.confidences[row]))
            note = f"predicted {answer} ({sure}), actual {truth}"
        note += f"; row {task.dataset.ids[row]}"
        found.append(Example([shorten(text, MAX_TEXT) for text in texts], note))
    return found


# --- calibration -------------------------------------------------------------------------


def show_calibration(report: Report) -> Section | None:
    """Return a reliability diagram per task with one class a row."""
    found = [
        (task, run, run.answers[task])
        for task in report.tasks
        for run in report.runs
        if task in run.answers and run.answers[task].spec.kind.can_scale
    ]
    if not found:
        return None
    panels, rows, bins = [], [], []
    for task, run, answers in found:
        sides = [("uncalibrated", reliability(answers.labels, answers.uncalibrated))]
        if answers.scaling is not None:
            sides.append(("calibrated", reliability(answers.labels, answers.answers)))
        full = [b for b in sides[-1][1] if b.count]
        error = number(measure(answers.labels, answers.answers)["ece"])
        panels.append(
            draw_panel(
                report.title(task, run),
                f"Reliability of {task}: expected calibration error {error}.",
                partial(plots.reliability, sides=sides),
                caption=f"Expected calibration error {error}.",
                size=(plots.WIDTH, 3.1),
            )
        )
        rows.append([task, run.name, *_temperature_cells(answers)])
        bins += [[task, run.name, *_bin_cells(b)] for b in full]
    head = ["task", "run", "temperature", "ECE", "log loss", "ECE, scaled", "log loss, scaled"]
    caption = (
        "Calibration error and log loss, before and after temperature scaling (two-fold "
        "cross-validated on dev). `plait calibrate` saves a temperature."
    )
    bin_head = ["task", "run", "bin", "confidence", "accuracy", "rows"]
    return Section(
        "calibration",
        "Calibration",
        "Of answers with a confidence of 80%, 80% should be right. Below the diagonal, the model "
        "is overconfident. Vertical bars: 95% intervals.",
        panels=panels,
        tables=[
            Table(caption, head, rows, 3, is_open=True),
            Table("Accuracy by confidence", bin_head, bins, 3),
        ],
    )


def _temperature_cells(answers: TaskAnswers) -> list[str]:
    labels, given, kept = answers.labels, answers.uncalibrated, answers.scaling
    before = measure(labels, given)
    cells = [number(before[key]) for key in ("ece", "log_loss")]
    if kept is None and not tells_temperature(labels, given):
        return ["too few dev rows", *cells, "", ""]
    after = measure(labels, cross_fit(labels, given, fit_scaling, answers.groups))
    cells += [number(after[key]) for key in ("ece", "log_loss")]
    if kept is None:
        return [f"{number(fit_temperature(labels, given), 2)} (not saved)", *cells]
    return [f"{number(kept.temperature, 2)} (saved)", *cells]


def _bin_cells(b: Bin) -> list[str]:
    ends = f"{percent(b.low)} to {percent(b.high)}"
    return [ends, number(b.confidence), number(b.accuracy), f"{b.count:,}"]
