"""What a page tells, by hand: mistakes, differences, histories, numbers, markup."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.stats import binomtest, bootstrap

from plait.analysis.report.comparison import (
    Difference,
    compare,
    differing_settings,
    paired_bootstrap,
)
from plait.analysis.report.history import read_history
from plait.analysis.report.markup import Html, join, number, percent, shorten, signed, table, tag
from plait.analysis.report.mistakes import near_misses
from plait.config import RunConfig
from plait.errors import RunError
from plait.tasks import TaskSpec

MINUS = "\N{MINUS SIGN}"
CLASSES = {"kind": "classes", "labels": ["bad", "so-so", "good"]}
SCORE = {"kind": "score", "range": [0, 5]}

# --- mistakes ----------------------------------------------------------------------------


def test_near_misses_by_hand():
    near = near_misses([[5, 2, 1], [0, 4, 3], [1, 0, 6]])
    assert (near.wrong, near.near) == (7, 5)
    assert [(p.lower, p.upward, p.downward) for p in near.pairs] == [(0, 2, 0), (1, 3, 0)]
    assert near_misses([[2, 0], [0, 2]]).wrong == 0


# --- differences -------------------------------------------------------------------------

BINARY = TaskSpec(kind="binary", text=("text",))


def test_the_interval_is_that_of_scipy():
    generator = np.random.default_rng(3)
    labels = generator.integers(2, size=300)
    right = np.where(generator.random(300) < 0.8, labels, 1 - labels)
    worse = np.where(generator.random(300) < 0.7, labels, 1 - labels)
    mine, theirs = np.eye(2)[right] * 0.8 + 0.1, np.eye(2)[worse] * 0.8 + 0.1
    found = paired_bootstrap(BINARY, "accuracy", labels, mine, theirs, draws=2000)
    gains = (right == labels).astype(float) - (worse == labels)
    assert found.value == pytest.approx(gains.mean())
    expected = bootstrap(
        (gains,), np.mean, method="percentile", n_resamples=5000, rng=generator
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=0.01)


def test_equal_answers_do_not_differ():
    labels = np.array([0, 1, 1, 0])
    chances = np.eye(2)[labels]
    assert paired_bootstrap(BINARY, "accuracy", labels, chances, chances) == Difference(0, 0, 0)
    assert not Difference(0, 0, 0).is_clear
    assert Difference(0.1, 0.05, 0.2).is_clear
    assert Difference(-0.1, -0.2, -0.05).is_clear
    assert not Difference(0.1).is_clear


@pytest.mark.parametrize(
    ("fixed", "broken", "is_clear"), [(5, 0, False), (6, 0, True), (9, 2, False)]
)
def test_a_handful_of_changed_rows_is_no_clear_difference(fixed, broken, is_clear):
    """A coin's chances, two-sided: 1/16, 1/32 and .065; draws alone would call all three clear."""
    labels = np.zeros(100, dtype=int)
    mine, theirs = labels.copy(), labels.copy()
    theirs[:fixed] = mine[50 : 50 + broken] = 1
    found = paired_bootstrap(BINARY, "accuracy", labels, np.eye(2)[mine], np.eye(2)[theirs])
    assert found.value == pytest.approx((fixed - broken) / 100)
    assert found.is_clear == is_clear
    assert binomtest(broken, fixed + broken).pvalue < 0.05 or not found.is_clear
    if not is_clear:
        assert found.low == 0


def test_a_figure_that_never_exists_has_no_interval():
    spec = TaskSpec(kind="score", text=("text",))
    labels, constant = np.array([0.1, 0.5, 0.9]), np.full(3, 0.5)
    found = paired_bootstrap(spec, "pearson", labels, constant, labels, draws=20)
    assert all(math.isnan(v) for v in (found.value, found.low, found.high))
    empty = paired_bootstrap(spec, "pearson", labels[:0], constant[:0], labels[:0])
    assert math.isnan(empty.value)


def test_other_rows_have_no_interval(task_answers):
    one = task_answers(CLASSES, [0, 1, 2], np.eye(3))
    same = task_answers(CLASSES, [0, 1, 2], np.eye(3)[[0, 1, 1]])
    other = task_answers(CLASSES, [0, 1, 2], np.eye(3)[[0, 1, 1]], texts=["a", "b", "c"])
    score = task_answers(SCORE, [0, 1, 2], [0, 1, 2])
    assert compare(one, same).value == pytest.approx(1 / 3)
    assert math.isfinite(compare(one, same).low)
    assert compare(one, other).value == pytest.approx(1 / 3)
    assert math.isnan(compare(one, other).low)
    assert math.isnan(compare(one, score).value)


def test_settings_that_differ():
    base = {"tasks": {"t": {**CLASSES, "text": "t", "label": "l", "train": "x.csv"}}}
    first = RunConfig.model_validate({"name": "a", **base})
    second = RunConfig.model_validate(
        {"name": "a", "train": {"lr": 0.5, "schedule": {"name": "fixed", "steps": 3}}, **base}
    )
    found = differing_settings([first, second])
    assert found["train.lr"] == [str(first.train.lr), "0.5"]
    assert found["train.schedule.steps"] == ["unset", "3"]
    assert "name" not in found
    assert differing_settings([first, first]) == {}


# --- histories ---------------------------------------------------------------------------


def test_a_log_becomes_curves(tmp_path):
    lines = [
        {"event": "scores", "step": 0, "split": "dev", "metrics": {"a": {"accuracy": None}}},
        {
            "event": "losses",
            "step": 5,
            "losses": {"a": 1.5, "b": None},
            "conflicts": {"a,b": {"cosine": -0.5, "share": 1.0}},
        },
        {"event": "scores", "step": 5, "split": "dev", "metrics": {"a": {"accuracy": 0.5}}},
    ]
    path = tmp_path / "metrics.jsonl"
    text = "\n".join(map(json.dumps, lines)) + "\n"
    path.write_text(text + '{"event": "los')  # a killed process was writing
    history = read_history(path)
    assert history.losses["a"] == [(5, 1.5)]
    assert math.isnan(history.losses["b"][0][1])
    points = history.score("dev", "a", "accuracy")
    assert [step for step, _ in points] == [0, 5]
    assert math.isnan(points[0][1])
    assert points[1][1] == 0.5
    assert history.conflicts == {("a", "b"): {"cosine": [(5, -0.5)], "share": [(5, 1.0)]}}
    assert history.score("train", "a", "accuracy") == []

    path.write_text("nonsense\n" + text)
    with pytest.raises(RunError, match="line 1, is not one that plait wrote"):
        read_history(path)
    assert read_history(tmp_path / "none").losses == {}


# --- markup ------------------------------------------------------------------------------


def test_everything_is_escaped_once():
    assert tag("p", "a < b & c") == "<p>a &lt; b &amp; c</p>"
    assert tag("p", tag("b", "<i>")) == "<p><b>&lt;i&gt;</b></p>"
    assert tag("p", ["<", Html("<br>")]) == "<p>&lt;<br></p>"
    assert tag("a", "x", href='"&<', class_="c", hidden=True, id=None) == (
        '<a href="&quot;&amp;&lt;" class="c" hidden>x</a>'
    )
    assert join("<", Html("<")) == "&lt;<"
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_a_table_names_its_rows():
    text = table(["a", "b"], [["x<", "1"]], "what")
    assert '<th scope="row">x&lt;</th><td class="number">1</td>' in text
    assert "<caption>what</caption>" in text


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.5, "0.500"),
        (-0.25, f"{MINUS}0.250"),
        (-0.0001, "0.000"),
        (math.nan, "none"),
        (None, "none"),
    ],
)
def test_numbers(value, written):
    assert number(value) == written


def test_more_numbers():
    assert [signed(v) for v in (0.1, -0.1, 0.0, 0.0001, math.nan)] == [
        "+0.100",
        f"{MINUS}0.100",
        "0.000",
        "0.000",
        "none",
    ]
    assert [percent(v) for v in (0.256, math.nan)] == ["26%", "none"]
    assert [shorten(t, 4) for t in ("abcd", "abcde")] == ["abcd", "abc…"]
