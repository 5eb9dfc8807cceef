"""What they answer: each task's right and wrong answers, by its kind."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from plait.analysis.report import plots
from plait.analysis.report.markup import (
    Entry,
    Html,
    details,
    grid,
    join,
    legend,
    number,
    panel,
    percent,
    section,
    shorten,
    table,
    tag,
)
from plait.analysis.report.mistakes import near_misses
from plait.analysis.report.sections.material import Material
from plait.errors import counted
from plait.tasks.metrics import name_classes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from plait.analysis.report.subjects import Subject
    from plait.inference.fitting.answers import TaskAnswers
    from plait.tasks import TaskScores, Verdicts
    from plait.tasks.kind import Form

MOST_SHOWN = 3
"""Misses whose texts are shown."""
MOST_LETTERS = 400
"""Of a text."""
MOST_CLASSES = 30
"""Up to which the table shows who was taken for whom."""


def write(material: Material) -> Html:
    """Write a part for every task that was scored."""
    parts = [_write_task(material, task) for task in material.tasks]
    written = [part for part in parts if part is not None]
    if not written:
        silent = "; ".join(f"{s.name}: {s.why_silent}" for s in material.subjects if s.why_silent)
        return section("answers", "What it answers", f"There is nothing to show: {silent}.")
    return section(
        "answers",
        "What it answers" if material.is_single else "What they answer",
        "The answers to every dev row, task by task, beside what is true.",
        *written,
    )


@dataclass(frozen=True, slots=True)
class Shown:
    """A picture with what a reader needs to understand it."""

    title: str
    picture: plots.Picture
    sentence: str
    entries: Sequence[Entry] = ()


def _write_task(material: Material, task: str) -> Html | None:
    owners = [s for s in material.subjects if task in s.scores]
    if not owners:
        return None
    pictures: list[Shown] = []
    tables: list[Html] = []
    for subject in owners:
        # A kind that is not listed still has its figures.
        draw = DRAWN[subject.answers[task].spec.kind.form]
        shown, behind = draw(material, subject, task) if draw is not None else ([], [])
        pictures += shown
        behind.append(_figures(subject, task))
        tables += behind if material.is_single else [details(f"Tables of {subject.name}", *behind)]
    scores = owners[0].scores[task]
    about = owners[0].config.tasks[task].about
    told = f"{scores.kind}, {counted(scores.num_examples, 'dev row')}. {about}"
    return tag(
        "article",
        tag("h3", task),
        tag("p", told, class_="note"),
        *_arrange(material, pictures),
        *tables,
        id=f"task-{task}",
    )


def _arrange(material: Material, pictures: Sequence[Shown]) -> Iterable[Html]:
    """Lay out one run's pictures side by side, or each picture of all runs."""
    if material.is_single:
        panels = (panel(p.picture, p.sentence, entries=p.entries) for p in pictures)
        return [grid(panels)] if pictures else []
    groups: dict[str, list[Shown]] = {}
    for picture in pictures:
        groups.setdefault(picture.title, []).append(picture)
    return [
        tag(
            "div",
            tag("h4", title),
            tag("p", group[0].sentence, class_="note"),
            *([legend(group[0].entries)] if group[0].entries else []),
            grid(panel(shown.picture, level="h5") for shown in group),
        )
        for title, group in groups.items()
    ]


def _figures(subject: Subject, task: str) -> Html:
    """Write every figure of a task, and of its classes if it has any."""
    scores = subject.scores[task]
    rows = [[name.replace("_", " "), number(value)] for name, value in scores.metrics.items()]
    parts = [table(["figure", "value"], rows, f"Figures of {task}")]
    if scores.per_class:
        what, title = ("label", "Labels") if scores.confusion is None else ("class", "Classes")
        head = [what, "precision", "recall", "F1", "rows"]
        names, _ = name_classes([str(entry["label"]) for entry in scores.per_class])
        rows = [
            [
                name,
                *(number(float(entry[key])) for key in ("precision", "recall", "f1")),
                f"{entry['support']:,}",
            ]
            for name, entry in zip(names, scores.per_class, strict=True)
        ]
        parts.append(table(head, rows, f"{title} of {task}"))
    return details("Table: figures", *parts)


TRUE_AND_ANSWERED = (Entry("true", "series-0", "bar"), Entry("answered", "series-1", "hatch"))

# --- classes -----------------------------------------------------------------------------

OF_CLASSES = (
    Entry("precision", "series-0", ">"),
    Entry("F1", "series-2", "o"),
    Entry("recall", "series-1", "s", hollow=True),
)


def _draw_classes(
    material: Material, subject: Subject, task: str
) -> tuple[list[Shown], list[Html]]:
    scores = subject.scores[task]
    assert scores.confusion is not None
    labels = subject.config.tasks[task].labels
    counts = np.asarray(scores.confusion)
    draw = partial(_draw, material, subject, task)
    written = (
        "its share, and the rows below it"
        if len(labels) <= plots.MOST_WRITTEN
        else "the larger a share, the darker its cell"
    )
    pictures = [
        draw(
            "confusion",
            "Who was taken for whom",
            f"Confusion matrix: {_tell_recall(scores)}.",
            partial(plots.confusion, counts=scores.confusion, labels=labels),
            f"A row is a true class, spread over what was answered: {written}. What is right is "
            "framed.",
            plots.matrix_size(len(labels)),
        ),
        _draw_found(material, subject, task, "class"),
        draw(
            "shares",
            "How often each class is answered",
            "Rows of each class, true and answered.",
            partial(
                plots.class_shares,
                labels=labels,
                true=counts.sum(axis=1).tolist(),
                answered=counts.sum(axis=0).tolist(),
            ),
            "A class whose hatched bar is the longer one is answered more often than it is true.",
            plots.rows_size(len(labels), 1.5),
            TRUE_AND_ANSWERED,
        ),
    ]
    tables = []
    if len(labels) > 2:
        tables.append(_near(scores, labels))
    if task in subject.answers:
        tables.append(_misses(subject.answers[task]))
    if len(labels) <= MOST_CLASSES:
        names, short = name_classes(labels)
        head = ["true", *(f"as {name}" for name in short)]
        rows = [[name, *map(str, row)] for name, row in zip(names, scores.confusion, strict=True)]
        tables.append(
            details(
                "Table: who was taken for whom",
                table(head, rows, f"Rows of {task} by true class and answer"),
            )
        )
    return pictures, tables


def _draw_labels(material: Material, subject: Subject, task: str) -> tuple[list[Shown], list[Html]]:
    """Draw each label by itself: a row may have any number of them."""
    tables = [_misses(subject.answers[task])] if task in subject.answers else []
    return [_draw_found(material, subject, task, "label")], tables


def _draw_found(material: Material, subject: Subject, task: str, what: str) -> Shown:
    scores = subject.scores[task]
    return _draw(
        material,
        subject,
        task,
        "classes" if what == "class" else "labels",
        f"How well each {what} is found",
        f"Precision, recall and F1 of each {what}: {_tell_recall(scores)}.",
        partial(plots.class_figures, per_class=scores.per_class),
        "Precision: of the rows answered so, how many are right. Recall: of the rows that are so, "
        "how many were found. F1 is between the two.",
        plots.rows_size(len(scores.per_class), 1.5),
        OF_CLASSES,
    )


def _tell_recall(scores: TaskScores) -> str:
    told = [f"{e['label']} {percent(float(e['recall']))} found" for e in scores.per_class[:12]]
    return ", ".join(told) + (", and more" if len(scores.per_class) > 12 else "")


def _near(scores: TaskScores, labels: tuple[str, ...]) -> Html:
    assert scores.confusion is not None
    near = near_misses(scores.confusion)
    if not near.wrong:
        return tag("p", "No answer is wrong.", class_="note")
    told = (
        f"{near.near:,} of {counted(near.wrong, 'wrong answer')} "
        f"({percent(near.near / near.wrong)}) are one class off, in the order of the recipe; where "
        "that order means something, these are near misses."
    )
    head = ["neighbours", "lower taken for upper", "upper taken for lower"]
    rows = [
        [f"{labels[p.lower]} / {labels[p.lower + 1]}", f"{p.upward:,}", f"{p.downward:,}"]
        for p in near.pairs
    ]
    return join(
        tag("p", tag("strong", "Near misses: "), told, class_="note"),
        details("Table: near misses", table(head, rows, "Neighbouring classes")),
    )


# --- scores ------------------------------------------------------------------------------


def _draw_scores(material: Material, subject: Subject, task: str) -> tuple[list[Shown], list[Html]]:
    if task not in subject.answers:
        return [], []
    answers = subject.answers[task]
    true, given, span = answers.labels, answers.answers, answers.spec.range
    draw = partial(_draw, material, subject, task)
    worst = answers.spec.kind.judge(true, given).order()
    pearson = number(subject.scores[task].metrics["pearson"])
    marks = "a point" if len(true) <= plots.MOST_POINTS else "counted in a cell, darker for more"
    pictures = [
        draw(
            "scatter",
            "True score against answer",
            f"True scores against answers, Pearson {pearson}.",
            partial(
                plots.true_against_answered,
                true=true,
                answered=given,
                span=span,
                worst=int(worst[0]) if len(worst) else None,
            ),
            f"Every row is {marks}; on the line, the answer is right.",
            (plots.WIDTH, 3.1),
        ),
        draw(
            "shares",
            "How scores are spread",
            "Histograms of true scores and of answers.",
            partial(plots.score_shares, true=true, answered=given, span=span),
            "Where the hatched shape is narrower, the model shuns high and low scores.",
            (plots.WIDTH, 2.3),
            TRUE_AND_ANSWERED,
        ),
    ]
    steps = (0, 5, 25, 50, 75, 95, 100)
    rows = [
        [name, *(number(float(v), 2) for v in _quantiles(values, steps))]
        for name, values in (
            ("true", true),
            ("answered", given),
            ("answered minus true", given - true),
        )
    ]
    head = ["scores", *(f"{step}%" for step in steps)]
    tables = [
        _misses(answers),
        details(
            "Table: how scores are spread",
            table(head, rows, f"Below which so many percent of {task}'s scores lie"),
        ),
    ]
    return pictures, tables


def _quantiles(values: np.ndarray, steps: tuple[int, ...]) -> list[float]:
    finite = values[np.isfinite(values)]
    return list(np.percentile(finite, steps)) if len(finite) else [float("nan")] * len(steps)


# --- both --------------------------------------------------------------------------------


def _draw(
    material: Material,
    subject: Subject,
    task: str,
    name: str,
    title: str,
    alt: str,
    plot: Callable[..., None],
    sentence: str,
    size: tuple[float, float],
    entries: Sequence[Entry] = (),
) -> Shown:
    single = material.is_single
    picture = material.easel.draw(
        f"{task}-{name}" if single else f"{task}-{name}-{subject.name}",
        material.title(f"{task}: {title[:1].lower()}{title[1:]}", subject),
        f"{task}. {alt}",
        plot,
        size,
        title if single else subject.name,
    )
    return Shown(title, picture, sentence, entries)


def _misses(task: TaskAnswers) -> Html:
    """Show the texts of the rows that were missed most."""
    verdicts = task.spec.kind.judge(task.labels, task.answers)
    misses = [int(row) for row in verdicts.order()[:MOST_SHOWN]]
    if not misses:
        return Html()
    texts = task.dataset.texts(misses)
    items = (
        tag(
            "li",
            (tag("span", shorten(text, MOST_LETTERS), class_="text") for text in row),
            tag("span", f"{_spell(verdicts, miss)}; row {task.dataset.ids[miss]}", class_="note"),
        )
        for miss, row in zip(misses, texts, strict=True)
    )
    title = "Worst misses" if verdicts.right is None else "Surest mistakes"
    return tag("div", tag("h4", title), tag("ol", items), class_="misses")


def _spell(verdicts: Verdicts, row: int) -> str:
    true, answered = verdicts.truths[row], verdicts.answers[row]
    if verdicts.confidences is None:
        distance = number(float(verdicts.severity[row]), 2)
        return f"true {true}, answered {answered}, off by {distance}"
    sure = percent(float(verdicts.confidences[row]))
    return f"true: {true}; answered: {answered}, {sure} sure"


# --- kinds -------------------------------------------------------------------------------

DRAWN: dict[Form, Callable[[Material, Subject, str], tuple[list[Shown], list[Html]]]] = {
    "distribution": _draw_classes,
    "independent": _draw_labels,
    "number": _draw_scores,
}
"""What a kind of task has besides its figures: pictures, and tables behind them. A kind without
an entry is shown by its figures alone."""
