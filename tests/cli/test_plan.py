"""`plait plan`: what it prints for each schedule, with files and without."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plait.cli import app
from plait.errors import DataError, RecipeError, UsageError

RECIPE = """
name = "little"
[data]
root = {root}
[encoder]
source = {encoder}
[train]
epochs = 2
batch_size = 4
lr = 1e-3
warmup = 0.0
decay = "constant"
schedule = "round-robin"
[tasks.mood]
kind = "classes"
labels = 2
text = "text"
label = "label"
train = "mood.csv"
[tasks.same]
kind = "binary"
text = ["text", "text"]
label = "label"
train = "same.csv"
[tasks.near]
kind = "score"
range = [0, 1]
text = ["text", "text"]
label = "label"
train = "near.csv"
"""

ROWS = {"mood": 20, "same": 8, "near": 10}  # batches of 4: 5, 2 and 3
GIVEN = [word for task, count in ROWS.items() for word in ("--rows", f"{task}={count}")]


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe with data, and an encoder of which there is only the tokenizer."""
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    (encoder / "config.json").write_text("{}")
    (encoder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n")
    (encoder / "model.safetensors").write_bytes(b"no model is built")
    for task, count in ROWS.items():
        (tmp_path / f"{task}.csv").write_text("text,label\n" + "a b,1\n" * count)
    path = tmp_path / "little.toml"
    text = RECIPE.replace("{root}", json.dumps(str(tmp_path)))
    path.write_text(text.replace("{encoder}", json.dumps(str(encoder))))
    return path


def plan(recipe: Path | str, *words: str) -> str:
    """Run the command; what it raises comes out."""
    return (
        CliRunner()
        .invoke(app, ["plan", str(recipe), *words], catch_exceptions=False, standalone_mode=False)
        .stdout
    )


def table(out: str, title: str) -> list[list[str]]:
    """Rows of the table whose head begins with a title, cells apart."""
    lines = out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"{title} "))
    rows = []
    for line in lines[start + 1 :]:
        if not line:
            break
        rows.append([cell.strip() for cell in line.split("  ") if cell])
    return rows


def test_the_whole_of_it(recipe):
    # near: a whole pass of 10 and two batches of 4 make 18 an epoch, 36 in all. Both epochs
    # leave two examples out of the second pass: others each time, under this seed.
    assert plan(recipe, *GIVEN) == (
        "stage finetune: 2 epochs, 30 updates\n"
        "schedule round-robin: One batch of each task in turn; "
        "an epoch lasts as long as the longest task, or the shortest.\n"
        '  length = "full"\n'
        "  together = false\n"
        "learning rate: 0.001 (constant)\n"
        "\n"
        "task  examples  batch  batches  taken  passes  each example seen\n"
        "mood        20      4        5     10    2.00  2 times\n"
        "same         8      4        2     10    5.00  4 to 6 times, 5.00 mean\n"
        "near        10      4        3     10    3.33  3 to 4 times, 3.60 mean\n"
        "\n"
        "epoch  turns  updates  mood  same  near  order\n"
        "1-2       15       15     5     5     5  (mood same near) x5\n"
        "\n"
        "little: 30 updates in 1 stage\n"
    )


def test_rows_are_counted_in_the_files(recipe):
    assert plan(recipe) == plan(recipe, *GIVEN)
    assert plan(recipe, "--rows", "mood=40") == plan(recipe, *GIVEN, "--rows", "mood=40")
    assert plan(recipe, "--rows", "mood=40") != plan(recipe, *GIVEN)


def test_given_rows_need_neither_data_nor_encoder(recipe, monkeypatch):
    monkeypatch.setenv("PLAIT_DATA", "/nowhere/at/all")
    words = ("-o", "encoder.source=/nowhere", "-o", "data.root=/nowhere")
    assert plan(recipe, *GIVEN, *words) == plan(recipe, *GIVEN)
    with pytest.raises(DataError, match="there is no data folder"):
        plan(recipe)


def test_rows_that_a_teacher_answers_are_counted(recipe):
    """Whether a task's training rows are given or read."""
    (recipe.parent / "more.csv").write_text("text\n" + "b a a\n" * 7)
    (recipe.parent / "one.csv").write_text("text\nb b b\n")
    words = ["-o", "stages=['warm', 'learn']"]
    words += ["-o", "stage.learn.kind={name='distill', teacher='any', tasks=['mood', 'same']}"]
    words += ["-o", "tasks.mood.unlabelled='more.csv'", "-o", "tasks.same.unlabelled='one.csv'"]
    out = plan(recipe, *words)
    assert "\nmood: 7 examples labelled by the teacher only\n" in out
    assert "\nsame: 1 example labelled by the teacher only\n" in out
    for given in (GIVEN, GIVEN[:2]):
        assert plan(recipe, *words, *given) == out
    stages = json.loads(plan(recipe, *words, *GIVEN, "--json"))["stages"]
    counts = [{task: facts["examples"] for task, facts in s["tasks"].items()} for s in stages]
    assert counts == [ROWS, {"mood": 27, "same": 9, "near": 10}]
    assert [s["unlabelled"] for s in stages] == [{}, {"mood": 7, "same": 1}]


@pytest.mark.parametrize(
    ("schedule", "turns"),
    [
        ('{name="sequential"}', ["10", "10", "5", "2", "3", "mood x5, same x2, near x3"]),
        ('{name="sequential", cap=2}', ["6", "6", "2", "2", "2", "mood x2, same x2, near x2"]),
        (
            '{name="round-robin", length="drop-out"}',
            ["10", "10", "5", "2", "3", "(mood same near) x2, mood, near, mood x2"],
        ),
        (
            '{name="round-robin", length="drop-out", together=true}',
            ["5", "5", "5", "2", "3", "mood+same+near x2, mood+near, mood x2"],
        ),
        (
            '{name="round-robin", length="truncated", together=true, cap=1}',
            ["1", "1", "1", "1", "1", "mood+same+near"],
        ),
        (
            '{name="simultaneous", leader="near", restart=["same"]}',
            ["3", "3", "3", "3", "3", "mood+same+near x3"],
        ),
        ('{name="fixed", probabilities={same=1.0}, steps=6}', ["6", "6", "0", "6", "0", "same x6"]),
    ],
)
def test_written_orders(recipe, schedule, turns):
    out = plan(recipe, *GIVEN, "-o", f"train.schedule={schedule}")
    assert table(out, "epoch") == [["1-2", *turns]]


def test_by_epoch_has_a_row_per_epoch(recipe):
    schedule = 'train.schedule={name="by-epoch", order=["near", "mood", "same", "same"], cap=3}'
    out = plan(recipe, *GIVEN, "-o", schedule, "-o", "train.epochs=5")
    assert table(out, "epoch") == [
        ["1", "3", "3", "0", "0", "3", "near x3"],
        ["2", "3", "3", "3", "0", "0", "mood x3"],
        ["3-4", "2", "2", "0", "2", "0", "same x2"],
        ["5", "3", "3", "0", "0", "3", "near x3"],
    ]
    assert '  order = ["near", "mood", "same", "same"]\n  cap = 3\n' in out
    (mood, same, near) = table(out, "task")
    assert mood[:-1] == ["mood", "20", "4", "5", "3", "0.60"]
    assert mood[-1] == "0 to 1 time, 0.60 mean; 8 never"
    assert same[-1] == near[-1] == "2 times"


@pytest.mark.parametrize("name", ["proportional", "square-root", "annealed", "temperature"])
def test_draws_differ_from_epoch_to_epoch_and_add_up(recipe, name):
    setting = ", temperature=2" if name == "temperature" else ""
    words = ("-o", f'train.schedule={{name="{name}", steps=40{setting}}}', "--json")
    (stage,) = json.loads(plan(recipe, *GIVEN, *words))["stages"]
    first, second = stage["epochs"]
    assert first["order"] != second["order"]
    for epoch in stage["epochs"]:
        assert epoch["turns"] == epoch["updates"] == sum(epoch["batches"].values()) == 40
    for task, told in stage["tasks"].items():
        assert told["batches_taken"] == sum(epoch["batches"][task] for epoch in stage["epochs"])
        assert told["seen_most"] - told["seen_least"] <= 1  # every task goes on
    assert json.loads(plan(recipe, *GIVEN, *words))["stages"] == [stage]


def test_accumulation_limits_rates_and_early_stopping(recipe):
    words = [
        "train.accumulate=4",
        "train.max_steps=7",
        "train.warmup=0.25",
        "train.decay=linear",
        "train.head_lr=1e-2",
        "train.layer_decay=0.9",
        "train.early_stopping={patience=2}",
    ]
    out = plan(recipe, *GIVEN, *(word for w in words for word in ("-o", w)))
    assert "stage finetune: 2 epochs, 7 updates\n" in out
    assert "one update per 4 turns\n" in out
    assert (
        "learning rate of the encoder: "
        "0.0005 at the first update, 0.001 at update 2, 0.0002 at the last\n" in out
    )
    assert "learning rate of the heads: 0.005 at the first update, 0.01 at update 2" in out
    assert "rate of each encoder layer: 0.9 times that of the layer above\n" in out
    assert "early stopping may end the stage sooner" in out
    # 15 turns make 4 updates, the last of 3 turns; the second epoch has 3 updates left.
    assert [row[:3] for row in table(out, "epoch")] == [["1", "15", "4"], ["2", "12", "3"]]


def test_a_stage_that_meta_learns_takes_several_batches_a_turn(recipe):
    kind = "train.kind={name='fomaml', inner_steps=1}"
    out = plan(recipe, *GIVEN, "-o", kind, "-o", "train.schedule=sequential")
    assert "each turn has 2 batches per task\n" in out
    plain = plan(recipe, *GIVEN, "-o", "train.schedule=sequential")
    assert "each turn has" not in plain
    for row, before in zip(table(out, "task"), table(plain, "task"), strict=True):
        assert row[:4] == before[:4]
        batches, epochs = int(row[3]), 2
        assert int(row[4]) == epochs * (batches // 2) * 2


def test_the_page_shows_what_is_printed():
    page = Path(__file__).parents[2] / "docs" / "concepts" / "training.md"
    (block,) = re.findall(r"^```console\n\$ plait (.*?)^```$", page.read_text(), re.M | re.S)
    command, shown = block.replace("\\\n", "").split("\n", 1)
    _, recipe, *words = shlex.split(command)
    assert plan(recipe, *words) == shown


def test_stages_follow_each_other(recipe):
    words = ("-o", 'stages=["warm", "rest"]', "-o", 'stage.warm.tasks=["near"]')
    out = plan(recipe, *GIVEN[:2], *GIVEN[4:], *words, "-o", 'stage.rest.tasks=["mood"]')
    assert "stage warm: 2 epochs, 6 updates\n" in out
    assert "stage rest: 2 epochs, 10 updates\n" in out
    assert out.endswith("little: 16 updates in 2 stages\n")


PRETRAINED = ["-o", "stages=['words', 'all']", "-o", "stage.words={kind='mlm', epochs=1}"]


def test_a_stage_that_pretrains_is_estimated_from_numbers_alone(recipe):
    out = plan(recipe, *GIVEN, *PRETRAINED)
    assert re.match(
        r"stage words: pre-training \(mlm\), 1 epoch, about \d+ updates\napproximate: ", out
    )
    assert "stage all: " in out
    assert re.search(r"^little: about \d+ updates in 2 stages$", out, re.M)
    planned = json.loads(plan(recipe, *GIVEN, *PRETRAINED, "--json"))
    assert planned["pretraining"] == {"words": "mlm"}
    assert [(s["name"], s["is_exact"]) for s in planned["stages"]] == [
        ("words", False),
        ("all", True),
    ]
    assert planned["updates"] == sum(stage["updates"] for stage in planned["stages"])


def test_texts_that_are_not_read_are_not_counted(recipe):
    more = ["-o", "texts.more={files='none.csv', text='text'}"]
    kind = ["-o", "stage.words.kind={name='mlm', texts=['more']}"]
    out = plan(recipe, *GIVEN, *PRETRAINED, *more, *kind)
    assert out.startswith("stage words: pre-training (mlm)\nnot counted: ")


def test_a_file_of_overrides(recipe, tmp_path):
    (tmp_path / "over.toml").write_text("[train]\nlr = 5e-5\n")
    assert "learning rate: 0.001 (constant)\n" in plan(recipe, *GIVEN)
    over = ["-o", str(tmp_path / "over.toml")]
    assert "learning rate: 5e-05 (constant)\n" in plan(recipe, *GIVEN, *over)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (
            ["-o", "missing.toml"],
            RecipeError,
            r"^there is no recipe file missing\.toml$",
        ),
        (["--rows", "moot=3"], UsageError, r"^--rows names task 'moot'; did you mean 'mood'\?$"),
        (["--rows", "mood"], UsageError, r"^--rows 'mood' should be TASK=N"),
        (["--rows", "mood=0"], UsageError, r"^--rows 'mood=0' should be TASK=N"),
        (["--rows", "mood=many"], UsageError, r"^--rows 'mood=many' should be TASK=N"),
        (
            ["-o", 'train.schedule={name="simultaneous", leader="moot"}', *GIVEN],
            RecipeError,
            r"^stage\.finetune\.schedule: leader names 'moot', no task .*; did you mean 'mood'\?$",
        ),
        (["-o", "tasks.same.train=[]"], RecipeError, r"^tasks\.same\.train names no files"),
        (["-o", "train.aggregator=summ", *GIVEN], RecipeError, r"no aggregator 'summ'"),
    ],
)
def test_what_it_refuses(recipe, words, error, message):
    with pytest.raises(error, match=message):
        plan(recipe, *words)
