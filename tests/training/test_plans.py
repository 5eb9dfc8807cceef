"""Plans: that they equal what the loop does, and say it shortly."""

from __future__ import annotations

import json
from collections import Counter
from unittest.mock import MagicMock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.config import RunConfig, StageConfig, TaskConfig
from plait.errors import RecipeError
from plait.methods.schedules import SCHEDULES
from plait.training.counting import Counts, count_run, spell
from plait.training.loop import Stage, Stream, TrainState, run_stage
from plait.training.plan import Plan
from plait.training.step import StepResult
from plait.types import Batch, Tokens

TABLES = [
    {"name": "sequential"},
    {"name": "sequential", "length": "truncated", "cap": 2},
    {"name": "round-robin"},
    {"name": "round-robin", "length": "drop-out", "together": True},
    {"name": "round-robin", "cap": 3},
    {"name": "by-epoch", "order": ["b", "a", "a"]},
    {"name": "by-epoch", "cap": 2},
    {"name": "simultaneous", "leader": "a"},
    {"name": "simultaneous", "leader": "b", "restart": ["a"]},
    {"name": "fixed", "probabilities": {"a": 1.0}},
    {"name": "fixed", "steps": 5},
    {"name": "proportional"},
    {"name": "square-root"},
    {"name": "annealed"},
    {"name": "temperature", "temperature": 3.0},
]


def make_config(schedule: dict, *, seed: int = 1, **stage: object) -> RunConfig:
    task = TaskConfig(kind="binary", text=("text",))
    train = StageConfig(**{"batch_size": 4, "epochs": 2, "schedule": schedule, **stage})
    return RunConfig(name="planned", seed=seed, tasks={"a": task, "b": task}, train=train)


def plan(schedule: dict, rows: dict[str, int], **stage: object) -> Counts:
    return count_run(make_config(schedule, **stage), rows)


def run(config: RunConfig, rows: dict[str, int]) -> tuple[list, list[float], list[int]]:
    """Run the loop with a step that learns nothing: batches of each update, rates, epochs."""
    updates: list[list[dict[str, list[int]]]] = []

    def make(numbers: torch.Tensor) -> Batch:
        empty = torch.zeros(len(numbers), 1, dtype=torch.long)
        return Batch(Tokens(empty, empty, empty.bool()), numbers)

    def remember(turns):
        updates.append([{t: b.labels.tolist() for t, b in turn.items()} for turn in turns])
        return StepResult({}, {}, torch.zeros(()))

    step = MagicMock(side_effect=remember)
    step.optimizer.param_groups = [{"peak_lr": 1.0, "lr": 0.0}]
    streams = {}
    for task in config.tasks:
        passes = Plan.build(config).stages[0].passes(task, rows[task])
        streams[task] = Stream(passes.num_examples, passes.batch_size, passes.seed, make)
    schedule = SCHEDULES.build(config.train.schedule, "train.schedule")
    stage = Stage("finetune", 0, config.train, config.seed, schedule, streams, step)
    records = list(run_stage(stage, TrainState()))
    return updates, [r.rate for r in records], [r.epoch for r in records]


@pytest.mark.parametrize("table", TABLES, ids=lambda t: "-".join(map(str, t.values())))
def test_a_plan_is_what_the_loop_does(table):
    @settings(max_examples=12)
    @given(
        rows=st.fixed_dictionaries({"a": st.integers(1, 30), "b": st.integers(1, 30)}),
        epochs=st.integers(1, 4),
        accumulate=st.integers(1, 3),
        max_steps=st.none() | st.integers(1, 20),
        warmup=st.sampled_from([0.0, 0.3]),
        decay=st.sampled_from(["constant", "linear", "cosine"]),
        seed=st.integers(0, 9),
    )
    def check(rows, seed, **stage):
        config = make_config(table, seed=seed, **stage)
        updates, rates, epochs = run(config, rows)
        (planned,) = count_run(config, rows).stages
        assert planned.updates == len(updates)
        assert [e.updates for e in planned.epochs] == list(Counter(epochs).values())
        for epoch in planned.epochs:
            turns = [
                turn
                for update, number in zip(updates, epochs, strict=True)
                if number == epoch.epoch
                for turn in update
            ]
            assert epoch.turns == len(turns)
            assert epoch.batches == {task: sum(task in turn for turn in turns) for task in rows}
            assert epoch.order == spell([tuple(turn) for turn in turns])
        for task, num in rows.items():
            counts = Counter(
                row for update in updates for turn in update for row in turn.get(task, ())
            )
            seen = [counts[row] for row in range(num)]
            told = planned.tasks[task]
            assert (told.seen_least, told.seen_most) == (min(seen), max(seen))
            assert told.seen_mean == pytest.approx(sum(seen) / num)
            assert told.never_seen == seen.count(0)
        told_rates = planned.rates["encoder"]
        assert (told_rates.begin, told_rates.end) == (rates[0], rates[-1])
        assert told_rates.peak == max(rates) == rates[told_rates.peak_update - 1]

    check()


# --- by hand -----------------------------------------------------------------------------


def test_rates_of_encoder_and_heads():
    table = {"name": "sequential"}
    rows = {"a": 20, "b": 20}  # 5 batches each, 20 updates in 2 epochs
    stage = {"lr": 1e-3, "head_lr": 1e-2, "warmup": 0.2, "decay": "linear"}
    (planned,) = plan(table, rows, **stage).stages
    for what, lr in (("encoder", 1e-3), ("heads", 1e-2)):
        rates = planned.rates[what]
        assert (rates.begin, rates.peak, rates.end) == pytest.approx((lr / 4, lr, lr / 16))
        assert rates.peak_update == 4
    (planned,) = plan(table, rows, mode="last-layer").stages
    assert list(planned.rates) == ["heads"]


def test_each_stage_has_its_own_tasks():
    config = make_config({"name": "sequential"})
    config = RunConfig(
        **{**config.model_dump(), "stages": ("warm", "all"), "stage": {"warm": {"tasks": ["a"]}}}
    )
    made = count_run(config, {"a": 4, "b": 8})
    assert [list(stage.tasks) for stage in made.stages] == [["a"], ["a", "b"]]
    assert [stage.updates for stage in made.stages] == [2, 6]
    assert made.updates == 8
    assert json.loads(json.dumps(made.to_json()))["stages"][0]["tasks"].keys() == {"a"}


def test_what_the_schedule_refuses_names_the_stage():
    with pytest.raises(RecipeError, match=r"^stage\.finetune\.schedule: order names 'c'"):
        plan({"name": "by-epoch", "order": ["a", "b", "c"]}, {"a": 4, "b": 4})
    with pytest.raises(RecipeError, match=r"^tasks\.b\.train names no files"):
        plan({"name": "sequential"}, {"a": 4})
    with pytest.raises(RecipeError, match=r"^stage\.finetune\.schedule: no schedule 'sequentail'"):
        plan({"name": "sequentail"}, {"a": 4, "b": 4})


# --- spelling ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ("a a a b b c", "a x3, b x2, c"),
        ("a b c a b c a b c", "(a b c) x3"),
        ("a b c a b c b c c c", "(a b c) x2, b, c x3"),
        ("a b a b", "(a b) x2"),
        ("ab ab a", "a+b x2, a"),
        ("a", "a"),
        ("a b c", "a, b, c"),
        (
            "a a b b c c a a b b c c d d e e f",
            "a x2, b x2, c x2, a x2, b x2, c x2, d x2, e x2, ...",
        ),
        ("", ""),
    ],
)
def test_spelling(turns, expected):
    assert spell([tuple(turn) for turn in turns.split()]) == expected
