"""Each task alone: its budget is its share of the joint run's."""

from __future__ import annotations

import pytest

from plait.config import read_recipe, to_toml
from plait.data import Tokenizer
from plait.data.loading import load_data
from plait.model.sources import find_encoder
from plait.training.alone import plan_alone
from plait.training.amounts import Amounts
from plait.training.build import load_named_texts
from plait.training.counting import count_run
from plait.training.plan import Plan

ROWS = {"mood": 45, "same": 32, "near": 24}


def examples(amounts, config, name):
    plan = Plan.build(config)
    (stage,) = (stage for stage in plan.stages if stage.name == name)
    return amounts.examples(stage, plan.tasks)


def taken(config, rows, task):
    return [s.tasks[task].batches_taken for s in count_run(config, rows).stages if task in s.tasks]


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
        plan = count_run(alone.config, ROWS)
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
        count_run(one.config, ROWS)  # what is left is a recipe that can be built


def test_a_task_that_never_trains_is_left_out(tiny_recipe):
    config = read_recipe(tiny_recipe(), ["train.tasks=['mood', 'same']"])
    alone = plan_alone(config, ROWS)
    assert list(alone) == ["mood", "same"]
    assert alone["mood"].config.train.tasks is None  # it would name one that is not there


def test_a_task_alone_learns_from_a_teacher_where_it_does_in_the_joint_run(tiny_recipe):
    kind = "{name='distill', teacher='any', tasks=['mood', 'near']}"
    config = read_recipe(tiny_recipe(), ["stages=['distill']", f"stage.distill.kind={kind}"])
    kinds = {
        task: one.config.stage_config("distill").kind
        for task, one in plan_alone(config, ROWS).items()
    }
    assert kinds["mood"] == {"name": "distill", "teacher": "any", "tasks": ("mood",)}
    assert kinds["near"]["tasks"] == ("near",)
    assert kinds["same"] == {"name": "finetune"}


WORDS = ["stages=['words', 'finetune']", "stage.words={kind='mlm', epochs=3, batch_size=8}"]


def read_all(config):
    """What the tiny recipe's files hold, tokenised."""
    tokenizer = Tokenizer.from_file(find_encoder(config.encoder.source).tokenizer)
    texts = load_named_texts(Plan.build(config), tokenizer)
    return Amounts(train=load_data(config, tokenizer, "train"), texts=texts)


def test_a_task_alone_is_pre_trained_on_its_own_texts(tiny_recipe):
    config = read_recipe(tiny_recipe(), WORDS)
    amounts = read_all(config)
    joint = count_run(config, amounts).stages[0]
    assert joint.tasks["mlm"].passes == 3
    alone = plan_alone(config, amounts)
    for task, one in alone.items():
        assert one.config.stages == ("words", "finetune")
        assert one.config.stage_config("words").tasks == (task,)
        words, finetune = count_run(one.config, amounts).stages
        assert words.tasks["mlm"].passes == 3  # each text is seen as often as in the joint run
        assert words.tasks["mlm"].examples < joint.tasks["mlm"].examples
        assert (words.updates, finetune.updates) == (one.pretraining, one.updates)


SPOILT = {  # what keeps rows or texts out of training, and the split that they are kept out of
    "drop": (["data.drop_overlap=true"], "train"),
    "folds": (["data.drop_overlap=true", "data.folds=3"], "train"),
    "words": (WORDS, "train"),
    "teacher": (
        [
            "tasks.same.unlabelled='same-train.csv'",
            "stages=['distill']",
            "stage.distill.kind={name='distill', teacher='any'}",
        ],
        "unlabelled",
    ),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_task_alone_has_the_rows_of_the_joint_run(tiny_recipe, what):
    """Though others' dev files have some of them."""
    recipe = tiny_recipe()
    pairs = (recipe.parent / "near-dev.csv").read_text("utf-8").splitlines()[1:4]
    pairs += (recipe.parent / "near-train.csv").read_text("utf-8").splitlines()[1:]
    with (recipe.parent / "same-train.csv").open("a", encoding="utf-8") as file:
        for i, line in enumerate(pairs):
            _, a, b, _ = line.split(",")
            file.write(f"x{i},{b},{a},1\n")
    overrides, split = SPOILT[what]
    config = read_recipe(recipe, overrides)
    alone = plan_alone(config, ROWS)["same"].config
    assert alone.held_out.keys() == {"mood", "near"}
    tokenizer = Tokenizer.from_file(find_encoder(config.encoder.source).tokenizer)
    joint, own = (load_data(c, tokenizer, split)["same"] for c in (config, alone))
    assert own.texts() == joint.texts()
    assert (own.held_out() == joint.held_out()).all()
    # What is kept out, the task's own files would not have kept out.
    narrow = load_data(alone.model_copy(update={"held_out": {}}), tokenizer, split)["same"]
    assert len(narrow) > len(own) or narrow.held_out().sum() < own.held_out().sum()


def test_what_the_joint_recipe_holds_out_is_held_out_alone(tiny_recipe, tmp_path):
    more = "held_out.far={kind='score', range=[0, 5], text=['a', 'b'], test='near-dev.csv'}"
    config = read_recipe(tiny_recipe(), ["data.drop_overlap=true", more])
    alone = plan_alone(config, ROWS)["mood"].config
    assert alone.held_out.keys() == {"same", "near", "far"}
    (tmp_path / "x.toml").write_text(to_toml(alone), encoding="utf-8")
    assert read_recipe(tmp_path / "x.toml") == alone
