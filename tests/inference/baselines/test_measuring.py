"""Baselines: the figures of scikit-learn used by hand, and a cache that changes nothing."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from plait.config import read_recipe
from plait.data import Dataset, cache_root
from plait.data.loading import load_data
from plait.inference.baselines import COSINE, FROZEN, TFIDF, measure, measuring
from plait.inference.scoring import Task, score_baseline
from plait.methods.losses import LOSSES
from plait.tasks import TaskSpec
from plait.tasks.metrics import pearson, primary_metric
from plait.training.build import build
from plait.training.loop import task_seed


@pytest.fixture(scope="module")
def data(tiny_run):
    """Parts, training data and dev data of the tiny recipe."""
    config = read_recipe(tiny_run.parent / "tiny" / "recipe.toml")
    parts = build(config)
    return parts, *(load_data(config, parts.tokenizer, split) for split in ("train", "dev"))


@pytest.fixture
def built(data):
    """The same, with a model to change."""
    parts, train, dev = data
    return replace(parts, model=deepcopy(parts.model)), train, dev


def with_plan(parts, **changes):
    """Return the parts with something of their plan changed."""
    return replace(parts, plan=replace(parts.plan, **changes))


def cache_files():
    return sorted((cache_root() / "baselines").glob("*"))


def by_hand(parts, dataset):
    """Vectors of each text column, each text encoded by itself."""
    columns = []
    with torch.no_grad():
        for column in zip(*dataset.texts(), strict=True):
            alone = Dataset.from_texts([(text,) for text in column], parts.tokenizer, 32)
            rows = [parts.collator(alone, torch.tensor([i]), TASK) for i in range(len(alone))]
            vectors = torch.cat([parts.model.embed(row.tokens) for row in rows]).double()
            columns.append((vectors / vectors.norm(dim=1, keepdim=True)).numpy())
    return columns


TASK = TaskSpec(kind="binary", text=("text",))


def spread(rows):
    """Return the root mean square distance of rows from their mean."""
    return np.sqrt(((rows - rows.mean(axis=0)) ** 2).sum(axis=1).mean())


def test_classes_as_scikit_learn_has_them(built):
    parts, train, dev = built
    found = measure(parts, train, dev)["mood"]
    assert list(found) == ["majority class", FROZEN, TFIDF]
    assert found["majority class"] == score_baseline(parts.tasks, train, dev).primary["mood"]
    known, asked = train["mood"].labels.numpy(), dev["mood"].labels.numpy()
    parts.model.eval()
    (x,), (y,) = (by_hand(parts, split["mood"]) for split in (train, dev))
    held = np.arange(len(x)) % 5 == 0

    def model(strength):
        return LogisticRegression(C=strength, max_iter=200)

    z = x / spread(x[~held])
    inner = [model(c).fit(z[~held], known[~held]).score(z[held], known[held]) for c in (1.0, 10.0)]
    strength = 10.0 if inner[1] > inner[0] else 1.0
    fitted = model(strength).fit(x / spread(x), known)
    assert found[FROZEN] == pytest.approx(fitted.score(y / spread(x), asked))

    texts = [
        [" ".join(map(str, split["mood"].tokens[0].select([i]).ids.tolist())) for i in range(count)]
        for split, count in ((train, len(known)), (dev, len(asked)))
    ]
    terms = TfidfVectorizer(token_pattern=r"\S+", ngram_range=(1, 2), sublinear_tf=True)
    x, y = terms.fit_transform(texts[0]), terms.transform(texts[1])
    assert found[TFIDF] == pytest.approx(model(10.0).fit(x, known).score(y, asked))


def test_scores_of_pairs_as_scikit_learn_has_them(built):
    parts, train, dev = built
    found = measure(parts, train, dev)["near"]
    assert list(found) == ["mean score", FROZEN, COSINE, TFIDF]
    assert math.isnan(found["mean score"])
    parts.model.eval()

    def features(split):
        u, v = by_hand(parts, split["near"])
        return np.hstack([abs(u - v), u * v, (u * v).sum(axis=1, keepdims=True)])

    x, y = features(train), features(dev)
    known, asked = (split["near"].labels.numpy().astype(float) for split in (train, dev))
    assert found[COSINE] == pytest.approx(pearson(y[:, -1], asked), abs=1e-5)
    x, y = x / spread(x), y / spread(x)
    answers = [Ridge(alpha=1 / c).fit(x, known).predict(y).clip(0, 5) for c in (1.0, 10.0)]
    assert any(found[FROZEN] == pytest.approx(pearson(a, asked), abs=1e-4) for a in answers)


# --- rows that are hard to fit -----------------------------------------------------------

KINDS = {
    "classes": {"labels": ("a", "b", "c")},
    "binary": {},
    "labels": {"labels": ("a", "b")},
    "score": {"range": (0.0, 5.0)},
}
TEXTS = ["the film was great .", "the book was awful .", "the meal was fine .", "a walk ."] * 3


def make_case(parts, kind, known, asked, *, texts=TEXTS, pair=False):
    """Return parts, train and dev of one task made by hand."""
    spec = TaskSpec(kind=kind, text=("a", "b") if pair else ("a",), **KINDS[kind])
    loss = LOSSES.build(spec.kind.default_loss, "loss", spec)
    task = Task(spec, loss, primary_metric(spec.kind, None))
    dtype = torch.int64 if kind == "classes" else torch.float32
    splits = []
    for labels in (known, asked):
        rows = [(text, texts[-1 - i]) if pair else (text,) for i, text in enumerate(texts)]
        dataset = Dataset.from_texts(rows[: len(labels)], parts.tokenizer, 32, blank=True)
        splits.append({"t": replace(dataset, labels=torch.tensor(labels, dtype=dtype))})
    return with_plan(parts, tasks={"t": task}), *splits


@pytest.mark.parametrize(
    ("kind", "known", "asked"),
    [
        ("classes", [1] * 12, [1, 1, 0]),
        ("classes", [0, 2] * 6, [1, 1, 2]),
        ("classes", [0], [1]),
        ("binary", [1] * 12, [0, 1]),
        ("binary", [0] * 11 + [1], [0, 0]),
        ("labels", [[1, 0]] * 12, [[1, 0], [0, 1]]),
        ("labels", [[1, 0], [0, 0]] * 6, [[0, 1], [0, 1]]),
        ("score", [2.3] * 12, [1.0, 2.0, 3.0]),
        ("score", [1.0, 2.0] * 6, [2.5, 2.5]),
        ("score", [1.0], [2.0]),
    ],
)
def test_one_class_missing_classes_and_constants(built, kind, known, asked):
    pair = len(known) == 12  # the others are on one text
    parts, train, dev = make_case(built[0], kind, known, asked, pair=pair)
    figures = measure(parts, train, dev)["t"]
    assert all(math.isnan(value) or 0 <= value <= 1 for value in figures.values())
    if kind != "score":
        assert not any(math.isnan(value) for value in figures.values())
    if known.count(known[0]) == len(known):  # nothing to fit: as the majority class
        first, *others = (v for name, v in figures.items() if name != COSINE)
        assert all(value == pytest.approx(first, nan_ok=True) for value in others)
    assert not cache_files()  # the data sets have no key


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("texts", "pair"),
    [([""] * 12, True), (["", "the film was great ."] * 6, False), (["same"] * 12, True)],
)
def test_empty_and_equal_texts(built, kind, texts, pair):
    labels = [[1, 0], [0, 1]] * 6 if kind == "labels" else [0, 1] * 6
    parts, train, dev = make_case(built[0], kind, labels, labels[:4], texts=texts, pair=pair)
    figures = measure(parts, train, dev)["t"]
    assert figures[TFIDF] == pytest.approx(figures[TFIDF], nan_ok=True)
    assert math.isnan(figures[TFIDF]) == (kind == "score" and texts[0] == texts[1])


# --- what it leaves as it was ------------------------------------------------------------


def test_a_sample_is_the_same_every_time(built, monkeypatch):
    parts, train, dev = built
    monkeypatch.setattr(measuring, "MOST_TRAIN", 20)
    monkeypatch.setattr(measuring, "MOST_DEV", 10)
    monkeypatch.setattr(measuring, "_find_cache_file", lambda *_: None)
    heard = []
    first = measure(parts, train, dev, lambda *place: heard.append(place))
    again = measure(parts, train, dev)
    assert str(first) == str(again)  # nan among them
    assert [place for place in heard if place[1] == place[2]] == [
        ("mood", 30, 30),
        ("same", 60, 60),
        ("near", 60, 60),
    ]
    majority = score_baseline(parts.tasks, train, dev).primary["mood"]
    assert first["mood"]["majority class"] == majority  # of all rows
    case = measuring._Case.make(parts, "mood", train["mood"], dev["mood"])
    draw = np.random.default_rng([parts.config.seed, task_seed("mood")])
    assert case.train_rows.tolist() == sorted(draw.choice(45, 20, replace=False))
    assert case.dev_rows.tolist() == sorted(draw.choice(18, 10, replace=False))


# --- the cache ---------------------------------------------------------------------------


def refuse(*_):
    raise AssertionError("measured again")


def test_figures_are_measured_once(built, monkeypatch):
    parts, train, dev = built
    first = measure(parts, train, dev)
    assert len(cache_files()) == 3
    monkeypatch.setattr(measuring._Case, "score_terms", refuse)
    assert str(measure(parts, train, dev)) == str(first)  # nan among them
    assert "null" in "".join(path.read_text() for path in cache_files())


@pytest.mark.parametrize("change", ["data", "encoder", "seed", "max_length", "metric", "spec"])
def test_whatever_figures_depend_on_is_in_the_key(built, change):
    parts, train, dev = built
    measure(parts, train, dev)
    train = {"mood": train["mood"]}
    task = parts.tasks["mood"]
    if change == "data":
        train["mood"] = replace(train["mood"], key="another")
    elif change == "encoder":
        parts = replace(parts, encoder=parts.encoder | {"sha256": "another"})
    elif change == "seed":
        parts = with_plan(parts, recipe=parts.config.model_copy(update={"seed": 8}))
    elif change == "max_length":
        encoder = parts.config.encoder.model_copy(update={"max_length": 31})
        parts = with_plan(parts, recipe=parts.config.model_copy(update={"encoder": encoder}))
    elif change == "metric":
        parts = with_plan(parts, tasks={"mood": replace(task, metric="macro_f1")})
    else:
        spec = task.spec.model_copy(update={"labels": ("bad", "so-so", "fine")})
        parts = with_plan(parts, tasks={"mood": replace(task, spec=spec)})
    measure(parts, train, dev)
    assert len(cache_files()) == 4


@pytest.mark.parametrize("text", ["{", "7", '{"majority class": 1}', "\xff"])
def test_a_damaged_file_is_measured_again(built, text):
    parts, train, dev = built
    first = measure(parts, train, dev)
    whole = [path.read_text() for path in cache_files()]
    for path in cache_files():
        path.write_text(text, encoding="latin-1")
    assert str(measure(parts, train, dev)) == str(first)
    assert [path.read_text() for path in cache_files()] == whole
