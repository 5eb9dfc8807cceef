"""Find a run's worst mistakes in a task, the slices they gather in, and similar training rows."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from plait.analysis.comparison import Comparison, compare_answers
from plait.analysis.slices import SliceScore, cut_slices, score_slices, split_words
from plait.inference.frozen import top_rows
from plait.inference.intervals import DRAWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from plait.data import Dataset, Place
    from plait.inference.predictor import Answerer, Progress, SingleModel
    from plait.tasks import TaskSpec, Verdicts
    from plait.tasks.kind import Bools, Floats

    Texts = tuple[str, ...]

# --- the result --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """A row with its label and its place in a file."""

    texts: Texts
    truth: str
    id: str
    place: Place

    def to_json(self) -> dict[str, Any]:
        """Return plain values; the place as the file and the line, or row."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        place = values.pop("place")
        if "nearest" in values:
            values["nearest"] = [near.to_json() for near in values["nearest"]]
        return {"file": str(place.path), place.unit: place.number} | values


@dataclass(frozen=True, slots=True)
class Neighbour(LabelledRow):
    """A training row similar to another row."""

    similarity: float
    """Cosine similarity of the embeddings; of a pair, the mean of both texts."""
    is_copy: bool
    """Whether it differs at most in case, punctuation, spacing or the order of a pair."""


@dataclass(frozen=True, slots=True)
class Mistake(LabelledRow):
    """A row with a model's answer."""

    answer: str
    confidence: float | None
    """None for numbers."""
    severity: float
    """Confidence in a wrong answer, or the distance from the label."""
    against: str | None = None
    """The other run's answer, if there is one."""
    nearest: tuple[Neighbour, ...] = ()
    """The most similar training rows, copies first."""


@dataclass(frozen=True, slots=True)
class Mistakes:
    """A run's mistakes in one task."""

    task: str
    spec: TaskSpec
    verdicts: Verdicts
    metrics: dict[str, float]
    worst: list[Mistake]
    slices: list[SliceScore]
    comparison: Comparison | None
    fixed: list[Mistake] = field(default_factory=list)
    """The first few rows that the run answers right and the other run wrong."""
    broken: list[Mistake] = field(default_factory=list)
    """The first few rows that the run answers wrong and the other run right."""

    @property
    def num_rows(self) -> int:
        """Number of answered rows."""
        return len(self.verdicts.quality)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; NaN is written as null."""
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


def find_mistakes(
    model: Answerer,
    task: str,
    dataset: Dataset,
    *,
    answers: Floats | None = None,
    against: Floats | None = None,
    top: int = 5,
    train: Dataset | None = None,
    embedder: SingleModel | None = None,
    draws: int = DRAWS,
    progress: Progress | None = None,
) -> Mistakes:
    """Find a model's worst mistakes in a task's labelled rows, and the slices they gather in.

    `answers` are the model's to these rows, if they are known, and `against` those of another
    run. Training rows add a slice of rows with unknown words; with an `embedder` as well, each
    of the worst mistakes gets its most similar training rows.
    """
    spec, labels, seed = model.task(task).spec, _labels(dataset), model.config.seed
    answers = model.answer(task, dataset) if answers is None else answers
    verdicts = spec.kind.judge(labels, answers)
    known = None if train is None else _known_words(train, _named(progress, "reading words"))
    slices = cut_slices(dataset.texts(), known=known, truncated=_truncated(dataset))
    comparison = None
    if against is not None:
        comparing = _named(progress, "comparing")
        comparison = compare_answers(
            spec, labels, answers, against, seed=seed, draws=draws, progress=comparing
        )
    worst = verdicts.order()[:top].tolist()
    nearest = None
    if train is not None and embedder is not None and worst:
        nearest = find_nearest(
            embedder,
            dataset.select(worst),
            train,
            spec,
            own=worst if train is dataset else None,
            seed=seed,
            progress=_named(progress, "embedding training rows"),
        )
    fixed = [] if comparison is None else comparison.fixed[:top].tolist()
    broken = [] if comparison is None else comparison.broken[:top].tolist()
    return Mistakes(
        task,
        spec,
        verdicts,
        spec.kind.score(labels, answers).metrics,
        _describe(worst, dataset, verdicts, comparison, nearest),
        score_slices(verdicts, slices, np.random.default_rng(seed)),
        comparison,
        _describe(fixed, dataset, verdicts, comparison),
        _describe(broken, dataset, verdicts, comparison),
    )


def list_mistakes(found: Mistakes, dataset: Dataset) -> list[tuple[str, Mistake]]:
    """Return every mistake, the worst first, each with its change: "", "fixed" or "broken".

    Compared with another run, the fixed rows come last.
    """
    order, changes, comparison = found.verdicts.order(), dict[int, str](), found.comparison
    if comparison is not None:
        changes |= dict.fromkeys(comparison.broken.tolist(), "broken")
        changes |= dict.fromkeys(comparison.fixed.tolist(), "fixed")
        order = np.concatenate([order, comparison.fixed[~np.isin(comparison.fixed, order)]])
    rows = order.tolist()
    mistakes = _describe(rows, dataset, found.verdicts, comparison)
    return [(changes.get(row, ""), mistake) for row, mistake in zip(rows, mistakes, strict=True)]


def _describe(
    rows: Sequence[int],
    dataset: Dataset,
    verdicts: Verdicts,
    comparison: Comparison | None,
    nearest: Sequence[tuple[Neighbour, ...]] | None = None,
) -> list[Mistake]:
    """Return answered rows with their texts, places and answers."""
    if not rows:
        return []
    texts, places, sure = dataset.texts(rows), dataset.find_places(rows), verdicts.confidences
    return [
        Mistake(
            texts[i],
            verdicts.truths[row],
            dataset.ids[row],
            places[i],
            verdicts.answers[row],
            None if sure is None else float(sure[row]),
            float(verdicts.severity[row]),
            None if comparison is None else comparison.answers[row],
            () if nearest is None else nearest[i],
        )
        for i, row in enumerate(rows)
    ]


def _labels(dataset: Dataset) -> NDArray[Any]:
    assert dataset.labels is not None, f"{dataset.name} is unlabelled"
    labels: NDArray[Any] = dataset.labels.numpy()
    return labels


def _known_words(train: Dataset, progress: Callable[[int, int], None] | None) -> frozenset[str]:
    """Return every word of the training rows."""
    known: set[str] = set()
    for done, texts in enumerate(train.read_texts(), 1):
        known.update(word for text in texts for word in split_words(text))
        if progress is not None and done % 1000 == 0:
            progress(done, len(train))
    return frozenset(known)


def _truncated(dataset: Dataset) -> Bools:
    """Return which rows have a text with more tokens than the encoder reads."""
    columns = [column.lengths.numpy() > dataset.limit for column in dataset.tokens]
    found: Bools = np.any(columns, axis=0)
    return found


def _named(progress: Progress | None, what: str) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, total: progress(what, done, total)


# --- similar training rows ---------------------------------------------------------------

NUM_NEAREST = 2
"""Training rows shown beside a mistake."""
MAX_TRAIN_ROWS = 20_000
"""Training rows compared; of more, so many are drawn, and copies are added."""
CHUNK = 512
"""Training rows embedded at a time."""


def find_nearest(
    embedder: SingleModel,
    queries: Dataset,
    train: Dataset,
    spec: TaskSpec,
    *,
    own: Sequence[int] | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[tuple[Neighbour, ...]]:
    """Return the training rows most similar to each query, copies first.

    The texts of a pair are embedded one by one; two pairs are compared in the order that is more
    similar. If the queries are training rows, `own` are their row numbers, which are left out.
    """
    chosen = np.ones(len(train), bool)
    if len(train) > MAX_TRAIN_ROWS:
        chosen = np.isin(train.fingerprints, queries.fingerprints)
        drawn = np.random.default_rng(seed).choice(len(train), MAX_TRAIN_ROWS, replace=False)
        chosen[drawn] = True
    rows = np.flatnonzero(chosen)
    vectors = torch.cat(list(_embed(embedder, train, chosen, progress)))
    wanted = torch.cat(list(_embed(embedder, queries, np.ones(len(queries), bool), None)))
    copies = torch.from_numpy(queries.fingerprints[:, None] == train.fingerprints[rows])

    def score(some: Tensor) -> Tensor:
        straight = torch.einsum("atw,btw->ab", wanted[some], vectors)
        turned = torch.einsum("atw,btw->ab", wanted[some].flip(1), vectors)
        near = torch.maximum(straight, turned).double() / wanted.shape[1]
        near += 2 * copies[some]  # above every similarity
        if own is not None:
            near[torch.tensor(own)[some, None] == torch.from_numpy(rows)] = -torch.inf
        return near

    places, scores = top_rows(score, len(queries), len(rows), NUM_NEAREST)
    needed = sorted({int(rows[place]) for place in places.flatten()})
    described = {
        row: (texts, truth, train.ids[row], where)
        for row, texts, truth, where in zip(
            needed,
            train.texts(needed),
            spec.kind.write(_labels(train)[needed]),
            train.find_places(needed),
            strict=True,
        )
    }
    return [
        tuple(
            Neighbour(
                *described[int(rows[place])],
                float(value - 2 * copies[query, place]),
                bool(copies[query, place]),
            )
            for place, value in zip(near, values, strict=True)
            if torch.isfinite(value)
        )
        for query, (near, values) in enumerate(zip(places, scores, strict=True))
    ]


def _embed(
    embedder: SingleModel,
    dataset: Dataset,
    chosen: Bools,
    progress: Callable[[int, int], None] | None,
) -> Iterator[Tensor]:
    """Yield normalised vectors of the chosen rows, [rows, texts, width], in chunks."""
    texts = (row for row, is_chosen in zip(dataset.read_texts(), chosen, strict=True) if is_chosen)
    done, total = 0, int(chosen.sum())
    while chunk := list(islice(texts, CHUNK)):
        flat = torch.from_numpy(embedder.embed([text for row in chunk for text in row]))
        yield torch.nn.functional.normalize(flat, dim=1).view(len(chunk), -1, flat.shape[1])
        done += len(chunk)
        if progress is not None:
            progress(done, total)
