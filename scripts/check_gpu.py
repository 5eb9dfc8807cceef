"""Check on a GPU that what makes training fast there changes no result.

    python scripts/check_gpu.py --tokenizer FILE [--steps 200] [--out FILE]

A captured step against the same step run singly, packed rows against padded ones, products
from kept half-precision copies and kernels of our own against autocast's, tasks side by side
against one after the other, a resumed stage against one that never stopped. `--tokenizer` is
any BERT's tokenizer.json.
Exits with 1 where a figure is beyond its bound.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "model"))
from encoders import write_encoder
from interpreted_kernels import mix_rows, table_factors

from plait.config import read_recipe
from plait.data import Parcel
from plait.data.loading import load_data
from plait.methods.aggregators.base import inner_products, weighted_sum
from plait.model.dense import Dense
from plait.model.encoder import load_encoder
from plait.model.kernels import attend, usable
from plait.model.products import BOUND, compare_products
from plait.model.sources import find_encoder
from plait.training.build import Parts, build, build_stage
from plait.training.checkpoint import load_checkpoint, load_state, save_checkpoint
from plait.training.graphs import Graphs
from plait.training.loop import Stage, StepRecord, TrainState, run_stage
from plait.types import Tokens

TOGETHER = "train.schedule={name='round-robin', together=true}"
READER = "tasks.sentiment.touch_encoder=false"
SETTINGS: dict[str, list[str]] = {
    "plain": [],
    "accumulate": ["train.accumulate=3"],
    "pcgrad": [TOGETHER, "train.aggregator=pcgrad"],
    "pcgrad, one to three tasks": [
        "train.schedule=square-root",
        "train.accumulate=3",
        "train.aggregator=pcgrad",
    ],
    "pcgrad, reader": [TOGETHER, "train.aggregator=pcgrad", READER],
    "pcgrad, smart-unit, famo": [
        TOGETHER,
        "train.aggregator=pcgrad",
        "train.regularizers=['smart-unit']",
        "train.weighting=famo",
    ],
    "gradvac": [TOGETHER, "train.aggregator=gradvac"],
    "nash-mtl, not captured": [TOGETHER, "train.aggregator=nash-mtl"],
    "smart-unit": ["train.regularizers=['smart-unit']"],
    "smart": ["train.regularizers=['smart']"],
    "bregman": ["train.regularizers=['bregman']"],
    "uncertainty": ["train.weighting=uncertainty"],
    "dwa": [TOGETHER, "train.weighting=dwa"],
    "famo": [TOGETHER, "train.weighting=famo"],
    "layer decay, frozen layer": ["train.layer_decay=0.9", "train.freeze_layers=1"],
    "lora": ["tasks.sentiment.adapter=lora"],
    "average": ["train.average=0.99"],
    "reader": [READER],
    "fp32": ["precision=fp32"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--products", action="store_true", help="check nothing but products")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        encoder = write_encoder("tiny", args.tokenizer, Path(folder))
        found = {"products": check_products()}
        if not args.products:
            found |= check_training(encoder, args.steps)
    wrong = [name for name, f in found.items() if not f["difference"] <= f.get("bound", 1e-4)]
    for name, figures in found.items():
        print(f"{name:28} {figures}")
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if wrong:
        sys.exit(f"too far apart: {', '.join(wrong)}")


def check_training(encoder: Path, steps: int) -> dict[str, dict[str, float]]:
    """Check everything but single products."""
    found = {
        "long rows": check_long_rows(),
        "a broken capture": check_broken(Graphs(torch.device("cuda"))),
        "packing": check_packing(encoder),
        "copies": check_gradients(encoder, packed=False),
        "kernels, short rows": check_gradients(encoder, packed=True),
        "kernels, longer rows": check_gradients(encoder, packed=True, length=128),
        "no kernels, long rows": check_gradients(encoder, packed=True, length=256),
        "kernels, dropout": check_dropout(),
    }
    if torch.cuda.device_count() > 1:
        found["another GPU"] = check_other(encoder)
    for name, settings in SETTINGS.items():
        many = name in ("plain", "pcgrad", "smart-unit")
        found[name] = check_graphs(encoder, settings, steps if many else steps // 4)
    pcgrad = SETTINGS["pcgrad"]
    found["side by side"] = check_lanes(encoder, pcgrad, steps)
    found["side by side at times"] = check_lanes(encoder, pcgrad, steps, at_times=True)
    found["resumed"] = check_resume(encoder, pcgrad, steps, encoder / "checkpoint")
    return found


def check_graphs(encoder: Path, settings: list[str], steps: int) -> dict[str, float]:
    """Train twice, captured and singly; return how far apart losses and weights end up."""
    runs = [_train(encoder, [*settings, f"graphs={word}"], steps) for word in ("true", "false")]
    (losses, weights, captures), (plain_losses, plain_weights, _) = runs
    apart = max(
        float((weights[n] - plain_weights[n]).abs().max() / plain_weights[n].abs().max())
        for n in weights
        if plain_weights[n].abs().max() > 0
    )
    return {
        "difference": float((losses - plain_losses).abs().max()),
        "weights": apart,
        "captures": captures,
        "last_loss": float(losses[-1]),
    }


def check_lanes(
    encoder: Path, settings: list[str], steps: int, *, at_times: bool = False
) -> dict[str, float]:
    """Train twice, with tasks' gradients side by side and one after the other.

    `at_times`, about half of the updates have a batch that is taken for a long one.
    """
    how = patch("plait.training.lanes._is_small", _seems_small) if at_times else nullcontext()
    with how:
        beside, *_ = _train(encoder, settings, steps)
    with patch("plait.training.lanes.SMALL", 0):
        singly, *_ = _train(encoder, settings, steps)
    return {"difference": float((beside - singly).abs().max()), "last_loss": float(beside[-1])}


def _seems_small(parcel: Parcel) -> bool:
    assert parcel.lengths is not None
    return bool(parcel.lengths.sum() % 4)


def check_resume(encoder: Path, settings: list[str], steps: int, place: Path) -> dict[str, float]:
    """Train on from a checkpoint halfway, with nothing captured yet, and compare what follows."""
    parts, stage = _build(encoder, settings, steps)
    whole, state = [], TrainState()
    with torch.cuda.stream(torch.cuda.Stream()):
        for record in run_stage(stage, state):
            whole.append(_loss(record))
            if record.step == steps // 2:
                kept = stage.step.tensors()
                save_checkpoint(place, parts.model, stage.step.optimizer, state, kept)
    parts, stage = _build(encoder, settings, steps)
    stage.step.load_tensors(load_checkpoint(place, parts.model, stage.step.optimizer))
    with torch.cuda.stream(torch.cuda.Stream()):
        rest = [_loss(record) for record in run_stage(stage, load_state(place))]
    torch.cuda.synchronize()  # the streams above may still be at it
    apart = torch.stack(whole[-len(rest) :]) - torch.stack(rest)
    return {"difference": float(apart.abs().max()), "updates": len(rest)}


def _train(
    encoder: Path, settings: list[str], steps: int
) -> tuple[torch.Tensor, dict[str, torch.Tensor], int]:
    parts, stage = _build(encoder, settings, steps)
    with torch.cuda.stream(torch.cuda.Stream()):
        losses = [_loss(record) for record in run_stage(stage, TrainState())]
        if stage.step.mean is not None:
            stage.step.mean.settle()
        weights = {name: p.detach().cpu() for name, p in parts.model.named_parameters()}
        return torch.stack(losses).cpu(), weights, getattr(stage.step.runner, "num_captures", 0)


def _build(encoder: Path, settings: list[str], steps: int) -> tuple[Parts, Stage]:
    config = read_recipe(
        "demo",
        [f"encoder.source={encoder}", f"train.max_steps={steps}", "train.epochs=50", *settings],
    )
    parts = build(config)
    stage = build_stage(parts, 0, load_data(config, parts.tokenizer, "train"))
    parts.model.train()
    return parts, stage


def _loss(record: StepRecord) -> torch.Tensor:
    return torch.stack(list(record.result.losses.values())).sum()


def check_products() -> dict[str, float]:
    """Compare products in bf16 with float64's, of few rows and of many."""
    rows = (*range(16, 420, 12), 512, 1000, 2048, 4096, 16384, 65536)
    furthest = compare_products(torch.device("cuda"), rows)
    return {"difference": max(furthest.values()), "bound": BOUND, **furthest}


def check_long_rows() -> dict[str, float]:
    """Compare inner products and weighted sums of tasks' gradients with float64's."""
    furthest = {"products": 0.0, "sums": 0.0}
    for num_rows in (2, 3, 4, 5):
        rows = torch.randn(num_rows, 3_000_004, device="cuda")
        weights, whole = torch.randn(num_rows, device="cuda"), rows.double()
        pairs = {
            "products": (inner_products(rows), whole @ whole.t()),
            "sums": (weighted_sum(weights, rows), weights.double() @ whole),
        }
        for name, (found, expected) in pairs.items():
            away = float((found.double() - expected).norm() / expected.norm())
            furthest[name] = max(furthest[name], away)
    return {"difference": max(furthest.values()), "bound": 1e-5, **furthest}


@torch.no_grad()
def check_broken(graphs: Graphs) -> dict[str, float]:
    """Replay products after another capture has failed, and see whose memory they work in."""
    x, w = (torch.randn(s, device=graphs.device) for s in ((16, 1 << 16), (1 << 16, 64)))
    x, w = x.bfloat16(), w.bfloat16()
    expected = x @ w
    for _ in range(3):
        graphs.run("product", lambda x: (x @ w,), (x,))
        graphs.run("asks", lambda x: (x * float(x.sum()),), (x,))
    others = [torch.zeros(1 << 20, device=graphs.device) for _ in range(64)]
    found = [graphs.run("product", lambda x: (x @ w,), (x,))[0] for _ in range(3)]
    size = expected.float().norm()
    apart = [float((out - expected).float().norm() / size) for out in found if out is not None]
    written = sum(float(other.abs().sum()) for other in others)
    return {"difference": max(apart) + written, "bound": 0.01, "captures": graphs.num_captures}


@torch.no_grad()
def check_packing(encoder: Path) -> dict[str, float]:
    """Encode rows of different lengths padded and packed, without dropout."""
    bert = load_encoder(find_encoder(str(encoder)), dropout=0.0).cuda()
    tokens = _tokens()
    with torch.autocast("cuda", torch.bfloat16):
        padded = bert(tokens).hidden
        packed = bert(replace(tokens, total=int(tokens.mask.sum()) + 37)).hidden
    exact = bert(tokens).hidden
    packed_exact = bert(replace(tokens, total=int(tokens.mask.sum()) + 37)).hidden
    real = tokens.mask.unsqueeze(-1)
    difference = float(((padded - packed) * real).abs().max())
    return {
        "difference": difference,
        "bound": 0.05,
        "largest": float((padded * real).abs().max()),
        "in_fp32": float(((exact - packed_exact) * real).abs().max()),
    }


@torch.no_grad()
def check_other(encoder: Path) -> dict[str, float]:
    """Encode packed rows on the current GPU and on another one."""
    bert, found = load_encoder(find_encoder(str(encoder)), dropout=0.0).eval(), []
    for device in map(torch.device, ("cuda:0", "cuda:1")):
        tokens = _tokens().to(device)
        room = int(tokens.mask.sum()) + 37
        with torch.autocast("cuda", torch.bfloat16):
            found.append(bert.to(device)(replace(tokens, total=room)).hidden.cpu())
    return {"difference": float((found[0] - found[1]).abs().max()), "bound": 0.05}


def check_gradients(encoder: Path, *, packed: bool, length: int = 64) -> dict[str, float]:
    """Compare gradients of kept copies, or of packed rows, with autocast's, all against fp32."""
    if packed and not usable():
        return {"difference": float("inf"), "usable": 0.0}
    tokens = _tokens(length)
    gradients = {}
    for how in ("fp32", "autocast", "copies"):
        bert = load_encoder(find_encoder(str(encoder)), dropout=0.0).cuda()
        for part in bert.modules():
            if isinstance(part, Dense) and how == "copies":
                part.keep_copies(torch.bfloat16)
        for parameter in bert.parameters():
            parameter.grad = torch.zeros_like(parameter)
        with torch.autocast("cuda", torch.bfloat16, enabled=how != "fp32"):
            room = int(tokens.mask.sum()) + 37 if packed and how == "copies" else None
            hidden = bert(replace(tokens, total=room)).hidden
        weights = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(1)).cuda()
        (hidden.float() * weights * tokens.mask.unsqueeze(-1)).sum().backward()
        gradients[how] = torch.cat(
            [p.grad.flatten() for n, p in bert.named_parameters() if "pooler" not in n]
        )
    size = gradients["fp32"].norm()
    away = {how: float((g - gradients["fp32"]).norm() / size) for how, g in gradients.items()}
    return {
        "difference": max(0.0, away["copies"] - away["autocast"]),
        "bound": 0.02,
        "copies": away["copies"],
        "autocast": away["autocast"],
    }


def check_dropout(device: str = "cuda") -> dict[str, float]:
    """Compare attention under dropout, in bf16, with float64's under the same draws."""
    if device == "cuda" and not usable():
        return {"difference": float("inf"), "usable": 0.0}
    lengths = [1, 31, 32, 33, 64, 65, 0, 127, 128]
    furthest = 0.0
    for heads, width in ((8, 16), (4, 32), (2, 64)):
        qkv = torch.randn(sum(lengths), 3 * heads * width).bfloat16()
        outer = torch.randn(len(qkv), heads * width).bfloat16()
        theirs, mine = qkv.double().requires_grad_(), qkv.to(device).requires_grad_()
        bounds = torch.tensor([0, *lengths]).cumsum(0).int().to(device)
        seed = torch.tensor(99, device=device)
        out = attend(mine, bounds, max(lengths), heads, 0.3, seed)
        out.backward(outer.to(device))
        expected = mix_rows(theirs, lengths, heads, table_factors(99, lengths, heads, 0.3))
        expected.backward(outer.double())
        assert mine.grad is not None
        assert theirs.grad is not None
        for found, right in ((out, expected), (mine.grad, theirs.grad)):
            away = (found.detach().cpu().double() - right.detach()).norm() / right.detach().norm()
            furthest = max(furthest, float(away)) if away == away else float("inf")
    return {"difference": furthest, "bound": 0.02}


def _tokens(length: int = 64) -> Tokens:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(3, length - 4, (24,), generator=generator)
    mask = torch.arange(length) < lengths.unsqueeze(1)
    ids = torch.randint(1000, 30000, (24, length), generator=generator) * mask
    types = (torch.arange(length) > lengths.unsqueeze(1) // 2) & mask
    return Tokens(ids, types.long(), mask).to(torch.device("cuda"))


if __name__ == "__main__":
    main()
