"""Write a run's encoder and tokenizer in the Hub's layout, which transformers reads."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tokenizers
import torch

from plait.data.storage import write_text
from plait.errors import UsageError
from plait.export.onnx import adapt_encoder
from plait.inference.folders import RunFolder
from plait.model.bert import Bert
from plait.model.encoder import AutoEncoder, hub_weights
from plait.model.weights import write_weights

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from plait.inference.predictor import Predictor
    from plait.model.encoder import Encoder

INSTEAD = "`--format onnx` exports every run"


@dataclass(frozen=True, slots=True)
class HubModel:
    """An encoder under the Hub's names."""

    config: dict[str, Any]
    weights: dict[str, Tensor]
    reads_types: bool
    """Whether the model reads segment ids."""


def check_reading(run: Predictor) -> None:
    """Raise UsageError for a truncation that the Hub's tokenizers do not support."""
    if run.config.encoder.truncate != "head":
        raise UsageError(
            f"{run.folder} keeps the start and end of long texts (encoder.truncate = "
            f"{run.config.encoder.truncate!r}), which the library's tokenizers cannot; {INSTEAD}"
        )


def encoder_of(run: Predictor, task: str) -> Encoder:
    """Return the encoder of a task, with its adapter merged."""
    encoder, adapter = adapt_encoder(run.model, task)
    if adapter is not None:
        name = (run.config.tasks[task].adapter or {})["name"]
        raise UsageError(
            f"task {task!r} has an adapter ({name}) that cannot be merged into the encoder and "
            f"that the library does not support; {INSTEAD}"
        )
    return encoder


def to_hub(encoder: Encoder, *, segments: bool) -> HubModel:
    """Return an encoder's weights under the Hub's names.

    Without segments, every token has segment 0. Tokenizers still give a second text segment 1, so
    all rows of the segment table become row 0.
    """
    if isinstance(encoder, Bert):
        config, weights = dict(encoder.config), hub_weights(encoder)
    else:
        assert isinstance(encoder, AutoEncoder)
        config = dict(encoder.model.config.to_dict())
        weights = {name: t.contiguous() for name, t in encoder.model.state_dict().items()}
    if not segments:
        for name, table in weights.items():
            if name.endswith("token_type_embeddings.weight"):
                weights[name] = table[:1].repeat(len(table), 1)
    return HubModel(config, weights, isinstance(encoder, Bert) or bool(encoder.takes_types))


def write_hub(folder: Path, run: Predictor, model: HubModel) -> None:
    """Write weights, configuration and tokenizer."""
    write_text(folder / "config.json", json.dumps({**model.config, "dtype": "float32"}, indent=1))
    # Tensors that share memory, such as tied weights, cannot be written without a copy.
    detached = {
        name: t.detach().to(torch.device("cpu"), copy=True) for name, t in model.weights.items()
    }
    write_weights(folder / "model.safetensors", detached)
    source = RunFolder(run.folder).tokenizer
    shutil.copyfile(source, folder / source.name)
    settings = _describe_tokenizer(run, source, reads_types=model.reads_types)
    write_text(folder / "tokenizer_config.json", json.dumps(settings, indent=1))


def _describe_tokenizer(run: Predictor, file: Path, *, reads_types: bool) -> dict[str, Any]:
    inner, layout = tokenizers.Tokenizer.from_file(str(file)), run.tokenizer.layout
    before, after = layout.single
    special = {
        "pad_token": run.tokenizer.pad_id,
        "unk_token": run.tokenizer.unknown_id,
        "mask_token": run.tokenizer.mask_id,
        "cls_token": before[0] if before else None,
        "sep_token": after[-1] if after else None,
    }
    types = ["token_type_ids"] if reads_types else []
    return {
        # This tokenizer class uses tokenizer.json unchanged.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": run.config.encoder.max_length,
        "model_input_names": ["input_ids", *types, "attention_mask"],
        **{
            name: inner.id_to_token(number)
            for name, number in special.items()
            if number is not None
        },
    }
