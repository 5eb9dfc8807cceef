"""Whole runs with stages that pre-train."""

from __future__ import annotations

import csv
import json

import pytest
import torch
from safetensors.torch import load_file

from plait.config import read_recipe
from plait.data.loading import load_data
from plait.errors import RecipeError
from plait.training.build import build, build_stage, drop_heads
from plait.training.loop import Cursor
from plait.training.run import train

BEFORE = {
    "simcse": ["stages=['before', 'finetune']", "stage.before.kind='simcse'"],
    "pairs": ["stages=['before', 'finetune']", "stage.before.kind='simcse-pairs'"],
    "mlm": ["stages=['before', 'finetune']", "stage.before.kind='mlm'"],
}


@pytest.fixture
def recipe(tiny_recipe):
    return tiny_recipe()


@pytest.fixture
def run(recipe, tmp_path):
    def start(out, *overrides, **options):
        return train(read_recipe(recipe, overrides), tmp_path / out, **options)

    return start


@pytest.fixture
def nli(recipe):
    """Write triplets beside the tiny recipe's data; return the overrides that name them."""
    things = ["film", "book", "song", "meal", "walk", "room"]
    with (recipe.parent / "nli.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["one", "like", "unlike"])
        writer.writerows(
            [f"the {t} was fine", f"a great {t}", f"the {t} was awful"] for t in things
        )
    return ["texts.nli.files='nli.csv'", "texts.nli.text=['one', 'like', 'unlike']"]


def losses(folder, key):
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line["losses"][key] for line in lines if key in line.get("losses", {})]


@pytest.mark.parametrize("kind", BEFORE)
def test_pretrain_then_finetune(run, kind):
    outcome = run("a", *BEFORE[kind])
    name = {"pairs": "simcse-pairs"}.get(kind, kind)
    assert losses(outcome.folder, name)
    weights = load_file(outcome.folder / "model.safetensors")
    assert not any(name in key for key in weights)
    assert not any(name in key for key in load_file(outcome.folder / "checkpoint.safetensors"))
    # the tasks are scored, and the best is chosen, in the second stage alone
    lines = map(json.loads, (outcome.folder / "metrics.jsonl").read_text().splitlines())
    scored = [line["step"] for line in lines if line["event"] == "scores"]
    first = outcome.result["steps"] - 24  # updates of the tiny recipe
    assert outcome.result["best_step"] > first > 0
    assert scored
    assert all(step > first for step in scored)


def test_a_pooler_that_nothing_depends_on_stays(run, recipe):
    settings = ["encoder.pooling='cls-pooler'", "stages=['before']"]
    name = "encoder.pooler.dense.weight"
    begun = build(read_recipe(recipe, settings)).model.state_dict()[name]
    for kind, moves in (("mlm", False), ("simcse", True)):
        outcome = run(kind, *settings, f"stage.before.kind='{kind}'", "train.max_steps=2")
        assert torch.equal(load_file(outcome.folder / "model.safetensors")[name], begun) != moves


def test_triplets_from_a_file(run, nli):
    settings = [
        *nli,
        "stages=['before', 'finetune']",
        "stage.before.kind={name='simcse-pairs', texts=['nli'], from_tasks=false}",
    ]
    outcome = run("a", *settings)
    info = json.loads((outcome.folder / "run.json").read_text())
    assert info["data"]["texts"]["nli"]["rows"] == 6
    assert losses(outcome.folder, "simcse-pairs")


def test_the_two_views_differ_by_dropout_alone(recipe):
    config = read_recipe(recipe, BEFORE["simcse"])
    parts = build(config)
    stage = build_stage(parts, 0, load_data(config, parts.tokenizer, "train"))
    stream = stage.streams["simcse"]
    batch = stream.make(torch.arange(5))
    assert torch.equal(batch.tokens.ids[:5], batch.tokens.ids[5:])
    assert batch.labels.tolist() == [0, 1, 2, 3, 4]
    parts.model.train()
    first, second = parts.model("simcse", batch.tokens).chunk(2)
    assert not torch.allclose(first, second)
    parts.model.eval()
    first, second = parts.model("simcse", batch.tokens).chunk(2)
    torch.testing.assert_close(first, second)
    drop_heads(parts)
    assert set(parts.model.heads) == {"task-mood", "task-same", "task-near"}


def test_only_positives_become_pairs(recipe):
    config = read_recipe(
        recipe, ["stages=['b']", "stage.b.kind={name='simcse-pairs', threshold=0.5}"]
    )
    parts = build(config)
    data = load_data(config, parts.tokenizer, "train")
    stage = build_stage(parts, 0, data)
    seen = {name: ~d.held_out().any(axis=1) for name, d in data.items()}  # dev has the others
    same, near = (data[name].labels[seen[name]] for name in ("same", "near"))
    assert stage.streams["simcse-pairs"].num_examples == int(
        (same == 1).sum() + (near >= 2.5).sum()
    )
    # row 0 is the first positive of 'same': first texts, then second ones
    tokens = stage.streams["simcse-pairs"].make(torch.tensor([0])).tokens
    row = int((same == 1).nonzero()[0])
    for i in range(2):
        ragged = data["same"].tokens[i]
        expected = ragged.ids[ragged.offsets[row] : ragged.offsets[row + 1]].tolist()
        assert tokens.ids[i][tokens.mask[i]].tolist()[1:-1] == expected


def test_masks_follow_from_the_place(recipe):
    config = read_recipe(recipe, BEFORE["mlm"])
    parts = build(config)
    stage = build_stage(parts, 0, load_data(config, parts.tokenizer, "train"))
    stream = stage.streams["mlm"]
    order = stream.order(0)
    one = stream.take(Cursor(0, 1), order)
    assert torch.equal(one.tokens.ids, stream.take(Cursor(0, 1), order).tokens.ids)
    other = stream.take(Cursor(1, 1), order)  # the same rows in another pass
    assert not torch.equal(one.tokens.ids, other.tokens.ids)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["train.kind='simces'"], "stage.finetune.kind: no stage-kind 'simces'"),
        (
            [*BEFORE["simcse"], "stage.before.kind={name='simcse', texts=['nil']}"],
            "stage.before.kind.texts names 'nil', but there is no [texts.nil]",
        ),
        (
            [*BEFORE["mlm"], "stage.before.schedule='fixed'"],
            "stage.before.schedule: a stage that pre-trains has no use for it",
        ),
        (
            ["stages=['finetune', 'after']", "stage.after.kind='mlm'"],
            "stages: 'after' pre-trains after the last fine-tuning",
        ),
        ([*BEFORE["simcse"], "encoder.dropout=0.0"], "stage.before.kind: it needs dropout"),
        ([*BEFORE["mlm"], "stage.before.mode='last-layer'"], "needs a trainable encoder"),
        (
            [*BEFORE["mlm"], "stage.before.kind={name='mlm', rate=1.5}"],
            "rate must be between 0 and 1",
        ),
        ([*BEFORE["pairs"], "stage.before.tasks=['mood']"], "there are no pairs"),
        (
            [*BEFORE["simcse"], "stage.before.kind={name='simcse', from_tasks=false}"],
            "from_tasks = false leaves no texts",
        ),
        ([*BEFORE["simcse"], "stage.before.kind={name='simcse', max_length=2}"], "8 or more"),
        ([*BEFORE["simcse"], "stage.before.kind={name='simcse', temperature=0.0}"], "above 0"),
    ],
)
def test_refusals(run, settings, message, tmp_path):
    with pytest.raises(RecipeError) as caught:
        run("a", *settings)
    assert message in str(caught.value)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("kind", ["mlm", "simcse", "simcse-pairs"])
def test_texts_of_dev_and_test_never_enter(recipe, kind):
    """Every text that goes in is a training text that no dev file has, however it is spelled."""
    config = read_recipe(recipe, ["stages=['b']", f"stage.b.kind='{kind}'", "encoder.dropout=0.1"])
    parts = build(config)
    data = load_data(config, parts.tokenizer, "train")
    dev = load_data(config, parts.tokenizer, "dev")
    forbidden = {text.lower() for d in dev.values() for row in d.texts() for text in row}
    train = {text for d in data.values() for row in d.texts() for text in row}
    kept = {text for text in train if text.lower() not in forbidden}
    assert kept != train
    assert kept
    stage = build_stage(parts, 0, data)
    (stream,) = stage.streams.values()
    if kind != "simcse-pairs":
        assert stream.num_examples == len(kept)
        return
    rows = zip(data["same"].texts(), data["same"].labels.tolist(), strict=True)
    pairs = [row for row, label in rows if label == 1 and set(row) <= kept]
    assert stream.num_examples == len(pairs)
