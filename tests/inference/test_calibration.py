"""Calibration: bins and errors by hand, temperatures against a direct optimisation, the file."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, softmax

from plait.errors import RunError
from plait.inference.calibration import (
    HIGHEST,
    LOWEST,
    Scaling,
    apply_temperature,
    calibration_error,
    cross_fit,
    dump_calibration,
    fit,
    fit_offsets,
    fit_scaling,
    fit_temperature,
    halves,
    read_scalings,
    reliability,
)
from plait.inference.card import make_card
from plait.inference.ensemble import Ensemble, load, make_ensemble
from plait.inference.fitting.calibrate import undo
from plait.inference.predictor import Predictor
from plait.tasks.metrics import log_loss

# Confidences .9, .9, .6, .6, .6; right, wrong, right, right, wrong.
LABELS = [0, 1, 0, 1, 1]
CHANCES = [[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.4, 0.6], [0.6, 0.4]]


def test_bins_by_hand():
    bins = reliability(LABELS, CHANCES)
    assert [b.count for b in bins] == [0, 0, 0, 0, 0, 3, 0, 0, 2, 0]  # (.5, .6] and (.8, .9]
    assert (bins[5].low, bins[5].high) == pytest.approx((0.5, 0.6))
    assert (bins[5].confidence, bins[5].accuracy) == pytest.approx((0.6, 2 / 3))
    assert (bins[8].confidence, bins[8].accuracy) == pytest.approx((0.9, 0.5))
    assert math.isnan(bins[0].accuracy)


def test_the_error_by_hand():
    # 3/5 |2/3 - .6| + 2/5 |.5 - .9| = .04 + .16
    assert calibration_error(LABELS, CHANCES) == pytest.approx(0.2)


def test_a_temperature_divides_the_logits():
    logits = np.random.default_rng(0).normal(size=(20, 4), scale=3)
    scaled = apply_temperature(softmax(logits, axis=1), 2.5)
    assert scaled == pytest.approx(softmax(logits / 2.5, axis=1))
    assert apply_temperature(CHANCES, 1.0) == pytest.approx(np.array(CHANCES))


@pytest.mark.parametrize("temperature", [LOWEST, 0.3, 1.7, HIGHEST])
def test_the_class_chosen_never_changes(temperature):
    generator = np.random.default_rng(1)
    chances = softmax(generator.normal(size=(500, 5), scale=8), axis=1)
    near = np.full((5, 5), 0.2)  # each a step of rounding above the others
    near[np.arange(5), np.arange(5)] = np.nextafter(0.2, 1)
    beside = np.array([[0.1, 0.45, np.nextafter(0.45, 1)]])  # and one that is far below
    exact = np.full((1, 5), 0.2)
    sure = np.eye(5)
    for some in (chances, near, beside, exact, sure):
        scaled = apply_temperature(some, temperature)
        assert (scaled.argmax(axis=1) == some.argmax(axis=1)).all()
        assert scaled.sum(axis=1) == pytest.approx(np.ones(len(some)))


@pytest.mark.parametrize("num_classes", [2, 3, 7])
@pytest.mark.parametrize("scale", [0.4, 1.0, 3.0])
def test_a_temperature_is_the_best_there_is(num_classes, scale):
    generator = np.random.default_rng(num_classes)
    logits = generator.normal(size=(400, num_classes))
    labels = [generator.choice(num_classes, p=p) for p in softmax(logits, axis=1)]
    logits *= scale

    def loss(log_temperature):
        logs = log_softmax(logits / math.exp(log_temperature), axis=1)
        return -logs[np.arange(400), labels].mean()

    best = minimize_scalar(loss, bounds=(-3, 3), method="bounded", options={"xatol": 1e-10})
    found = fit_temperature(labels, softmax(logits, axis=1))
    assert found == pytest.approx(math.exp(best.x), rel=1e-5)
    assert found == pytest.approx(scale, rel=0.35)


def test_a_half_is_scored_by_the_other():
    generator = np.random.default_rng(5)
    logits = generator.normal(size=(301, 3), scale=4)
    labels = np.array([generator.choice(3, p=p) for p in softmax(logits / 4, axis=1)])
    chances = softmax(logits, axis=1)
    half = halves(301)
    assert sorted(np.bincount(half)) == [150, 151]
    scaled = cross_fit(labels, chances, fit_scaling)
    for mine in (0, 1):
        temperature = fit_temperature(labels[half != mine], chances[half != mine])
        assert scaled[half == mine] == pytest.approx(
            apply_temperature(chances[half == mine], temperature)
        )
    found = fit(labels, chances)
    assert found.after["ece"] < found.before["ece"]
    assert found.after["log_loss"] == pytest.approx(log_loss(labels, scaled))
    # Fitted on the rows it is measured on, it looks better than it is.
    flattering = log_loss(labels, found.scaling(chances))
    assert flattering < found.after["log_loss"]


# --- offsets -----------------------------------------------------------------------------


def drawn(num_classes, seed=0, count=500):
    """Answers that are too sure, and say the first class too seldom."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(count, num_classes), scale=1.5)
    labels = np.array([generator.choice(num_classes, p=p) for p in softmax(logits, axis=1)])
    logits[:, 0] -= 1.0
    return labels, softmax(2 * logits, axis=1)


@pytest.mark.parametrize("num_classes", [2, 3, 7])
def test_offsets_are_the_best_there_are(num_classes):
    labels, chances = drawn(num_classes)
    logs = np.log(chances)

    def loss(place):
        scaled = log_softmax(logs * place[0] + place[1:], axis=1)
        return -scaled[np.arange(len(labels)), labels].mean()

    best = minimize(loss, np.array([1.0, *np.zeros(num_classes)]), tol=1e-12)
    found = fit_offsets(labels, chances)
    assert found.temperature == pytest.approx(1 / best.x[0], rel=1e-3)
    assert found.offsets == pytest.approx(best.x[1:] - best.x[1:].mean(), abs=1e-3)
    assert log_loss(labels, found(chances)) <= best.fun + 1e-12
    assert sum(found.offsets) == pytest.approx(0)
    # As often as a class is there, so much of it is said in the mean.
    assert found(chances).mean(axis=0) == pytest.approx(np.bincount(labels) / len(labels))
    assert found.temperature == pytest.approx(2, rel=0.2)
    assert found.offsets[0] == max(found.offsets)


# --- the file ----------------------------------------------------------------------------


@pytest.fixture
def run(tiny_run, tmp_path):
    return shutil.copytree(tiny_run, tmp_path / "the run")


def keep(folder, model, fits):
    (folder / "calibration.json").write_text(dump_calibration(model.identify(), fits, "dev"))


def calibrate_by_hand(folder, **temperatures):
    model = load(folder, calibrated=False)
    one = fit(LABELS, CHANCES)
    fits = {task: replace(one, scaling=Scaling(t)) for task, t in temperatures.items()}
    keep(folder, model, fits)


def test_a_predictor_applies_it(run):
    plain = Predictor.load(run)
    calibrate_by_hand(run, mood=3.0, same=0.5)
    known = {"mood": Scaling(3.0), "same": Scaling(0.5)}
    assert read_scalings(run, plain.config.tasks, plain.identify) == known
    scaled = Predictor.load(run)
    dev = scaled.load_split("dev")
    for task, temperature in (("mood", 3.0), ("same", 0.5)):
        before = plain.answer(task, dev[task])
        after = scaled.answer(task, dev[task])
        assert after == pytest.approx(apply_temperature(before, temperature))
        assert (after.argmax(axis=1) == before.argmax(axis=1)).all()
        assert abs(after - before).max() > 0.01
    assert (scaled.answer("near", dev["near"]) == plain.answer("near", dev["near"])).all()
    assert Predictor.load(run, calibrated=False).scalings == {}


def test_an_ensemble_has_its_own(run, tmp_path):
    other = shutil.copytree(run, tmp_path / "other")
    folder = make_ensemble([run, other], tmp_path / "both", "mean")
    calibrate_by_hand(folder, mood=2.0)
    ensemble = Ensemble.load(folder)
    dev = ensemble.load_split("dev")
    plain = Ensemble.load(folder, calibrated=False)
    expected = apply_temperature(plain.answer("mood", dev["mood"]), 2.0)
    assert ensemble.answer("mood", dev["mood"]) == pytest.approx(expected)
    assert ensemble.identify() == plain.identify()
    assert ensemble.fingerprint() != plain.fingerprint()  # so --resume does not mix them
    calibrate_by_hand(other, mood=4.0)  # the common answers are others now
    with pytest.raises(RunError, match="belongs to another model"):
        Ensemble.load(folder)


TEMPERATURE = r"has a temperature for task 'mood' that is not a number above 0"
OFFSETS = r"has offsets for task 'mood' that are not a list of numbers"

EDITS = [  # what a hand may make of the tasks, and what is said of it
    *(({"mood": {"temperature": t}}, TEMPERATURE) for t in (0, -1, math.inf, math.nan, 10**400)),
    *(({"mood": {"temperature": t}}, TEMPERATURE) for t in ("warm", "2", True, None, [2.0])),
    ({"mood": {"offsets": [0, 0, 0]}}, TEMPERATURE),
    *(({"mood": {"temperature": 2, "offsets": o}}, OFFSETS) for o in ("123", 1, None, {"1": 2})),
    *(({"mood": {"temperature": 2, "offsets": [0, o, 0]}}, OFFSETS) for o in ("1", None, math.nan)),
    ({"mood": {"temperature": 2, "offsets": [1]}}, "has 1 offset for task 'mood' of 3 classes"),
    ({"same": {"temperature": 2, "offsets": [1, 1, 2]}}, "3 offsets for task 'same' of 2 classes"),
    ({"mod": {"temperature": 2}}, "has a scaling for task 'mod', which the model does not have"),
    ({"near": {"temperature": 2}}, "has a scaling for task 'near', whose kind cannot"),
    *((tasks, "is damaged") for tasks in (None, [], "mood", {"mood": 2.0}, {"mood": None})),
]


@pytest.mark.parametrize(("tasks", "told"), EDITS)
def test_a_file_edited_by_hand_into_nonsense_is_refused(run, tasks, told):
    """By whoever loads the model, and whoever writes of it; to undo it is always possible."""
    calibrate_by_hand(run, mood=3.0)
    path = run / "calibration.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tasks": tasks}))
    sentence = f"^{re.escape(str(path))} (has )?{told}.*; `plait calibrate '{re.escape(str(run))}'"
    for reading in (Predictor.load, make_card):
        with pytest.raises(RunError, match=sentence):
            reading(run)
    assert undo(run)
    assert Predictor.load(run).scalings == {}
