"""Whole runs with stages that meta-learn."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import plait
from plait.config import read_recipe
from plait.data.loading import load_data
from plait.errors import RecipeError
from plait.training.build import build, build_stage
from plait.training.counting import count_run
from plait.training.loop import TrainState, run_stage

ROWS = {"mood": 45, "same": 32, "near": 24}
REPTILE = ["train.kind={name='reptile', inner_steps=2, inner_lr=0.05}", "train.batch_size=6"]
FOMAML = ["train.kind={name='fomaml', inner_steps=2, inner_lr=0.05}", "train.batch_size=6"]
KINDS = {"reptile": REPTILE, "fomaml": FOMAML}

each_kind = pytest.mark.parametrize("kind", KINDS)


def stage_of(recipe, *settings):
    """Build the first stage of the tiny recipe with some settings changed."""
    config = read_recipe(recipe, settings)
    parts = build(config)
    return parts, build_stage(parts, 0, load_data(config, parts.tokenizer, "train"))


@each_kind
def test_the_loss_falls(runs, kind):
    _, stage = stage_of(runs.recipe, *KINDS[kind], "train.epochs=10")
    found = [record.result.losses for record in run_stage(stage, TrainState())]
    told = [float(losses["mood"]) for losses in found if "mood" in losses]
    third = len(told) // 3
    assert sum(told[-third:]) < 0.95 * sum(told[:third])


def test_fine_tuning_goes_on_from_it(runs):
    stages = ["stages=['meta', 'finetune']", "stage.meta.kind='reptile'", "stage.meta.batch_size=4"]
    outcome = runs.train("both", *stages, "train.epochs=1")
    assert {line.get("stage") for line in runs.log("both")} >= {"meta", "finetune"}
    assert outcome.result["dev"]["primary"].keys() == ROWS.keys()
    answer = plait.load(outcome.folder, device="cpu").predict("mood", ["the film was fine"])
    assert len(answer) == 1


@each_kind
def test_nothing_but_the_encoder_and_its_tasks_moves(runs, kind):
    settings = [*KINDS[kind], "train.tasks=['mood']", "train.max_steps=2"]
    parts, stage = stage_of(runs.recipe, *settings)
    begun = {name: tensor.clone() for name, tensor in parts.model.state_dict().items()}
    assert len(list(run_stage(stage, TrainState()))) == 2
    ended = parts.model.state_dict()
    words = "encoder.embeddings.word.weight"
    assert not torch.equal(ended[words], begun[words])
    for name in begun:
        if name.startswith("heads."):
            assert torch.equal(ended[name], begun[name]) == ("task-mood" not in name)


@pytest.mark.parametrize(
    "settings",
    [
        [
            "train.aggregator='pcgrad'",
            "train.schedule={name='round-robin', together=true}",
            "train.regularizers=['smart', 'bregman']",
        ],
        ["tasks.mood.adapter='lora'", "tasks.same.touch_encoder=false", "precision='bf16'"],
        ["train.freeze_layers=1", "train.accumulate=2"],
        ["train.schedule={name='simultaneous', leader='mood', restart=['same']}"],
    ],
    ids=str,
)
@each_kind
def test_together_with_other_parts(runs, kind, settings):
    _, stage = stage_of(runs.recipe, *KINDS[kind], *settings, "train.max_steps=2")
    for record in run_stage(stage, TrainState()):
        assert all(loss.isfinite() for loss in record.result.losses.values())


def test_the_outer_rate_follows_the_decay(runs):
    _, stage = stage_of(runs.recipe, *REPTILE, "train.decay='linear'", "train.lr=1e-5")
    rates = [record.rate for record in run_stage(stage, TrainState())]
    assert rates[0] == 0.5
    assert rates[-1] == pytest.approx(0.5 / len(rates))


@each_kind
def test_the_plain_proximal_point_is_where_the_episode_started(runs, kind):
    """Inner updates move the model away from it, which only a copy can tell."""
    plain = "train.regularizers=[{name='bregman', beta=0.0, beta_early=0.0}]"
    _, stage = stage_of(runs.recipe, *KINDS[kind], plain)
    result = next(run_stage(stage, TrainState())).result
    assert all(term > 0 for term in result.terms.values())


# --- what a turn takes -------------------------------------------------------------------


def batches_seen(runs, *settings):
    """Run a stage; return each batch's task and rows in order, and the records' count of rows."""
    parts, stage = stage_of(runs.recipe, *settings)
    seen: list[tuple[str, list[int]]] = []
    streams = {
        task: replace(stream, make=_noting(stream.make, task, seen))
        for task, stream in stage.streams.items()
    }
    stage = replace(stage, streams=streams)
    counted = sum(record.num_examples for record in run_stage(stage, TrainState()))
    return parts.config, seen, counted


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


# --- refusals ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["train.mode='last-layer'"], "freezes the encoder, but reptile learns"),
        (["tasks.near.batch_size=40"], "a turn takes 2 batches, but near has 1 of 40"),
        (["train.kind.inner_steps=0"], "stage.finetune.kind: inner_steps = 0 is below 1"),
        (["train.kind.inner_lr=0.0"], "inner_lr = 0.0 is not above 0"),
        (["train.kind.outer_lr=1.5"], "outer_lr = 1.5 is not above 0 and at most 1"),
        (["train.kind.inner_optimizer='lbfgs'"], "stage.finetune.kind.inner_optimizer"),
        (["stage.finetune.lr=1e-3"], "stage.finetune.lr: reptile has no use for it"),
        (["stage.finetune.weighting='dwa'"], "stage.finetune.weighting: reptile has no use"),
        (
            ["train.kind={name='fomaml'}", "train.weighting='famo'"],
            "stage.finetune.weighting = 'famo' compares losses before and after",
        ),
        (
            [f"tasks.{task}.touch_encoder=false" for task in ("mood", "same")]
            + ["train.tasks=['mood', 'same']"],
            "touch_encoder is false for all its tasks",
        ),
    ],
)
def test_refusals(runs, settings, message):
    with pytest.raises(RecipeError) as caught:
        runs.train("a", *REPTILE, *settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (runs.folder / "a").exists()
