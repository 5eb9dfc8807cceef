"""A run's mistakes with their places and the training rows most similar to them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import plait.analysis.mistakes as mistakes
from plait.analysis.mistakes import find_mistakes, find_nearest, list_mistakes
from plait.inference.predictor import Predictor


@pytest.fixture
def model(tiny_run: Path) -> Predictor:
    return Predictor.load(tiny_run)


@pytest.mark.parametrize("task", ["mood", "same", "near"])
def test_every_kind_of_task(model, task):
    dev, rows = (model.load_split(s, tasks=[task])[task] for s in ("dev", "train"))
    found = find_mistakes(model, task, dev, top=4, train=rows, embedder=model)
    assert found.metrics == model.evaluate("dev", tasks=[task]).tasks[task].metrics
    assert len(found.worst) == 4
    severities = [mistake.severity for mistake in found.worst]
    assert severities == sorted(severities, reverse=True)
    for mistake in found.worst:
        assert mistake.answer != mistake.truth
        first, second = mistake.nearest
        assert first.similarity >= second.similarity or first.is_copy
        for row in (mistake, first, second):
            line = row.place.path.read_text(encoding="utf-8").splitlines()[row.place.number - 1]
            assert line.startswith(f"{row.id},")
            assert all(text in line for text in row.texts)
    told = found.to_json()
    json.dumps(told, allow_nan=False)
    assert told["worst"][0]["line"] == found.worst[0].place.number
    assert set(told["worst"][0]["nearest"][0]) >= {"file", "truth", "similarity", "is_copy"}


def test_every_mistake_is_listed(model):
    dev = model.load_split("dev", tasks=["mood"])["mood"]
    found = find_mistakes(model, "mood", dev, top=1)
    listed = list_mistakes(found, dev)
    assert len(listed) == round((1 - found.metrics["accuracy"]) * len(dev)) > 1
    assert {change for change, _ in listed} == {""}
    assert listed[0][1] == found.worst[0]
    assert found.worst[0].nearest == ()


def test_compared_with_another_run(model, train_once):
    other = Predictor.load(train_once("seed=3", "train.epochs=4"))
    dev = model.load_split("dev", tasks=["mood"])["mood"]
    against = other.answer("mood", other.read(model.config, "dev", tasks=["mood"])["mood"])
    found = find_mistakes(model, "mood", dev, against=against, draws=50)
    gained = len(found.comparison.fixed) - len(found.comparison.broken)
    assert gained == round(found.comparison.metrics["accuracy"].value * len(dev))
    listed = list_mistakes(found, dev)
    changes = [change for change, _ in listed]
    assert changes.count("fixed") == len(found.comparison.fixed) > 0
    assert changes.count("broken") == len(found.comparison.broken)
    for change, mistake in listed:
        assert (mistake.against == mistake.truth) == (change == "broken")
    assert found.to_json()["comparison"]["fixed_rows"][0]["against"]


def test_a_text_that_just_fits_is_not_truncated(model):
    limit = model.tokenise([("film",)]).limit
    rows = model.tokenise([("film " * count,) for count in (limit, limit + 1)])
    assert mistakes._truncated(rows).tolist() == [False, True]


# --- similar training rows ---------------------------------------------------------------


def test_a_copy_is_always_found(model, monkeypatch):
    """Whatever its case and order, and however few rows are drawn."""
    monkeypatch.setattr(mistakes, "MAX_TRAIN_ROWS", 1)
    rows = model.load_split("train", tasks=["same"])["same"]
    first, second = rows.texts([29])[0]
    queries = model.tokenise([(second.upper(), first + " !!")])
    ((near, *_),) = find_nearest(model, queries, rows, model.tasks["same"].spec)
    assert (near.id, near.is_copy) == (rows.ids[29], True)
    assert 0.5 < near.similarity < 1.001


def test_chunks_do_not_change_the_result(model, monkeypatch):
    rows = model.load_split("train", tasks=["near"])["near"]
    queries = model.load_split("dev", tasks=["near"])["near"].select([0, 3, 7])
    spec, heard = model.tasks["near"].spec, []
    whole = find_nearest(model, queries, rows, spec)
    monkeypatch.setattr(mistakes, "CHUNK", 5)
    monkeypatch.setattr("plait.inference.frozen.BLOCK", 1)
    parts = find_nearest(model, queries, rows, spec, progress=lambda *at: heard.append(at))
    assert [[n.id for n in near] for near in parts] == [[n.id for n in near] for near in whole]
    assert heard[-1] == (len(rows), len(rows))


def test_a_training_row_is_not_its_own_neighbour(model):
    rows = model.load_split("train", tasks=["mood"])["mood"]
    found = find_mistakes(model, "mood", rows, top=3, train=rows, embedder=model)
    assert found.worst
    for mistake in found.worst:
        assert all(near.place != mistake.place for near in mistake.nearest)
    assert find_mistakes(model, "mood", rows, top=0, train=rows, embedder=model).worst == []
