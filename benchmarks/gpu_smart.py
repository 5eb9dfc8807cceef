"""Time a step under smart-unit over a plain one, beside the same written out on BertModel.

    python benchmarks/gpu_smart.py --data DIR --tokenizer FILE [--shape e5-small bert-base]

Joined pairs of quora-train.csv, bf16. In units of an encoder's forward pass a plain step is 3
(backward is 2); smart-unit adds a pass and its way back to the input alone (2), and a second
pass with its whole way back (3): 8 / 3, or about 2.7, is the floor. The peer's batches are
tokenised, padded and on the device before the clock starts.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from encoders import write_encoder
from peers import LOSSES, Peer, make_batches
from steps import (
    LINEAR_TASKS,
    begin,
    clear,
    describe,
    enough_steps,
    peak,
    publish,
    run_settings,
    time_calls,
    time_plait,
)
from torch import Tensor

from plait.config import read_recipe

SIGMA, STEP_SIZE, EPSILON = 1e-5, 1e-3, 1e-6
FLOOR = 8 / 3


def main() -> None:
    shapes, sizes = ["e5-small", "bert-base"], [8, 32, 256]
    args = begin(__doc__, shape=shapes, batch_size=sizes, window=20).parse_args()
    record = describe("gpu-smart", args, "transformers") | {"floor": FLOOR, "rows": []}
    for shape in args.shape:
        with tempfile.TemporaryDirectory() as folder:
            encoder = write_encoder(shape, args.tokenizer, Path(folder))
            for batch_size in args.batch_size:
                record["rows"].append(
                    {"shape": shape, "batch_size": batch_size, **compare(args, encoder, batch_size)}
                )
    publish(record, args)


def compare(args: argparse.Namespace, encoder: Path, batch_size: int) -> dict[str, Any]:
    ours = {kind: time_ours(args, encoder, batch_size, kind == "smart") for kind in KINDS}
    row: dict[str, Any] = {"plait": ours, "cost": _divide(ours["smart"], ours["plain"])}
    row["over_floor"] = row["cost"] / FLOOR
    if args.peer:
        theirs = {kind: time_peer(args, encoder, batch_size, kind == "smart") for kind in KINDS}
        row |= {
            "peers": {"BertModel, eager": theirs},
            "peer_cost": _divide(theirs["smart"], theirs["plain"]),
            "ratio": _divide(theirs["smart"], ours["smart"]),
        }
    return row


KINDS = ("plain", "smart")


def _divide(one: dict[str, float], two: dict[str, float]) -> float:
    return one["step_ms"] / two["step_ms"]


def time_ours(
    args: argparse.Namespace, encoder: Path, batch_size: int, smart: bool
) -> dict[str, float]:
    train = {
        "tasks": ["quora"],
        "schedule": "round-robin",
        "batch_size": batch_size,
        "epochs": 100,
        "max_steps": enough_steps(args),
        "regularizers": [{"name": "smart-unit"}] if smart else [],
    }
    settings = run_settings(args, encoder) | {"tasks": LINEAR_TASKS, "train": train}
    return time_plait(read_recipe("course", extra=settings), args)


def time_peer(
    args: argparse.Namespace, encoder: Path, batch_size: int, smart: bool
) -> dict[str, float]:
    before = clear(args)
    model = Peer(encoder, args)
    optimizer = model.optimizer()
    batches = make_batches(encoder, "quora", batch_size, args)

    def step() -> None:
        inputs, labels = next(batches)
        optimizer.zero_grad()
        with model.autocast():
            outputs = model.read("quora", model.encode(inputs))
            loss = LOSSES["quora"](outputs, labels)
            if smart:
                loss = loss + smart_term(model, inputs, outputs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return time_calls(step, args) | peak(args, before)


def smart_term(model: Peer, inputs: dict[str, Tensor], outputs: Tensor) -> Tensor:
    """smart-unit written out, one inner step, symmetric KL."""

    def moved(change: Tensor) -> Tensor:
        hook = model.bert.embeddings.register_forward_hook(lambda _m, _x, made: made + change)
        try:
            return model.read("quora", model.encode(inputs))
        finally:
            hook.remove()

    shape = (*inputs["input_ids"].shape, model.bert.config.hidden_size)
    noise = (SIGMA * torch.randn(shape, device=outputs.device)).requires_grad_()
    (gradient,) = torch.autograd.grad(distance(outputs.detach(), moved(noise)).sum(), noise)
    change = noise.detach() + STEP_SIZE * gradient
    change = change / (change.abs().amax(dim=-1, keepdim=True) + EPSILON)
    return distance(outputs, moved(change)).mean()


def distance(one: Tensor, two: Tensor) -> Tensor:
    p, q = (F.logsigmoid(torch.cat([-z, z], dim=-1).float()) for z in (one, two))
    return ((p.exp() - q.exp()) * (p - q)).sum(dim=-1)


if __name__ == "__main__":
    main()
