"""Each task alone: its budget is its share of the joint run's."""

from __future__ import annotations

import pytest

from plait.config import read_recipe, to_toml
from plait.errors import RecipeError
from plait.training.alone import plan_alone
from plait.training.plan import plan_run

ROWS = {"mood": 45, "same": 32, "near": 24}


def taken(config, rows, task):
    return [s.tasks[task].batches_taken for s in plan_run(config, rows).stages if task in s.tasks]


SCHEDULES = [
    "round-robin",
    "sequential",
    "{name='sequential', order=['near', 'same', 'mood'], length='truncated'}",
    "{name='round-robin', together=true}",
    "proportional",
    "by-epoch",
]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("more", [[], ["train.epochs=5"], ["train.max_steps=7"]])
def test_a_task_alone_gets_as_many_batches(tiny_recipe, schedule, more):
    config = read_recipe(tiny_recipe(), [f"train.schedule={schedule}", *more])
    for task, alone in plan_alone(config, ROWS).items():
        plan = plan_run(alone.config, ROWS)
        assert list(alone.config.tasks) == [task]
        assert taken(alone.config, ROWS, task) == taken(config, ROWS, task) == [alone.batches]
        assert plan.updates == alone.updates == alone.batches


def test_accumulated_batches_are_rounded_up_to_an_update(tiny_recipe):
    config = read_recipe(tiny_recipe(), ["train.accumulate=3", "train.epochs=1"])
    alone = plan_alone(config, ROWS)["same"]  # 3 batches a pass, 4 in a joint epoch
    assert alone.batches == 4
    assert alone.config.stage_config("finetune").accumulate == 3
    assert alone.updates == 2  # a whole pass, and 1 of the next rounded up to 3
    assert taken(alone.config, ROWS, "same") == [6]


def test_dev_is_scored_as_often(tiny_recipe):
    config = read_recipe(tiny_recipe(), ["train.epochs=4"])
    stage = plan_alone(config, ROWS)["near"].config.stage_config("finetune")
    assert (stage.max_steps, stage.eval_every) == (16, 4)  # after each joint epoch of 4 rounds
    config = read_recipe(tiny_recipe(), ["train.epochs=4", "train.eval_every=12"])  # of 48
    stage = plan_alone(config, ROWS)["near"].config.stage_config("finetune")
    assert stage.eval_every == 4


def test_stages_and_what_is_between_tasks(tiny_recipe):
    overrides = [
        "stages=['first', 'second']",
        "stage.first={tasks=['same'], epochs=1, lr=1e-3}",
        "stage.second={schedule='proportional', aggregator='pcgrad', weighting='uncertainty'}",
        "train.regularizers=[{name='smart', weight={mood=2.0, same=1.0}}]",
        "train.aggregator={name='gradvac', beta=0.1}",
    ]
    config = read_recipe(tiny_recipe(), overrides)
    alone = plan_alone(config, ROWS)
    assert alone["same"].config.stages == ("first", "second")
    assert alone["mood"].config.stages == ("second",)
    first = alone["same"].config.stage_config("first")
    assert (first.lr, first.max_steps, first.tasks) == (1e-3, 3, ("same",))
    second = alone["mood"].config.stage_config("second")
    parts = [p["name"] for p in (second.schedule, second.aggregator, second.weighting)]
    assert parts == ["sequential", "sum", "fixed"]
    assert second.regularizers == ({"name": "smart", "weight": {"mood": 2.0}},)
    assert alone["near"].config.stage_config("second").regularizers == ()
    for one in alone.values():
        plan_run(one.config, ROWS)  # what is left is a recipe that can be built


def test_a_task_that_never_trains_is_left_out(tiny_recipe):
    config = read_recipe(tiny_recipe(), ["train.tasks=['mood', 'same']"])
    assert list(plan_alone(config, ROWS)) == ["mood", "same"]


def test_a_recipe_alone_survives_being_written(tiny_recipe, tmp_path):
    config = plan_alone(read_recipe(tiny_recipe(), ["train.max_steps=5"]), ROWS)["mood"].config
    (tmp_path / "x.toml").write_text(to_toml(config), encoding="utf-8")
    assert to_toml(read_recipe(tmp_path / "x.toml")) == to_toml(config)
    assert config.name == "tiny-mood"


def test_stages_that_pre_train_are_refused(tiny_recipe):
    config = read_recipe(tiny_recipe(), ["stages=['a', 'finetune']", "stage.a={kind='simcse'}"])
    with pytest.raises(RecipeError, match=r"stage\.a pre-trains \(simcse\)"):
        plan_alone(config, ROWS)
