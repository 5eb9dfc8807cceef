"""Simple baselines of each task, measured on dev with scikit-learn and cached.

A baseline trains no encoder: the majority class, a regression on the vectors of the encoder as it
is before training, and a regression on TF-IDF of word pieces. A model that does not beat them is
not worth its training.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import uuid
import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from plait.data import ONE_TEXT, Dataset, Ragged, cache_root
from plait.inference.scoring import choose_room
from plait.model.encoder import pool
from plait.model.inference import pack
from plait.tasks.regression import STRENGTH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from plait.model.interface import Encoder
    from plait.tasks import TaskSpec
    from plait.training.build import Parts

    Progress = Callable[[str, int, int], None]
    """Called with a task's name, the texts encoded so far and the texts in all."""

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

FORMAT = 2
"""Version of this module's figures. Raise it with every change of a figure: older cache files are
then ignored."""
MOST_TRAIN = 5_000
"""Training rows of a task that the regressions are fitted to; of more, a random sample."""
MOST_DEV = 2_000
"""Dev rows of a task that the regressions are scored on; of more, a random sample."""
STRENGTHS = (1.0, 10.0)
"""Strengths (C of a logistic regression, 1 / alpha of ridge) that the regression on vectors chooses
from, on a fifth of its training rows."""
MOST_TERMS = 20_000
"""Terms (word pieces, and pairs of neighbours) that TF-IDF keeps: the most frequent ones."""
BATCH = 64
"""Texts that the encoder encodes at once, at least."""

FROZEN = "frozen vectors + regression"
TFIDF = "TF-IDF + regression"
COSINE = "untrained cosine"


# --- measuring ---------------------------------------------------------------------------


def measure(
    parts: Parts,
    train: Mapping[str, Dataset],
    dev: Mapping[str, Dataset],
    progress: Progress | None = None,
) -> dict[str, dict[str, float]]:
    """Return the dev figure of each task's baselines: {task: {baseline: figure}}.

    The figure is the task's own metric; nan where it does not exist, as the correlation of a
    constant. Tasks without labelled training and dev rows are left out. `parts.model` must hold
    the encoder as it is before training; it is not changed. The majority class is scored on all
    dev rows, the others on a sample (MOST_TRAIN, MOST_DEV). Figures are cached on disk.
    """
    get_encoder = cache(partial(_copy_encoder, parts))
    found = {}
    for name in parts.tasks:
        if not (_has_labels(train.get(name)) and _has_labels(dev.get(name))):
            continue
        case = _Case.make(parts, name, train[name], dev[name])
        path = _find_cache_file(parts, name, train[name], dev[name])
        figures = None if path is None else _read(path, case.names)
        if figures is None:
            tell = None if progress is None else partial(progress, name)
            # The weights of a run to start from come with its checkpoint when it is resumed.
            is_untrained = parts.start is None or not parts.start.is_resumed
            vectors = case.score_vectors(parts, get_encoder(), tell) if is_untrained else {}
            known = {case.names[0]: case.score_majority(), TFIDF: case.score_terms(), **vectors}
            figures = {baseline: known.get(baseline, math.nan) for baseline in case.names}
            if path is not None and is_untrained:
                _write(path, figures)
        found[name] = figures
    return found


def _has_labels(dataset: Dataset | None) -> bool:
    return dataset is not None and dataset.labels is not None and len(dataset) > 0


def _copy_encoder(parts: Parts) -> Encoder:
    """Return a copy of the encoder that only answers; on a CPU plait's own BERT is packed."""
    encoder: Encoder = copy.deepcopy(parts.model.encoder).eval()
    if parts.device.type == "cpu":
        encoder = pack(encoder, "fp32", first_only=parts.model.pooling != "mean") or encoder
    return encoder


@dataclass(frozen=True, slots=True)
class _Case:
    """One task with the rows that its baselines are fitted to and scored on."""

    spec: TaskSpec
    metric: str
    train: Dataset
    dev: Dataset
    train_rows: Rows
    dev_rows: Rows

    @classmethod
    def make(cls, parts: Parts, name: str, train: Dataset, dev: Dataset) -> _Case:
        """Draw the rows; the sample depends on the run's seed and the task's name alone."""
        # crc32 of the name: the same number as plait.training.loop.task_seed.
        generator = np.random.default_rng([parts.config.seed, crc32(name.encode())])
        rows = [_draw(generator, len(d), n) for d, n in ((train, MOST_TRAIN), (dev, MOST_DEV))]
        return cls(parts.tasks[name].spec, parts.tasks[name].metric, train, dev, *rows)

    @property
    def names(self) -> list[str]:
        """The task's baselines."""
        has_cosine = self.spec.is_pair and self.spec.kind.form == "number"
        return [self.spec.kind.baseline_name, FROZEN, *([COSINE] if has_cosine else []), TFIDF]

    def score_majority(self) -> float:
        answers = self.spec.kind.baseline(_labels(self.train), len(self.dev))
        return self.spec.kind.score(_labels(self.dev), answers).metrics[self.metric]

    def score_vectors(
        self, parts: Parts, encoder: Encoder, tell: Callable[[int, int], None] | None
    ) -> dict[str, float]:
        """Score the regression on the encoder's vectors, and the bare cosine of scored pairs."""
        columns = len(self.train.tokens)
        total = columns * (len(self.train_rows) + len(self.dev_rows))
        done = 0

        def count(texts: int) -> None:
            nonlocal done
            done += texts
            if tell is not None:
                tell(done, total)

        train = _features(_encode(parts, encoder, self.train, self.train_rows, count))
        dev = _features(_encode(parts, encoder, self.dev, self.dev_rows, count))
        if not (np.isfinite(train).all() and np.isfinite(dev).all()):
            return {}
        found = {FROZEN: self._fit(train, dev, self._choose_strength(train))}
        if COSINE in self.names:
            found[COSINE] = self._score(dev[:, -1])
        return found

    def score_terms(self) -> float:
        """Score the regression on TF-IDF; of a pair, both texts' features side by side."""
        from scipy.sparse import csr_matrix, hstack
        from sklearn.feature_extraction.text import TfidfVectorizer

        train = [_texts(column, self.train_rows) for column in self.train.tokens]
        dev = [_texts(column, self.dev_rows) for column in self.dev.tokens]
        if not any(map(len, chain(*train))):  # no text has a token
            return self._fit(csr_matrix((len(train[0]), 1)), csr_matrix((len(dev[0]), 1)))
        vectorizer = TfidfVectorizer(
            analyzer=_list_terms, sublinear_tf=True, max_features=MOST_TERMS
        ).fit(chain(*train))

        def vectorize(texts: Sequence[list[list[int]]]) -> Any:
            return hstack([vectorizer.transform(column) for column in texts]).tocsr()

        return self._fit(vectorize(train), vectorize(dev))

    def _fit(self, train: Any, dev: Any, strength: float = STRENGTH) -> float:
        """Fit a regression to features, dense or sparse, and return its figure on dev."""
        labels = _labels(self.train)[self.train_rows]
        if len(np.unique(labels, axis=0)) < 2:
            return self._score(self.spec.kind.baseline(labels, len(self.dev_rows)))
        with warnings.catch_warnings():  # a regression that has not quite converged is good enough
            warnings.simplefilter("ignore")
            outputs = self.spec.kind.fit(train, labels, strength)(dev)
        return self._score(self.spec.kind.linear_answers(outputs))

    def _score(self, answers: Floats) -> float:
        labels = _labels(self.dev)[self.dev_rows]
        return self.spec.kind.score(labels, answers).metrics[self.metric]

    def _choose_strength(self, features: Floats) -> float:
        """Return the strength that scores best on a fifth of the training rows, fitted to the rest;
        the first of equals.
        """
        places = np.arange(len(self.train_rows))
        kept, left = places % 5 != 0, places % 5 == 0
        if not kept.any():
            return STRENGTHS[0]
        rows = {"train_rows": self.train_rows[kept], "dev_rows": self.train_rows[left]}
        inner = replace(self, dev=self.train, **rows)
        figures = [inner._fit(features[kept], features[left], s) for s in STRENGTHS]
        return STRENGTHS[int(np.argmax(np.nan_to_num(figures, nan=-math.inf)))]


def _draw(generator: np.random.Generator, count: int, most: int) -> Rows:
    """Return all rows, or a random sample of them, in rising order."""
    if count <= most:
        return np.arange(count)
    return np.sort(generator.choice(count, most, replace=False))


def _labels(dataset: Dataset) -> NDArray[Any]:
    assert dataset.labels is not None
    labels: NDArray[Any] = dataset.labels.numpy()
    return labels


def _encode(
    parts: Parts, encoder: Encoder, dataset: Dataset, rows: Rows, count: Callable[[int], None]
) -> list[Floats]:
    """Return the vectors of each text column, [rows, width] of length 1, each text encoded apart.

    `count` is called with the number of texts in each batch.
    """
    places = torch.empty(len(dataset), dtype=torch.int64)
    places[rows] = torch.arange(len(rows))
    found = []
    for column in dataset.tokens:
        vectors = torch.zeros(len(rows), encoder.width)
        batches = parts.collator.iterate(
            replace(dataset, tokens=(column,)),
            ONE_TEXT,
            BATCH,
            torch.from_numpy(rows),
            choose_room(parts.device),
        )
        with (
            torch.inference_mode(),
            torch.autocast(parts.device.type, parts.autocast, enabled=parts.autocast is not None),
        ):
            for some, batch in batches:
                tokens = batch.to(parts.device).tokens
                pooled = pool(encoder(tokens), tokens.mask, parts.model.pooling)
                vectors[places[some]] = pooled.float().cpu()
                count(len(some))
        found.append(F.normalize(vectors.double(), dim=-1).numpy())
    return found


def _features(vectors: Sequence[Floats]) -> Floats:
    """Return the features of the regression: the vector, or |u-v|, u*v and cosine of a pair."""
    if len(vectors) == 1:
        return vectors[0]
    u, v = vectors
    return np.concatenate([np.abs(u - v), u * v, (u * v).sum(axis=1, keepdims=True)], axis=1)


def _texts(column: Ragged, rows: Rows) -> list[list[int]]:
    """Return the token ids of some rows."""
    return [column.ids[column.offsets[row] : column.offsets[row + 1]].tolist() for row in rows]


def _list_terms(ids: list[int]) -> list[str]:
    """Return the terms of a text: its word pieces, and its pairs of neighbouring ones."""
    return [*map(str, ids), *(f"{first} {second}" for first, second in pairwise(ids))]


# --- the cache ---------------------------------------------------------------------------


def _find_cache_file(parts: Parts, name: str, train: Dataset, dev: Dataset) -> Path | None:
    """Return where a task's figures are cached; None where something they depend on has no name."""
    facts = parts.encoder if parts.start is None else parts.start.facts
    encoder = facts.get("sha256")
    if not (train.key and dev.key and encoder):
        return None
    spec, settings = parts.tasks[name].spec, parts.config.encoder
    described = {
        "format": [FORMAT, MOST_TRAIN, MOST_DEV, MOST_TERMS, STRENGTH, STRENGTHS],
        "task": name,
        "data": [train.key, dev.key],
        "encoder": [encoder, settings.architecture, settings.pooling, settings.max_length],
        "precision": str(parts.autocast),
        "metric": parts.tasks[name].metric,
        "spec": [spec.kind.name, spec.labels, spec.range, spec.threshold],
        "seed": parts.config.seed,
    }
    text = json.dumps(described, sort_keys=True)
    key = hashlib.blake2b(text.encode(), digest_size=20).hexdigest()
    return cache_root() / "baselines" / f"{key}.json"


def _read(path: Path, names: Sequence[str]) -> dict[str, float] | None:
    """Return the figures in a cache file; None if it is missing or damaged."""
    try:
        values = json.loads(path.read_bytes())
        if list(values) != list(names):
            return None
        return {n: math.nan if value is None else float(value) for n, value in values.items()}
    except (OSError, ValueError, TypeError):
        return None


def _write(path: Path, figures: Mapping[str, float]) -> None:
    """Write a cache file, whole or not at all; without it the figures are measured again."""
    values = {name: value if math.isfinite(value) else None for name, value in figures.items()}
    new = path.with_name(f".new-{uuid.uuid4().hex}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            new.write_text(json.dumps(values), encoding="utf-8")
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
