"""Calibration error, temperature scaling and per-class offsets.

calibration.json        the temperature and offsets of each task, and the hash of the model
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from plait.errors import RunError, counted
from plait.tasks.metrics import log_loss

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import ArrayLike

    from plait.tasks import TaskSpec
    from plait.tasks.kind import Floats, Ints

FILE = "calibration.json"

"""Kinds of task whose predictions are probabilities that sum to 1."""

NUM_BINS = 10

LOWEST, HIGHEST = 0.05, 20.0
"""Range of the temperature. If all rows are right, or hardly any, the optimum would be 0 or
infinite."""

FEWEST = 2
"""Right and wrong predictions that are needed to fit a temperature; also the rows of each class
that are needed to fit an offset."""

FARTHEST = 20.0
"""Bound of the absolute value of an offset."""

# --- calibration error -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bin:
    """Predictions with similar confidence; the means of an empty bin are NaN."""

    low: float
    high: float
    """Included; `low` is excluded."""
    count: int
    confidence: float
    """Mean probability of the predicted classes."""
    accuracy: float
    """Accuracy of the predictions."""


def reliability(labels: ArrayLike, probabilities: ArrayLike, num_bins: int = NUM_BINS) -> list[Bin]:
    """Sort predictions into bins of equal width by the probability of the predicted class."""
    true, chances = _read(labels, probabilities)
    confidence, right = chances.max(axis=1), chances.argmax(axis=1) == true
    edges = np.linspace(0.0, 1.0, num_bins + 1)
    # Rounding may give a probability above 1, which stays in the last bin.
    place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, num_bins - 1)
    bins = []
    for i in range(num_bins):
        inside = place == i
        count = int(inside.sum())
        means = [float(v[inside].mean()) if count else math.nan for v in (confidence, right)]
        bins.append(Bin(float(edges[i]), float(edges[i + 1]), count, *means))
    return bins


def calibration_error(labels: ArrayLike, probabilities: ArrayLike) -> float:
    """Return the expected calibration error (ECE); NaN for no examples.

    The mean difference of confidence and accuracy over the bins, weighted by their rows (Naeini et
    al. 2015, with the predicted class as in Guo et al. 2017).
    """
    bins = [b for b in reliability(labels, probabilities) if b.count]
    total = sum(b.count for b in bins)
    if not total:
        return math.nan
    return sum(b.count * abs(b.accuracy - b.confidence) for b in bins) / total


# --- scaling -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scaling:
    """A task's calibration: logits are divided by the temperature, then the offsets are added."""

    temperature: float
    offsets: tuple[float, ...] = ()
    """One per class, with sum 0; empty if not fitted, then predicted classes do not change."""

    def __call__(self, probabilities: ArrayLike) -> Floats:
        """Return calibrated probabilities."""
        if not self.offsets:
            return apply_temperature(probabilities, self.temperature)
        logs = _logs(np.asarray(probabilities, dtype=np.float64))
        scaled: Floats = np.exp(_normalise(logs / self.temperature + np.array(self.offsets)))
        return scaled

    def to_json(self) -> float | list[Any]:
        """Return plain values: the number if there is only a temperature."""
        return [self.temperature, list(self.offsets)] if self.offsets else self.temperature


def plain_scalings(scalings: Mapping[str, Scaling]) -> dict[str, float | list[Any]]:
    """Return the scalings of tasks as plain values."""
    return {task: scaling.to_json() for task, scaling in scalings.items()}


def apply_temperature(probabilities: ArrayLike, temperature: float) -> Floats:
    """Return the probabilities to the power of 1 / temperature, normalised to sum 1.

    This is the same as dividing the logits by the temperature. The predicted class does not change,
    even if rounding makes two classes equal.
    """
    chances = np.asarray(probabilities, dtype=np.float64)
    scaled: Floats = np.exp(_normalise(_logs(chances) / temperature))
    chosen = chances.argmax(axis=1)
    (moved,) = np.nonzero(scaled.argmax(axis=1) != chosen)
    scaled[moved, chosen[moved]] = np.nextafter(scaled[moved].max(axis=1), 1)
    return scaled


def fit_temperature(labels: ArrayLike, probabilities: ArrayLike) -> float:
    """Return the temperature with the lowest log loss (Guo et al. 2017); 1 for no examples.

    The log loss is convex in 1 / temperature, so the zero of its derivative is found by bisection
    to double precision.
    """
    true, chances = _read(labels, probabilities)
    if not len(true):
        return 1.0
    logs = _logs(chances)
    of_truth = logs[np.arange(len(true)), true]

    def slope(inverse: float) -> float:
        """Return the derivative of the log loss with respect to 1 / temperature."""
        scaled = np.exp(_normalise(logs * inverse))
        return float(np.mean((scaled * logs).sum(axis=1) - of_truth))

    low, high = math.log(1 / HIGHEST), math.log(1 / LOWEST)
    for _ in range(60):
        middle = (low + high) / 2
        if slope(math.exp(middle)) < 0:
            low = middle
        else:
            high = middle
    return math.exp(-(low + high) / 2)


def fit_scaling(labels: ArrayLike, probabilities: ArrayLike) -> Scaling:
    """Return this as a scaling."""
    return Scaling(fit_temperature(labels, probabilities))


def fit_offsets(labels: ArrayLike, probabilities: ArrayLike) -> Scaling:
    """Return the temperature and the offsets with the lowest log loss (Guo et al. 2017).

    Unlike their vector scaling, all classes share one temperature. The log loss is convex in
    1 / temperature and the offsets; it is minimised by Newton's method, which halves steps that
    increase the loss.
    """
    true, chances = _read(labels, probabilities)
    logs = _logs(chances)
    rows, count = np.arange(len(true)), chances.shape[1]
    seen = np.bincount(true, minlength=count) / max(len(true), 1)
    at = np.array([1 / fit_temperature(true, chances), *np.zeros(count)])
    if not len(true):
        return Scaling(1.0, tuple(at[1:].tolist()))
    ends = np.array([[1 / HIGHEST, 1 / LOWEST], *[[-FARTHEST, FARTHEST]] * count])

    def loss(place: Floats) -> float:
        return float(-_normalise(logs * place[0] + place[1:])[rows, true].mean())

    now = loss(at)
    for _ in range(100):
        scaled = np.exp(_normalise(logs * at[0] + at[1:]))
        middle = (scaled * logs).sum(axis=1)
        slope = np.append((middle - logs[rows, true]).mean(), scaled.mean(axis=0) - seen)
        curve = np.empty((count + 1, count + 1))
        curve[0, 0] = ((scaled * logs**2).sum(axis=1) - middle**2).mean()
        curve[0, 1:] = curve[1:, 0] = (scaled * (logs - middle[:, None])).mean(axis=0)
        curve[1:, 1:] = np.diag(scaled.mean(axis=0)) - scaled.T @ scaled / len(true)
        # Adding a constant to all offsets changes nothing: take the least-squares step.
        step = np.linalg.lstsq(curve, slope, rcond=1e-12)[0]
        length = 1.0
        while (then := loss(moved := np.clip(at - length * step, *ends.T))) > now and length > 1e-6:
            length /= 2
        if not then < now - 1e-14:
            break
        at, now = moved, then
    offsets = at[1:] - at[1:].mean()
    return Scaling(float(1 / at[0]), tuple(offsets.tolist()))


def tells_offsets(labels: ArrayLike, probabilities: ArrayLike) -> bool:
    """Return whether every class has enough rows to fit an offset."""
    true, chances = _read(labels, probabilities)
    return bool((np.bincount(true, minlength=chances.shape[1]) >= FEWEST).all())


def tells_temperature(labels: ArrayLike, probabilities: ArrayLike) -> bool:
    """Return whether there are enough right and wrong predictions to fit a temperature."""
    true, chances = _read(labels, probabilities)
    right = int((chances.argmax(axis=1) == true).sum())
    return min(right, len(true) - right) >= FEWEST


def halves(count: int, groups: ArrayLike | None = None) -> Ints:
    """Return the fold of each row, 0 or 1; random with a fixed seed.

    Rows of one group, `groups` [count], are in the same fold.
    """
    draw = np.random.default_rng(0)
    if groups is None:
        return draw.permutation(count) % 2
    names, place = np.unique(np.asarray(groups), return_inverse=True)
    half: Ints = draw.permutation(len(names))[place] % 2
    return half


def cross_fit(
    labels: ArrayLike,
    probabilities: ArrayLike,
    find: Callable[[Ints, Floats], Scaling],
    groups: ArrayLike | None = None,
) -> Floats:
    """Scale each fold with what `find` fits on the other fold.

    This measures a scaling on rows and `groups` that it was not fitted on.
    """
    true, chances = np.asarray(labels), np.asarray(probabilities, dtype=np.float64)
    half = halves(len(true), groups)
    scaled = np.empty_like(chances)
    for mine in (0, 1):
        other = half != mine
        scaled[half == mine] = find(true[other], chances[other])(chances[half == mine])
    return scaled


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted scaling and its effect on the metrics."""

    scaling: Scaling
    """The scaling fitted on all rows."""
    rows: int
    before: dict[str, float]
    """accuracy, ece and log_loss before scaling."""
    after: dict[str, float]
    """The same metrics, two-fold cross-validated."""

    @property
    def at_the_limit(self) -> bool:
        """Whether the temperature is at the limit of its range."""
        return not LOWEST * 1.001 < self.scaling.temperature < HIGHEST / 1.001

    @property
    def is_worse(self) -> bool:
        """Whether the cross-validated log loss increases."""
        return self.after["log_loss"] > self.before["log_loss"]


def fit(
    labels: ArrayLike,
    probabilities: ArrayLike,
    *,
    offsets: bool = False,
    groups: ArrayLike | None = None,
) -> Fit:
    """Fit a temperature, and optionally offsets; measure the effect by two-fold cross-validation.

    Rows of the same group, `groups` [rows], are in the same fold.
    """
    find = fit_offsets if offsets else fit_scaling
    return Fit(
        find(np.asarray(labels), np.asarray(probabilities, dtype=np.float64)),
        len(np.asarray(labels)),
        measure(labels, probabilities),
        measure(labels, cross_fit(labels, probabilities, find, groups)),
    )


def measure(labels: ArrayLike, probabilities: ArrayLike) -> dict[str, float]:
    """Return accuracy, ECE and log loss."""
    true, chances = _read(labels, probabilities)
    return {
        "accuracy": float((chances.argmax(axis=1) == true).mean()) if len(true) else math.nan,
        "ece": calibration_error(labels, probabilities),
        "log_loss": log_loss(labels, probabilities),
    }


def _read(labels: ArrayLike, probabilities: ArrayLike) -> tuple[Ints, Floats]:
    """Return labels and probabilities of the rows without NaN, which a collapsed model returns."""
    chances = np.asarray(probabilities, dtype=np.float64)
    true = np.asarray(labels).astype(np.int64)
    if chances.ndim != 2 or len(chances) != len(true):
        raise ValueError(f"probabilities are {chances.shape} for {len(true)} labels")
    finite = np.isfinite(chances).all(axis=1)
    return true[finite], chances[finite]


def _logs(chances: Floats) -> Floats:
    # In fp32, a small probability may be rounded to 0.
    logs: Floats = np.log(np.clip(chances, np.finfo(np.float32).tiny, None))
    return logs


def _normalise(logits: Floats) -> Floats:
    """Return the logarithms of the probabilities, normalised to sum 1."""
    highest = logits.max(axis=1, keepdims=True)
    logs: Floats = logits - highest
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    return logs


# --- the file ----------------------------------------------------------------------------


def dump_calibration(
    model: str, fits: Mapping[str, Fit], rows: str, source: str | None = None
) -> str:
    """Return the content of calibration.json: scalings, the hash of their `model`, and the split.

    `source` is the run whose predictions they were fitted on, if it is another run.
    """
    tasks = {
        name: {
            "temperature": fit.scaling.temperature,
            **({"offsets": list(fit.scaling.offsets)} if fit.scaling.offsets else {}),
            "rows": fit.rows,
            "before": _without_nan(fit.before),
            "after": _without_nan(fit.after),
        }
        for name, fit in fits.items()
    }
    whose = {} if source is None else {"source": source}
    return json.dumps({"split": rows, **whose, "model": model, "tasks": tasks}, indent=1)


def read_scalings(
    folder: Path, specs: Mapping[str, TaskSpec], identify: Callable[[], str]
) -> dict[str, Scaling]:
    """Return the saved scalings of a model by task; empty if it is not calibrated.

    `identify` returns the hash of the current model.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        model = values["model"]
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path) from error
    if model != identify():
        raise RunError(
            f"{path} belongs to another model than the one in {folder}, which may have been "
            f"trained further; run `plait calibrate {quote(str(folder))}` again, or with --undo"
        )
    return take_scalings(path, values, specs)


def take_scalings(
    path: Path, values: Mapping[str, Any], specs: Mapping[str, TaskSpec]
) -> dict[str, Scaling]:
    """Return the scalings in the file's values; raise RunError if one is invalid."""
    tasks = values.get("tasks")
    if not isinstance(tasks, dict) or not all(isinstance(task, dict) for task in tasks.values()):
        raise _damaged(path)
    found = {}
    for name, task in tasks.items():
        if reason := _unfit(name, task, specs):
            raise RunError(
                f"{path} {reason}; `plait calibrate {quote(str(path.parent))}` replaces it"
            )
        offsets = tuple(map(float, task.get("offsets", ())))
        found[name] = Scaling(float(task["temperature"]), offsets)
    return found


def _unfit(name: str, task: Mapping[str, Any], specs: Mapping[str, TaskSpec]) -> str:
    """Return what is wrong with a task's scaling; empty if it is valid."""
    if name not in specs:
        return f"has a scaling for task {name!r}, which the model does not have"
    if not specs[name].kind.can_scale:
        return f"has a scaling for task {name!r}, whose kind cannot be calibrated"
    temperature, offsets = task.get("temperature"), task.get("offsets", [])
    if not _is_number(temperature) or temperature <= 0:
        return f"has a temperature for task {name!r} that is not a number above 0"
    if not isinstance(offsets, list) or not all(map(_is_number, offsets)):
        return f"has offsets for task {name!r} that are not a list of numbers"
    if offsets and len(offsets) != (classes := len(specs[name].labels)):
        return f"has {counted(len(offsets), 'offset')} for task {name!r} of {classes} classes"
    return ""


def _is_number(value: Any) -> TypeGuard[float]:
    """Return whether a JSON value is a finite number, and not true or false."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _damaged(path: Path) -> RunError:
    return RunError(
        f"{path} is damaged; `plait calibrate {quote(str(path.parent))} --undo` removes it"
    )


def _without_nan(figures: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}
