"""Whole runs with stages that meta-learn."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import plait
from plait.config import read_recipe
from plait.data.loading import load_data
from plait.errors import RecipeError
from plait.training.alone import plan_alone
from plait.training.build import build, build_stage
from plait.training.counting import count_run
from plait.training.listeners import Listener
from plait.training.loop import TrainState, run_stage

ROWS = {"mood": 45, "same": 32, "near": 24}
REPTILE = ["train.kind={name='reptile', inner_steps=2, inner_lr=0.05}", "train.batch_size=6"]
FOMAML = ["train.kind={name='fomaml', inner_steps=2, inner_lr=0.05}", "train.batch_size=6"]
KINDS = {"reptile": REPTILE, "fomaml": FOMAML}

each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
def test_the_loss_falls_and_dev_is_scored(runs, kind):
    outcome = runs.train("a", *KINDS[kind], "train.epochs=12", "log_every=15")
    told = [line["losses"]["mood"] for line in runs.log("a") if line["event"] == "losses"]
    assert sum(told[-3:]) < 0.9 * sum(told[:3])
    assert outcome.result["dev"]["primary"].keys() == ROWS.keys()
    answer = plait.load(outcome.folder, device="cpu").predict("mood", ["the film was fine"])
    assert len(answer) == 1


def test_fine_tuning_goes_on_from_it(runs):
    stages = ["stages=['meta', 'finetune']", "stage.meta.kind='reptile'", "stage.meta.batch_size=4"]
    both = runs.train("both", *stages)
    plain = runs.train("plain")
    steps = {out.result["steps"] for out in (both, plain)}
    assert both.result["steps"] > plain.result["steps"]
    assert len(steps) == 2
    assert {line.get("stage") for line in runs.log("both")} >= {"meta", "finetune"}


@each_kind
def test_nothing_but_the_encoder_and_its_tasks_moves(runs, kind):
    outcome = runs.train("a", *KINDS[kind], "train.tasks=['mood']")
    begun = build(read_recipe(runs.recipe)).model.state_dict()
    ended = load_file(outcome.folder / "model.safetensors")
    words = "encoder.embeddings.word.weight"
    assert not torch.equal(ended[words], begun[words])
    for name in begun:
        if name.startswith("heads."):
            assert torch.equal(ended[name], begun[name]) == ("task-mood" not in name)


@pytest.mark.parametrize(
    "settings",
    [
        ["train.aggregator='pcgrad'", "train.schedule={name='round-robin', together=true}"],
        ["train.regularizers=['smart', 'bregman']", "train.max_steps=3"],
        ["tasks.mood.adapter='lora'", "tasks.same.touch_encoder=false"],
        ["precision='bf16'", "train.max_steps=3"],
        ["train.freeze_layers=1", "train.accumulate=2"],
        ["train.early_stopping={patience=1, per_task=true}", "train.eval_every=2"],
        ["train.schedule={name='simultaneous', leader='mood', restart=['same']}"],
    ],
    ids=str,
)
@each_kind
def test_together_with_other_parts(runs, kind, settings):
    outcome = runs.train("a", *KINDS[kind], *settings)
    assert outcome.result["steps"] > 0
    for line in runs.log("a"):
        assert all(map(torch.isfinite, map(torch.tensor, line.get("losses", {}).values())))


def test_the_outer_rate_follows_the_decay(runs):
    class Rates(Listener):
        def __init__(self):
            self.rates = []

        def step(self, record):
            self.rates.append(record.rate)

    spy = Rates()
    runs.train("a", *REPTILE, "train.decay='linear'", "train.lr=1e-5", listeners=[spy])
    assert spy.rates[0] == 0.5
    assert spy.rates[-1] == pytest.approx(0.5 / len(spy.rates))


@each_kind
def test_the_plain_proximal_point_is_where_the_episode_started(runs, kind):
    """Inner updates move the model away from it, which only a copy can tell."""
    plain = "train.regularizers=[{name='bregman', beta=0.0, beta_early=0.0}]"
    config = read_recipe(runs.recipe, [*KINDS[kind], plain])
    parts = build(config)
    stage = build_stage(parts, 0, load_data(config, parts.tokenizer, "train"))
    result = next(run_stage(stage, TrainState())).result
    assert all(term > 0 for term in result.terms.values())


# --- what a turn takes -------------------------------------------------------------------


def batches_seen(runs, *settings):
    """Run a stage; return each batch's task and rows in order, and the records' count of rows."""
    config = read_recipe(runs.recipe, settings)
    parts = build(config)
    stage = build_stage(parts, 0, load_data(config, parts.tokenizer, "train"))
    seen: list[tuple[str, list[int]]] = []
    streams = {
        task: replace(stream, make=_noting(stream.make, task, seen))
        for task, stream in stage.streams.items()
    }
    stage = replace(stage, streams=streams)
    counted = sum(record.num_examples for record in run_stage(stage, TrainState()))
    return config, seen, counted


def _noting(make, task, seen):
    def noting(rows):
        seen.append((task, rows.tolist()))
        return make(rows)

    return noting


@pytest.mark.parametrize("schedule", ["round-robin", "sequential", "square-root"])
@each_kind
def test_the_plan_counts_what_the_loop_takes(runs, kind, schedule):
    settings = [*KINDS[kind], f"train.schedule='{schedule}'", "train.epochs=3"]
    config, seen, counted = batches_seen(runs, *settings)
    (stage,) = count_run(config, ROWS).stages
    assert stage.batches_per_turn == {"reptile": 2, "fomaml": 3}[kind]
    assert counted == sum(len(rows) for _, rows in seen)
    for task, told in stage.tasks.items():
        mine = [rows for name, rows in seen if name == task]
        assert told.batches_taken == len(mine) == sum(e.batches[task] for e in stage.epochs)
        flat = [row for rows in mine for row in rows]
        times = [flat.count(row) for row in range(ROWS[task])]
        assert (told.seen_least, told.seen_most) == (min(times), max(times))
        assert told.never_seen == times.count(0)
        assert told.seen_mean == pytest.approx(sum(times) / len(times))


def test_no_example_is_twice_in_an_episode(runs):
    settings = [*FOMAML, "train.schedule={name='round-robin', length='full'}", "train.epochs=3"]
    _, seen, _ = batches_seen(runs, *settings)
    assert len(seen) % 3 == 0
    for start in range(0, len(seen), 3):
        episode = seen[start : start + 3]
        assert len({task for task, _ in episode}) == 1
        rows = [row for _, some in episode for row in some]
        assert len(rows) == len(set(rows))


# --- refusals ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["train.mode='last-layer'"], "freezes the encoder, whose start is what reptile learns"),
        (["tasks.near.batch_size=40"], "a turn takes 2 batches, but near has 1 of 40"),
        (["train.kind.inner_steps=0"], "stage.finetune.kind: inner_steps = 0 is below 1"),
        (["train.kind.inner_lr=0.0"], "inner_lr = 0.0 is not above 0"),
        (["train.kind.outer_lr=1.5"], "outer_lr = 1.5 is not above 0 and at most 1"),
        (["train.kind.inner_optimizer='lbfgs'"], "stage.finetune.kind.inner_optimizer"),
        (["stage.finetune.lr=1e-3"], "stage.finetune.lr: reptile has no use for it"),
        (["stage.finetune.weighting='dwa'"], "stage.finetune.weighting: reptile has no use"),
        (
            ["train.kind={name='fomaml'}", "train.weighting='famo'"],
            "stage.finetune.weighting = 'famo' looks at the losses before and after",
        ),
        (
            [f"tasks.{task}.touch_encoder=false" for task in ("mood", "same")]
            + ["train.tasks=['mood', 'same']"],
            "none of its tasks may touch the encoder",
        ),
    ],
)
def test_refusals(runs, settings, message):
    with pytest.raises(RecipeError) as caught:
        runs.train("a", *REPTILE, *settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (runs.folder / "a").exists()


def test_a_plan_refuses_too_few_batches(runs):
    with pytest.raises(RecipeError, match="a turn takes 2 batches, but near has 1"):
        count_run(read_recipe(runs.recipe, REPTILE), ROWS | {"near": 3})


def test_no_task_meta_learns_alone(runs):
    with pytest.raises(RecipeError, match=r"stage\.finetune learns from several tasks \(reptile\)"):
        plan_alone(read_recipe(runs.recipe, REPTILE), ROWS)
