"""What every task kind satisfies, and that a new kind needs one class."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from plait.config import read_recipe
from plait.errors import RecipeError
from plait.inference.ensemble import load
from plait.methods.losses import LOSSES
from plait.tasks import TASK_KINDS, Binary, Classes, Labels, Score, TaskSpec
from plait.training.runs import train

KINDS = {
    "classes": Classes(labels=("bad", "so-so", "good")),
    "binary": Binary(),
    "labels": Labels(labels=("a", "b", "c"), threshold=0.4),
    "score": Score(range=(1.0, 5.0)),
}
ROWS = 12
COLUMN_TYPES = {"integer": pa.int64(), "number": pa.float64(), "text": pa.string()}


def answers_of(kind, seed=0):
    raw = np.random.default_rng(seed).random((ROWS, max(len(kind.words), 1)))
    if kind.form == "distribution":
        return raw / raw.sum(axis=1, keepdims=True)
    return raw if kind.form == "independent" else 1 + 4 * raw[:, 0]


def labels_of(kind):
    """Labels that the answers would be right about."""
    return kind.decide(answers_of(kind)).astype(kind.dtype)


@pytest.fixture(params=sorted(KINDS))
def kind(request):
    return KINDS[request.param]


def test_every_kind_is_tested():
    assert set(TASK_KINDS) == set(KINDS)


def test_a_prediction_says_what_was_decided(kind):
    answers = answers_of(kind)
    words = kind.write(kind.decide(answers))
    predictions = [kind.predict("x", answer) for answer in answers]
    assert [p.label for p in predictions] == words
    assert all((p.confidence is None) == (kind.form == "number") for p in predictions)
    assert all(p.confidence is None or 0 < p.confidence <= 1 for p in predictions)


def test_what_is_spelled_is_read(kind):
    reader = kind.reader(("label",), {}, separator=";", scale=None)
    for answer, decided in zip(answers_of(kind), kind.decide(answers_of(kind)), strict=True):
        read = reader.read(kind.spell(kind.predict("x", answer), ";"))
        assert np.allclose(read, decided, atol=1e-4)


def test_one_member_is_its_ensemble(kind):
    answers = answers_of(kind)
    for how in ("mode", "mean"):
        assert np.allclose(kind.combine(answers[None], how), answers)


def test_a_vote_is_the_decision_of_the_combined_answer():
    for kind in (KINDS["classes"], KINDS["labels"]):
        members = np.stack([answers_of(kind, seed) for seed in range(3)])
        decided = np.stack([kind.decide(member) for member in members])
        found = kind.decide(kind.combine(members, "mode"))
        if kind.form == "independent":
            assert (found == (decided.sum(axis=0) >= 2)).all()
        else:
            votes = (decided == found).sum(axis=0)
            assert (votes >= 1).all()
            assert (votes[(decided == decided[0]).all(axis=0)] == 3).all()


def test_nothing_is_at_no_distance(kind):
    answers = answers_of(kind)
    assert not kind.distance(answers, answers).any()
    assert not kind.differs(answers, answers).any()
    moved = kind.distance(answers, answers[::-1])
    assert ((moved >= 0) & (moved <= 1)).all()
    assert kind.differs(answers, answers[::-1]).any()
    assert kind.typical(answers).shape == answers[:1].shape


def test_perfect_answers_have_no_mistakes(kind):
    answers = answers_of(kind).astype(kind.dtype if kind.form == "number" else float)
    verdicts = kind.judge(labels_of(kind), answers.astype(float))
    assert not len(verdicts.order())
    assert verdicts.metric in kind.metrics
    best = kind.score(labels_of(kind), answers_of(kind)).metrics[kind.metrics[0]]
    assert best == pytest.approx(1)
    assert kind.to_unit(best) == pytest.approx(1)


def test_scores_have_every_metric(kind):
    scores = kind.score(labels_of(kind), answers_of(kind, 1))
    assert tuple(scores.metrics) == kind.metrics
    assert scores.kind == kind.name
    json.dumps(scores.to_json(), allow_nan=False)
    assert all(map(math.isnan, kind.score(labels_of(kind)[:0], kind.empty()).metrics.values())) or (
        kind.form != "number"
    )


def test_the_baseline_has_the_shape_of_answers(kind):
    assert kind.baseline(labels_of(kind), 5).shape == answers_of(kind)[:5].shape
    assert kind.empty().shape == answers_of(kind)[:0].shape
    with pytest.raises(ValueError, match="training labels"):
        kind.baseline(labels_of(kind)[:0], 5)


def test_cells_fit_their_columns(kind):
    columns = kind.columns()
    for answer in answers_of(kind):
        prediction = kind.predict("x", answer)
        cells = kind.cells(prediction, ";")
        assert len(cells) == len(columns)
        for column, cell in zip(columns.values(), cells, strict=True):
            pa.array([cell], COLUMN_TYPES[column])
        json.dumps(kind.to_json(prediction), allow_nan=False)


def test_labels_are_counted_and_grouped(kind):
    labels = labels_of(kind)
    counts = kind.count(labels)
    assert (counts is None) == (kind.form == "number")
    assert counts is None or len(counts) == len(kind.words)
    assert kind.groups(labels).shape == (ROWS,)
    assert not kind.contradict(labels[:1].repeat(2, axis=0))
    assert kind.contradict(np.stack([labels.min(axis=0), labels.max(axis=0)]))


def test_the_linear_model_answers(kind):
    features = np.random.default_rng(0).normal(size=(ROWS, 4))
    fitted = kind.fit(features, labels_of(kind).astype(float), 1.0)
    found = kind.linear_answers(fitted(features))
    assert found.shape == answers_of(kind).shape
    assert LOSSES[kind.default_loss].suits(kind)


def test_a_spec_reads_back(kind):
    spec = TaskSpec(kind=kind, text=("t",), range=getattr(kind, "range", (0.0, 1.0)))
    table = spec.model_dump(exclude_defaults=True)
    assert table["kind"] == kind.name
    assert TaskSpec(**{**table, "threshold": getattr(kind, "threshold", 0.5)}).kind == kind


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"kind": "multi"}, "no task-kind 'multi'"),
        ({"kind": 3}, "kind is a name, or a table with a name"),
        ({"kind": "classes"}, "two or more"),
        ({"kind": "classes", "labels": ["a", "a"]}, "labels has 'a' twice"),
        ({"kind": "binary", "labels": ["a", "b", "c"]}, "a binary task has 2 labels, not 3"),
        ({"kind": "labels"}, "labels must give"),
        ({"kind": "labels", "labels": 2, "threshold": 1.0}, "threshold is a probability"),
        ({"kind": "classes", "labels": 2, "threshold": 0.4}, "kind 'classes' has no threshold"),
        ({"kind": "score", "labels": 2}, "kind 'score' has no labels"),
        ({"kind": "score", "range": [2, 1]}, "must be below"),
        ({"kind": {"name": "score", "margin": 1}}, "margin is not a setting of task-kind 'score'"),
    ],
)
def test_wrong_settings_are_refused(table, sentence):
    with pytest.raises(ValueError, match=sentence):
        TaskSpec(**table, text=("t",))


# --- a fifth kind ------------------------------------------------------------------------


@pytest.fixture
def ordinal():
    """A kind of a known form: classes in an order, scored by their distance as well."""

    @TASK_KINDS.register("ordinal")
    @dataclass(frozen=True, kw_only=True)
    class Ordinal(Classes):
        """One class out of several that have an order."""

        name: ClassVar[str] = "ordinal"
        metrics: ClassVar[tuple[str, ...]] = (*Classes.metrics, "mean_steps")
        step: float = 1.0

        def score(self, labels, answers):
            """Add the mean number of steps between class and answer."""
            scores = super().score(labels, answers)
            steps = np.abs(self.decide(np.asarray(answers)) - np.asarray(labels))
            scores.metrics["mean_steps"] = self.step * float(steps.mean()) if len(steps) else 0.0
            return scores

    yield Ordinal
    del TASK_KINDS._parts["ordinal"]


def test_a_new_kind_is_one_class(ordinal, tiny_recipe, tmp_path):
    recipe = tiny_recipe()
    overrides = ["tasks.mood.kind={name='ordinal', step=2.0}", "train.max_steps=2"]
    config = read_recipe(recipe, overrides)
    assert config.tasks["mood"].kind == ordinal(labels=config.tasks["mood"].labels, step=2.0)
    train(config, tmp_path / "run")
    model = load(tmp_path / "run")
    assert model.config.tasks["mood"].kind.step == 2.0
    assert model.evaluate("dev", tasks=["mood"]).tasks["mood"].metrics["mean_steps"] >= 0
    assert model.predict("mood", ["what a day"])[0].label in config.tasks["mood"].labels
    out = tmp_path / "answers.csv"
    (tmp_path / "texts.csv").write_text("text\nwhat a day\n")
    model.predict_file(tmp_path / "texts.csv", out, tasks=["mood"])
    assert out.read_text().startswith("id,text,mood,mood_label,mood_confidence")


def test_an_unknown_kind_of_a_run_is_refused_in_a_sentence(tiny_recipe):
    with pytest.raises(RecipeError, match="no task-kind 'ordinal'"):
        read_recipe(tiny_recipe(), ["tasks.mood.kind='ordinal'"])
