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


# --- packaged recipes --------------------------------------------------------------------


def test_packaged_recipes_leave_nothing_to_choose():
    """So that what is published cannot change with the choices."""
    names = [name for name, t in list_recipes().items() if t.get("about") and name != "demo"]
    open_ones = []
    for name in names:
        runs = read_ensemble(name).members.values() if lists_members(name) else [read_recipe(name)]
        open_ones += [] if all(map(is_whole, runs)) else [name]
    assert open_ones == []
