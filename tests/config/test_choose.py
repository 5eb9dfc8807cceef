"""What a recipe leaves out is chosen from its tasks; what it sets is never changed."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from plait.config import (
    RunConfig,
    list_recipes,
    lists_members,
    read_ensemble,
    read_recipe,
    to_toml,
)
from plait.config.choose import (
    Choice,
    Facts,
    choose,
    choose_length,
    complete,
    complete_as,
    find_facts,
    is_whole,
)
from plait.config.reading import resolve
from plait.tasks import TASK_KINDS

TASKS: dict[str, dict[str, Any]] = {
    "mood": {"kind": "classes", "labels": ["bad", "good"], "text": "text"},
    "same": {"kind": "binary", "text": ["a", "b"]},
    "near": {"kind": "score", "range": [0, 5], "text": ["a", "b"]},
    "tags": {"kind": "labels", "labels": ["x", "y", "z"], "text": "text"},
}


def facts(kind: str = "classes", rows: int = 5_000, classes: int = 2, **more: Any) -> Facts:
    return Facts("mood", TASK_KINDS[kind].form, rows, classes, **more)


def chosen(*tasks: Facts) -> dict[str, Any]:
    return {choice.key: choice.value for choice in choose(tasks, 384)}


def make(*overrides: str, tasks: tuple[str, ...] = ("mood",), **tables: Any) -> RunConfig:
    table = {"name": "open", "tasks": {task: dict(TASKS[task]) for task in tasks}, **tables}
    return resolve(table, overrides, "open")


def fill(config: RunConfig, rows: int = 100) -> tuple[RunConfig, set[str]]:
    known = find_facts(config, dict.fromkeys(config.trained_tasks, rows))
    filled, choices = complete(config, known, 384)
    return filled, {choice.key for choice in choices}


# --- rules -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "epochs", "batch_size", "eval_every"),
    [
        (500, 10, 16, "end"),
        (501, 6, 16, "end"),
        (1_001, 4, 16, "end"),
        (2_000, 4, 16, "end"),
        (2_001, 4, 16, None),
        (10_001, 3, 16, None),
        (20_000, 3, 16, None),
        (20_001, 2, 32, None),
    ],
)
def test_passes_and_batches_follow_from_the_rows(rows, epochs, batch_size, eval_every):
    found = chosen(facts(rows=rows))
    assert (found["train.epochs"], found["train.batch_size"]) == (epochs, batch_size)
    assert found.get("train.eval_every") == eval_every
    assert found["train.head_lr"] == 1e-3
    assert (found["train.warmup"], found["train.decay"]) == (0.1, "linear")


@pytest.mark.parametrize(("width", "rate"), [(0, 5e-5), (384, 1e-4), (512, 1e-4), (513, 5e-5)])
def test_the_rate_follows_from_the_width(width, rate):
    found = {choice.key: choice.value for choice in choose([facts()], width)}
    assert found["train.lr"] == rate


def test_rows_are_those_of_the_largest_task():
    small = Facts("small", "score", 10, 0)
    assert chosen(small, facts(rows=20_001))["train.epochs"] == 2


@pytest.mark.parametrize(
    ("kind", "rows", "inputs", "head"),
    [
        ("binary", 2_999, "apart", "regression"),
        ("binary", 3_000, "joined", "mlp"),
        ("classes", 3_000, "joined", "mlp"),
        ("score", 9_999, "apart", "regression"),
        ("score", 10_000, "joined", "mlp"),
    ],
)
def test_few_pairs_are_read_apart(kind, rows, inputs, head):
    found = chosen(facts(kind, rows, is_pair=True))
    assert found["tasks.mood.inputs"] == inputs
    assert found["tasks.mood.head"]["name"] == head


def test_single_texts_have_no_inputs_to_choose():
    found = chosen(facts())
    assert "tasks.mood.inputs" not in found
    assert found["tasks.mood.head"]["name"] == "regression"


@pytest.mark.parametrize(
    ("task", "has_contrast"),
    [
        (facts(rows=127), True),
        (facts(rows=128), False),
        (facts("labels", rows=191, classes=3), True),
        (facts("score", rows=20, classes=0), False),
        (facts("binary", rows=20, is_pair=True), False),
        (facts(rows=20, trains_encoder=False), False),
    ],
)
def test_few_rows_a_class_are_first_contrasted(task, has_contrast):
    found = chosen(task)
    assert ("stages" in found) == ("stage.contrast" in found) == has_contrast
    if has_contrast:
        assert found["stages"] == ("contrast", "finetune")
        assert found["stage.contrast"]["tasks"] == ("mood",)
        assert found["stage.contrast"]["max_steps"] == 50


def test_each_task_of_the_contrast_has_its_updates():
    few = [Facts(name, "classes", 20, 2) for name in "ab"]
    stage = chosen(*few, Facts("c", "classes", 2_000, 2))["stage.contrast"]
    assert (stage["tasks"], stage["max_steps"]) == (("a", "b"), 100)


@pytest.mark.parametrize(("largest", "metric"), [(0.79, None), (0.8, "macro_f1"), (0, None)])
def test_accuracy_does_not_stand_for_an_unbalanced_task(largest, metric):
    assert chosen(facts(largest=largest)).get("tasks.mood.metric") == metric
    assert "tasks.mood.metric" not in chosen(facts("labels", largest=largest))


def test_tasks_take_turns_unless_one_is_far_larger():
    def schedule(*sizes: int) -> Any:
        tasks = [Facts(str(i), "score", size, 0) for i, size in enumerate(sizes)]
        return chosen(*tasks).get("train.schedule", {}).get("name")

    assert schedule(10) is None
    assert schedule(10, 40) == "round-robin"
    assert schedule(10, 41) == "square-root"


@pytest.mark.parametrize(("tokens", "length"), [(0, 64), (64, 64), (65, 128), (9_999, 256)])
def test_length(tokens, length):
    assert choose_length(tokens) == length


def test_a_choice_reads_as_a_line_of_a_recipe():
    assert str(Choice("train.lr", 1e-4, "why")) == "train.lr = 0.0001: why"
    table = Choice("t.head", {"name": "mlp", "dropout": 0.1}, "why")
    assert str(table) == 't.head = { name = "mlp", dropout = 0.1 }: why'
    assert str(Choice("stages", ("a", "b"), "why")) == 'stages = ["a", "b"]: why'


# --- what is set stays -------------------------------------------------------------------


def test_an_open_recipe_is_filled_and_then_whole():
    config = make(tasks=("mood", "same"))
    assert not is_whole(config)
    filled, keys = fill(config)
    assert is_whole(filled)
    assert filled.stages == ("contrast", "finetune")
    assert filled.stage_config("contrast").tasks == ("mood",)
    assert filled.tasks["mood"].head["name"] == "regression"
    assert filled.tasks["same"].inputs == "apart"
    assert filled.train.epochs == 10
    assert "train.head_lr" in keys
    assert fill(filled) == (filled, set())
    # What is saved is read back as it is, with nothing left to choose.
    again = resolve(tomllib.loads(to_toml(filled)), (), "saved")
    assert is_whole(again)
    assert again == filled


SET = {
    "train.epochs": 7,
    "train.batch_size": 5,
    "train.lr": 2e-5,
    "train.head_lr": 3e-4,
    "train.warmup": 0.0,
    "train.decay": "cosine",
    "train.eval_every": 9,
    "tasks.same.metric": "f1",
    "tasks.same.inputs": "joined",
}


@pytest.mark.parametrize("key", SET)
def test_what_is_set_is_never_changed(key):
    value = f"'{SET[key]}'" if isinstance(SET[key], str) else SET[key]
    filled, keys = fill(make(f"{key}={value}", tasks=("mood", "same")))
    section, _, last = key.rpartition(".")
    assert getattr(filled.train if section == "train" else filled.tasks["same"], last) == SET[key]
    assert key not in keys
    left = {"train.epochs", "train.batch_size", "train.lr", "tasks.same.head", "tasks.mood.head"}
    assert left - {key} <= keys


@pytest.mark.parametrize("key", ["train.lr", "train.epochs"])
def test_one_override_leaves_the_other_choices(key):
    _, keys = fill(make(f"{key}=1"))
    assert "stage.contrast" in keys
    assert {"train.lr", "train.epochs", "train.batch_size", "train.warmup"} - {key} <= keys


def test_the_rate_of_heads_is_chosen_with_the_rate():
    filled, keys = fill(make("train.lr=1e-5"))
    assert "train.head_lr" not in keys
    assert filled.train.head_lr is None
    filled, _ = fill(make("train.head_lr=1e-2"))
    assert (filled.train.lr, filled.train.head_lr) == (1e-4, 1e-2)


def test_dev_is_scored_between_where_epochs_or_patience_are_set():
    for override in ("train.epochs=3", "train.early_stopping.patience=2"):
        filled, keys = fill(make(override))
        assert "train.eval_every" not in keys
        assert filled.train.eval_every == "epoch"


def test_rates_and_epochs_set_leave_the_stages():
    filled, keys = fill(make("train.lr=1e-5", "train.epochs=3"))
    assert filled.stages == ("finetune",)
    assert "stages" not in keys


@pytest.mark.parametrize(
    "override",
    [
        "stages=['finetune']",
        "train.mode='last-layer'",
        "train.freeze_layers=2",
        "tasks.mood.touch_encoder=false",
    ],
)
def test_no_contrast_where_stages_are_set_or_nothing_of_it_is_left(override):
    filled, _ = fill(make(override))
    assert filled.stages == ("finetune",)
    assert filled.train.epochs == 10


def test_whoever_writes_stages_sets_their_rates():
    for override in ("stages=['a', 'finetune']", "train.kind='reptile'"):
        filled, keys = fill(make(override))
        assert keys == {"tasks.mood.head"}
        assert filled.train == make(override).train


def test_a_head_keeps_what_it_goes_with():
    filled, keys = fill(make("tasks.same.head='mlp'", tasks=("same",)), rows=50_000)
    assert filled.tasks["same"] == make("tasks.same.head='mlp'", tasks=("same",)).tasks["same"]
    assert not {key for key in keys if key.startswith("tasks.")}


def test_a_loss_without_a_regression_keeps_the_plain_head():
    filled, keys = fill(make("tasks.near.loss='cosine-mse'", tasks=("near",)))
    assert not {key for key in keys if key.startswith("tasks.")}
    assert filled.tasks["near"].head == {"name": "linear"}
    filled, _ = fill(make("tasks.mood.loss={name='cross-entropy', weights='balanced'}"))
    assert filled.tasks["mood"].head["name"] == "regression"


def test_only_tasks_that_are_trained_are_chosen_for():
    filled, keys = fill(make("train.tasks=['mood']", tasks=("mood", "same")))
    assert "tasks.same.head" not in keys
    assert "tasks.mood.head" in keys
    assert filled.stage_config("contrast").tasks == ("mood",)


# --- a run that goes on ------------------------------------------------------------------


def test_a_run_that_goes_on_keeps_what_was_chosen():
    config = make(tasks=("mood", "same"))
    filled, _ = fill(config, rows=100)
    assert complete_as(config, filled) == filled
    # Set now, and not then: the difference is there to be found.
    other = complete_as(make("train.lr=1e-5", tasks=("mood", "same")), filled)
    assert (other.train.lr, other.train.epochs) == (1e-5, 10)


def test_a_run_of_before_goes_on_with_the_plain_defaults():
    plain = make("tasks.mood.head='linear'", "train.lr=5e-5", "train.epochs=3")
    assert complete_as(make(), plain).stages == ("finetune",)
    assert complete_as(make(), plain).tasks["mood"].head == {"name": "linear"}


# --- packaged recipes --------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name for name, t in list_recipes().items() if t.get("about") and name != "demo"]
)
def test_a_packaged_recipe_leaves_nothing_to_choose(name):
    """So that what is published cannot change with the choices."""
    runs = read_ensemble(name).members.values() if lists_members(name) else [read_recipe(name)]
    assert all(map(is_whole, runs))
