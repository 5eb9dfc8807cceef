"""Export a run's encoder as a SentenceTransformer, or a task on pairs as a CrossEncoder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from plait.data.storage import write_text
from plait.errors import UsageError
from plait.export.folder import write_facts
from plait.export.hf import PROBLEMS, classify, gives_share
from plait.export.hub import INSTEAD, HubModel, check_reading, to_hub, write_hub
from plait.model.bert import Bert
from plait.model.weights import write_weights

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from plait.inference.predictor import Predictor

PACKAGE = "sentence_transformers.models"


def write_encoder(folder: Path, run: Predictor) -> None:
    """Write the files of a SentenceTransformer: the encoder, its pooling and its pooler."""
    check_reading(run)
    encoder, pooling = run.model.encoder, run.model.pooling
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    if pooling == "cls-pooler":
        if not isinstance(encoder, Bert):
            raise UsageError(
                'encoder.pooling = "cls-pooler" of an encoder from transformers is not supported '
                f"by SentenceTransformer; {INSTEAD}"
            )
        modules.append(("2_Dense", "Dense"))
        _write_dense(folder / "2_Dense", encoder)
    write_hub(folder, run, to_hub(encoder, segments=run.config.encoder.segments))
    settings = run.config.encoder
    _write(folder / "sentence_bert_config.json", {"max_seq_length": settings.max_length})
    _write(
        folder / "1_Pooling" / "config.json",
        {
            "word_embedding_dimension": encoder.width,
            "pooling_mode_cls_token": pooling != "mean",
            "pooling_mode_mean_tokens": pooling == "mean",
            "pooling_mode_max_tokens": False,
        },
    )
    _write(
        folder / "modules.json",
        [
            {"idx": i, "name": str(i), "path": path, "type": f"{PACKAGE}.{kind}"}
            for i, (path, kind) in enumerate(modules)
        ],
    )
    _write(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})
    write_facts(folder, run, "sentence-transformers", {"precision": "fp32", "task": None})


def _write_dense(folder: Path, encoder: Bert) -> None:
    dense = encoder.pooler.dense
    folder.mkdir()
    weights = {"linear.weight": dense.weight.detach(), "linear.bias": dense.bias.detach()}
    write_weights(folder / "model.safetensors", weights)
    _write(
        folder / "config.json",
        {
            "in_features": encoder.width,
            "out_features": encoder.width,
            "bias": True,
            "activation_function": "torch.nn.modules.activation.Tanh",
        },
    )


def write_cross_encoder(folder: Path, run: Predictor, task: str) -> None:
    """Write the files of a CrossEncoder: one task on pairs that are read in one input."""
    spec = run.tasks[task].spec
    if not spec.is_pair:
        raise UsageError(
            f"task {task!r} reads one text, but a CrossEncoder two; export the task with `--format "
            "hf`, or the encoder without --task"
        )
    model = classify(run, task, one_logit=True)
    is_sigmoid = model.config["problem_type"] == PROBLEMS["sigmoid"]
    kind = "activation.Sigmoid" if is_sigmoid else "linear.Identity"
    config = {
        **model.config,
        "sentence_transformers": {"activation_fn": f"torch.nn.modules.{kind}"},
    }
    write_hub(folder, run, HubModel(config, model.weights, model.reads_types))
    write_facts(folder, run, "sentence-transformers", {"precision": "fp32", "task": task})


def _write(path: Path, values: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    write_text(path, json.dumps(values, indent=1))


def explain_encoder() -> list[Sequence[str]]:
    """Return the section about the usage of the encoder."""
    return [
        ["## Use it"],
        ["This folder holds the encoder without the tasks; `FOLDER` is its path."],
        [
            "```python",
            "from sentence_transformers import SentenceTransformer",
            "",
            'model = SentenceTransformer("FOLDER")',
            'model.encode(["One text.", "Another text."])  # a vector for each text',
            "```",
        ],
    ]


def explain_cross_encoder(run: Predictor, task: str) -> list[Sequence[str]]:
    """Return the section about the usage of the task."""
    spec = run.tasks[task].spec
    low, high = spec.range
    yes = spec.labels[-1] if spec.labels else ""
    pairs = '[("One text.", "Another text.")]'
    score = f"model.predict({pairs}).clip({low:g}, {high:g})  # the score"
    if gives_share(run, task):
        score = f"{low:g} + {high - low:g} * model.predict({pairs})  # the score"
    classes = f"model.predict({pairs}, apply_softmax=True)  # a probability for each label"
    if spec.kind.is_yes_no:
        classes = f"model.predict({pairs})  # the probability of the answer {yes!r}"
    using = {
        "distribution": classes,
        "independent": f"model.predict({pairs})  # each label's probability",
        "number": score,
    }
    return [
        ["## Use it"],
        [f"This folder holds the task {task}; `FOLDER` is its path."],
        [
            "```python",
            "from sentence_transformers import CrossEncoder",
            "",
            'model = CrossEncoder("FOLDER")',
            using[spec.kind.form],
            "```",
        ],
    ]
