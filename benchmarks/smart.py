"""What the perturbations of smart and smart-unit look like, and what their steps cost.

    python benchmarks/smart.py [--updates 60] [--device cpu]

Trains the demo recipe (packaged encoder, sample inside plait) for some updates, then looks at
batches of its tasks: size of the perturbation against the embeddings', its cosine with the
gradient it should follow, the change of the outputs, and the term. Then times a step under
each regularizer.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from itertools import islice

import torch
from torch.nn import functional as F

from plait.config import read_recipe
from plait.data.loading import load_data
from plait.methods.regularizers import REGULARIZERS
from plait.methods.regularizers.divergences import inner_distance, last_distance
from plait.methods.regularizers.passes import in_fp32, without_dropout
from plait.methods.regularizers.smart import SMART
from plait.model.multitask import Group
from plait.training.build import build, build_stage
from plait.training.loop import Cursor, TrainState, run_stage
from plait.training.plan import Plan


def look(regularizer, model, task, batch, loss, *, dropout: bool) -> dict[str, float]:
    """Measure one perturbation; `dropout` as in the pass that made it."""
    model.train(dropout)
    clean = model(task, batch.tokens).detach()
    size = regularizer_input(regularizer, model, batch.tokens)
    state = torch.random.get_rng_state()
    change = regularizer.perturb(model, Group.of({task: batch}), [clean], [loss])
    # The gradient it started from, taken again at the same noise and under the same dropout.
    torch.random.set_rng_state(state)
    real = batch.tokens.mask.unsqueeze(-1)
    noise = (regularizer.sigma * torch.randn_like(change) * real).requires_grad_()
    (moved,) = regularizer.disturbed(model, Group.of({task: batch}), noise)
    distance = inner_distance(regularizer.variant, loss, clean, moved).sum()
    (gradient,) = torch.autograd.grad(distance, noise)
    model.eval()
    with torch.no_grad():
        before, after = (
            regularizer.disturbed(model, Group.of({task: batch}), by)[0]
            for by in (0 * change, change)
        )
    mask = batch.tokens.mask
    return {
        "entries of what is changed (rms)": size[mask].square().mean().sqrt().item(),
        "entries of the change (rms)": change[mask].square().mean().sqrt().item(),
        "largest entry of the change": change.abs().max().item(),
        "cosine with the gradient": _cosine(change, gradient),
        "cosine with the noise": _cosine(change, noise.detach()),
        "change of the outputs (rms)": (after - before).square().mean().sqrt().item(),
        "the term": last_distance(regularizer.variant, loss, before, after).mean().item(),
    }


def regularizer_input(regularizer, model, tokens) -> torch.Tensor:
    """Return what the regularizer adds its change to."""
    words = model.encoder.word_embeddings(tokens.ids).detach()
    if isinstance(regularizer, SMART):
        return words
    with torch.no_grad():
        return model.encoder.embeddings(words, tokens.types)


def _cosine(one: torch.Tensor, two: torch.Tensor) -> float:
    return F.cosine_similarity(one.flatten(1), two.flatten(1)).mean().item()


def lost_in_bf16(regularizer, model, task, batch, loss) -> float:
    """Return how far the change of the outputs in bf16 is from the true one, in its size."""
    model.eval()
    with without_dropout(model), in_fp32(batch.tokens.ids.device):
        clean = model(task, batch.tokens).detach()
        change = regularizer.perturb(model, Group.of({task: batch}), [clean], [loss])
    group = Group.of({task: batch})

    def moved() -> torch.Tensor:
        after, before = (regularizer.disturbed(model, group, by)[0] for by in (change, 0 * change))
        return after - before

    with torch.no_grad():
        full = moved()
        with torch.autocast(change.device.type, dtype=torch.bfloat16):
            half = moved().float()
    return ((half - full).norm() / full.norm()).item()


def time_steps(parts, train, names: list[str], device: str, num_steps: int) -> float:
    """Return seconds per update."""
    config = read_recipe("demo", [f"device={device}", f"train.regularizers={json.dumps(names)}"])
    stage = build_stage(replace(parts, plan=Plan.build(config)), 0, train)
    parts.model.train()
    records = run_stage(stage, TrainState())
    next(records)
    start = _now(parts.device)
    for _ in islice(records, num_steps):
        pass
    return (_now(parts.device) - start) / num_steps


def _now(device: torch.device) -> float:
    """Seconds on the clock, or on a CPU those it worked: others may be using it as well."""
    if device.type != "cuda":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--updates", type=int, default=60)
    arguments.add_argument("--timed", type=int, default=10)
    arguments.add_argument("--device", default="cpu")
    options = arguments.parse_args()
    config = read_recipe("demo", [f"device={options.device}"])
    parts = build(config)
    train = load_data(config, parts.tokenizer, "train")
    stage = build_stage(parts, 0, train)
    parts.model.train()
    for _ in islice(run_stage(stage, TrainState()), options.updates):
        pass
    for task, stream in stage.streams.items():
        batch, loss = stream.take(Cursor(), stream.order(99)), parts.tasks[task].loss
        for name, dropout in (("smart", False), ("smart-unit", True), ("smart-unit", False)):
            regularizer = REGULARIZERS.build(name, "x")
            torch.manual_seed(0)
            found = look(regularizer, parts.model, task, batch, loss, dropout=dropout)
            torch.manual_seed(0)
            found["lost in bf16"] = lost_in_bf16(regularizer, parts.model, task, batch, loss)
            print(f"\n{task}, {name}{', dropout' if dropout else ''}")
            for what, value in found.items():
                print(f"  {what:30} {value:10.3g}")
    print()
    plain = None
    for names in ([], ["smart-unit"], ["smart"], ["bregman"], ["smart", "bregman"]):
        seconds = time_steps(parts, train, names, options.device, options.timed)
        plain = plain or seconds
        ratio = seconds / plain
        print(f"{' + '.join(names) or 'plain':20} {1000 * seconds:8.1f} ms {ratio:6.2f}x")


if __name__ == "__main__":
    main()
