"""What is counted before a run is what the run then has."""

from __future__ import annotations

from collections import Counter

import pytest

from plait.config import read_recipe
from plait.data import Tokenizer
from plait.data.loading import load_data
from plait.model.sources import find_encoder
from plait.training.amounts import Amounts
from plait.training.build import load_named_texts
from plait.training.counting import count_run
from plait.training.listeners import Listener
from plait.training.plan import Plan

KINDS = [
    "'mlm'",
    "{name='mlm', texts=['more']}",
    "{name='simcse', texts=['more'], from_tasks=false}",
    "'simcse'",
    "'simcse-pairs'",
    "{name='simcse-pairs', threshold=0.5, texts=['more']}",
    "'contrast'",
]
MORE = "texts.more={files='same-train.csv', text=['a', 'b']}"


class Stages(Listener):
    """Counts the updates of each stage."""

    def __init__(self):
        self.updates = Counter()

    def step(self, record):
        self.updates[record.stage] += 1


def count_examples(amounts, config, name):
    plan = Plan.build(config)
    (stage,) = (stage for stage in plan.stages if stage.name == name)
    return amounts.examples(stage, plan.tasks)


def read_all(config):
    tokenizer = Tokenizer.from_file(find_encoder(config.encoder.source).tokenizer)
    texts = load_named_texts(Plan.build(config), tokenizer)
    return Amounts(train=load_data(config, tokenizer, "train"), texts=texts)


def settings(kind, *more):
    stage = f"stage.first={{kind={kind}, batch_size=8, accumulate=2, epochs=2}}"
    return ["stages=['first', 'finetune']", "train.epochs=1", stage, MORE, *more]


@pytest.mark.parametrize("kind", KINDS)
def test_updates_of_pre_training_are_counted_exactly(runs, kind):
    config = read_recipe(runs.recipe, settings(kind))
    plan = count_run(config, read_all(config))
    heard = Stages()
    runs.train("run", *settings(kind), listeners=[heard])
    assert {stage.name: stage.updates for stage in plan.stages} == heard.updates
    assert all(stage.is_exact for stage in plan.stages)
    assert plan.updates == heard.updates.total()


@pytest.mark.parametrize("kind", ["'mlm'", "'simcse'", "{name='simcse-pairs', threshold=0.5}"])
def test_an_estimate_is_never_too_low(runs, kind):
    config = read_recipe(runs.recipe, settings(kind))
    amounts = read_all(config)

    def count(amounts):
        found, is_exact = count_examples(amounts, config, "first")
        (examples,) = found.values()
        return examples, is_exact

    exact, _ = count(amounts)
    about, is_exact = count(Amounts(amounts.rows))
    assert (about >= exact, is_exact) == (True, False)
    some = {task: data for task, data in amounts.train.items() if task != "same"}
    mixed, is_exact = count(Amounts({"same": 32}, some))
    assert exact <= mixed <= about
    assert not is_exact


def test_what_a_kind_does_not_take_needs_no_estimate(runs):
    config = read_recipe(runs.recipe, settings("{name='simcse', texts=['more'], from_tasks=false}"))
    texts = read_all(config).texts
    assert count_examples(Amounts({"mood": 1, "same": 1, "near": 1}, texts=texts), config, "first")[
        1
    ]
    assert count_examples(Amounts({"mood": 1, "same": 1, "near": 1}), config, "first") is None
