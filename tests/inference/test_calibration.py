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
    tells_offsets,
    tells_temperature,
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


def test_the_ends_of_the_bins():
    bins = reliability([0, 0], [[1.0, 0.0], [0.5, 0.5]], num_bins=2)
    assert [b.count for b in bins] == [1, 1]
    assert reliability([0], [[1.0 + 1e-12, 0.0]], num_bins=2)[1].count == 1


def test_nothing_and_nan():
    none = np.zeros((0, 3))
    assert math.isnan(calibration_error([], none))
    assert fit_temperature([], none) == 1.0
    assert cross_fit([], none, fit_scaling).shape == (0, 3)
    broken = [[math.nan, math.nan], *CHANCES]
    assert calibration_error([0, *LABELS], broken) == pytest.approx(0.2)
    assert fit_temperature([0, *LABELS], broken) == pytest.approx(fit_temperature(LABELS, CHANCES))


def test_a_temperature_divides_the_logits():
    logits = np.random.default_rng(0).normal(size=(20, 4), scale=3)
    scaled = apply_temperature(softmax(logits, axis=1), 2.5)
    assert scaled == pytest.approx(softmax(logits / 2.5, axis=1))
    assert apply_temperature(CHANCES, 1.0) == pytest.approx(np.array(CHANCES))


def test_a_temperature_of_yes_and_no():
    z = np.array([-3.0, -0.5, 0.2, 4.0])
    yes = 1 / (1 + np.exp(-z))
    scaled = apply_temperature(np.stack([1 - yes, yes], axis=1), 3.0)
    assert scaled[:, 1] == pytest.approx(1 / (1 + np.exp(-z / 3)))


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


def test_a_temperature_by_hand():
    """Of answers that are 90% sure, three in four are right: sigmoid(ln 9 / T) must be 3/4."""
    chances = np.tile([0.9, 0.1], (4, 1))
    expected = math.log(9) / math.log(3)
    assert fit_temperature([0, 0, 0, 1], chances) == pytest.approx(expected)
    assert apply_temperature(chances, expected)[0] == pytest.approx([0.75, 0.25])


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


def test_the_ends_of_temperatures():
    """Nothing wrong asks for a temperature of 0; all wrong for an infinite one."""
    chances = np.tile([0.7, 0.3], (6, 1))
    assert fit_temperature([0] * 6, chances) == pytest.approx(LOWEST)
    assert fit_temperature([1] * 6, chances) == pytest.approx(HIGHEST)
    assert fit([0] * 6, chances).at_the_limit
    assert fit([1] * 6, chances).at_the_limit
    assert not fit(LABELS * 4, CHANCES * 4).at_the_limit


@pytest.mark.parametrize("chances", [CHANCES[:4], np.array(CHANCES)[:, 0]])
def test_labels_of_other_rows_are_refused(chances):
    with pytest.raises(ValueError, match="for 5 labels"):
        fit_temperature(LABELS, chances)


def test_a_temperature_takes_right_and_wrong_answers():
    chances = np.tile([0.7, 0.3], (6, 1))
    told = {
        wrong: tells_temperature([1] * wrong + [0] * (6 - wrong), chances) for wrong in range(7)
    }
    assert [wrong for wrong, tells in told.items() if tells] == [2, 3, 4]


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


def test_rows_of_one_group_are_in_one_half():
    groups = np.random.default_rng(0).integers(0, 40, 301)
    half = halves(301, groups)
    assert {len(np.unique(half[groups == group])) for group in np.unique(groups)} == {1}
    assert min(np.bincount(half)) > 100
    assert np.array_equal(half, halves(301, groups))


def test_copies_of_a_row_do_not_flatter():
    """What suits one copy suits the other, and seems to hold for rows that were not seen."""
    labels, chances = drawn(7, count=16)
    labels, chances = np.repeat(labels, 8), np.repeat(chances, 8, axis=0)
    groups = np.repeat(np.arange(16), 8)
    alone, together = (fit(labels, chances, offsets=True, groups=g) for g in (None, groups))
    assert together.scaling == alone.scaling
    assert together.before == alone.before
    assert together.after["log_loss"] > alone.after["log_loss"]


def test_one_group_tells_nothing_of_others():
    labels, chances = drawn(3, count=40)
    for offsets in (False, True):
        found = fit(labels, chances, offsets=offsets, groups=np.zeros(40))
        assert found.after == pytest.approx(found.before)


# --- offsets -----------------------------------------------------------------------------


def test_offsets_by_hand():
    """Nothing is known of any row, and three in four are of the first class: offsets ln 3 apart."""
    found = fit_offsets([0, 0, 0, 1], np.full((4, 2), 0.5))
    assert found.offsets == pytest.approx((math.log(3) / 2, -math.log(3) / 2))
    assert found([[0.5, 0.5]])[0] == pytest.approx([0.75, 0.25])


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


def test_what_offsets_do_is_measured_on_rows_they_were_not_fitted_on():
    labels, chances = drawn(3)
    half = halves(len(labels))
    expected = np.empty_like(chances)
    for mine in (0, 1):
        other = half != mine
        expected[half == mine] = fit_offsets(labels[other], chances[other])(chances[half == mine])
    found, plain = fit(labels, chances, offsets=True), fit(labels, chances)
    assert found.scaling == fit_offsets(labels, chances)
    assert found.after["log_loss"] == pytest.approx(log_loss(labels, expected))
    assert found.after["accuracy"] == (expected.argmax(axis=1) == labels).mean()
    assert found.after["accuracy"] > found.before["accuracy"]
    assert found.after["log_loss"] < plain.after["log_loss"] < plain.before["log_loss"]
    assert plain.after["accuracy"] == plain.before["accuracy"]


def test_offsets_without_end_are_held():
    """No row is of the second class: no offset is low enough."""
    found = fit_offsets([0] * 6, np.tile([0.4, 0.6], (6, 1)))
    assert all(math.isfinite(offset) for offset in found.offsets)
    assert found([[0.4, 0.6]])[0].argmax() == 0
    assert fit_offsets([], np.zeros((0, 3))) == Scaling(1.0, (0.0, 0.0, 0.0))


def test_offsets_take_rows_of_every_class():
    chances = np.full((6, 3), 1 / 3)
    assert tells_offsets([0, 0, 1, 1, 2, 2], chances)
    assert not tells_offsets([0, 0, 0, 1, 1, 2], chances)
    assert not tells_offsets([0, 0, 0, 1, 1, 1], chances)


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


def test_a_predictor_applies_offsets(run):
    plain = Predictor.load(run)
    fits = {"mood": fit(*drawn(3), offsets=True)}
    keep(run, plain, fits)
    shifted = Predictor.load(run)
    assert shifted.scalings == {"mood": fits["mood"].scaling}
    dev = shifted.load_split("dev")["mood"]
    logits = np.log(plain.answer("mood", dev)) / fits["mood"].scaling.temperature
    expected = softmax(logits + np.array(fits["mood"].scaling.offsets), axis=1)
    assert shifted.answer("mood", dev) == pytest.approx(expected)
    assert shifted.fingerprint() != plain.fingerprint()


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


def test_a_file_of_another_model_is_refused(run):
    calibrate_by_hand(run, mood=3.0)
    path = run / "calibration.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"model": "0" * 64}))
    with pytest.raises(RunError, match=r"another model .* run `plait calibrate .*` again"):
        Predictor.load(run)
    for text in ("{", "[]", '{"tasks": {"mood": {"temperature": 2}}}'):
        path.write_text(text)
        with pytest.raises(RunError, match=r"is damaged; `plait calibrate '.*run' --undo`"):
            Predictor.load(run)


TEMPERATURE = r"has a temperature for task 'mood' that is no number above 0"
OFFSETS = r"has offsets for task 'mood' that are no list of numbers"

EDITS = [  # what a hand may make of the tasks, and what is said of it
    *(({"mood": {"temperature": t}}, TEMPERATURE) for t in (0, -1, math.inf, math.nan, 10**400)),
    *(({"mood": {"temperature": t}}, TEMPERATURE) for t in ("warm", "2", True, None, [2.0])),
    ({"mood": {"offsets": [0, 0, 0]}}, TEMPERATURE),
    *(({"mood": {"temperature": 2, "offsets": o}}, OFFSETS) for o in ("123", 1, None, {"1": 2})),
    *(({"mood": {"temperature": 2, "offsets": [0, o, 0]}}, OFFSETS) for o in ("1", None, math.nan)),
    ({"mood": {"temperature": 2, "offsets": [1]}}, "has 1 offset for task 'mood' of 3 classes"),
    ({"same": {"temperature": 2, "offsets": [1, 1, 2]}}, "3 offsets for task 'same' of 2 classes"),
    ({"mod": {"temperature": 2}}, "scales a task 'mod', which the model does not have"),
    ({"near": {"temperature": 2}}, "scales task 'near', whose answers are no probabilities"),
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


def test_a_file_edited_by_hand_into_sense_is_used(run):
    calibrate_by_hand(run, mood=3.0)
    path = run / "calibration.json"
    tasks = {"mood": {"temperature": 2, "offsets": [1, -1, 0]}, "same": {"temperature": 1.5}}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tasks": tasks}))
    known = {"mood": Scaling(2.0, (1.0, -1.0, 0.0)), "same": Scaling(1.5)}
    assert Predictor.load(run).scalings == known


def test_an_ensemble_and_its_members_refuse_nonsense(run, tmp_path):
    folder = make_ensemble([run], tmp_path / "both", "mean")
    for place in (folder, run):
        calibrate_by_hand(place, mood=3.0)
        path = place / "calibration.json"
        path.write_text(path.read_text().replace("3.0", '"warm"'))
        with pytest.raises(RunError, match=rf"{place.name}/calibration\.json {TEMPERATURE}"):
            Ensemble.load(folder)
        path.unlink()
