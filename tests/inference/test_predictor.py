"""Predictor: answers, vectors and scores of a trained run."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import plait
from plait.config import read_recipe
from plait.errors import DataError, RecipeError, RunError, UsageError
from plait.inference.predictor import Predictor
from plait.model.heads import HEADS
from plait.training.run import train
from plait.types import Prediction

TEXTS = [
    "the film was great .",
    "dull",
    "the garden was very not it plain . the song was it lovely . the meal was awful .",
    "a b c",
    "the book was fine .",
]
PAIRS = [(one, other) for one in TEXTS for other in TEXTS[:3]]


@pytest.fixture
def predictor(tiny_run) -> Predictor:
    return Predictor.load(tiny_run, device="cpu")


# --- answers -----------------------------------------------------------------------------


def test_classes(predictor):
    answers = predictor.predict("mood", TEXTS)
    assert len(answers) == len(TEXTS)
    for answer in answers:
        assert isinstance(answer, Prediction)
        assert answer.task == "mood"
        assert answer.label == ("bad", "so-so", "good")[answer.value]
        assert len(answer.probabilities) == 3
        assert sum(answer.probabilities) == pytest.approx(1)
        assert answer.confidence == max(answer.probabilities)
        assert type(answer.value) is int


@pytest.mark.parametrize(("task", "examples"), [("mood", TEXTS), ("same", PAIRS), ("near", PAIRS)])
def test_order_and_batches_do_not_matter(tiny_run, task, examples):
    """Rows are answered longest first, together with others; none of that may show."""
    predictor = Predictor.load(tiny_run)
    together = predictor.predict(task, examples)
    alone = [predictor.predict(task, [example])[0] for example in examples]
    backwards = predictor.predict(task, examples[::-1])[::-1]
    for other in (alone, backwards):
        for a, b in zip(together, other, strict=True):
            assert a.value == pytest.approx(b.value, abs=1e-5)
            assert a.probabilities == pytest.approx(b.probabilities, abs=1e-6)
    assert len({answer.probabilities or answer.value for answer in together}) > 3


# --- what cannot be answered -------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "examples", "sentence"),
    [
        ("mood", [("a", "b")], "task 'mood' takes one text per example, got 2"),
        ("same", ["a"], "task 'same' takes two texts per example, got 1"),
        ("near", [("a", "b"), ("a",)], "task 'near' takes two texts per example, got 1"),
        ("near", [("a", "b", "c")], "task 'near' takes two texts per example, got 3"),
        ("mood", "a text", "give a list of texts, not a single one"),
        ("mood", {"text": ["a"]}, "give a list of texts, not a table of columns"),
    ],
)
def test_the_wrong_number_of_texts(predictor, task, examples, sentence):
    with pytest.raises(UsageError, match=sentence):
        predictor.predict(task, examples)


@pytest.mark.parametrize(
    ("task", "examples", "sentence"),
    [
        ("mood", ["fine", ""], "example 1: the text is empty"),
        ("mood", ["  \n"], "example 0: the text is empty"),
        ("same", [("a", "")], "example 0: the text is empty"),
        ("mood", [None], "example 0: None is not a text"),
        ("mood", [3], "example 0: 3 is not a text"),
        ("same", [("a", None)], "example 0: None is not a text"),
    ],
)
def test_texts_that_are_none(predictor, task, examples, sentence):
    with pytest.raises(DataError, match=sentence):
        predictor.predict(task, examples)


# --- vectors -----------------------------------------------------------------------------


def test_vectors(predictor):
    vectors = predictor.embed(TEXTS)
    assert vectors.shape == (5, 16)
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()
    assert np.array_equal(vectors, predictor.embed(iter(TEXTS)))
    for text, vector in zip(TEXTS, vectors, strict=True):
        assert predictor.embed([text])[0] == pytest.approx(vector, abs=1e-5)


# --- splits ------------------------------------------------------------------------------


def test_evaluating(predictor):
    scores = predictor.evaluate("dev")
    assert list(scores.primary) == ["mood", "same", "near"]
    some = predictor.evaluate("train", tasks=["near"])
    assert list(some.primary) == ["near"]
    assert some.tasks["near"].num_examples == 24


# --- loading -----------------------------------------------------------------------------


def test_a_run_that_is_not_there(tmp_path, tiny_run):
    with pytest.raises(RunError, match="there is no run at"):
        plait.load(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"is not a run: it has no recipe\.toml"):
        plait.load(tmp_path)
    recipe = tmp_path / "recipe.toml"
    recipe.write_bytes((tiny_run / "recipe.toml").read_bytes())
    with pytest.raises(RunError, match=r"recipe\.toml is a file; a run is a folder"):
        plait.load(recipe)
    with pytest.raises(RunError, match=f"has a recipe but no model; .* `plait train {recipe}`"):
        plait.load(tmp_path)
    (tmp_path / "run.json").write_bytes((tiny_run / "run.json").read_bytes())
    with pytest.raises(RunError, match="has no model yet"):
        plait.load(tmp_path)


HEAD = '''
import torch
from torch import nn
from plait.model.heads import HEADS, Head


@HEADS.register("scaled")
class Scaled(Head):
    """A linear layer, scaled."""

    def __init__(self, width, num_outputs, apart, *, scale: float = 2.0):
        super().__init__()
        self.out = nn.Linear(width, num_outputs)
        self.scale = scale

    def forward(self, vectors):
        return self.out(vectors) * self.scale
'''


def test_heads_of_the_users_own_load_again(tmp_path, tiny_recipe, monkeypatch):
    monkeypatch.setattr(HEADS, "_parts", dict(HEADS._parts))
    recipe = tiny_recipe()
    plugin = recipe.parent / "scaled_head.py"
    plugin.write_text(HEAD)
    recipe.write_text('plugins = ["scaled_head.py"]\n' + recipe.read_text())
    config = read_recipe(
        recipe, ["tasks.mood.head={name='scaled', scale=3.5}", "train.max_steps=1"]
    )
    outcome = train(config, tmp_path / "run")
    predictor = plait.load(tmp_path / "run")
    assert type(predictor.model.heads["task-mood"]).__name__ == "Scaled"
    assert predictor.model.heads["task-mood"].scale == 3.5
    assert predictor.evaluate("dev").to_json() == outcome.result["dev"]
    # Answers that were kept are not taken for those of a file that changed.
    assert plait.load(tmp_path / "run").fingerprint() == predictor.fingerprint()
    plugin.write_text(HEAD + "# changed")
    assert plait.load(tmp_path / "run").fingerprint() != predictor.fingerprint()
    # Another model: a sentence, not a list of tensors.
    plugin.write_text(HEAD.replace("nn.Linear(width, num_outputs)", "nn.Linear(width, 7)"))
    with pytest.raises(RunError, match=r"model\.safetensors does not fit the model its recipe"):
        plait.load(tmp_path / "run")
    plugin.unlink()
    with pytest.raises(RecipeError, match=r"plugins names .*scaled_head\.py, which is not a file"):
        plait.load(tmp_path / "run")


# --- several tasks at once ---------------------------------------------------------------


def test_tasks_on_the_same_rows_are_answered_as_one_by_one(predictor):
    rows = predictor.tokenise([(text, "the walk was sad .") for text in TEXTS])
    found = predictor.answer_together(["near", "same"], rows)
    assert list(found) == ["near", "same"]
    for task, answers in found.items():
        assert (answers == predictor.answer(task, rows)).all()


def test_tasks_that_read_the_same_input_share_a_pass(tmp_path, tiny_recipe, monkeypatch):
    """Two tasks on one text take one pass; one with an adapter has its own."""
    recipe = tiny_recipe()
    again = '\n[tasks.{}]\nkind = "classes"\nlabels = ["bad", "so-so", "good"]\n'
    again += 'text = "text"\nlabel = "label"\ntrain = "mood-train.csv"\n{}'
    more = again.format("tone", "") + again.format("own", 'adapter = "lora"\n')
    recipe.write_text(recipe.read_text(encoding="utf-8") + more, encoding="utf-8")
    model = plait.load(plait.train(plait.read_recipe(recipe), tmp_path / "run").folder)
    groups = [("mood", "tone"), ("same",), ("near",), ("own",)]
    assert model.share_passes(list(model.tasks)) == groups

    rows = model.tokenise([(text,) for text in TEXTS])
    alone = {task: model.answer(task, rows) for task in ("own", "tone", "mood")}
    passes = []
    forward = model.model.encoder.forward
    monkeypatch.setattr(
        model.model.encoder, "forward", lambda *given: passes.append(1) or forward(*given)
    )
    found = model.answer_together(list(alone), rows)
    assert len(passes) == 2
    for task, answers in alone.items():
        assert (found[task] == answers).all()

    passes.clear()
    path, steps = tmp_path / "texts.csv", []
    path.write_text("text\n" + "\n".join(TEXTS) + "\n", encoding="utf-8")
    model.predict_file(
        path,
        tmp_path / "answers.csv",
        tasks=list(alone),
        progress=lambda _, done, total: steps.append((done, total)),
    )
    assert len(passes) == 2
    assert steps[-1] == (3 * len(TEXTS), 3 * len(TEXTS))
    assert steps == sorted(steps)
    with (tmp_path / "answers.csv").open(encoding="utf-8", newline="") as file:
        written = list(csv.DictReader(file))
    for task, answers in alone.items():
        assert [int(row[task]) for row in written] == answers.argmax(axis=1).tolist()
