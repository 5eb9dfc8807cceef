"""Exports for sentence-transformers and transformers, against the libraries themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from plait.errors import UsageError
from plait.export.run import export
from plait.inference.predictor import Predictor

LONG = " ".join(["the film was very great and it is not dull ."] * 6)
TEXTS = ["the film was great .", "awful", "a lovely walk , and the story was not dull !", LONG]
PAIRS = [(first, second) for first, second in zip(TEXTS, reversed(TEXTS), strict=True)]

pytestmark = pytest.mark.filterwarnings("default")  # the libraries' own


@pytest.fixture(scope="module")
def predictor(classifier_run):
    return Predictor.load(classifier_run, device="cpu")


def probabilities(run, task, rows):
    return np.array([answer.probabilities or answer.value for answer in run.predict(task, rows)])


# --- sentence-transformers: the encoder --------------------------------------------------


@pytest.mark.parametrize("pooling", ["mean", "cls", "cls-pooler"])
def test_sentence_transformer(train_tiny, tmp_path, pooling):
    library = pytest.importorskip("sentence_transformers")
    run = train_tiny(f"encoder.pooling={pooling}", "train.max_steps=1")
    folder = export(run, tmp_path / "out", form="sentence-transformers").folder
    model = library.SentenceTransformer(str(folder), device="cpu")
    assert model.max_seq_length == 32
    np.testing.assert_allclose(
        model.encode(TEXTS), Predictor.load(run, device="cpu").embed(TEXTS), atol=1e-5
    )
    assert list(folder.rglob("*.bin")) == []


# --- sentence-transformers: a task -------------------------------------------------------


@pytest.mark.parametrize("task", ["same", "merged", "scored", "shared"])
def test_cross_encoder(predictor, classifier_run, tmp_path, task):
    library = pytest.importorskip("sentence_transformers")
    place = tmp_path / "out"
    export(classifier_run, place, form="sentence-transformers", tasks=[task])
    model = library.CrossEncoder(str(place), device="cpu")
    found = model.predict(PAIRS)
    wanted = probabilities(predictor, task, PAIRS)
    if task == "scored":
        found = found.clip(0, 5)
    elif task == "shared":
        found = 5 * found
    else:
        wanted = wanted[:, 1]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


# --- transformers ------------------------------------------------------------------------


def ask(folder, rows):
    """Return the logits of texts or pairs, by what transformers loads from a folder."""
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    columns = list(map(list, zip(*rows, strict=True))) if isinstance(rows[0], tuple) else [rows]
    batch = tokenizer(*columns, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        return model.eval()(**batch).logits, model.config


@pytest.mark.parametrize("task", ["mood", "same", "merged", "moods", "scored", "shared"])
def test_sequence_classification(predictor, classifier_run, tmp_path, task):
    folder = export(classifier_run, tmp_path / "out", form="hf", tasks=[task]).folder
    spec = predictor.tasks[task].spec
    rows = PAIRS if spec.is_pair else TEXTS
    logits, config = ask(folder, rows)
    wanted = probabilities(predictor, task, rows)
    if task == "shared":  # a sigmoid's share of the range
        assert config.problem_type == "multi_label_classification"
        found = 5 * logits[:, 0].sigmoid()
    elif spec.kind.name == "score":
        assert config.problem_type == "regression"
        found = logits[:, 0].clamp(*spec.range)
    elif spec.kind.name == "labels":
        assert config.problem_type == "multi_label_classification"
        found = logits.sigmoid()
    else:
        assert config.problem_type == "single_label_classification"
        found = logits.softmax(-1)
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-5)
    labels = spec.labels or (task,)
    assert config.id2label == dict(enumerate(labels))
    assert config.label2id == {label: i for i, label in enumerate(labels)}
    page = (folder / "README.md").read_text()
    assert page.startswith("---\nlibrary_name: transformers\n")
    assert "AutoModelForSequenceClassification" in page
    assert "`RUN`" not in page


def test_calibration_is_in_the_classifier(classifier_run, predictor):
    """Else the tests above would not see it."""
    plain = Predictor.load(classifier_run, device="cpu", calibrated=False)
    for task, rows in (("mood", TEXTS), ("same", PAIRS)):
        far = abs(probabilities(plain, task, rows) - probabilities(predictor, task, rows)).max()
        assert far > 1e-3


# --- refusals ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "tasks", "said"),
    [
        ("hf", [], "exports one task: name it with --task"),
        ("hf", ["mood", "same"], "exports one task"),
        ("hf", ["modo"], "has no task 'modo'; did you mean 'mood'"),
        ("hf", ["near"], "encodes its two texts separately"),
        ("hf", ["beside"], r"an adapter \(pal\) that cannot be merged into the encoder"),
        ("sentence-transformers", ["mood"], "reads one text, but a CrossEncoder two"),
        ("sentence-transformers", ["same", "mood"], "or, without it, the encoder"),
        ("keras", [], "format 'keras' is not known; known: hf, onnx, sentence-transformers"),
    ],
)
def test_what_cannot_be_expressed(classifier_run, tmp_path, form, tasks, said):
    with pytest.raises(UsageError, match=said):
        export(classifier_run, tmp_path / "out", form=form, tasks=tasks)
    assert not (tmp_path / "out").exists()
    assert list(tmp_path.glob(".*")) == []
