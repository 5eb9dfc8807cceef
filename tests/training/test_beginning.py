"""Heads that begin as a regression on the untrained encoder's vectors, in whole runs."""

from __future__ import annotations

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
from plait.errors import RunError
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


TAGS = "tasks.tags={kind='labels', labels=['happy', 'long'], text='text', label='tags', " + (
    "head='regression', train='tags.csv', dev='tags.csv'}"
)


@pytest.mark.parametrize(
    "overrides",
    [[], ["tasks.same.inputs='apart'", "tasks.near.inputs='joined'", TAGS]],
    ids=["near apart", "same apart, near joined, labels each by itself"],
)
def test_the_first_scores_are_those_of_the_regression(runs, overrides):
    folder = runs.recipe.parent
    tags = ["happy", "happy;long", "long", "", "happy", "long"] * 4
    things = ["film", "book", "song", "meal", "walk", "room"] * 4
    rows = [f"the {thing} was fine .,{tag}" for thing, tag in zip(things, tags, strict=True)]
    (folder / "tags.csv").write_text("text,tags\n" + "\n".join(rows) + "\n")
    overrides = [*REGRESSION, *overrides]
    runs.train("run", *overrides)
    config = read_recipe(runs.recipe, overrides)
    first = first_scores(runs, "run")
    for task, spec in config.tasks.items():
        if spec.kind.name == "score" and spec.inputs == "apart":
            continue  # which begins as the cosine where that is as good
        dev, answers = answer(config, task)
        expected = dev.spec.kind.score(dev.labels, answers).metrics
        found = first[task]
        assert found == pytest.approx({key: expected[key] for key in found}, abs=2e-3), task


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


@pytest.mark.parametrize("kind", ["mlm", "contrast"])
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
