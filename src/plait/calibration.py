"""Probabilities become ones that can be believed: how far off they are, and one number to mend it.

calibration.json        a temperature for each task of a run, with the model they belong to
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.errors import RunError
from plait.evaluate import log_loss
from plait.training.checkpoint import write_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import ArrayLike

    from plait.evaluate import Floats, Ints

FILE = "calibration.json"

KINDS = ("classes", "binary")
"""Kinds of task whose answers are probabilities that add up to 1."""

NUM_BINS = 10

LOWEST, HIGHEST = 0.05, 20.0
"""Temperatures are looked for between these. Where every row is right, or as good as none, the
best one would be 0 or infinite."""

FEWEST = 2
"""Right and wrong answers that a temperature takes: without a mistake, none is too low."""

# --- how far off -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bin:
    """Answers of about the same confidence; nan for the means of none."""

    low: float
    high: float
    """Included, `low` is not."""
    count: int
    confidence: float
    """Mean probability of the classes chosen."""
    accuracy: float
    """Share of them that is right."""


def reliability(labels: ArrayLike, probabilities: ArrayLike, num_bins: int = NUM_BINS) -> list[Bin]:
    """Sort answers into bins of equal width by the probability of the class chosen."""
    true, chances = _read(labels, probabilities)
    confidence, right = chances.max(axis=1), chances.argmax(axis=1) == true
    edges = np.linspace(0.0, 1.0, num_bins + 1)
    # A probability that rounding carried past 1 stays in the last bin.
    place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, num_bins - 1)
    bins = []
    for i in range(num_bins):
        inside = place == i
        count = int(inside.sum())
        means = [float(v[inside].mean()) if count else math.nan for v in (confidence, right)]
        bins.append(Bin(float(edges[i]), float(edges[i + 1]), count, *means))
    return bins


def calibration_error(labels: ArrayLike, probabilities: ArrayLike) -> float:
    """Return the expected calibration error (ECE); nan for no examples.

    The mean distance of confidence and accuracy over the bins, each weighed by its rows
    (Naeini et al. 2015, with the class chosen as in Guo et al. 2017).
    """
    bins = [b for b in reliability(labels, probabilities) if b.count]
    total = sum(b.count for b in bins)
    if not total:
        return math.nan
    return sum(b.count * abs(b.accuracy - b.confidence) for b in bins) / total


# --- one number to mend it ---------------------------------------------------------------


def apply_temperature(probabilities: ArrayLike, temperature: float) -> Floats:
    """Return probabilities to the power of 1 / temperature, adding up to 1 again.

    The same as dividing the logits, of a softmax or of a yes or no, by the temperature. The
    class chosen stays the same, whatever rounding does to classes that are nearly equal.
    """
    chances = np.asarray(probabilities, dtype=np.float64)
    scaled: Floats = np.exp(_scaled_logs(_logs(chances), 1 / temperature))
    chosen = chances.argmax(axis=1)
    (moved,) = np.nonzero(scaled.argmax(axis=1) != chosen)
    scaled[moved, chosen[moved]] = np.nextafter(scaled[moved].max(axis=1), 1)
    return scaled


def fit_temperature(labels: ArrayLike, probabilities: ArrayLike) -> float:
    """Return the temperature of the lowest log loss (Guo et al. 2017); 1 for no examples.

    The log loss is convex in 1 / temperature, so the place where its slope changes sign is
    halved in until doubles end.
    """
    true, chances = _read(labels, probabilities)
    if not len(true):
        return 1.0
    logs = _logs(chances)
    of_truth = logs[np.arange(len(true)), true]

    def slope(inverse: float) -> float:
        """Return the derivative of the log loss by 1 / temperature."""
        scaled = np.exp(_scaled_logs(logs, inverse))
        return float(np.mean((scaled * logs).sum(axis=1) - of_truth))

    low, high = math.log(1 / HIGHEST), math.log(1 / LOWEST)
    for _ in range(60):
        middle = (low + high) / 2
        if slope(math.exp(middle)) < 0:
            low = middle
        else:
            high = middle
    return math.exp(-(low + high) / 2)


def tells_temperature(labels: ArrayLike, probabilities: ArrayLike) -> bool:
    """Say whether there are right and wrong answers enough to fit a temperature on."""
    true, chances = _read(labels, probabilities)
    right = int((chances.argmax(axis=1) == true).sum())
    return min(right, len(true) - right) >= FEWEST


def halves(count: int) -> Ints:
    """Say for each row which half it is in, 0 or 1, always in the same random way."""
    return np.random.default_rng(0).permutation(count) % 2


def cross_fit(labels: ArrayLike, probabilities: ArrayLike) -> Floats:
    """Scale each half of the rows by the temperature that suits the other half.

    What these come to is what a temperature does for rows it has not seen.
    """
    true, chances = np.asarray(labels), np.asarray(probabilities, dtype=np.float64)
    half = halves(len(true))
    scaled = np.empty_like(chances)
    for mine in (0, 1):
        other = half != mine
        temperature = fit_temperature(true[other], chances[other])
        scaled[half == mine] = apply_temperature(chances[half == mine], temperature)
    return scaled


@dataclass(frozen=True, slots=True)
class Fit:
    """What a temperature does for a task."""

    temperature: float
    """Fitted on all rows."""
    rows: int
    before: dict[str, float]
    """ece and log_loss."""
    after: dict[str, float]
    """The same of each half of the rows under the temperature that suits the other half."""

    @property
    def at_the_limit(self) -> bool:
        """Whether no temperature was good enough: every row is right, or as good as none."""
        return not LOWEST * 1.001 < self.temperature < HIGHEST / 1.001

    @property
    def is_worse(self) -> bool:
        """Whether rows that a temperature was not fitted on can be believed less under it."""
        return self.after["log_loss"] > self.before["log_loss"]


def fit(labels: ArrayLike, probabilities: ArrayLike) -> Fit:
    """Fit a temperature, and measure what it does on rows it was not fitted on."""
    return Fit(
        fit_temperature(labels, probabilities),
        len(np.asarray(labels)),
        measure(labels, probabilities),
        measure(labels, cross_fit(labels, probabilities)),
    )


def measure(labels: ArrayLike, probabilities: ArrayLike) -> dict[str, float]:
    """Return the two figures that tell how far probabilities can be believed."""
    return {
        "ece": calibration_error(labels, probabilities),
        "log_loss": log_loss(labels, probabilities),
    }


def _read(labels: ArrayLike, probabilities: ArrayLike) -> tuple[Ints, Floats]:
    """Return labels and probabilities of the rows that have any: a collapsed model has nan."""
    chances = np.asarray(probabilities, dtype=np.float64)
    true = np.asarray(labels).astype(np.int64)
    if chances.ndim != 2 or len(chances) != len(true):
        raise ValueError(f"probabilities are {chances.shape} for {len(true)} labels")
    finite = np.isfinite(chances).all(axis=1)
    return true[finite], chances[finite]


def _logs(chances: Floats) -> Floats:
    # Answers are computed in fp32, where a small probability may have become 0.
    logs: Floats = np.log(np.clip(chances, np.finfo(np.float32).tiny, None))
    return logs


def _scaled_logs(logs: Floats, inverse: float) -> Floats:
    """Return the logarithms of probabilities to a power, adding up to 1 again."""
    powers = logs * inverse
    powers -= powers.max(axis=1, keepdims=True)
    powers -= np.log(np.exp(powers).sum(axis=1, keepdims=True))
    return powers


# --- the file ----------------------------------------------------------------------------


def write_calibration(folder: Path, model: str, fits: Mapping[str, Fit]) -> Path:
    """Keep temperatures with the model they belong to; `model` is its identity."""
    tasks = {
        name: {
            "temperature": fit.temperature,
            "rows": fit.rows,
            "before": _without_nan(fit.before),
            "after": _without_nan(fit.after),
        }
        for name, fit in fits.items()
    }
    path = folder / FILE
    write_text(path, json.dumps({"split": "dev", "model": model, "tasks": tasks}, indent=1))
    return path


def read_temperatures(folder: Path, identify: Callable[[], str]) -> dict[str, float]:
    """Return the temperatures kept with a model; none where nobody calibrated it.

    `identify` gives the identity of the model that is there now.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = {name: float(task["temperature"]) for name, task in values["tasks"].items()}
        model = values["model"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{path} is damaged; `plait calibrate {folder} --undo` removes it"
        ) from error
    if not all(0 < temperature < math.inf for temperature in found.values()):
        raise RunError(
            f"{path} holds a temperature that is none; `plait calibrate {folder}` makes it anew"
        )
    if model != identify():
        raise RunError(
            f"{path} belongs to another model than the one in {folder}, which may have been "
            f"trained on since; run `plait calibrate {folder}` again, or with --undo"
        )
    return found


def _without_nan(figures: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}
