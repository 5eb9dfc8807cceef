"""Fixtures that every test may use."""

from __future__ import annotations

import json
import os
import random
import signal
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from hypothesis import settings
from safetensors.torch import save_file

from csv_rows import write_rows
from label_rows import LABELS_TASK, write_labels
from plait.config import read_ensemble, read_recipe
from plait.data import Tokenizer
from plait.methods.losses import LOSSES
from plait.model.adapters import ADAPTERS
from plait.model.encoder import build_encoder, hub_weights
from plait.model.heads import HEADS
from plait.model.multitask import MultitaskModel
from plait.tasks import TaskSpec
from plait.training.listeners import MetricsLog
from plait.training.run import train
from plait.training.runs import train as train_any
from plait.types import Batch, Tokens

# A deadline would fail on a busy machine.
settings.register_profile("fast", deadline=None, max_examples=25)
settings.register_profile("slow", deadline=None, max_examples=100)
settings.load_profile("fast")

FAST = "not slow and not nightly"
"""What pyproject.toml selects by default."""

MOST_TRAININGS = 350
"""Trainings that the fast tests may make: each takes about half a second."""

trainings = 0


def pytest_configure(config: pytest.Config) -> None:
    # Background jobs of a shell ignore SIGINT, and so would all processes that the tests start.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.markexpr != FAST:
        settings.load_profile("slow")
    start = MetricsLog.start

    def count(log: MetricsLog, *args: Any) -> None:
        global trainings
        trainings += 1
        start(log, *args)

    MetricsLog.start = count


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add the trainings of a worker process of pytest-xdist."""
    global trainings
    trainings += node.workeroutput.get("trainings", 0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["trainings"] = trainings
    elif session.config.option.markexpr == FAST and trainings > MOST_TRAININGS:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    terminalreporter.write_line(f"{trainings} trainings")
    if config.option.markexpr == FAST and trainings > MOST_TRAININGS:
        terminalreporter.write_line(
            f"FAILED: the fast tests train more than {MOST_TRAININGS} times; share a run "
            "(tiny_run, train_once, folds_run) or build a stage without a run",
            red=True,
        )


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with the real data and encoders (PLAIT_SHARED, or `shared` beside the checkout)."""
    folder = Path(os.environ.get("PLAIT_SHARED", Path(__file__).parents[2] / "shared"))
    if not (folder / "data" / "course").is_dir():
        pytest.skip("the real data is not at hand (set PLAIT_SHARED to its folder)")
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tests' token cache out of the user's."""
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "cache"))


# --- a model small enough to train in a test ---------------------------------------------

TINY_SPECS = {
    "mood": TaskSpec(kind="classes", labels=("bad", "so-so", "good"), text=("text",)),
    "same": TaskSpec(kind="binary", text=("a", "b")),
    "near": TaskSpec(kind="score", range=(0.0, 5.0), text=("a", "b"), inputs="apart"),
}


@pytest.fixture
def tiny_encoder_config() -> dict[str, Any]:
    """The config.json of a BERT of 2 layers, without dropout."""
    return {
        "model_type": "bert",
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "vocab_size": 50,
        "max_position_embeddings": 32,
        "type_vocab_size": 2,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.2,  # large enough for mistakes to show
    }


@pytest.fixture
def tiny_specs() -> dict[str, TaskSpec]:
    """One task of each kind: one text, a joined pair, a pair apart."""
    return dict(TINY_SPECS)


@pytest.fixture
def tiny_model(tiny_encoder_config: dict[str, Any]) -> Callable[..., MultitaskModel]:
    """Factory: the tiny encoder with a head per task (linear unless given), always the same."""

    def make(
        specs: Mapping[str, TaskSpec] = TINY_SPECS,
        *,
        heads: Mapping[str, dict[str, Any]] | None = None,
        adapters: Mapping[str, dict[str, Any]] | None = None,
        readers: tuple[str, ...] = (),
        pooling: str = "mean",
        dropout: float = 0.0,
        seed: int = 0,
    ) -> MultitaskModel:
        encoder = build_encoder(tiny_encoder_config)
        encoder.set_dropout(dropout)
        given = heads or {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = {
                task: HEADS.build(
                    given.get(task, {"name": "linear", "dropout": dropout}),
                    f"tasks.{task}.head",
                    encoder.width,
                    LOSSES.build(spec.kind.default_loss, "loss", spec).num_outputs,
                    spec.inputs == "apart",
                )
                for task, spec in specs.items()
            }
            inside = {
                task: ADAPTERS.build(table, f"tasks.{task}.adapter", encoder.width, 2, 2)
                for task, table in (adapters or {}).items()
            }
        return MultitaskModel(encoder, made, pooling, inside, readers)

    return make


@pytest.fixture
def tiny_batch() -> Callable[..., Batch]:
    """Factory: a batch of random tokens and labels that suits a task."""

    def make(spec: TaskSpec, num_examples: int = 4, *, seed: int = 0, length: int = 7) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        rows = num_examples * (2 if spec.inputs == "apart" else 1)
        ids = torch.randint(1, 50, (rows, length), generator=generator)
        lengths = torch.randint(3, length + 1, (rows, 1), generator=generator)
        places = torch.arange(length)
        mask = places < lengths
        is_joined = spec.is_pair and spec.inputs == "joined"
        types = ((places >= lengths // 2) & mask & is_joined).long()
        if spec.kind.name == "score":
            low, high = spec.range
            labels = low + (high - low) * torch.rand(num_examples, generator=generator)
        else:
            labels = torch.randint(len(spec.labels), (num_examples,), generator=generator)
        if spec.kind.name == "binary":
            labels = labels.float()
        return Batch(Tokens(ids * mask, types, mask), labels)

    return make


# --- a run small enough for a test -------------------------------------------------------

WORDS = {
    "bad": ("awful", "dull", "poor", "sad", "weak", "boring"),
    "so-so": ("plain", "usual", "mild", "fair", "average", "common"),
    "good": ("fine", "great", "lovely", "bright", "happy", "superb"),
}
THINGS = ("film", "book", "song", "meal", "walk", "room", "game", "story", "train", "garden")
FILLERS = ("very", "not", "it")
MARKS = ("the", "a", "was", "is", "and", "of", ".", ",", "?", "!")


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the Hub's layout: a BERT of 2 layers and 16 wide, random, with dropout."""
    folder = tmp_path_factory.mktemp("encoder") / "tiny-bert"
    folder.mkdir()
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    words = [word for group in WORDS.values() for word in group]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters[1:]]
    tokens += [*(f"##{c}" for c in letters), *words, *THINGS, *FILLERS, *MARKS]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    Tokenizer.from_file(folder / "vocab.txt").save(folder / "tokenizer.json")
    (folder / "vocab.txt").unlink()
    config = {
        "model_type": "bert",
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "vocab_size": len(tokens),
        "max_position_embeddings": 48,
        "type_vocab_size": 2,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.2,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(hub_weights(build_encoder(config)), folder / "model.safetensors")
    return folder


def _tiny_rows(task: str, count: int, seed: str) -> list[dict[str, Any]]:
    """Rows that can be learnt: moods by their words, pairs by what they share."""
    draw = random.Random(f"{task} {seed}")
    moods = list(WORDS)

    def say(mood: str, thing: str) -> str:
        extra = draw.sample(FILLERS, draw.randint(0, 2))
        return " ".join(["the", thing, "was", *extra, draw.choice(WORDS[mood]), "."])

    rows: list[dict[str, Any]] = []
    for i in range(count):
        mood, other = draw.choice(moods), draw.choice(moods)
        thing, else_ = draw.choice(THINGS), draw.choice(THINGS)
        if task == "mood":
            rows.append({"id": f"m{i}", "text": say(mood, thing), "label": mood})
        elif task == "same":
            same = draw.random() < 0.5
            second = say(mood, thing) if same else say(other, else_)
            rows.append({"id": f"s{i}", "a": say(mood, thing), "b": second, "label": int(same)})
        else:
            score = 2.5 * (mood == other) + 2.5 * (thing == else_)
            row = {"id": f"n{i}", "a": say(mood, thing), "b": say(other, else_), "score": score}
            rows.append(row)
    return rows


PLAIN = {"warmup": 0.0, "decay": "constant", "schedule": "round-robin"}
"""What a recipe of a test sets in [train], besides epochs, batch_size and lr, so that nothing is
left to choose; its tasks name their heads."""


def write_tiny_recipe(folder: Path, encoder: Path, *, seed: str = "") -> Path:
    """Write the tiny recipe and its data into a folder; return the recipe's path."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks: dict[str, dict[str, Any]] = {
        "mood": {
            "kind": "classes",
            "labels": list(WORDS),
            "text": "text",
            "label": "label",
            "head": "linear",
        },
        "same": {"kind": "binary", "text": ["a", "b"], "label": "label", "head": "linear"},
        "near": {
            "kind": "score",
            "range": [0, 5],
            "text": ["a", "b"],
            "inputs": "apart",
            "label": "score",
            "head": "cosine",
            "loss": "cosine-mse",
        },
    }
    for task, num_train, num_dev in (("mood", 45, 18), ("same", 32, 16), ("near", 24, 12)):
        for split, count in (("train", num_train), ("dev", num_dev)):
            rows = _tiny_rows(task, count, f"{split}{seed}")
            tasks[task] |= {"id": "id", split: f"{task}-{split}.csv"}
            write_rows(folder / tasks[task][split], rows)
    recipe = {
        "name": "tiny",
        "seed": 7,
        "device": "cpu",
        "listeners": [],
        "log_every": 5,
        "data": {"root": str(folder)},
        "encoder": {"source": str(encoder), "max_length": 32},
        "train": {"epochs": 2, "batch_size": 12, "lr": 3e-3, **PLAIN},
        "tasks": tasks,
    }
    path = folder / "recipe.toml"
    path.write_text(tomli_w.dumps(recipe), encoding="utf-8")
    return path


@pytest.fixture
def tiny_recipe(tmp_path: Path, tiny_encoder: Path) -> Callable[..., Path]:
    """Factory: write a recipe of three tasks with its data into a folder, return its path.

    mood tells 3 classes of one text, same is yes or no of a joined pair, near a score 0-5 of
    a pair apart. 24 updates in 2 epochs; about a third of a second. `seed` changes the data.
    """

    def make(folder: str | Path = "tiny", *, seed: str = "") -> Path:
        return write_tiny_recipe(tmp_path / folder, tiny_encoder, seed=seed)

    return make


@pytest.fixture
def open_recipe(tiny_recipe: Callable[..., Path]) -> Path:
    """The tiny recipe, which leaves heads, inputs, losses and all of [train] to be chosen."""
    path = tiny_recipe()
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    del table["train"]
    for task in table["tasks"].values():
        for key in ("head", "loss", "inputs"):
            task.pop(key, None)
    path.write_text(tomli_w.dumps(table), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> Path:
    """A finished run of the tiny recipe, for tests that only read it; its data stays there."""
    folder = tmp_path_factory.mktemp("tiny-run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLAIT_CACHE", str(folder / "cache"))
        recipe = write_tiny_recipe(folder / "tiny", tiny_encoder)
        return train(read_recipe(recipe), folder / "run").folder


@pytest.fixture(scope="session")
def train_once(
    tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path, tiny_run: Path
) -> Callable[..., Path]:
    """Return a function from overrides to a finished run of the tiny recipe, each trained once.

    The runs are shared: a test that changes one copies it first.
    """
    folder = tmp_path_factory.mktemp("trained")
    recipe = write_tiny_recipe(folder / "tiny", tiny_encoder)
    made: dict[tuple[str, ...], Path] = {(): tiny_run}

    def make(*overrides: str) -> Path:
        if overrides not in made:
            out = folder / str(len(made))
            made[overrides] = train_any(read_recipe(recipe, overrides), out).folder
        return made[overrides]

    return make


@pytest.fixture(scope="session")
def labels_run(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> Path:
    """A finished run of the tiny recipe with a task of labels; its data stays in tiny/."""
    folder = tmp_path_factory.mktemp("labels")
    recipe = write_tiny_recipe(folder / "tiny", tiny_encoder)
    write_labels(recipe.parent / "moods-train.csv", 64)
    write_labels(recipe.parent / "moods-dev.csv", 24, 3)
    recipe.write_text(recipe.read_text(encoding="utf-8") + LABELS_TASK, encoding="utf-8")
    return train(read_recipe(recipe), folder / "run").folder


@pytest.fixture(scope="session")
def folds_run(tmp_path_factory: pytest.TempPathFactory, tiny_run: Path) -> Path:
    """An ensemble of two runs that each leave half of the tiny recipe's rows out."""
    recipe = tiny_run.parent / "tiny" / "folds.toml"
    recipe.write_text(
        "name = 'folds'\n[ensemble]\nmembers = ['recipe.toml']\nhow = 'mean'\nfolds = 2\n"
        "[train]\nepochs = 1\n"
    )
    folder = tmp_path_factory.mktemp("folds") / "folds"
    return train_any(read_ensemble(recipe), folder).folder
