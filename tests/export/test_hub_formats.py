"""Exports for sentence-transformers and transformers, against the libraries themselves."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import plait
from plait.errors import RunError, UsageError
from plait.export.hf import classify
from plait.export.run import export
from plait.inference.fitting.calibrate import calibrate
from plait.inference.predictor import Predictor
from plait.methods.losses import CrossEntropy

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


def test_cross_encoder_of_classes(train_tiny, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    run = train_tiny(
        "encoder.pooling=cls-pooler",
        more='[tasks.kind]\nkind = "classes"\nlabels = ["0", "1"]\ntext = ["a", "b"]\n'
        'head = "linear"\nlabel = "label"\ntrain = "same-train.csv"\ndev = "same-dev.csv"\n',
    )
    export(run, tmp_path / "out", form="sentence-transformers", tasks=["kind"])
    model = library.CrossEncoder(str(tmp_path / "out"), device="cpu")
    wanted = probabilities(Predictor.load(run, device="cpu"), "kind", PAIRS)
    np.testing.assert_allclose(model.predict(PAIRS, apply_softmax=True), wanted, atol=1e-5)


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


@pytest.mark.parametrize("task", ["mood", "same"])
def test_a_temperature_alone_is_in_the_classifier(classifier_run, tmp_path, task):
    run = shutil.copytree(classifier_run, tmp_path / "run")
    calibrate(run, device="cpu")
    model = Predictor.load(run, device="cpu")
    assert not model.scalings[task].offsets
    rows = PAIRS if model.tasks[task].spec.is_pair else TEXTS
    logits, _ = ask(export(run, tmp_path / "out", form="hf", tasks=[task]).folder, rows)
    wanted = probabilities(model, task, rows)
    np.testing.assert_allclose(logits.softmax(-1).numpy(), wanted, atol=1e-5)


def test_an_mlp_head_on_cls_and_no_segments(train_tiny, tmp_path):
    """The head's first layer is what transformers calls the pooler; segments are all alike."""
    run = train_tiny("encoder.pooling=cls", "encoder.segments=false", "tasks.same.head=mlp")
    folder = export(run, tmp_path / "out", form="hf", tasks=["same"]).folder
    logits, _ = ask(folder, PAIRS)
    wanted = probabilities(Predictor.load(run, device="cpu"), "same", PAIRS)
    np.testing.assert_allclose(logits.softmax(-1).numpy(), wanted, atol=1e-5)


# --- refusals ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "tasks", "said"),
    [
        ("hf", [], "holds one task: name it with --task"),
        ("hf", ["mood", "same"], "holds one task"),
        ("hf", ["modo"], "has no task 'modo'; did you mean 'mood'"),
        ("hf", ["near"], "encodes its two texts apart"),
        ("hf", ["beside"], r"an adapter \(pal\) that is no part of the encoder's weights"),
        ("sentence-transformers", ["mood"], "reads one text, and a CrossEncoder two"),
        ("sentence-transformers", ["same", "mood"], "or none: the encoder"),
        ("keras", [], "format 'keras' is not known; known: hf, onnx, sentence-transformers"),
    ],
)
def test_what_cannot_be_expressed(classifier_run, tmp_path, form, tasks, said):
    with pytest.raises(UsageError, match=said):
        export(classifier_run, tmp_path / "out", form=form, tasks=tasks)
    assert not (tmp_path / "out").exists()
    assert list(tmp_path.glob(".*")) == []


class Own(CrossEntropy):
    """A loss of a user's."""

    def decode(self, outputs):
        return super().decode(2 * outputs)


def test_poolings_and_losses_that_cannot_be_expressed(tiny_run, train_tiny, tmp_path):
    with pytest.raises(UsageError, match=r"a head 'linear' on pooling 'mean'.*`--format onnx`"):
        export(tiny_run, tmp_path / "out", form="hf", tasks=["mood"])
    run = train_tiny("encoder.pooling=cls-pooler", "train.max_steps=1")
    loaded = Predictor.load(run, device="cpu")
    loaded.tasks["mood"] = replace(loaded.tasks["mood"], loss=Own(loaded.tasks["mood"].spec))
    with pytest.raises(UsageError, match="by the loss 'Own'"):
        classify(loaded, "mood")
    with pytest.raises(UsageError, match="int8 is for --format onnx"):
        export(run, tmp_path / "out", form="hf", tasks=["mood"], precision="int8")


def test_texts_cut_in_the_middle_are_refused(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    recipe = run / "recipe.toml"
    text = recipe.read_text().replace('truncate = "head"', 'truncate = "head-tail"')
    recipe.write_text(text)
    with pytest.raises(UsageError, match="keeps beginning and end of long texts"):
        export(run, tmp_path / "out", form="sentence-transformers")


def test_plait_does_not_answer_with_them(classifier_run, tmp_path):
    folder = export(classifier_run, tmp_path / "out", form="hf", tasks=["mood"]).folder
    assert json.loads((folder / "export.json").read_text())["task"] == "mood"
    with pytest.raises(RunError, match=r"was exported for another library \(hf\)"):
        plait.load(folder)
