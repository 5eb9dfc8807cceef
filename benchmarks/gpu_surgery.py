"""Time an update with PCGrad over three tasks beside the ways others take: time and memory.

    python benchmarks/gpu_surgery.py --data DIR --tokenizer FILE [--shape bert-base e5-small]

SST, and joined pairs of Quora and STS, a batch of each in every update, bf16, linear heads.
Peers are BertModel with fused AdamW: "port" projects as the public PyTorch ports of PCGrad do
(a backward per task with the graph retained, flattened copies, a Python loop that looks at
each inner product); "lean port" spares it masks and retained graphs; "torchjd" is
mtl_backward, which takes every task's gradient through every task's graph; "torchjd by task"
spares it that. `extra_mib` is the peak beyond the same model's plain update of the three
tasks. The peers' batches are tokenised, padded and on the device before the clock starts.
"""

from __future__ import annotations

import argparse
import copy
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
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

Losses = Callable[[], tuple[list[Tensor], list[Tensor]]]
"""Makes the losses of a new batch of each task, and the vectors the heads read them off."""


def main() -> None:
    shapes, sizes = ["bert-base", "e5-small"], [8, 32]
    args = begin(__doc__, shape=shapes, batch_size=sizes, window=20).parse_args()
    record = describe("gpu-surgery", args, "transformers", "torchjd") | {"rows": []}
    for shape in args.shape:
        with tempfile.TemporaryDirectory() as folder:
            encoder = write_encoder(shape, args.tokenizer, Path(folder))
            for batch_size in args.batch_size:
                record["rows"].append(
                    {"shape": shape, "batch_size": batch_size, **compare(args, encoder, batch_size)}
                )
    publish(record, args)


def compare(args: argparse.Namespace, encoder: Path, batch_size: int) -> dict[str, Any]:
    plain = time_ours(args, encoder, batch_size, "sum")
    ours = _beyond(time_ours(args, encoder, batch_size, "pcgrad"), plain)
    row: dict[str, Any] = {
        "plait": {"plain": plain, "pcgrad": ours},
        "over_plain": ours["step_ms"] / plain["step_ms"],
    }
    if not args.peer:
        return row
    peers = {"plain": time_peer(args, encoder, batch_size, add_up)}
    for name, way in WAYS.items():
        try:
            peers[name] = _beyond(time_peer(args, encoder, batch_size, way), peers["plain"])
        except ImportError as error:
            row.setdefault("left_out", {})[name] = str(error)
    found = {name: peer for name, peer in peers.items() if name != "plain"}
    return row | {
        "peers": peers,
        "ratio": {name: peer["step_ms"] / ours["step_ms"] for name, peer in found.items()},
        "extra_memory_ratio": {
            name: ours["extra_mib"] / peer["extra_mib"] if peer["extra_mib"] else None
            for name, peer in found.items()
        },
    }


def _beyond(figures: dict[str, float], plain: dict[str, float]) -> dict[str, float]:
    return figures | {
        "extra_mib": figures["peak_mib"] - plain["peak_mib"],
        "extra_reserved_mib": figures["reserved_mib"] - plain["reserved_mib"],
    }


def time_ours(
    args: argparse.Namespace, encoder: Path, batch_size: int, aggregator: str
) -> dict[str, float]:
    train = {
        "schedule": {"name": "round-robin", "together": True},
        "aggregator": aggregator,
        "batch_size": batch_size,
        "epochs": 20,
        "max_steps": enough_steps(args),
        "clip": 0.0,  # no port clips
    }
    settings = run_settings(args, encoder) | {"tasks": LINEAR_TASKS, "train": train}
    return time_plait(read_recipe("course", extra=settings), args)


def time_peer(
    args: argparse.Namespace,
    encoder: Path,
    batch_size: int,
    way: Callable[[Peer, Losses], None],
) -> dict[str, float]:
    before = clear(args)
    model = Peer(encoder, args)
    optimizer = model.optimizer()
    batches = {task: make_batches(encoder, task, batch_size, args) for task in LOSSES}

    def losses() -> tuple[list[Tensor], list[Tensor]]:
        made, vectors = [], []
        with model.autocast():
            for task, given in batches.items():
                inputs, labels = next(given)
                vectors.append(model.encode(inputs))
                made.append(LOSSES[task](model.read(task, vectors[-1]), labels))
        return made, vectors

    def step() -> None:
        optimizer.zero_grad()
        way(model, losses)
        optimizer.step()

    return time_calls(step, args) | peak(args, before)


def add_up(_: Peer, losses: Losses) -> None:
    """No surgery: the sum of the three losses, one backward pass."""
    torch.stack(losses()[0]).sum().backward()


# --- the public ports' way ---------------------------------------------------------------


def port(model: Peer, losses: Losses) -> None:
    """As it is public: each graph retained, and a mask of who has a gradient beside each."""
    parameters = list(model.parameters())
    gradients, present = [], []
    for loss in losses()[0]:
        model.zero_grad()
        loss.backward(retain_graph=True)
        gradients.append(_flatten([_or_zeros(p) for p in parameters]))
        present.append(_flatten([torch.full_like(p, p.grad is not None) for p in parameters]))
    shared = torch.stack(present).prod(dim=0).bool()
    merged = torch.zeros_like(gradients[0])
    projected = project(gradients)
    merged[shared] = torch.stack([g[shared] for g in projected]).sum(dim=0)
    merged[~shared] = torch.stack([g[~shared] for g in projected]).sum(dim=0)
    _hand_out(merged, parameters)


def lean_port(model: Peer, losses: Losses) -> None:
    """The same without what it could do without: graphs are freed, there are no masks."""
    parameters = list(model.parameters())
    gradients = []
    for loss in losses()[0]:
        model.zero_grad()
        loss.backward()
        gradients.append(_flatten([_or_zeros(p) for p in parameters]))
    _hand_out(torch.stack(project(gradients)).sum(dim=0), parameters)


def project(gradients: list[Tensor]) -> list[Tensor]:
    """Project each gradient off those it conflicts with, in random order."""
    projected = copy.deepcopy(gradients)
    for own in projected:
        random.shuffle(gradients)
        for other in gradients:
            inner = torch.dot(own, other)
            if inner < 0:
                own -= inner * other / other.norm() ** 2
    return projected


def _hand_out(merged: Tensor, parameters: list[Tensor]) -> None:
    pieces = merged.split([p.numel() for p in parameters])
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.grad = piece.view_as(parameter)


def _or_zeros(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()


def _flatten(pieces: list[Tensor]) -> Tensor:
    return torch.cat([piece.flatten() for piece in pieces])


# --- torchjd -----------------------------------------------------------------------------


def torchjd(model: Peer, losses: Losses) -> None:
    from torchjd.aggregation import PCGrad
    from torchjd.autojac import jac_to_grad, mtl_backward

    shared = list(model.bert.parameters())
    made, vectors = losses()
    mtl_backward(
        made,
        features=vectors,
        tasks_params=[list(model.heads[task].parameters()) for task in LOSSES],
        shared_params=shared,
        parallel_chunk_size=1,  # the attention's way back has no rule for vmap
    )
    jac_to_grad(shared, PCGrad(), optimize_gramian_computation=True)


def torchjd_by_task(model: Peer, losses: Losses) -> None:
    from torchjd.aggregation import PCGrad
    from torchjd.autojac import jac, jac_to_grad

    shared = list(model.bert.parameters())
    rows = []
    for task, loss in zip(LOSSES, losses()[0], strict=True):
        own = list(model.heads[task].parameters())
        found = jac(loss, [*shared, *own])
        rows.append(found[: len(shared)])
        for parameter, row in zip(own, found[len(shared) :], strict=True):
            parameter.grad = row.squeeze(0)
    for parameter, *pieces in zip(shared, *rows, strict=True):
        parameter.jac = torch.cat(pieces)  # type: ignore[attr-defined]
    jac_to_grad(shared, PCGrad(), optimize_gramian_computation=True)


WAYS = {
    "port": port,
    "lean port": lean_port,
    "torchjd": torchjd,
    "torchjd by task": torchjd_by_task,
}


if __name__ == "__main__":
    main()
