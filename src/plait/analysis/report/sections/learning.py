"""Learning: figures and losses of every task over the updates."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from plait.analysis.report import plots
from plait.analysis.report.markup import Entry, Html, details, grid, number, panel, section, table
from plait.analysis.report.sections.material import Material, run_legend
from plait.tasks.metrics import metric_span

if TYPE_CHECKING:
    from plait.analysis.report.history import Points
    from plait.analysis.report.subjects import Subject


def write(material: Material) -> Html:
    """Write a picture per task, and one of its loss where training rows were not scored."""
    panels, rows = [], []
    for task in material.tasks:
        owners = [s for s in material.subjects if task in s.config.tasks]
        metric = owners[0].metric(task)
        drawn, told = _figure_lines(material, task, metric)
        if drawn:
            picture = material.easel.draw(
                f"learning-{task}",
                f"{task}: {metric.replace('_', ' ')}",
                _alt(task, metric, drawn),
                partial(
                    plots.curves,
                    series=drawn,
                    axis=metric.replace("_", " "),
                    span=metric_span(metric),
                ),
            )
            panels.append(panel(picture, level="h3"))
        rows += told
    more_panels, told = _losses(material)
    panels += more_panels
    rows += told
    lead = (
        "How every task's figure moved with the updates, on dev. A ring is around the model that "
        "was kept. Where the dashed line of training rows leaves dev behind, the task is learnt by "
        "heart."
    )
    if any(_is_limited(subject) for subject in material.subjects):
        lead += " While training, only some dev rows were scored (`eval_limit`)."
    if not panels:
        return section("learning", "Learning", "Nothing was logged that could be drawn.")
    more = [
        Entry("dev", "series-0", "o", "solid"),
        Entry("training rows, or the training loss", "series-0", "o", "dashed", hollow=True),
        Entry("the model that was kept", "ink", "o", hollow=True),
    ]
    if not material.is_single:
        more = [Entry("training rows, or loss", "muted", "o", "dashed", hollow=True), more[2]]
    head = ["task", "run", "split", "figure", "updates", "value"]
    return section(
        "learning",
        "Learning",
        lead,
        run_legend(material, *more),
        grid(panels),
        *(
            [details("Table: figures over time", table(head, rows, "Figures over time", 4))]
            if rows
            else []
        ),
    )


def _figure_lines(
    material: Material, task: str, metric: str
) -> tuple[list[plots.Series], list[list[str]]]:
    drawn, rows = [], []
    for place, subject in enumerate(material.subjects):
        for split in ("train", "dev"):
            points = subject.history.score(split, task, metric)
            if not points:
                continue
            best = subject.result.get("best_step")
            marked = (best,) if split == "dev" and best is not None else ()
            label = split if material.is_single else f"{subject.name}, {split}"
            drawn.append(plots.Series(label, points, place, split == "train", marked))
            rows += [
                [task, subject.name, split, metric.replace("_", " "), f"{step:,}", number(value)]
                for step, value in points
            ]
    return drawn, rows


def _losses(material: Material) -> tuple[list[Html], list[list[str]]]:
    """Draw the losses of runs whose training rows were not scored, and of bare texts."""
    names = {
        name
        for subject in material.subjects
        for name in subject.history.losses
        if not _scores_train(subject, name)
    }
    panels, rows = [], []
    for name in [*(n for n in material.tasks if n in names), *sorted(names - {*material.tasks})]:
        drawn = [
            plots.Series(subject.name, subject.history.losses[name], place, dashed=True)
            for place, subject in enumerate(material.subjects)
            if name in subject.history.losses and not _scores_train(subject, name)
        ]
        picture = material.easel.draw(
            f"loss-{name}",
            f"{name}: training loss",
            _alt(name, "training loss", drawn),
            partial(plots.curves, series=drawn, axis="loss"),
        )
        panels.append(panel(picture, level="h3"))
        rows += [
            [name, line.label, "train", "loss", f"{step:,}", number(value)]
            for line in drawn
            for step, value in line.points
        ]
    return panels, rows


def _is_limited(subject: Subject) -> bool:
    config = subject.config
    return any(config.stage_config(name).eval_limit is not None for name in config.stages)


def _scores_train(subject: Subject, name: str) -> bool:
    return name in subject.history.scores.get("train", {})


def _alt(name: str, what: str, drawn: list[plots.Series]) -> str:
    told = "; ".join(f"{line.label} {_ends(line.points)}" for line in drawn)
    return f"{what.replace('_', ' ')} of {name} over the updates: {told}."


def _ends(points: Points) -> str:
    (first, begins), (last, ends) = points[0], points[-1]
    return f"from {number(begins)} after {first:,} to {number(ends)} after {last:,}"
