"""The loop of a stage: its records, the order of its data, and going on from any place."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plait.config import StageConfig
from plait.methods.schedules import SCHEDULES, Schedule
from plait.training.loop import (
    Cursor,
    Stage,
    Stream,
    TrainState,
    run_stage,
    task_seed,
)
from plait.training.step import StepResult
from plait.types import Batch, Tokens

SIZES = {"a": 7, "b": 3}


class FakeStep:
    """Learns nothing; remembers the rows, the rate and the random numbers of every update."""

    def __init__(self) -> None:
        self.optimizer = SimpleNamespace(param_groups=[{"peak_lr": 2.0, "lr": 0.0}])
        self.turns: list[list[dict[str, list[int]]]] = []
        self.rates: list[float] = []
        self.noise: list[float] = []
        self.epochs_ended = 0

    def __call__(self, turns):
        self.turns.append([{t: b.labels.tolist() for t, b in turn.items()} for turn in turns])
        self.rates.append(self.optimizer.param_groups[0]["lr"])
        self.noise.append(torch.rand(()).item())
        return StepResult({}, {}, torch.zeros(()))

    def end_epoch(self) -> None:
        self.epochs_ended += 1

    def rows(self, task: str) -> list[int]:
        """Every row of a task, as it came."""
        return [row for update in self.turns for turn in update for row in turn.get(task, ())]

    def spell(self) -> str:
        """Tasks of each update: turns side by side, tasks of one turn joined by +."""
        return " ".join("".join("+".join(turn) for turn in update) for update in self.turns)


def fake_batch(rows: torch.Tensor) -> Batch:
    empty = torch.zeros(len(rows), 1, dtype=torch.long)
    return Batch(Tokens(empty, empty, empty.bool()), rows)


def make_stage(
    schedule: str | dict | Schedule = "round-robin",
    sizes: dict[str, int] = SIZES,
    *,
    seed: int = 1,
    index: int = 0,
    **config: object,
) -> Stage:
    """A stage of tasks whose batches hold nothing but their row numbers."""
    built = StageConfig(**{"batch_size": 2, "epochs": 2, **config})
    streams = {
        task: Stream(num, built.batch_size, (seed, index, task_seed(task)), fake_batch)
        for task, num in sizes.items()
    }
    if not isinstance(schedule, Schedule):
        schedule = SCHEDULES.build(schedule, "train.schedule")
    return Stage("train", index, built, seed, schedule, streams, FakeStep())


def run(stage: Stage, state: TrainState | None = None, evaluate=None, stop=None):
    """Run to the end; `stop` maps an update to the tasks stopped after it."""
    state = state or TrainState()
    records = []
    for record in run_stage(stage, state, evaluate):
        records.append(record)
        state.stopped += (stop or {}).get(record.step, [])
    return records


# --- records -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accumulate", "max_steps"), [(1, None), (2, None), (3, 5), (1, 5), (2, 1), (100, 1000)]
)
@pytest.mark.parametrize(
    "schedule", ["sequential", "round-robin", "fixed", {"name": "round-robin", "together": True}]
)
def test_there_are_as_many_records_as_the_stage_says(schedule, accumulate, max_steps):
    stage = make_stage(schedule, accumulate=accumulate, max_steps=max_steps)
    state = TrainState(total_steps=40)
    records = run(stage, state)
    assert len(records) == stage.num_steps() == len(stage.step.turns)
    assert [r.step for r in records] == list(range(1, len(records) + 1))
    assert [r.total_steps for r in records] == list(range(41, 41 + len(records)))
    assert {r.num_steps for r in records} == {len(records)}
    assert state.step == len(records)


def test_what_a_record_says():
    stage = make_stage("sequential", lr=2.0, decay="linear", batch_size=4)
    records = run(stage)
    assert stage.step.spell() == "a a b a a b"
    assert [r.epoch for r in records] == [1, 1, 1, 2, 2, 2]
    assert [r.ends_epoch for r in records] == [False, False, True] * 2
    assert [r.num_examples for r in records] == [4, 3, 3, 4, 3, 3]
    assert [r.rate for r in records] == pytest.approx([2 * (6 - i) / 6 for i in range(6)])
    assert stage.step.rates == [r.rate for r in records]  # set before the update
    assert {r.stage for r in records} == {"train"}


def test_turns_that_make_one_update_stay_within_an_epoch():
    stage = make_stage("sequential", accumulate=4)
    records = run(stage)
    assert stage.step.spell() == "aaaa bb aaaa bb"
    assert [r.num_examples for r in records] == [7, 3, 7, 3]
    assert [r.ends_epoch for r in records] == [False, True, False, True]


@pytest.mark.parametrize("max_steps", [None, 4])
def test_the_step_hears_of_every_epoch_that_ends(max_steps):
    stage = make_stage("sequential", epochs=3, max_steps=max_steps, batch_size=4)
    for record, _ in zip(run_stage(stage, TrainState()), range(9), strict=False):
        assert stage.step.epochs_ended == record.epoch - (not record.ends_epoch)
    assert stage.step.epochs_ended == (3 if max_steps is None else 1)


# --- the order of the data ---------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["sequential", {"name": "round-robin", "length": "drop-out"}])
def test_an_epoch_sees_every_example_once(schedule):
    stage = make_stage(schedule, epochs=3)
    run(stage)
    for task, num in SIZES.items():
        rows = stage.step.rows(task)
        passes = [rows[i : i + num] for i in range(0, len(rows), num)]
        assert len(passes) == 3
        assert all(sorted(one) == list(range(num)) for one in passes)
    assert len({tuple(stage.step.rows("a")[i : i + 7]) for i in (0, 7, 14)}) == 3


@given(st.integers(1, 20), st.integers(1, 8), st.integers(1, 3), st.integers(0, 50))
def test_passes_are_whole_whatever_the_sizes(num, batch_size, epochs, seed):
    stage = make_stage("fixed", {"a": num, "b": 5}, batch_size=batch_size, epochs=epochs, seed=seed)
    run(stage)
    for task, size in (("a", num), ("b", 5)):
        rows = stage.step.rows(task)
        for start in range(0, len(rows) - size + 1, size):
            assert sorted(rows[start : start + size]) == list(range(size))
        rest = rows[len(rows) // size * size :]
        assert len(set(rest)) == len(rest)


def test_orders_follow_from_seed_stage_task_and_pass():
    def orders(**place: int) -> dict[str, list[int]]:
        stage = make_stage("sequential", {"a": 30, "b": 30}, epochs=1, **place)
        run(stage)
        return {task: stage.step.rows(task) for task in "ab"}

    first = orders(seed=1)
    assert first == orders(seed=1)
    assert first["a"] != first["b"]
    assert first["a"] != orders(seed=2)["a"]
    assert first["a"] != orders(seed=1, index=1)["a"]
    stream = make_stage(sizes={"a": 30}).streams["a"]
    assert stream.order(0).tolist() != stream.order(1).tolist()


def test_dropout_follows_from_seed_stage_and_update():
    noises = []
    for place in ({"seed": 1}, {"seed": 1}, {"seed": 2}, {"seed": 1, "index": 1}):
        stage = make_stage(**place)
        torch.manual_seed(len(noises))  # what was drawn before does not matter
        run(stage)
        noises.append(stage.step.noise)
    assert noises[0] == noises[1]
    assert len({x for noise in noises for x in noise}) == 3 * len(noises[0])


# --- evaluation --------------------------------------------------------------------------


def scored(stage: Stage, **how: object) -> list[int]:
    """Return the updates that were followed by an evaluation, checking the callback agrees."""
    calls: list[int] = []

    def evaluate() -> dict[str, str]:
        calls.append(len(stage.step.turns))
        return {"dev": "scores"}

    records = run(stage, evaluate=evaluate, **how)
    told = [r.step for r in records if r.scores]
    assert told == calls
    return told


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, [6, 12]),
        ({"eval_every": 5}, [5, 10, 12]),
        ({"eval_every": 4}, [4, 8, 12]),
        ({"eval_every": 100}, [12]),
        ({"max_steps": 8}, [6, 8]),  # ends inside an epoch, with an evaluation
        ({"max_steps": 3}, [3]),
        ({"max_steps": 12}, [6, 12]),
        ({"max_steps": 8, "eval_every": 5}, [5, 8]),
        ({"accumulate": 4}, [2, 4]),
        ({"epochs": 1}, [6]),
    ],
)
def test_when_it_evaluates(config, expected):
    stage = make_stage("sequential", **config)
    assert scored(stage) == expected
    assert len(stage.step.turns) == expected[-1]


# --- stopped tasks -----------------------------------------------------------------------


@pytest.mark.parametrize("last", ["b", "a"])
def test_epochs_end_with_an_evaluation_though_their_last_task_has_stopped(last):
    order = ["a", "b"] if last == "b" else ["b", "a"]
    stage = make_stage({"name": "sequential", "order": order}, epochs=3)
    rest = 4 if last == "b" else 2
    assert scored(stage, stop={6: [last]}) == [6, 6 + rest, 6 + 2 * rest]


def test_the_stage_ends_when_all_have_stopped():
    stage = make_stage("round-robin", epochs=5)
    state = TrainState()
    assert scored(stage, state=state, stop={8: ["a"], 16: ["b"]}) == [8, 12, 16]
    assert stage.step.spell() == "a b a b a b a b b b b b b b b b"
    assert state.epoch == 3
    assert run(make_stage("round-robin", epochs=5), state) == []


@pytest.mark.parametrize(("max_steps", "tasks"), [(None, "ab"), (3, "ab"), (2, "a"), (1, "a")])
def test_turns_that_come_too_late_are_not_found(max_steps, tasks):
    """An epoch of a's 4 batches makes updates of 3 and 1 before b's epoch begins."""
    stage = make_stage("by-epoch", max_steps=max_steps, accumulate=3)
    assert stage.find_turns() == [(task,) for task in tasks]
    run(stage)
    assert set(stage.step.spell()) - {" "} == set(tasks)


# --- the state ---------------------------------------------------------------------------


def test_the_state_survives_json():
    state = TrainState(
        stage=1,
        epoch=2,
        turn=3,
        step=4,
        total_steps=5,
        cursors={"a": Cursor(6, 7)},
        stopped=["b"],
        best=0.1 + 0.2,
        best_step=8,
        waits={"": 1},
        peaks={"": 1 / 3},
        seconds=1.5,
        log_lines=9,
        finished=True,
    )
    assert state != TrainState()
    assert TrainState.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert TrainState.from_json(json.loads(json.dumps(TrainState().to_json()))) == TrainState()


def test_the_next_stage_starts_at_the_beginning():
    state = TrainState()
    run(make_stage(), state, stop={2: ["b"]})
    state.best, state.seconds, state.waits, state.peaks = 0.5, 3.0, {"": 1}, {"": 0.5}
    total = state.total_steps
    state.next_stage()
    assert state == TrainState(stage=1, total_steps=total, best=0.5, seconds=3.0)


# --- going on ----------------------------------------------------------------------------

SCHEDULE_CASES = [
    {"schedule": "sequential"},
    {"schedule": {"name": "round-robin", "length": "drop-out"}},
    {"schedule": {"name": "round-robin", "together": True}, "accumulate": 2},
    {"schedule": "fixed"},
    {"schedule": {"name": "fixed", "steps": 3}, "accumulate": 2},
    {"schedule": "sequential", "max_steps": 7},
    {"schedule": "sequential", "decay": "linear", "warmup": 0.3},
]


def remember(record) -> tuple[object, ...]:
    """What two runs must agree in."""
    return (record.epoch, record.step, record.rate, record.num_examples, record.ends_epoch)


@pytest.mark.parametrize("case", SCHEDULE_CASES, ids=str)
@pytest.mark.parametrize("stop", [{}, {3: ["b"]}], ids=["all", "b-stops"])
def test_records_go_on_from_any_place(case, stop):
    whole, state = make_stage(**case), TrainState()
    places, told = [json.dumps(state.to_json())], []
    for record in run_stage(whole, state):
        state.stopped += stop.get(record.step, [])
        places.append(json.dumps(state.to_json()))
        told.append(remember(record))
    end = state
    for done, place in enumerate(places):
        stage, state = make_stage(**case), TrainState.from_json(json.loads(place))
        rest = []
        for record in run_stage(stage, state):
            state.stopped += stop.get(record.step, [])
            rest.append(remember(record))
        assert rest == told[done:]
        assert stage.step.turns == whole.step.turns[done:]
        assert stage.step.noise == whole.step.noise[done:]
        assert state == end
