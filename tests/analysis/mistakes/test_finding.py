"""A run's mistakes with their places and their neighbours, on a run small enough for a test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from csv_rows import read_rows
from plait.analysis.mistakes import Other, find_mistakes, find_nearest, list_mistakes
from plait.analysis.mistakes.finding import _find_cut
from plait.inference.predictor import Predictor

TASKS = ("mood", "same", "near")


@pytest.fixture
def model(tiny_run: Path) -> Iterator[Predictor]:
    return Predictor.load(tiny_run)


@pytest.mark.parametrize("task", TASKS)
def test_every_kind_of_task(model, task):
    dev, train = (model.load_split(s, tasks=[task])[task] for s in ("dev", "train"))
    found = find_mistakes(model, task, dev, top=4, train=train, embedder=model)
    assert found.metrics == model.evaluate("dev", tasks=[task]).tasks[task].metrics
    assert len(found.worst) == 4
    severities = [mistake.severity for mistake in found.worst]
    assert severities == sorted(severities, reverse=True)
    for mistake in found.worst:
        lines = mistake.place.path.read_text(encoding="utf-8").splitlines()
        assert lines[mistake.place.number - 1].startswith(f"{mistake.id},")
        assert mistake.answer != mistake.truth
        assert len(mistake.nearest) == 2
        near, row = mistake.nearest[0]
        assert near.similarity >= mistake.nearest[1][0].similarity or near.is_copy
        lines = row.place.path.read_text(encoding="utf-8").splitlines()
        assert all(text in lines[row.place.number - 1] for text in row.texts)
    json.dumps(found.to_json(), allow_nan=False)


def test_every_mistake_is_listed(model):
    dev = model.load_split("dev", tasks=["mood"])["mood"]
    found = find_mistakes(model, "mood", dev, top=1)
    listed = list_mistakes(found, dev)
    wrong = round((1 - found.metrics["accuracy"]) * len(dev))
    assert len(listed) == wrong > 1
    assert {word for word, _ in listed} == {""}
    assert listed[0][1] == found.worst[0]
    assert found.worst[0].nearest == ()


def test_beside_another_run(model, tiny_recipe, tmp_path):
    from plait.config import read_recipe
    from plait.training.run import train

    config = read_recipe(tiny_recipe("again"), ["seed=3", "train.epochs=4"])
    other = Predictor.load(train(config, tmp_path / "other").folder)
    dev = model.load_split("dev", tasks=["mood"])["mood"]
    view = other.read(model.config, "dev", tasks=["mood"])["mood"]
    found = find_mistakes(model, "mood", dev, other=Other(other, view), draws=50)
    gained = len(found.comparison.fixed) - len(found.comparison.broken)
    accuracy = found.comparison.metrics["accuracy"]
    assert gained == round((accuracy.run - accuracy.against) * len(dev))
    words = [word for word, _ in list_mistakes(found, dev)]
    assert words.count("fixed") == len(found.comparison.fixed) > 0
    assert words.count("broken") == len(found.comparison.broken)
    for word, mistake in list_mistakes(found, dev):
        assert (mistake.against == mistake.truth) == (word == "broken")
    assert found.to_json()["comparison"]["fixed_rows"][0]["against"]


def test_a_text_that_just_fits_is_not_cut(model):
    limit = model.tokenise([("film",)]).limit
    rows = model.tokenise([("film " * count,) for count in (limit, limit + 1)])
    assert _find_cut(rows).tolist() == [False, True]


# --- neighbours --------------------------------------------------------------------------


def test_a_copy_is_found_whatever_its_case_and_however_few_rows_are_drawn(model):
    train = model.load_split("train", tasks=["same"])["same"]
    first, second = train.texts([29])[0]
    queries = model.tokenise([(second.upper(), first + " !!")])
    (near,) = find_nearest(model, queries, train, np.random.default_rng(0), most=1)
    assert (near[0].row, near[0].is_copy) == (29, True)
    assert 0.5 < near[0].similarity < 1.001


def test_neighbours_do_not_depend_on_chunks(model, monkeypatch):
    train = model.load_split("train", tasks=["near"])["near"]
    queries = model.load_split("dev", tasks=["near"])["near"].select([0, 3, 7])
    heard = []
    whole = find_nearest(model, queries, train, np.random.default_rng(0), count=3)
    monkeypatch.setattr("plait.analysis.mistakes.neighbours.CHUNK", 5)
    parts = find_nearest(
        model,
        queries,
        train,
        np.random.default_rng(0),
        count=3,
        most=0,  # all
        progress=lambda *at: heard.append(at),
    )
    assert [[n.row for n in near] for near in parts] == [[n.row for n in near] for near in whole]
    assert heard[-1] == (len(train), len(train))


def test_a_training_row_is_not_its_own_neighbour(model):
    train = model.load_split("train", tasks=["mood"])["mood"]
    found = find_mistakes(model, "mood", train, top=3, train=train, embedder=model)
    assert found.worst
    for mistake in found.worst:
        assert all(row.place != mistake.place for _, row in mistake.nearest)


def test_nothing_wanted_nothing_embedded(model):
    train = model.load_split("train", tasks=["mood"])["mood"]
    assert find_nearest(model, train.select([]), train, np.random.default_rng(0)) == []
    found = find_mistakes(model, "mood", train, top=0, train=train, embedder=model)
    assert found.worst == []


def test_the_table_can_be_read_back(model, tmp_path):
    from plait.cli.evaluate import _write_csv

    dev = model.load_split("dev", tasks=["same"])
    found = {"same": find_mistakes(model, "same", dev["same"], top=1)}
    _write_csv(tmp_path / "wrong.csv", found, dev)
    rows = read_rows(tmp_path / "wrong.csv")
    assert rows[0]["line"] == str(found["same"].worst[0].place.number)
    assert (rows[0]["text"], rows[0]["text2"]) == found["same"].worst[0].texts
