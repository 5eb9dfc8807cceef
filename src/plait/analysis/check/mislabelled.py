"""Find rows whose label a linear model on frozen vectors contradicts.

The model is fitted on four fifths of the training rows and asked about the rest, in turn; rows of
one group, and equal texts, are in one fold. Dev rows are asked about with a model of all training
rows. A row is suspect, after Northcutt, Jiang and Chuang 2021 (Confident Learning), if another
class is at least as probable as it usually is for rows of that class; unlike there, it must also be
far more probable than the row's own. Of scores, the error must be unusually large. The model errs
too, so a suspect is a row to look at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plait.tasks.metrics import log_loss

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from plait.analysis.check.rows import Finding, SplitRows
    from plait.data.loading import Progress
    from plait.inference.frozen import Embedder
    from plait.tasks import Kind

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

NUM_FOLDS = 5
MOST_ROWS = 20_000
"""Training rows of a task that are looked at; of more, as many are drawn."""
FEWEST = 30
"""Minimum number of training rows for this check."""
BETTER = 0.2
"""Share of the majority baseline's errors that the model must avoid to be trusted."""
STRENGTHS = (1.0, 10.0)
"""C of the logistic regression, and 1 / alpha of the ridge regression; the better one is chosen."""
LEAST_CORRELATION = 0.3
"""Correlation with the scores that the model must reach to be trusted."""
MARGIN = 0.5
"""How much more probable another class must be than a row's own. Without it, with a tenth of the
labels changed at random, most suspects had their right label."""
UNUSUAL = 4.0
"""Robust standard deviations that a score's error must reach."""
ADVICE = "look at the first ones, of which the model is surest; change no label unseen"


@dataclass(frozen=True, slots=True)
class Labelled:
    """Labelled rows of a split, their vectors and the model's predictions."""

    rows: SplitRows
    kept: Ints
    """Numbers of these rows in the split."""
    labels: Floats
    answers: Floats

    def finding(self, suspects: Ints, details: list[str], model: str) -> Iterator[Finding]:
        """Yield a finding about rows, given by their places in `kept`."""
        if len(suspects):
            look = "label looks" if len(suspects) == 1 else "labels look"
            sentence = f"{len(suspects):,} of {len(self.kept):,} {look} wrong ({model})"
            yield self.rows.finding(
                "mislabelled", "note", sentence, ADVICE, self.kept[suspects], details
            )


def check_mislabelled(
    train: SplitRows,
    dev: SplitRows | None,
    embedder: Embedder,
    seed: int,
    progress: Progress | None = None,
) -> Iterator[Finding]:
    """Yield training and dev rows whose label looks wrong."""
    kind = train.config.kind
    if train.labels is None:
        return
    if kind.form == "independent":
        yield _note(train, "labels of rows with several labels are not checked")
        return
    if len(train) < FEWEST or len(np.unique(train.labels)) < 2:
        return
    kept = np.arange(len(train))
    if len(train) > MOST_ROWS:
        kept = np.sort(np.random.default_rng(seed).choice(len(train), MOST_ROWS, replace=False))
    folds = make_folds(train.groups[kept])
    if folds is None:
        yield _note(train, "labels are not checked, because all rows belong to one group")
        return
    lost = _find_lost(train, kept, folds) if kind.form == "distribution" else []
    if len(lost):
        names = ", ".join(train.config.labels[c] for c in lost[:3])
        more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
        known = ~np.isin(train.labels[kept], lost)
        kept, folds = kept[known], folds[known]
        yield _note(
            train,
            f"group puts all rows of a label into one fold ({names}{more}): they are not checked",
            "let group name a column that does not follow from the label, or remove it",
        )
        if len(kept) < FEWEST or min(len(np.unique(x)) for x in (train.labels[kept], folds)) < 2:
            return
    features = make_features(embedder, train, kept, progress)
    labels = train.labels[kept]
    tried = [_predict_folds(kind, features, labels, folds, strength) for strength in STRENGTHS]
    best = int(np.argmin([_loss(kind, labels, answers) for answers in tried]))
    strength, answers = STRENGTHS[best], tried[best]
    looked_at = [Labelled(train, kept, labels, answers)]
    if dev is not None and dev.labels is not None:
        asked = np.flatnonzero(~np.isin(dev.labels, lost))
        if len(asked):
            model = kind.fit(features, labels, strength)
            found = kind.linear_answers(model(make_features(embedder, dev, asked, progress)))
            looked_at.append(Labelled(dev, asked, dev.labels[asked], found))
    judge = _judge_scores if kind.form == "number" else _judge_classes
    yield from judge(looked_at)


def make_features(
    embedder: Embedder, rows: SplitRows, kept: Ints, progress: Progress | None
) -> Floats:
    """Return a vector per row: a text's, or the difference and product of a pair's two vectors.

    A frozen encoder has not learnt to compare two texts in one input.
    """
    chosen = [rows.texts[i] for i in kept]
    distinct = list(dict.fromkeys(text for row in chosen for text in row))
    vectors = embedder(distinct, f"{rows.task} {rows.split}", progress).double().numpy()
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    place = {text: i for i, text in enumerate(distinct)}
    columns = [vectors[[place[text] for text in column]] for column in zip(*chosen, strict=True)]
    if len(columns) == 1:
        return columns[0]
    first, second = columns
    return np.concatenate([np.abs(first - second), first * second], axis=1)


def make_folds(groups: npt.NDArray[np.uint64]) -> Ints | None:
    """Return a fold per row, rows of one group in one fold; None if there is one group only."""
    from sklearn.model_selection import GroupKFold

    num_folds = min(NUM_FOLDS, len(np.unique(groups)))
    if num_folds < 2:
        return None
    folds = np.zeros(len(groups), np.int64)
    split = GroupKFold(num_folds).split(groups, groups=groups)
    for number, (_, rows) in enumerate(split):
        folds[rows] = number
    return folds


def _predict_folds(
    kind: Kind, features: Floats, labels: Floats, folds: Ints, strength: float
) -> Floats:
    """Return the out-of-fold predictions."""
    parts, order = [], []
    for fold in np.unique(folds):
        inside = folds != fold
        model = kind.fit(features[inside], labels[inside], strength)
        parts.append(kind.linear_answers(model(features[~inside])))
        order.append(np.flatnonzero(~inside))
    answers: Floats = np.concatenate(parts)[np.argsort(np.concatenate(order))]
    return answers


def _loss(kind: Kind, labels: Floats, answers: Floats) -> float:
    """Return the log loss, or the squared error of scores."""
    if kind.form == "number":
        return float(np.square(answers - labels).mean())
    return log_loss(labels.astype(np.int64), answers)


def find_suspects(labels: Ints, probabilities: Floats, thresholds: Floats) -> tuple[Ints, Ints]:
    """Return suspect rows, the most suspect first, and the class that each is likely to be.

    `thresholds` has for each class its mean probability over rows labelled with it.
    """
    confident = np.where(probabilities >= thresholds, probabilities, -1.0)
    likely = confident.argmax(axis=1)
    every = np.arange(len(labels))
    margin = confident[every, likely] - probabilities[every, labels]
    rows = np.flatnonzero((likely != labels) & (margin >= MARGIN))
    rows = rows[np.argsort(-margin[rows], kind="stable")]
    return rows, likely[rows]


def _find_lost(train: SplitRows, kept: Ints, folds: Ints) -> Sequence[int]:
    """Return the classes that groups put into one fold, so that the other folds cannot teach them.

    A class of a single text is not the groups' fault.
    """
    assert train.labels is not None
    labels, prints, groups = train.labels[kept], train.prints[kept], train.groups[kept]
    lost = []
    for number in np.unique(labels).astype(int).tolist():
        own = labels == number
        fewer = len(np.unique(groups[own])) < len(np.unique(prints[own]))
        if fewer and len(np.unique(folds[own])) == 1:
            lost.append(number)
    return lost


def _note(rows: SplitRows, sentence: str, advice: str = "") -> Finding:
    return rows.finding("mislabelled", "note", sentence, advice)


def _untrusted(rows: SplitRows, why: str) -> Finding:
    sentence = f"labels are not checked: frozen vectors do not predict them ({why})"
    return _note(rows, sentence, "train first, and look at the rows that a good model gets wrong")


def _judge_classes(looked_at: Sequence[Labelled]) -> Iterator[Finding]:
    train = looked_at[0]
    names, labels = train.rows.config.labels, train.labels.astype(np.int64)
    accuracy = float((train.answers.argmax(axis=1) == labels).mean())
    majority = float(np.bincount(labels).max() / len(labels))
    if 1 - accuracy > (1 - BETTER) * (1 - majority):
        why = f"accuracy {accuracy:.0%}, majority class {majority:.0%}"
        yield _untrusted(train.rows, why)
        return
    thresholds = np.ones(len(names))
    for number in np.unique(labels):
        thresholds[number] = train.answers[labels == number, number].mean()
    model = f"out-of-fold classifier on frozen vectors, accuracy {accuracy:.0%}"
    for some in looked_at:
        own, chances = some.labels.astype(np.int64), some.answers
        found, likely = find_suspects(own, chances, thresholds)
        details = [
            f"labelled {names[own[row]]} ({chances[row, own[row]]:.0%}), predicted "
            f"{names[other]} ({chances[row, other]:.0%})"
            for row, other in zip(found, likely, strict=True)
        ]
        yield from some.finding(found, details, model)


def _judge_scores(looked_at: Sequence[Labelled]) -> Iterator[Finding]:
    train = looked_at[0]
    correlation = float(np.corrcoef(train.answers, train.labels)[0, 1])
    if not correlation > LEAST_CORRELATION:
        yield _untrusted(train.rows, f"correlation {correlation:.2f}")
        return
    low, high = train.rows.config.range
    errors = train.labels - train.answers
    centre = float(np.median(errors))
    spread = 1.4826 * float(np.median(np.abs(errors - centre)))  # of a normal distribution
    model = f"out-of-fold regression on frozen vectors, correlation {correlation:.2f}"
    for some in looked_at:
        held = np.clip(some.answers, low, high)
        off = np.abs(some.labels - held - centre)
        found = np.flatnonzero(off > max(UNUSUAL * spread, 0.25 * (high - low)))
        found = found[np.argsort(-off[found], kind="stable")]
        details = [f"scored {some.labels[row]:g}, predicted {held[row]:.1f}" for row in found]
        yield from some.finding(found, details, model)
