"""Rows become suspects: those whose label a simple classifier, which never saw them, denies.

The encoder stays as it is. Its vectors go into a logistic regression, fitted on four fifths of
the training rows and asked about the rest, in turn; rows that belong together are asked about
together. Dev rows are asked about with one fitted on all of train. A row is suspect, after
Northcutt, Jiang and Chuang 2021 (Confident Learning), if another class than its own is at least as
probable as it usually is for rows of that class; more strictly than there, it must also be far more
probable than its own. Of scores a ridge regression's error must be unusual. What is said of a row
is a reason to look at it, not a proof: the classifier errs too, and says how often.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional as F

from plait.analysis.check.findings import num_rows
from plait.tasks.metrics import log_loss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt
    from torch import Tensor

    from plait.analysis.check.findings import Finding
    from plait.analysis.check.rows import Progress, SplitRows
    from plait.inference.frozen import Embedder

    Floats = npt.NDArray[np.float64]

NUM_FOLDS = 5
MOST_ROWS = 20_000
"""Training rows of a task that are looked at; of more, as many are drawn."""
DECAYS = (3.0, 30.0, 300.0, 3000.0)
"""Weights of half the squared norm of the weights (scikit-learn's 1 / C); the best is taken."""
FEWEST = 30
"""Training rows below which there is no telling."""
BETTER = 0.2
"""Part of the baseline's errors that the classifier must avoid for its word to count."""
MARGIN = 0.5
"""What another class must be more probable than a row's own. Without it, with a tenth of the
labels changed at random, most suspects had their right label; with it they are fewer, and how many
of them are wrong still varies much from task to task."""
UNUSUAL = 4.0
"""Robust standard deviations that a score's error must reach."""
NONE = "no row is suspected"
ADVICE = "look at the first ones: they are sorted by how sure it is; it errs, so change none unseen"


def make_features(
    embedder: Embedder, rows: Sequence[tuple[str, ...]], what: str, progress: Progress | None
) -> Tensor:
    """Return a vector for each row: a text's, or how the vectors of a pair differ and agree.

    A frozen encoder has not learnt to compare two texts in one input, so they go apart.
    """
    distinct = list(dict.fromkeys(text for row in rows for text in row))
    vectors = embedder(distinct, what, progress).double()
    place = {text: i for i, text in enumerate(distinct)}
    columns = [vectors[[place[text] for text in column]] for column in zip(*rows, strict=True)]
    if len(columns) == 1:
        return columns[0]
    first, second = (F.normalize(column, dim=1) for column in columns)
    return torch.cat([(first - second).abs(), first * second], dim=1)


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear map of standardised features."""

    mean: Tensor
    spread: Tensor
    weight: Tensor
    bias: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        """Return the outputs for rows of features."""
        return ((features - self.mean) / self.spread) @ self.weight + self.bias


def fit_classes(features: Tensor, labels: Tensor, num_classes: int, decay: float) -> Linear:
    """Fit a multinomial logistic regression with an L2 penalty, by L-BFGS."""
    mean, spread = features.mean(0), _spread(features)
    inputs = (features - mean) / spread
    weight = torch.zeros(features.shape[1], num_classes, dtype=torch.double, requires_grad=True)
    bias = torch.zeros(num_classes, dtype=torch.double, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weight, bias], max_iter=200, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(inputs @ weight + bias, labels, reduction="sum")
        loss = (loss + decay / 2 * weight.square().sum()) / len(labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    return Linear(mean, spread, weight.detach(), bias.detach())


def _spread(features: Tensor) -> Tensor:
    """Return the standard deviation of each column; of a single row, which has none, 1."""
    return features.std(0).clamp(min=1e-6) if len(features) > 1 else torch.ones_like(features[0])


def fit_scores(features: Tensor, scores: Tensor, decay: float) -> Linear:
    """Fit a ridge regression in closed form."""
    mean, spread = features.mean(0), _spread(features)
    inputs = (features - mean) / spread
    gram = inputs.T @ inputs + decay * torch.eye(inputs.shape[1], dtype=torch.double)
    weight = torch.linalg.solve(gram, inputs.T @ (scores - scores.mean()))
    return Linear(mean, spread, weight, scores.mean())


def fold_of(groups: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.int64]:
    """Deal rows into folds, those that belong together into one."""
    _, place = np.unique(groups, return_inverse=True)
    order = np.random.default_rng(seed).permutation(int(place.max()) + 1)
    folds: npt.NDArray[np.int64] = order[place] % NUM_FOLDS
    return folds


def find_suspects(
    labels: npt.NDArray[np.int64], probabilities: Floats, thresholds: Floats
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return suspect rows, the most suspect first, and the class that each is likely to be.

    `thresholds` has for each class its mean probability over rows labelled with it.
    """
    confident = np.where(probabilities >= thresholds, probabilities, -1.0)
    likely = confident.argmax(axis=1)
    rows = np.flatnonzero((confident.max(axis=1) >= 0) & (likely != labels))
    own = probabilities[rows, labels[rows]]
    margin = probabilities[rows, likely[rows]] - own
    rows, margin = rows[margin >= MARGIN], margin[margin >= MARGIN]
    rows = rows[np.argsort(-margin, kind="stable")]
    return rows, likely[rows]


def thresholds_of(labels: npt.NDArray[np.int64], probabilities: Floats) -> Floats:
    """Return each class's mean probability over rows labelled with it; 1 where there are none."""
    num_classes = probabilities.shape[1]
    return np.array(
        [
            probabilities[labels == c, c].mean() if (labels == c).any() else 1.0
            for c in range(num_classes)
        ]
    )


@dataclass(frozen=True, slots=True)
class Encoded:
    """Labelled rows of a split that are looked at, and what they are judged by."""

    rows: SplitRows
    kept: npt.NDArray[np.int64]
    """Which of the split's rows they are."""
    labels: Floats
    """[kept]"""
    features: Tensor
    """[kept, width]"""


def check_mislabelled(
    splits: Sequence[SplitRows], embedder: Embedder, seed: int, progress: Progress | None = None
) -> Iterator[Finding]:
    """Tell of rows of a task's train and dev that are likely to have a wrong label."""
    labelled = {rows.split: rows for rows in splits if rows.labels is not None}
    train, dev = labelled.get("train"), labelled.get("dev")
    if train is None or train.labels is None:
        return
    if train.labels.ndim != 1:
        yield train.finding(
            "mislabelled",
            "note",
            "rows with several labels are not looked through for wrong ones",
        )
        return
    if len(train) < FEWEST or len(np.unique(train.labels)) < 2:
        return

    def encode(rows: SplitRows, kept: npt.NDArray[np.int64]) -> Encoded:
        assert rows.labels is not None
        texts = [rows.texts[i] for i in kept]
        features = make_features(embedder, texts, f"{rows.task} {rows.split}", progress)
        return Encoded(rows, kept, rows.labels[kept], features)

    kept = np.arange(len(train))
    if len(train) > MOST_ROWS:
        kept = np.sort(np.random.default_rng(seed).choice(len(train), MOST_ROWS, replace=False))
    folds = fold_of(train.groups[kept], seed)
    if len(np.unique(folds)) < 2:
        yield train.finding(
            "mislabelled",
            "note",
            f"all rows belong together, so none is left to learn from, and {NONE}",
        )
        return
    asked = np.arange(0 if dev is None else len(dev))
    judge = _judge_scores if train.config.kind.form == "number" else _judge_classes
    if judge is _judge_classes and len(lost := find_lost(train, kept, folds)):
        known = ~np.isin(train.labels[kept], lost)
        kept, folds = kept[known], folds[known]
        classes, parts = np.unique(train.labels[kept]), np.unique(folds)
        goes_on = len(kept) >= FEWEST and min(len(classes), len(parts)) > 1
        yield _tell_lost(train, lost, "those rows are not looked at" if goes_on else NONE)
        if not goes_on:
            return
        if dev is not None and dev.labels is not None:
            asked = np.flatnonzero(~np.isin(dev.labels, lost))
    fitted_on = encode(train, kept)
    asked_about = encode(dev, asked) if dev is not None and len(asked) else None
    yield from judge(fitted_on, asked_about, folds)


def find_lost(
    train: SplitRows, kept: npt.NDArray[np.int64], folds: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the classes that groups put into one fold: whoever is asked about them knows none.

    A class with a single row, or one that lands there by chance, is no group's fault.
    """
    assert train.labels is not None
    labels = train.labels[kept].astype(np.int64)
    prints, groups = train.prints[kept], train.groups[kept]
    return np.array(
        [
            c
            for c in np.unique(labels)
            if len(np.unique(folds[labels == c])) == 1
            and len(np.unique(groups[labels == c])) < len(np.unique(prints[labels == c]))
        ],
        np.int64,
    )


def _tell_lost(train: SplitRows, lost: npt.NDArray[np.int64], so: str) -> Finding:
    names = ", ".join(train.config.labels[c] for c in lost[:3])
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    return train.finding(
        "mislabelled",
        "note",
        f"group puts all rows of a label into one fold ({names}{more}), which leaves none to learn "
        f"that label from, so {so}",
        "let group name a column that does not follow from the label, or leave it out",
    )


def _ask(
    fit: Callable[[Tensor, Tensor], Linear],
    features: Tensor,
    targets: Tensor,
    folds: npt.NDArray[np.int64],
) -> Tensor:
    """Return the outputs for each row of what was fitted on the other folds."""
    parts, rows = [], []
    for fold in range(NUM_FOLDS):
        inside = torch.from_numpy(folds != fold)
        parts.append(fit(features[inside], targets[inside])(features[~inside]))
        rows.append(torch.nonzero(~inside).squeeze(1))
    return torch.cat(parts)[torch.cat(rows).argsort()]


def _tell(
    some: Encoded, found: npt.NDArray[np.int64], details: list[str], known: str
) -> Iterator[Finding]:
    if not len(found):
        return
    are = "is" if len(found) == 1 else "are"
    sentence = (
        f"{num_rows(len(found))} of {len(some.kept):,} {are} likely to be mislabelled by the word "
        f"of {known}"
    )
    yield some.rows.finding("mislabelled", "note", sentence, ADVICE, some.kept[found], details)


def _no_word(some: Encoded, why: str) -> Finding:
    return some.rows.finding(
        "mislabelled",
        "note",
        f"the untrained encoder cannot tell the labels apart ({why}), so {NONE}",
        "train first; rows that a good model gets wrong are worth a look",
    )


# --- classes -----------------------------------------------------------------------------


def _judge_classes(
    train: Encoded, dev: Encoded | None, folds: npt.NDArray[np.int64]
) -> Iterator[Finding]:
    labels, num_classes = train.labels.astype(np.int64), len(train.rows.config.labels)
    targets = torch.from_numpy(labels)
    fits = [partial(fit_classes, num_classes=num_classes, decay=decay) for decay in DECAYS]
    tried = [_ask(fit, train.features, targets, folds).softmax(1).numpy() for fit in fits]
    best = int(np.argmin([log_loss(labels, probabilities) for probabilities in tried]))
    fit, probabilities = fits[best], tried[best]
    accuracy = float((probabilities.argmax(axis=1) == labels).mean())
    baseline = float(np.bincount(labels).max() / len(labels))
    if 1 - accuracy > (1 - BETTER) * (1 - baseline):
        yield _no_word(train, f"{accuracy:.0%} of rows right, the largest class has {baseline:.0%}")
        return
    thresholds = thresholds_of(labels, probabilities)
    known = f"a classifier on the untrained encoder, which has {accuracy:.0%} of rows right"
    yield from _suspects(train, probabilities, thresholds, known)
    if dev is not None:
        told = fit(train.features, targets)(dev.features).softmax(1).numpy()
        yield from _suspects(dev, told, thresholds, known)


def _suspects(
    some: Encoded, probabilities: Floats, thresholds: Floats, known: str
) -> Iterator[Finding]:
    labels, names = some.labels.astype(np.int64), some.rows.config.labels
    found, likely = find_suspects(labels, probabilities, thresholds)
    details = [
        f"labelled {names[labels[row]]} ({probabilities[row, labels[row]]:.0%}), "
        f"rather {names[other]} ({probabilities[row, other]:.0%})"
        for row, other in zip(found, likely, strict=True)
    ]
    yield from _tell(some, found, details, known)


# --- scores ------------------------------------------------------------------------------


def _judge_scores(
    train: Encoded, dev: Encoded | None, folds: npt.NDArray[np.int64]
) -> Iterator[Finding]:
    scores = torch.from_numpy(train.labels)
    # As strong as the data where there are few rows a feature.
    fit = partial(fit_scores, decay=float(train.features.shape[1]))
    answers = _ask(fit, train.features, scores, folds)
    correlation = float(torch.corrcoef(torch.stack([answers, scores]))[0, 1])
    if not correlation > 0.3:
        yield _no_word(train, f"correlation {correlation:.2f} with the scores")
        return
    errors = (scores - answers).numpy()
    centre = float(np.median(errors))
    spread = 1.4826 * float(np.median(np.abs(errors - centre)))  # of a normal distribution
    known = f"a regression on the untrained encoder, which correlates to {correlation:.2f}"
    yield from _unusual(train, answers.numpy(), centre, spread, known)
    if dev is not None:
        told = fit(train.features, scores)(dev.features).numpy()
        yield from _unusual(dev, told, centre, spread, known)


def _unusual(
    some: Encoded, answers: Floats, centre: float, spread: float, known: str
) -> Iterator[Finding]:
    low, high = some.rows.config.range
    held = np.clip(answers, low, high)
    off = np.abs(some.labels - held - centre)
    found = np.flatnonzero(off > max(UNUSUAL * spread, 0.25 * (high - low)))
    found = found[np.argsort(-off[found], kind="stable")]
    details = [f"scored {some.labels[row]:g}, rather {held[row]:.1f}" for row in found]
    yield from _tell(some, found, details, known)
