"""Whole runs with stages that pre-train."""

from __future__ import annotations

import csv
import json

import pytest
import torch
from safetensors.torch import load_file

import plait
from plait.config import read_recipe
from plait.data.loading import load_data
from plait.errors import RecipeError, RunError
from plait.training.build import build, build_stage, drop_heads, load_named_texts
from plait.training.checkpoint import load_state
from plait.training.listeners import Listener
from plait.training.loop import Cursor
from plait.training.plan import Plan
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
    plain = run("plain").result["steps"]
    first = outcome.result["steps"] - plain
    assert outcome.result["best_step"] > first > 0
    assert scored
    assert all(step > first for step in scored)


@pytest.mark.parametrize("kind", ["simcse", "mlm"])
def test_the_loss_falls(run, kind):
    outcome = run(
        "a", "stages=['before']", f"stage.before.kind='{kind}'", "train.epochs=12", "log_every=5"
    )
    found = losses(outcome.folder, kind)
    assert found[-1] < 0.8 * found[0]


def test_a_run_that_only_pretrained_can_be_loaded(run):
    outcome = run("a", "stages=['before']", "stage.before.kind='simcse'", "train.max_steps=2")
    answer = plait.load(outcome.folder, device="cpu").predict("mood", ["the film was fine"])
    assert len(answer) == 1


def test_pretraining_alone_ends_with_a_model_that_changed(run, recipe):
    outcome = run("a", "stages=['before']", "stage.before.kind='mlm'")
    weights = load_file(outcome.folder / "model.safetensors")
    begun = build(read_recipe(recipe)).model.state_dict()
    assert weights.keys() == begun.keys()
    name = "encoder.embeddings.word.weight"
    assert not torch.equal(weights[name], begun[name])
    for head in (key for key in begun if key.startswith("heads.")):
        assert torch.equal(weights[head], begun[head])  # no task was trained
    # the masked words depend on no pooler, so that not even weight decay moves it
    assert torch.equal(weights["encoder.pooler.dense.weight"], begun["encoder.pooler.dense.weight"])
    assert load_state(outcome.folder / "checkpoint.safetensors").best is None


def test_a_pooler_that_nothing_depends_on_stays(run, recipe):
    settings = ["encoder.pooling='cls-pooler'", "stages=['before']"]
    name = "encoder.pooler.dense.weight"
    begun = build(read_recipe(recipe, settings)).model.state_dict()[name]
    for kind, moves in (("mlm", False), ("simcse", True)):
        outcome = run(kind, *settings, f"stage.before.kind='{kind}'")
        assert torch.equal(load_file(outcome.folder / "model.safetensors")[name], begun) != moves


def test_two_views_of_a_text_may_differ_by_attention_alone(run):
    dropped = ["encoder.dropout=0.0", "encoder.attention_dropout=0.3"]
    outcome = run("a", *BEFORE["simcse"], *dropped, "train.max_steps=3")
    assert losses(outcome.folder, "simcse")


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


def test_a_file_of_texts_that_changed(run, nli, recipe):
    settings = [
        *nli,
        "stages=['before', 'finetune']",
        "stage.before.kind={name='mlm', texts=['nli']}",
        "save_every=1",
    ]

    class Stop(Listener):
        def step(self, record):
            if record.total_steps == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("a", *settings, listeners=[Stop()])
    path = recipe.parent / "nli.csv"
    path.write_text(path.read_text() + "one more,one more,one less\n")
    with pytest.raises(RunError, match="the texts data of nli changed"):
        run("a", *settings, resume=True)


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


def test_texts_are_taken_once_and_cut(recipe):
    config = read_recipe(recipe, ["stages=['b']", "stage.b.kind={name='simcse', max_length=8}"])
    parts = build(config)
    data = load_data(config, parts.tokenizer, "train")
    stage = build_stage(parts, 0, data)
    every = {
        tuple(column.ids[a:b].tolist())
        for dataset in data.values()
        for column, held in zip(dataset.tokens, dataset.held_out().T, strict=True)
        for a, b, is_held in zip(column.offsets[:-1], column.offsets[1:], held, strict=True)
        if not is_held
    }
    stream = stage.streams["simcse"]
    assert stream.num_examples == len(every)
    assert stream.make(torch.arange(stream.num_examples)).tokens.ids.shape[1] == 8


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


def test_settings_of_the_tasks_training_do_not_reach_it(run):
    outcome = run(
        "a",
        *BEFORE["simcse"],
        "train.schedule={name='simultaneous', leader='mood'}",
        "train.regularizers=['smart']",
        "train.aggregator='pcgrad'",
        "train.early_stopping.patience=1",
    )
    assert losses(outcome.folder, "simcse")


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
        ([*BEFORE["mlm"], "stage.before.mode='last-layer'"], "the encoder is frozen"),
        ([*BEFORE["mlm"], "stage.before.kind={name='mlm', rate=1.5}"], "rate is a share"),
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


def test_pairs_and_triplets_in_one_stage_are_refused(run, nli):
    kind = "stage.before.kind={name='simcse-pairs', texts=['nli']}"
    with pytest.raises(RecipeError, match=r"same, texts\.nli: some have pairs and some triplets"):
        run("a", *nli, "stages=['before']", kind)


def test_a_task_of_the_name_of_an_objective(recipe, run):
    text = recipe.read_text().replace("tasks.mood", "tasks.mlm")
    recipe.write_text(text)
    with pytest.raises(RecipeError, match=r"tasks\.mlm has the name under which stage\.before"):
        run("a", *BEFORE["mlm"])


def test_the_losses_of_a_stage_end_with_it(run):
    outcome = run("a", *BEFORE["mlm"], "log_every=1000")
    lines = map(json.loads, (outcome.folder / "metrics.jsonl").read_text().splitlines())
    logged = [set(line["losses"]) for line in lines if line["event"] == "losses"]
    assert logged == [{"mlm"}, *[{"mood", "same", "near"}] * 2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["texts.nli.text='a'"], "texts.nli.files must be set"),
        (["texts.nli.files='a.csv'"], "texts.nli.text must be set"),
        (["texts.nli.files='a.csv'", "texts.nli.text=['a', 'b', 'c', 'd']"], "texts.nli.text"),
        (["texts.nli.files=[]", "texts.nli.text='a'"], "texts.nli.files"),
    ],
)
def test_tables_of_texts_that_are_refused(recipe, settings, message):
    with pytest.raises(RecipeError) as caught:
        read_recipe(recipe, settings)
    assert message in str(caught.value)


def test_texts_are_read_where_a_stage_names_them(recipe, nli):
    named = "stage.before.kind={name='mlm', texts=['nli']}"
    for settings, expected in (([], set()), ([named], {"nli"})):
        config = read_recipe(recipe, [*nli, *BEFORE["mlm"], *settings])
        parts = build(config)
        assert set(load_named_texts(Plan.build(config), parts.tokenizer)) == expected


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
