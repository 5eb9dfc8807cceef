"""Heads that begin as a regression on the untrained encoder's vectors, in whole runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from plait import load
from plait.config import RunConfig, read_recipe
from plait.data import Rows
from plait.data.loading import load_data
from plait.errors import RecipeError, RunError
from plait.inference.folders import RunFolder
from plait.inference.scoring import Scores
from plait.methods.losses import LOSSES
from plait.model.encoder import pool
from plait.model.heads import HEADS
from plait.tasks import TaskSpec
from plait.tasks.regression import PAIR_STRENGTH, SCORE_STRENGTH, STRENGTH
from plait.training.build import build
from plait.training.listeners import Listener

NAMES = ("mood", "same", "near")
REGRESSION = [
    *(f"tasks.{name}.head='regression'" for name in NAMES),
    "tasks.near.loss='score-cross-entropy'",
    "train.max_steps=2",
]
HARM = ["train.lr=3.0", "train.clip=0", "train.epochs=1", "train.decay='constant'"]


# --- by hand -----------------------------------------------------------------------------


@dataclass
class Frozen:
    """The untrained encoder's vectors of a task's rows, of length 1, and the labels."""

    spec: TaskSpec
    first: np.ndarray
    second: np.ndarray | None
    labels: np.ndarray

    @property
    def differences(self) -> np.ndarray:
        u, v = self.first, self.second
        return np.concatenate([abs(u - v), u * v, (u * v).sum(axis=1, keepdims=True)], axis=1)


def freeze(config: RunConfig, task: str, split: str) -> Frozen:
    parts = build(config)
    parts.model.eval()
    spec = parts.tasks[task].spec
    dataset = load_data(config, parts.tokenizer, split)[task]
    tokens = Rows(dataset, spec, parts.collator)(torch.arange(len(dataset))).tokens
    with torch.no_grad():
        vectors = pool(parts.model.encoder(tokens), tokens.mask, parts.model.pooling).double()
    unit = (vectors / vectors.norm(dim=1, keepdim=True)).numpy()
    labels = dataset.labels.numpy()
    if spec.inputs == "joined":
        return Frozen(spec, unit, None, labels)
    return Frozen(spec, *np.split(unit, 2), labels)


def spread(rows: np.ndarray) -> float:
    """Return the root mean square distance of rows from their mean."""
    return float(np.sqrt(((rows - rows.mean(axis=0)) ** 2).sum(axis=1).mean()))


def predict(
    strength: float, rows: np.ndarray, labels: np.ndarray, dev: np.ndarray, weights: Any = None
) -> np.ndarray:
    """Return probabilities of dev rows by scikit-learn's regression, on rows of spread 1."""
    model = LogisticRegression(C=strength, max_iter=2000, tol=1e-8)
    size = spread(rows)
    return model.fit(rows / size, labels, weights).predict_proba(dev / size)


def answer(config: RunConfig, task: str) -> tuple[Frozen, np.ndarray]:
    """Answer a task's dev rows by the regression fitted to its training rows."""
    train, dev = freeze(config, task, "train"), freeze(config, task, "dev")
    if train.spec.kind.name == "score":
        low, high = train.spec.range
        share = (train.labels - low) / (high - low)
        rows = np.concatenate([train.first, train.first])
        answers = np.repeat([1, 0], len(share))
        weights = np.concatenate([share, 1 - share])
        return dev, low + (high - low) * predict(SCORE_STRENGTH, rows, answers, dev.first, weights)[
            :, 1
        ]
    if train.spec.kind.name == "labels":
        found = [predict(STRENGTH, train.first, yes, dev.first)[:, 1] for yes in train.labels.T]
        return dev, np.stack(found, axis=1)
    if train.second is None:
        return dev, predict(STRENGTH, train.first, train.labels, dev.first)
    return dev, predict(PAIR_STRENGTH, train.differences, train.labels, dev.differences)


def first_scores(runs: Any, out: str) -> dict[str, Any]:
    line = next(line for line in runs.log(out) if line["event"] == "scores")
    assert (line["step"], line["split"]) == (0, "dev")
    return line["metrics"]


@pytest.mark.parametrize(
    ("task", "overrides"),
    [
        ("mood", []),
        ("same", []),
        ("same", ["tasks.same.inputs='apart'"]),
        ("near", ["tasks.near.inputs='joined'"]),
    ],
    ids=["classes", "binary", "pairs apart", "score"],
)
def test_the_first_scores_are_those_of_the_regression(runs, task, overrides):
    overrides = [*REGRESSION, *overrides]
    runs.train("run", *overrides)
    dev, answers = answer(read_recipe(runs.recipe, overrides), task)
    expected = dev.spec.kind.score(dev.labels, answers).metrics
    found = first_scores(runs, "run")[task]
    assert found == pytest.approx({key: expected[key] for key in found}, abs=2e-3)


def test_labels_begin_each_by_itself(runs):
    folder = runs.recipe.parent
    rows = [f"the {thing} was fine .,{tags}" for thing, tags in zip(
        ["film", "book", "song", "meal", "walk", "room"] * 4,
        ["happy", "happy;long", "long", "", "happy", "long"] * 4,
        strict=True,
    )]  # fmt: skip
    (folder / "tags.csv").write_text("text,tags\n" + "\n".join(rows) + "\n")
    task = "{kind='labels', labels=['happy', 'long'], text='text', label='tags', " + (
        "head='regression', train='tags.csv', dev='tags.csv'}"
    )
    overrides = [f"tasks.tags={task}", *REGRESSION]
    runs.train("run", *overrides)
    dev, answers = answer(read_recipe(runs.recipe, overrides), "tags")
    expected = dev.spec.kind.score(dev.labels, answers).metrics
    found = first_scores(runs, "run")["tags"]
    assert found == pytest.approx({key: expected[key] for key in found}, abs=2e-3)


def begin(inputs: np.ndarray, labels: np.ndarray, spec: TaskSpec) -> Any:
    loss = LOSSES.build(spec.kind.default_loss, "loss", spec)
    apart, width = spec.inputs == "apart", inputs.shape[1]
    head = HEADS.build({"name": "regression"}, "head", width, loss.num_outputs, apart).eval()
    head.begin(torch.from_numpy(inputs).float(), torch.from_numpy(labels).float(), loss)
    return head


def test_a_score_of_a_pair_begins_as_the_cosine_where_that_is_as_good():
    generator = np.random.default_rng(0)
    u, v = generator.normal(size=(2, 400, 6))
    cosine = (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
    spec = TaskSpec(kind="score", text=("a", "b"), inputs="apart")
    alone = begin(np.concatenate([u, v]), expit(8 * cosine), spec).out.weight
    assert alone[0, -1] > 1
    assert not alone[0, :-1].any()
    # A score that the first text says alone.
    every = begin(np.concatenate([u, v]), expit(8 * u[:, 0]), spec).out.weight
    assert every[0, :-1].any()


def test_the_length_of_vectors_does_not_matter():
    vectors = np.random.default_rng(0).normal(size=(30, 6))
    spec = TaskSpec(kind="binary", text=("a",))
    labels = (vectors[:, 0] > 0).astype(float)
    heads = [begin(scale * vectors, labels, spec) for scale in (1.0, 50.0)]
    given = torch.from_numpy(vectors).float()
    torch.testing.assert_close(heads[0](given), heads[1](given), atol=1e-4, rtol=1e-4)


def test_a_head_without_a_regression_in_its_loss_is_refused(runs):
    with pytest.raises(RecipeError, match=r"tasks\.near: the regression head"):
        runs.train("run", "tasks.near.head='regression'")


# --- what is kept ------------------------------------------------------------------------


def test_training_that_only_does_harm_is_not_kept(runs):
    outcome = runs.train("run", *REGRESSION[:-1], *HARM)
    assert outcome.result["best_step"] == 0
    assert outcome.result["steps"] > 0
    model = load(outcome.folder, device="cpu")
    assert model.evaluate("dev").to_json() == outcome.result["dev"]
    assert outcome.result["dev"]["primary"]["mood"] == pytest.approx(
        first_scores(runs, "run")["mood"]["accuracy"]
    )


def test_training_that_does_no_harm_is_kept(runs):
    """Of equal scores the trained model's are kept, not those of the beginning."""
    outcome = runs.train("run", *REGRESSION[:-1], "train.lr=1e-12", "train.epochs=1")
    assert outcome.result["best_step"] == outcome.result["steps"]


def test_heads_that_begin_at_random_are_no_model_to_beat(runs):
    outcome = runs.train("run", "tasks.mood.head='regression'", *HARM)
    assert first_scores(runs, "run")
    assert outcome.result["best_step"] > 0


@pytest.mark.parametrize("kind", ["mlm", "simcse", "contrast"])
def test_a_stage_with_a_head_of_its_own_is_left_out_of_what_is_kept(runs, kind):
    stages = ["stages=['before', 'finetune']", f"stage.before.kind='{kind}'"]
    kept = []

    class Look(Listener):
        def step(self, record: Any) -> None:
            if record.total_steps == 1:
                kept.extend(load_file(runs.folder / "run" / "model.safetensors"))

    outcome = runs.train("run", *REGRESSION, *stages, listeners=[Look()])
    heads = {name.split(".")[1] for name in kept if name.startswith("heads.")}
    assert heads == {f"task-{name}" for name in NAMES}
    assert load(outcome.folder, device="cpu").evaluate("dev")


def test_pre_training_alone_keeps_the_last_model(runs):
    stage = ["stages=['words']", "stage.words.kind='mlm'", "stage.words.lr=0.1"]
    outcome = runs.train("run", *REGRESSION, *stage)
    assert outcome.result["best_step"] == outcome.result["steps"] == 2
    before = build(read_recipe(runs.recipe)).model.encoder.state_dict()
    after = load(outcome.folder, device="cpu").model.encoder.state_dict()
    assert not all(torch.equal(before[name], after[name]) for name in before)


def test_without_dev_heads_begin_as_well(runs):
    no_dev = [f"tasks.{name}.dev=[]" for name in NAMES]
    still = [*REGRESSION, "train.lr=1e-12"]
    runs.train("scored", *still)
    outcome = runs.train("run", *still, *no_dev)
    ours, theirs = (
        load(runs.folder / name, device="cpu").model.state_dict() for name in ("run", "scored")
    )
    assert "dev" not in outcome.result
    for name, tensor in ours.items():
        torch.testing.assert_close(theirs[name], tensor, atol=1e-6, rtol=1e-6)


# --- from another run --------------------------------------------------------------------


def test_heads_of_a_run_to_start_from_are_kept(runs):
    first = runs.train("first", *REGRESSION[:-1], "train.lr=1e-2")
    path = runs.recipe.with_name("more.toml")
    path.write_text(
        f"name = 'more'\ndevice = 'cpu'\nlisteners = []\nstart = '{first.folder}'\n"
        f"data.root = '{runs.recipe.parent}'\n"
        "[tasks.mood]\n[tasks.again]\nkind = 'binary'\ntext = ['a', 'b']\nlabel = 'label'\n"
        "train = 'same-train.csv'\ndev = 'same-dev.csv'\n"
        "[train]\nmax_steps = 3\nlr = 1e-9\n"
    )
    runs.recipe = path
    heard = runs.Spy()
    outcome = runs.train("second", listeners=[heard])
    chosen = {note.split()[1] for note in heard.notes if note.startswith("chosen: ")}
    assert "tasks.again.head" in chosen
    assert not {key for key in chosen if key.startswith(("tasks.mood", "stage"))}
    scored: Scores = heard.scored[0][2]
    assert scored.primary["mood"] == first.result["dev"]["primary"]["mood"]
    config = RunFolder(outcome.folder).read_config()
    begun = load(outcome.folder, device="cpu").model.state_dict()
    theirs = load(first.folder, device="cpu").model.state_dict()
    for name in theirs:
        torch.testing.assert_close(begun[name], theirs[name], atol=1e-5, rtol=1e-5)
    weight = begun["heads.task-again.out.weight"].numpy()
    train = freeze(config, "again", "train")
    width = train.first.shape[1]
    assert abs(weight[0, : 2 * width]).max() < 1e-8  # three updates at 1e-9
    bias = begun["heads.task-again.out.bias"].numpy()
    found = expit(train.differences @ weight[0, 2 * width :] + bias)
    by_hand = predict(PAIR_STRENGTH, train.differences, train.labels, train.differences)[:, 1]
    np.testing.assert_allclose(found, by_hand, atol=5e-3)


# --- a recipe that leaves all to be chosen -----------------------------------------------


def test_what_was_chosen_is_told_saved_and_resumed(runs, open_recipe):
    runs.recipe = open_recipe
    heard = runs.Spy()
    outcome = runs.train("run", "train.epochs=1", listeners=[heard])
    told = {note.split()[1] for note in heard.notes if note.startswith("chosen: ")}
    assert {"tasks.mood.head", "tasks.near.inputs", "train.lr", "stage.contrast"} <= told
    assert "train.epochs" not in told
    config = RunFolder(outcome.folder).read_config()
    assert config.stages == ("contrast", "finetune")
    assert config.train.lr == 1e-4
    assert config.tasks["same"].inputs == "apart"
    assert not any("pre-training" in note for note in heard.notes), heard.notes
    # The recipe as it was written goes on with the run, also where the data are gone by now.
    (runs.recipe.parent / "mood-train.csv").unlink()
    assert runs.train("run", "train.epochs=1", resume=True).result == outcome.result
    with pytest.raises(RunError, match=r"another recipe \(train\.batch_size: 16 -> 4\)"):
        runs.train("run", "train.epochs=1", "train.batch_size=4", resume=True)


def test_a_broken_run_of_an_open_recipe_ends_as_an_unbroken_one(runs, open_recipe):
    runs.recipe = open_recipe
    settings = ["train.epochs=1", "save_every=7"]
    steps = runs.train("whole", *settings).result["steps"]
    assert steps == 50 + 9
    runs.train_broken("broken", *settings, crashes=(1, 20, 50, 51, steps))
    runs.check_equal("whole", "broken")


def test_the_baselines_are_those_of_the_untrained_encoder(runs):
    outcome = runs.train("run", *REGRESSION)
    assert json.loads((outcome.folder / "scores.json").read_text())["baselines"].keys() == set(
        NAMES
    )
