"""Encoders of random weights, as folders in the Hub's layout: speed does not ask what they mean."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from plait.model.bert import Bert, BertConfig
from plait.model.encoder import hub_weights

SHAPES = {
    "mini": BertConfig(32, 1, 2, 64, 30522),
    "tiny": BertConfig(128, 2, 4, 512, 30522),
    "e5-small": BertConfig(384, 12, 12, 1536, 30522),
    "minilm": BertConfig(384, 6, 12, 1536, 30522),
    "bert-base": BertConfig(768, 12, 12, 3072, 30522),
}


def write_encoder(shape: str, tokenizer: Path, folder: Path) -> Path:
    """Write an encoder of a known shape with a tokenizer.json; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    bert = Bert(SHAPES[shape])
    bert.init_weights(torch.Generator().manual_seed(0))
    save_file(hub_weights(bert), folder / "model.safetensors", metadata={"format": "pt"})
    config = {"architectures": ["BertModel"], **bert.config}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shutil.copy(tokenizer, folder / "tokenizer.json")
    beside = tokenizer.with_name("tokenizer_config.json")
    if beside.exists():
        shutil.copy(beside, folder / "tokenizer_config.json")
    return folder
