"""Probabilities become ones that can be believed: how far off they are, and what mends it.

calibration.json        how each task of a run is scaled, with the model that this belongs to
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

"""Kinds of task whose answers are probabilities that add up to 1."""

NUM_BINS = 10

LOWEST, HIGHEST = 0.05, 20.0
"""Temperatures are looked for between these. Where every row is right, or as good as none, the
best one would be 0 or infinite."""

FEWEST = 2
"""Right and wrong answers that a temperature takes: without a mistake, none is too low. An offset
takes as many rows of its class."""

FARTHEST = 20.0
"""Offsets are held to this, on either side: e to the power of it is as good as never."""

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


# --- what mends it -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scaling:
    """Logits of a task are divided by a temperature; then each class may have its offset added."""

    temperature: float
    offsets: tuple[float, ...] = ()
    """One a class, adding up to 0, or none at all: then the class chosen stays the same."""

    def __call__(self, probabilities: ArrayLike) -> Floats:
        """Return probabilities of which more can be believed."""
        if not self.offsets:
            return apply_temperature(probabilities, self.temperature)
        logs = _logs(np.asarray(probabilities, dtype=np.float64))
        scaled: Floats = np.exp(_normalise(logs / self.temperature + np.array(self.offsets)))
        return scaled

    def to_json(self) -> float | list[Any]:
        """Return plain values; of a temperature alone, the number."""
        return [self.temperature, list(self.offsets)] if self.offsets else self.temperature


def plain_scalings(scalings: Mapping[str, Scaling]) -> dict[str, float | list[Any]]:
    """Return what tasks are scaled by as plain values."""
    return {task: scaling.to_json() for task, scaling in scalings.items()}


def apply_temperature(probabilities: ArrayLike, temperature: float) -> Floats:
    """Return probabilities to the power of 1 / temperature, adding up to 1 again.

    The same as dividing the logits, of a softmax or of a yes or no, by the temperature. The
    class chosen stays the same, whatever rounding does to classes that are nearly equal.
    """
    chances = np.asarray(probabilities, dtype=np.float64)
    scaled: Floats = np.exp(_normalise(_logs(chances) / temperature))
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
    """Return the same as a scaling."""
    return Scaling(fit_temperature(labels, probabilities))


def fit_offsets(labels: ArrayLike, probabilities: ArrayLike) -> Scaling:
    """Return the temperature and the offsets of the lowest log loss (Guo et al. 2017).

    One temperature for all classes, where their vector scaling has one each. The log loss is convex
    in 1 / temperature and the offsets together: Newton's steps, halved where one goes too far.
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
        # Equal offsets change nothing, so the curve is flat that way: the shortest step of all.
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
    """Say whether every class has rows enough to fit an offset on."""
    true, chances = _read(labels, probabilities)
    return bool((np.bincount(true, minlength=chances.shape[1]) >= FEWEST).all())


def tells_temperature(labels: ArrayLike, probabilities: ArrayLike) -> bool:
    """Say whether there are right and wrong answers enough to fit a temperature on."""
    true, chances = _read(labels, probabilities)
    right = int((chances.argmax(axis=1) == true).sum())
    return min(right, len(true) - right) >= FEWEST


def halves(count: int, groups: ArrayLike | None = None) -> Ints:
    """Say for each row which half it is in, 0 or 1, always in the same random way.

    Rows of one of the `groups`, [count], are in one half.
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
    """Scale each half of the rows by what suits the other half, which `find` finds.

    What these come to is what a scaling does for rows it has not seen, nor others of their
    `groups`, which might be answered alike.
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
    """What a scaling does for a task."""

    scaling: Scaling
    """Fitted on all rows."""
    rows: int
    before: dict[str, float]
    """accuracy, ece and log_loss."""
    after: dict[str, float]
    """The same of each half of the rows under what suits the other half."""

    @property
    def at_the_limit(self) -> bool:
        """Whether no temperature was good enough: every row is right, or as good as none."""
        return not LOWEST * 1.001 < self.scaling.temperature < HIGHEST / 1.001

    @property
    def is_worse(self) -> bool:
        """Whether rows that the scaling was not fitted on can be believed less under it."""
        return self.after["log_loss"] > self.before["log_loss"]


def fit(
    labels: ArrayLike,
    probabilities: ArrayLike,
    *,
    offsets: bool = False,
    groups: ArrayLike | None = None,
) -> Fit:
    """Fit a temperature, or offsets too, and measure what it does on rows it was not fitted on.

    Nor on others of their `groups`, [rows], where these are given.
    """
    find = fit_offsets if offsets else fit_scaling
    return Fit(
        find(np.asarray(labels), np.asarray(probabilities, dtype=np.float64)),
        len(np.asarray(labels)),
        measure(labels, probabilities),
        measure(labels, cross_fit(labels, probabilities, find, groups)),
    )


def measure(labels: ArrayLike, probabilities: ArrayLike) -> dict[str, float]:
    """Return how often answers are right, and the two figures that tell how far to believe them."""
    true, chances = _read(labels, probabilities)
    return {
        "accuracy": float((chances.argmax(axis=1) == true).mean()) if len(true) else math.nan,
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


def _normalise(logits: Floats) -> Floats:
    """Return the logarithms of probabilities that add up to 1."""
    highest = logits.max(axis=1, keepdims=True)
    logs: Floats = logits - highest
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    return logs


# --- the file ----------------------------------------------------------------------------


def dump_calibration(
    model: str, fits: Mapping[str, Fit], rows: str, source: str | None = None
) -> str:
    """Return what the file says: scalings, the identity of their `model`, and fitted on which.

    `source` is whose answers they were fitted on, where those are not the model's own.
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
    """Return the scalings kept with a model of these tasks; none where nobody calibrated it.

    `identify` gives the identity of the model that is there now.
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
            f"trained on since; run `plait calibrate {quote(str(folder))}` again, or with --undo"
        )
    return take_scalings(path, values, specs)


def take_scalings(
    path: Path, values: Mapping[str, Any], specs: Mapping[str, TaskSpec]
) -> dict[str, Scaling]:
    """Return the scalings among what a file says, if they are ones and its tasks take them."""
    tasks = values.get("tasks")
    if not isinstance(tasks, dict) or not all(isinstance(task, dict) for task in tasks.values()):
        raise _damaged(path)
    found = {}
    for name, task in tasks.items():
        if reason := _unfit(name, task, specs):
            raise RunError(
                f"{path} {reason}; `plait calibrate {quote(str(path.parent))}` makes it anew"
            )
        offsets = tuple(map(float, task.get("offsets", ())))
        found[name] = Scaling(float(task["temperature"]), offsets)
    return found


def _unfit(name: str, task: Mapping[str, Any], specs: Mapping[str, TaskSpec]) -> str:
    """Say what is wrong with a task's scaling; nothing if it is a scaling of that task."""
    if name not in specs:
        return f"scales a task {name!r}, which the model does not have"
    if not specs[name].kind.can_scale:
        return f"scales task {name!r}, whose answers are no probabilities that add up to 1"
    temperature, offsets = task.get("temperature"), task.get("offsets", [])
    if not _is_number(temperature) or temperature <= 0:
        return f"has a temperature for task {name!r} that is no number above 0"
    if not isinstance(offsets, list) or not all(map(_is_number, offsets)):
        return f"has offsets for task {name!r} that are no list of numbers"
    if offsets and len(offsets) != (classes := len(specs[name].labels)):
        return f"has {counted(len(offsets), 'offset')} for task {name!r} of {classes} classes"
    return ""


def _is_number(value: Any) -> TypeGuard[float]:
    """Say whether JSON's value is a number that a double holds; true and false are none."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _damaged(path: Path) -> RunError:
    return RunError(
        f"{path} is damaged; `plait calibrate {quote(str(path.parent))} --undo` removes it"
    )


def _without_nan(figures: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}
