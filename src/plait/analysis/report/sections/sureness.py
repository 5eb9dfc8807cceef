"""How sure they are: whether probabilities can be believed, and what a temperature does."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from plait.analysis.report import plots
from plait.analysis.report.markup import (
    Entry,
    Html,
    details,
    grid,
    legend,
    number,
    panel,
    percent,
    section,
    table,
)
from plait.analysis.report.sections.material import Material
from plait.inference.calibration import (
    cross_fit,
    fit_scaling,
    fit_temperature,
    measure,
    reliability,
    tells_temperature,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.analysis.report.subjects import Subject
    from plait.inference.calibration import Bin
    from plait.inference.fitting.answers import TaskAnswers


SIDES = (
    Entry("as the model says it", "series-0", "o", "solid"),
    Entry("calibrated", "series-1", "s", "dashed", hollow=True),
)


def write(material: Material) -> Html | None:
    """Write a reliability curve per task with probabilities."""
    told = [
        (task, subject, subject.answers[task])
        for task in material.tasks
        for subject in material.subjects
        if task in subject.answers and subject.answers[task].spec.kind.can_scale
    ]
    if not told:
        return None
    is_calibrated = any(answers.scaling is not None for _, _, answers in told)
    head = ["task", "run", "temperature", "ECE", "log loss", "ECE, scaled", "log loss, scaled"]
    return section(
        "sureness",
        "How sure it is" if material.is_single else "How sure they are",
        "Of answers that are 80% sure, 80% should be right. Below the line the model is surer than "
        "it should be; upright bars are 95% intervals, long where rows are few. The bars below "
        "count rows.",
        *([legend(SIDES)] if is_calibrated else []),
        grid(_draw(material, *found) for found in told),
        table(
            head,
            [_row(*found) for found in told],
            "ECE and log loss, and what they would be under a temperature: each half of dev "
            "scaled by what suits the other half, since one fitted on the same rows looks better "
            "than it is. `plait calibrate` keeps one.",
            num_words=3,
        ),
        details(
            "Table: reliability",
            table(
                ["task", "run", "how sure", "mean", "right", "rows"],
                [row for found in told for row in _bin_rows(*found)],
                "Answers by how sure they are",
                3,
            ),
        ),
    )


def _draw(material: Material, task: str, subject: Subject, answers: TaskAnswers) -> Html:
    sides = _sides(answers)
    error = number(measure(answers.labels, answers.answers)["ece"])
    picture = material.easel.draw(
        f"sure-{task}" if material.is_single else f"sure-{task}-{subject.name}",
        material.title(f"{task}: how sure", subject),
        f"Reliability of {task}: expected calibration error {error}. {_tell(sides[-1][1])}",
        partial(plots.reliability, sides=sides),
        (plots.WIDTH, 3.1),
        material.title(task, subject),
    )
    return panel(picture, f"ECE {error}: how far the curve is from the line, on average.", "h3")


def _bin_rows(task: str, subject: Subject, answers: TaskAnswers) -> list[list[str]]:
    return [
        [
            task,
            subject.name,
            f"{percent(b.low)} to {percent(b.high)}",
            number(b.confidence),
            number(b.accuracy),
            f"{b.count:,}",
        ]
        for b in _sides(answers)[-1][1]
        if b.count
    ]


def _sides(task: TaskAnswers) -> list[tuple[str, Sequence[Bin]]]:
    sides: list[tuple[str, Sequence[Bin]]] = [
        ("as the model says it", reliability(task.labels, task.uncalibrated))
    ]
    if task.scaling is not None:
        sides.append(("calibrated", reliability(task.labels, task.answers)))
    return sides


def _row(task: str, subject: Subject, answers: TaskAnswers) -> list[str]:
    before = measure(answers.labels, answers.uncalibrated)
    kept = answers.scaling
    if kept is None and not tells_temperature(answers.labels, answers.uncalibrated):
        figures = [number(before[key]) for key in ("ece", "log_loss")]
        return [task, subject.name, "dev tells none", *figures, "", ""]
    scaled = cross_fit(answers.labels, answers.uncalibrated, fit_scaling, answers.groups)
    after = measure(answers.labels, scaled)
    would = fit_temperature(answers.labels, answers.uncalibrated)
    told = (
        f"{number(would, 2)} would suit" if kept is None else f"{number(kept.temperature, 2)}, kept"
    )
    figures = [number(side[key]) for side in (before, after) for key in ("ece", "log_loss")]
    return [task, subject.name, told, *figures]


def _tell(bins: Sequence[Bin]) -> str:
    full = [b for b in bins if b.count]
    told = [f"{percent(b.confidence)} sure, {percent(b.accuracy)} right" for b in full]
    return "; ".join(told) + "." if told else ""
