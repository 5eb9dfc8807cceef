"""Export one task of a run for AutoModelForSequenceClassification.

Its class for BERT computes classifier(tanh(dense(first token))). Two kinds of run have this form:
pooling "cls-pooler" with a linear head, where the pooler is the dense layer, and pooling "cls" with
an mlp head, where the first layer is. Other runs are refused. Linear operations after the
classifier, such as a calibration or a score's range, are merged into its weights. `problem_type`
says whether a softmax, a sigmoid or nothing follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from plait.errors import UsageError
from plait.export.folder import write_facts
from plait.export.hub import INSTEAD, HubModel, check_reading, encoder_of, to_hub, write_hub
from plait.inference.calibration import Scaling
from plait.methods.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    LabelBinaryCrossEntropy,
    MeanSquaredError,
    ScoreCrossEntropy,
)
from plait.model.bert import Bert
from plait.model.heads import LinearHead, MLPHead

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor, nn

    from plait.inference.predictor import Predictor
    from plait.model.encoder import Encoder


Reading = Literal["softmax", "sigmoid", "plain"]
"""The function that converts a classifier's outputs to predictions."""

PROBLEMS: dict[Reading, str] = {
    "softmax": "single_label_classification",
    "sigmoid": "multi_label_classification",
    "plain": "regression",
}
"""Values of `problem_type` with which the pipeline of transformers applies the same function."""


@dataclass(frozen=True, slots=True)
class Classifier:
    """The last layer, and the meaning of its outputs."""

    weight: Tensor
    bias: Tensor
    labels: tuple[str, ...]
    reading: Reading

    def settings(self) -> dict[str, Any]:
        """Return its entries in config.json."""
        return {
            "architectures": ["BertForSequenceClassification"],
            "id2label": {str(i): label for i, label in enumerate(self.labels)},
            "label2id": {label: i for i, label in enumerate(self.labels)},
            "problem_type": PROBLEMS[self.reading],
        }


def write_hf(folder: Path, run: Predictor, task: str) -> None:
    """Write the Hub folder of one task."""
    write_hub(folder, run, classify(run, task))
    write_facts(folder, run, "hf", {"precision": "fp32", "task": task})


def classify(run: Predictor, task: str, *, one_logit: bool = False) -> HubModel:
    """Return the task's encoder with its classifier.

    A binary task has two logits or, with `one_logit`, a single logit for the positive label.
    """
    check_reading(run)
    encoder = encoder_of(run, task)
    dense, out = _find_layers(run, task, encoder)
    classifier = _make_classifier(run, task, out, one_logit=one_logit)
    hub = to_hub(encoder, segments=run.config.encoder.segments)
    weights = {f"bert.{name}": tensor for name, tensor in hub.weights.items()}
    weights["bert.pooler.dense.weight"] = dense.weight
    weights["bert.pooler.dense.bias"] = dense.bias
    weights |= {"classifier.weight": classifier.weight, "classifier.bias": classifier.bias}
    return HubModel({**hub.config, **classifier.settings()}, weights, hub.reads_types)


def _find_layers(run: Predictor, task: str, encoder: Encoder) -> tuple[nn.Linear, nn.Linear]:
    """Return the two layers after the first token's vector; raise UsageError for other models."""
    spec, head, pooling = run.tasks[task].spec, run.model.heads[f"task-{task}"], run.model.pooling
    wanted = 'encoder.pooling = "cls-pooler" and a linear head, or "cls" and an mlp head'
    if not isinstance(encoder, Bert):
        raise UsageError(
            'only a run with plait\'s own BERT (encoder.architecture = "bert") can be exported to '
            f"transformers' classifier; {INSTEAD}"
        )
    if spec.inputs == "apart":
        raise UsageError(
            f"task {task!r} encodes its two texts separately, but transformers' classifier reads "
            f"one input; {INSTEAD}, `--format sentence-transformers` the encoder"
        )
    if spec.both_orders:
        raise UsageError(
            f"task {task!r} averages both orders of a pair, which transformers' classifier does "
            f"not; {INSTEAD}"
        )
    if isinstance(head, LinearHead) and pooling == "cls-pooler":
        return encoder.pooler.dense, head.out
    if isinstance(head, MLPHead) and pooling == "cls" and head.hidden.out_features == encoder.width:
        return head.hidden, head.out
    named = run.config.tasks[task].head["name"]
    raise UsageError(
        f"task {task!r} has a head {named!r} on pooling {pooling!r}, which transformers' class for "
        f"BERT cannot express: it needs {wanted} as wide as the encoder; {INSTEAD}"
    )


@torch.no_grad()
def _make_classifier(run: Predictor, task: str, out: nn.Linear, *, one_logit: bool) -> Classifier:
    """Return a layer whose outputs determine the task's predictions."""
    spec, loss = run.tasks[task].spec, run.tasks[task].loss
    weight, bias = out.weight.detach(), out.bias.detach()
    if type(loss) in (CrossEntropy, BinaryCrossEntropy):
        scaling = run.scalings.get(task, Scaling(1.0))
        weight, bias = weight / scaling.temperature, bias / scaling.temperature
        labels = spec.labels
        if type(loss) is BinaryCrossEntropy:  # softmax of 0 and z is sigmoid of z
            weight, bias = (torch.cat([torch.zeros_like(t), t]) for t in (weight, bias))
        if scaling.offsets:
            bias = bias + bias.new_tensor(scaling.offsets)
        if one_logit and spec.kind.is_yes_no:
            return Classifier(weight[1:] - weight[:1], bias[1:] - bias[:1], labels[1:], "sigmoid")
        return Classifier(weight, bias, labels, "softmax")
    if type(loss) is LabelBinaryCrossEntropy:
        return Classifier(weight, bias, spec.labels, "sigmoid")
    if type(loss) is MeanSquaredError:
        low, high = spec.range
        if loss.scale == "unit":
            weight, bias = weight * (high - low), bias * (high - low) + low
        return Classifier(weight, bias, (task,), "plain")
    if type(loss) is ScoreCrossEntropy:
        return Classifier(weight, bias, (task,), "sigmoid")
    named = (run.config.tasks[task].loss or {}).get("name", type(loss).__name__)
    raise UsageError(
        f"task {task!r} has the loss {named!r}, whose outputs transformers' classifier cannot "
        f"convert; {INSTEAD}"
    )


def gives_share(run: Predictor, task: str) -> bool:
    """Return whether scores are predicted as a share of the range, from 0 to 1."""
    return type(run.tasks[task].loss) is ScoreCrossEntropy


def explain(run: Predictor, task: str) -> list[Sequence[str]]:
    """Return the section about the usage of the folder."""
    spec = run.tasks[task].spec
    texts = '["One text."], ["Another text."]' if spec.is_pair else '["One text."]'
    low, high = spec.range
    score = f"logits[:, 0].clamp({low:g}, {high:g})  # the score"
    if gives_share(run, task):
        score = f"{low:g} + {high - low:g} * logits[:, 0].sigmoid()  # the score"
    reading = {
        "distribution": "logits.softmax(-1)  # a probability for each label",
        "independent": f"logits.sigmoid()  # a label holds from {spec.threshold:g} on",
        "number": score,
    }
    return [
        ["## Use it"],
        [f"This folder holds the task {task}; `FOLDER` is its path."],
        [
            "```python",
            "from transformers import AutoModelForSequenceClassification, AutoTokenizer",
            "",
            'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
            'model = AutoModelForSequenceClassification.from_pretrained("FOLDER")',
            f'batch = tokenizer({texts}, padding=True, truncation=True, return_tensors="pt")',
            "logits = model(**batch).logits",
            reading[spec.kind.form],
            "```",
        ],
    ]
