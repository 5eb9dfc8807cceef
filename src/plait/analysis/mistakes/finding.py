"""A run, a task and its labelled rows become one finding: what goes wrong, where, beside what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.analysis.mistakes.comparison import Comparison, compare
from plait.analysis.mistakes.neighbours import MOST, Neighbour, find_nearest
from plait.analysis.mistakes.slices import SliceScore, cut_slices, score_slices
from plait.analysis.mistakes.words import split_words
from plait.inference.intervals import DRAWS
from plait.tasks import Verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from plait.data import Dataset, Place
    from plait.inference.predictor import Answerer, Progress, SingleModel
    from plait.tasks import TaskSpec
    from plait.tasks.kind import Floats


@dataclass(frozen=True, slots=True)
class Row:
    """A row with its label, and where to find it."""

    texts: tuple[str, ...]
    truth: str
    id: str
    place: Place

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        place = {"file": str(self.place.path), self.place.unit: self.place.number}
        return {"id": self.id, **place, "texts": list(self.texts), "truth": self.truth}


@dataclass(frozen=True, slots=True)
class Mistake(Row):
    """A row with what a model made of it."""

    answer: str
    confidence: float | None
    """None for scores."""
    severity: float
    """Confidence in a wrong answer, or the distance from the true score."""
    against: str | None = None
    """What the other run answered, if there is one."""
    nearest: tuple[tuple[Neighbour, Row], ...] = ()
    """Training rows, the nearest first."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        values = Row.to_json(self) | {"answer": self.answer, "confidence": self.confidence}
        values["severity"] = self.severity
        if self.against is not None:
            values["against"] = self.against
        values["nearest"] = [
            row.to_json() | {"similarity": near.similarity, "is_copy": near.is_copy}
            for near, row in self.nearest
        ]
        return values


@dataclass(frozen=True, slots=True)
class Mistakes:
    """What a run gets wrong in one task."""

    task: str
    spec: TaskSpec
    verdicts: Verdicts
    metrics: dict[str, float]
    worst: list[Mistake]
    slices: list[SliceScore]
    comparison: Comparison | None
    fixed: list[Mistake] = field(default_factory=list)
    """The first few rows that the run gets right and the other does not."""
    broken: list[Mistake] = field(default_factory=list)

    @property
    def num_rows(self) -> int:
        """Rows answered."""
        return len(self.verdicts.quality)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        values: dict[str, Any] = {
            "task": self.task,
            "rows": self.num_rows,
            "mistakes": len(self.verdicts.order()),
            "metrics": {k: v if np.isfinite(v) else None for k, v in self.metrics.items()},
            "worst": [mistake.to_json() for mistake in self.worst],
            "slices": [piece.to_json() for piece in self.slices],
        }
        if self.comparison is not None:
            rows = {
                "fixed_rows": [mistake.to_json() for mistake in self.fixed],
                "broken_rows": [mistake.to_json() for mistake in self.broken],
            }
            values["comparison"] = self.comparison.to_json() | rows
        return values


@dataclass(frozen=True, slots=True)
class Other:
    """Another run to compare with, and the same rows as it reads them."""

    answerer: Answerer
    dataset: Dataset


def find_mistakes(
    answerer: Answerer,
    task: str,
    dataset: Dataset,
    *,
    answers: Floats | None = None,
    top: int = 5,
    train: Dataset | None = None,
    embedder: SingleModel | None = None,
    most: int = MOST,
    other: Other | None = None,
    draws: int = DRAWS,
    progress: Progress | None = None,
) -> Mistakes:
    """Find a run's worst mistakes in a task's labelled rows, and the slices they gather in.

    `answers` are the run's to these rows, where somebody has them already.
    With training rows, words that these lack make a slice; with an `embedder` as well, each of
    the worst has its nearest training rows beside it. `most` and `draws` bound the work.
    """
    spec, labels = answerer.task(task).spec, _labels(dataset)
    answers = answerer.answer(task, dataset) if answers is None else answers
    verdicts = spec.kind.judge(labels, answers)
    known = None if train is None else _read_words(train, _named(progress, "reading words"))
    slices = cut_slices(dataset.texts(), known=known, cut=_find_cut(dataset))
    worst = verdicts.order()[:top].tolist()

    def draw() -> np.random.Generator:
        return np.random.default_rng(answerer.config.seed)

    comparison = None
    if other is not None:
        comparison = compare(
            spec,
            labels,
            answers,
            other.answerer.answer(task, other.dataset),
            draw(),
            draws=draws,
            progress=_named(progress, "comparing"),
        )
    beside: list[tuple[tuple[Neighbour, Row], ...]] = []
    if train is not None and embedder is not None:
        nearest = find_nearest(
            embedder,
            dataset.select(worst),
            train,
            draw(),
            own=worst if train is dataset else (),
            most=most,
            progress=_named(progress, "embedding training rows"),
        )
        beside = _describe_nearest(spec, train, nearest)
    describer = _Describer(dataset, verdicts, comparison)
    fixed = [] if comparison is None else comparison.fixed[:top].tolist()
    broken = [] if comparison is None else comparison.broken[:top].tolist()
    return Mistakes(
        task,
        spec,
        verdicts,
        spec.kind.score(labels, answers).metrics,
        describer.describe(worst, beside),
        score_slices(verdicts, slices, draw()),
        comparison,
        describer.describe(fixed),
        describer.describe(broken),
    )


def list_mistakes(found: Mistakes, dataset: Dataset) -> list[tuple[str, Mistake]]:
    """Return every mistake, the worst first, after a word for what became of it.

    Beside another run, the words are fixed and broken, and rows that were fixed come last.
    """
    order = found.verdicts.order()
    words: dict[int, str] = {}
    comparison = found.comparison
    if comparison is not None:
        words |= dict.fromkeys(comparison.broken.tolist(), "broken")
        words |= dict.fromkeys(comparison.fixed.tolist(), "fixed")
        order = np.concatenate([order, comparison.fixed[~np.isin(comparison.fixed, order)]])
    rows = order.tolist()
    mistakes = _Describer(dataset, found.verdicts, comparison).describe(rows)
    return [(words.get(row, ""), mistake) for row, mistake in zip(rows, mistakes, strict=True)]


@dataclass(frozen=True, slots=True)
class _Describer:
    """Puts answered rows into words."""

    dataset: Dataset
    verdicts: Verdicts
    comparison: Comparison | None

    def describe(
        self, rows: Sequence[int], nearest: Sequence[tuple[tuple[Neighbour, Row], ...]] = ()
    ) -> list[Mistake]:
        if not rows:
            return []
        verdicts, sure, comparison = self.verdicts, self.verdicts.confidences, self.comparison
        return [
            Mistake(
                texts,
                verdicts.truths[row],
                self.dataset.ids[row],
                place,
                verdicts.answers[row],
                None if sure is None else float(sure[row]),
                float(verdicts.severity[row]),
                None if comparison is None else comparison.answers[row],
                beside,
            )
            for row, texts, place, beside in zip(
                rows,
                self.dataset.texts(rows),
                self.dataset.find_places(rows),
                nearest or [()] * len(rows),
                strict=True,
            )
        ]


def _describe_nearest(
    spec: TaskSpec, train: Dataset, nearest: Sequence[Sequence[Neighbour]]
) -> list[tuple[tuple[Neighbour, Row], ...]]:
    """Put training rows beside what is near them into words."""
    rows = sorted({neighbour.row for near in nearest for neighbour in near})
    labels = spec.kind.write(_labels(train)[rows])
    texts, places = train.texts(rows), train.find_places(rows)
    found = {row: Row(texts[i], labels[i], train.ids[row], places[i]) for i, row in enumerate(rows)}
    return [tuple((neighbour, found[neighbour.row]) for neighbour in near) for near in nearest]


def _labels(dataset: Dataset) -> NDArray[Any]:
    assert dataset.labels is not None, f"{dataset.name} is unlabelled"
    labels: NDArray[Any] = dataset.labels.numpy()
    return labels


def _read_words(train: Dataset, progress: Callable[[int, int], None] | None) -> frozenset[str]:
    """Return every word of the training rows."""
    known: set[str] = set()
    for done, texts in enumerate(train.read_texts(), 1):
        known.update(word for text in texts for word in split_words(text))
        if progress is not None and done % 1000 == 0:
            progress(done, len(train))
    return frozenset(known)


def _find_cut(dataset: Dataset) -> NDArray[np.bool_]:
    """Return which rows have a text of more tokens than are read."""
    cut = [column.lengths.numpy() > dataset.limit for column in dataset.tokens]
    found: NDArray[np.bool_] = np.any(cut, axis=0)
    return found


def _named(progress: Progress | None, what: str) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, total: progress(what, done, total)
